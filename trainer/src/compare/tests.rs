//! What comparisons read, refuse and write.

use std::fs;
use std::path::Path;

use super::*;

const CONFIG: &str = r#"
run = "run.toml"
seeds = [1, 2]
baseline = "base"
[[policy]]
name = "base"
set = ["scheduler.policy=fixed"]
[[policy]]
name = "fast"
"#;

fn setting(text: &str) -> (tempfile::TempDir, Result<CompareConfig, CompareError>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.toml"), "[data]\nindex = \"i\"\n").unwrap();
    let path = folder.path().join("compare.toml");
    fs::write(&path, text).unwrap();
    let config = CompareConfig::load(&path);
    (folder, config)
}

/// A run's log of three evaluations of two domains.
fn log(folder: &Path, policy: &str, losses: [f64; 3]) {
    fs::create_dir_all(folder).unwrap();
    let mut text = format!(
        r#"{{"kind":"run","domains":["web","<code>"],"policy":"{policy}","parameters":1000,"sequence_length":8,"batch_size":4,"total_steps":200,"base_weights":[0.75,0.25],"seed":1}}"#
    );
    text.push('\n');
    for (step, loss) in (0..).step_by(100).zip(losses) {
        // Under base weights 0.5 nats less.
        let (whole, base) = (loss.exp(), (loss - 0.5).exp());
        let (web, code) = (loss - 1.0, loss + 1.0);
        text += &format!(
            "{{\"kind\":\"eval\",\"step\":{step},\"losses\":[{web},{code}],\"macro_perplexity\":{whole},\"base_perplexity\":{base}}}\n"
        );
    }
    fs::write(folder.join("metrics.jsonl"), text).unwrap();
}

#[test]
fn figures_are_paired_by_seed() {
    let (folder, config) = setting(CONFIG);
    let config = config.unwrap();
    let out = folder.path().join("out");
    let at = |policy: usize, seed| CompareConfig::folder(&out, &config.policy[policy], seed);
    log(&at(0, 1), "fixed", [5.0, 4.0, 3.0]);
    log(&at(0, 2), "fixed", [5.0, 4.5, 3.5]);
    log(&at(1, 1), "hds", [5.0, 3.0, 2.0]);
    log(&at(1, 2), "hds", [5.0, 3.0, 2.9]);
    let found = Comparison::read(&config, &out).unwrap();
    let [base, fast] = &found.policies[..] else {
        panic!("two policies");
    };
    let close = |got: Option<f64>, want: f64| {
        let got = got.unwrap();
        assert!((got - want).abs() < 1e-9, "{got}, want {want}");
    };
    close(base.macro_perplexity, (3f64.exp() + 3.5f64.exp()) / 2.0);
    close(base.macro_gain, 0.0);
    // Seed 1: 2 against 3 nats; seed 2: 2.9 against 3.5.
    let gain = ((-1f64).exp_m1() + (-0.6f64).exp_m1()) / 2.0;
    close(fast.macro_gain, gain);
    close(fast.base_gain, gain);
    close(fast.base_perplexity, (1.5f64.exp() + 2.4f64.exp()) / 2.0);
    // Seed 1 falls to 3 at step 100, seed 2 to 3.5 at 75; of 200.
    close(fast.steps_to[0], (100.0 + 75.0) / 2.0 / 200.0);
    close(base.steps_to[0], 1.0);
    assert_eq!(base.steps_to[1], None);
    // Differences −1 and −0.6, one degree of freedom: t = 4, p = 0.155 958.
    assert!((fast.macro_p.unwrap() - 0.155_958).abs() < 1e-6);
    assert_eq!(base.macro_p, None);

    let table = write_comparison(&config, &out).unwrap().table;
    assert!(table.contains("not reached"), "{table}");
    let page = fs::read_to_string(out.join(PAGE_FILE)).unwrap();
    assert!(page.contains("&lt;code&gt;") && !page.contains("<code>"));
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join(FIGURES_FILE)).unwrap()).unwrap();
    assert_eq!(json["policies"][1]["name"], "fast");
}

#[test]
fn a_run_that_gave_up_counts_as_infinite_and_ends_the_comparison() {
    let (folder, config) = setting(CONFIG);
    let config = config.unwrap();
    let out = folder.path().join("out");
    let at = |policy: usize, seed| CompareConfig::folder(&out, &config.policy[policy], seed);
    for seed in [1, 2] {
        log(&at(0, seed), "fixed", [5.0, 4.0, 3.0]);
        log(&at(1, seed), "hds", [5.0, 3.0, 2.0]);
    }
    // Evaluated after 100 of 200 steps, and then no more.
    let give_up = |folder: &Path, after: &str| {
        let path = folder.join("metrics.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().take(3).collect();
        lines.push(r#"{"kind":"gave_up","step":120,"bad_steps":10}"#);
        lines.push(after);
        fs::write(&path, lines.join("\n")).unwrap();
    };
    give_up(&at(1, 2), "");
    let written = write_comparison(&config, &out).unwrap();
    assert_eq!(written.unfinished, 0);
    assert_eq!(written.gave_up, [(at(1, 2), 120)]);
    let row = |name: &str| {
        let mut lines = written.table.lines();
        lines
            .find(|line| line.trim_start().starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(
        row("fast").contains('∞') && !row("base").contains('∞'),
        "{}",
        written.table
    );
    assert!(
        !written.table.contains("NaN") && !written.table.contains(" of 2"),
        "{}",
        written.table
    );
    let found = Comparison::read(&config, &out).unwrap();
    let [base, fast] = &found.policies[..] else {
        panic!("two policies");
    };
    assert_eq!(fast.macro_perplexity, Some(f64::INFINITY));
    // Before it gave up it was where the base ended.
    assert_eq!(fast.steps_to[0], Some(0.5));
    assert_eq!(base.steps_to[1], None);
    let page = fs::read_to_string(out.join(PAGE_FILE)).unwrap();
    for broken in ["=\"NaN", " NaN", ",NaN", ">NaN", "∞±"] {
        assert!(!page.contains(broken), "{broken}");
    }

    // Gone on with over the bad steps: it has not ended yet.
    let step = r#"{"kind":"step","step":120,"loss":1.0,"learning_rate":0.1,"gradient_norm":1.0,"weights":[0.5,0.5],"samples":[1,1]}"#;
    give_up(&at(1, 2), &format!("{step}\n"));
    let written = write_comparison(&config, &out).unwrap();
    assert_eq!((written.unfinished, written.gave_up.len()), (1, 0));
}

#[test]
fn a_target_is_measured_where_one_is_set() {
    let (folder, config) = setting(CONFIG);
    let config = config.unwrap();
    let out = folder.path().join("out");
    let at = |policy: usize, seed| CompareConfig::folder(&out, &config.policy[policy], seed);
    for (seed, losses) in [(1, [2.0, 2.5]), (2, [2.4, 2.9])] {
        log(&at(0, seed), "fixed", [5.0, 4.0, 3.0]);
        log(&at(1, seed), "hds", [5.0, losses[0], losses[1]]);
    }
    let plain = write_comparison(&config, &out).unwrap().table;
    assert!(!plain.contains("target"), "{plain}");

    // Only one policy was told of it; all are measured under it.
    let add = |policy: usize, seed: u64, target: &str| {
        let metrics = at(policy, seed).join("metrics.jsonl");
        let text = fs::read_to_string(&metrics).unwrap();
        let header = format!("\"target_weights\":{target},\"seed\":1");
        fs::write(&metrics, text.replace("\"seed\":1", &header)).unwrap();
    };
    for seed in [1, 2] {
        add(0, seed, "[0.5,0.5]");
        add(1, seed, "[0.75,0.25]");
    }
    let found = Comparison::read(&config, &out).unwrap();
    assert_eq!(found.target_weights, Some(vec![0.75, 0.25]));
    assert!(found.other_targets.is_empty());
    let [base, fast] = &found.policies[..] else {
        panic!("two policies");
    };
    let close = |got: Option<f64>, want: f64| {
        let got = got.unwrap();
        assert!((got - want).abs() < 1e-9, "{got}, want {want}");
    };
    // 0.75 (loss − 1) + 0.25 (loss + 1) is half a nat less than the loss.
    close(base.target_perplexity, 2.5f64.exp());
    close(fast.target_perplexity, (2f64.exp() + 2.4f64.exp()) / 2.0);
    close(
        fast.target_gain,
        ((-0.5f64).exp_m1() + (-0.1f64).exp_m1()) / 2.0,
    );
    close(
        fast.target_deviation,
        (2.4f64.exp() - 2f64.exp()) / 2f64.sqrt(),
    );
    close(fast.target_p, fast.macro_p.unwrap());
    // From 5 to 2 nats at step 100, and to 2.4: 3 is two thirds of the way, and two of 2.6.
    close(
        fast.target_steps_to[0],
        (2.0 / 3.0 + 2.0 / 2.6) / 2.0 * 100.0 / 200.0,
    );
    let table = write_comparison(&config, &out).unwrap().table;
    assert!(
        table.contains("target: web 75.0 %, <code> 25.0 %"),
        "{table}"
    );
    assert!(table.contains("final perplexity (target)"), "{table}");
    let page = fs::read_to_string(out.join(PAGE_FILE)).unwrap();
    assert!(page.contains("Under the target") && page.contains("id=\"target\""));
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join(FIGURES_FILE)).unwrap()).unwrap();
    assert_eq!(json["target_weights"][0], 0.75);
    assert!(json["policies"][1]["target_steps_to"][0].is_f64());

    let metrics = at(1, 2).join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let lost = text.rsplit_once("\"losses\":[").unwrap();
    let rest = lost.1.split_once(',').unwrap().1;
    fs::write(&metrics, format!("{}\"losses\":[null,{rest}", lost.0)).unwrap();
    let found = Comparison::read(&config, &out).unwrap();
    assert_eq!(found.policies[1].target_perplexity, Some(f64::INFINITY));
}

#[test]
fn what_is_not_finished_is_left_out_and_counted() {
    let (folder, config) = setting(CONFIG);
    let config = config.unwrap();
    let out = folder.path().join("out");
    let error = Comparison::read(&config, &out).unwrap_err().to_string();
    assert!(error.contains("no run in"), "{error}");
    let at = |policy: usize, seed| CompareConfig::folder(&out, &config.policy[policy], seed);
    log(&at(0, 1), "fixed", [5.0, 4.0, 3.0]);
    log(&at(1, 1), "hds", [5.0, 3.0, 2.0]);
    let metrics = at(1, 1).join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let cut: Vec<&str> = text.lines().take(3).collect();
    fs::write(&metrics, cut.join("\n") + "\n").unwrap();
    let found = Comparison::read(&config, &out).unwrap();
    assert_eq!(
        (found.policies[0].runs.len(), found.policies[0].unfinished),
        (1, 1)
    );
    assert_eq!(
        (found.policies[1].runs.len(), found.policies[1].unfinished),
        (0, 2)
    );
    let text = table::render(&found);
    assert!(text.contains("1 of 2"));
    // Nothing was measured, which is not the same as never.
    assert!(!text.contains("not reached"), "{text}");
}

#[test]
fn a_run_that_diverged_is_not_shown_by_an_earlier_evaluation() {
    let (folder, config) = setting(CONFIG);
    let config = config.unwrap();
    let out = folder.path().join("out");
    let at = |policy: usize| CompareConfig::folder(&out, &config.policy[policy], 1);
    log(&at(0), "fixed", [5.0, 4.0, 3.0]);
    log(&at(1), "hds", [5.0, 3.0, 2.0]);
    let metrics = at(1).join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let last = 2f64.exp().to_string();
    assert!(text.contains(&last));
    fs::write(&metrics, text.replace(&last, "null")).unwrap();
    let found = Comparison::read(&config, &out).unwrap();
    assert_eq!(found.policies[1].macro_perplexity, Some(f64::INFINITY));
    assert_eq!(found.policies[0].steps_to[1], None);
    write_comparison(&config, &out).unwrap();
}

#[test]
fn runs_of_other_data_or_damaged_are_not_averaged() {
    let (folder, config) = setting(CONFIG);
    let config = config.unwrap();
    let out = folder.path().join("out");
    let at = |policy: usize| CompareConfig::folder(&out, &config.policy[policy], 1);
    log(&at(0), "fixed", [5.0, 4.0, 3.0]);
    log(&at(1), "hds", [5.0, 3.0, 2.0]);
    let metrics = at(1).join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text.replace("<code>", "law")).unwrap();
    let error = Comparison::read(&config, &out).unwrap_err().to_string();
    assert!(error.contains("different indexes"), "{error}");
    fs::write(&metrics, "rubbish\n").unwrap();
    let found = Comparison::read(&config, &out).unwrap();
    assert_eq!(
        (found.policies[0].runs.len(), found.policies[1].runs.len()),
        (1, 0)
    );

    // Made with another learning rate.
    let saved = "[data]\nindex = \"i\"\n[optimizer]\nlearning_rate = 9e-3\n[scheduler]\npolicy = \"fixed\"\n";
    fs::write(at(0).join("config.toml"), saved).unwrap();
    let error = config.check_runs(&out).unwrap_err().to_string();
    assert!(
        error.contains("learning_rate") && error.contains("remove that folder"),
        "{error}"
    );
}

#[test]
fn a_wrong_comparison_says_what_is_wrong() {
    for (change, want) in [
        (("run.toml", "none.toml"), "none.toml"),
        (("baseline = \"base\"", "baseline = \"b\""), "is no policy"),
        (("[1, 2]", "[]"), "seeds is empty"),
        (("[1, 2]", "[1, 1]"), "a seed is there twice"),
        (("\"fast\"", "\"base\""), "is there twice"),
        (("\"fast\"", "\"../x\""), "a name is"),
        (("policy=fixed", "policy=x"), "policy \"base\""),
        (
            ("policy=fixed", "policy=fixed\", \"run.seed=3"),
            "give seeds instead",
        ),
        (
            ("policy=fixed", "policy=fixed\", \"run.steps=3"),
            "has other run.steps",
        ),
        (("seeds", "sedes"), "sedes"),
        (("run = ", "at_once = 0\nrun = "), "at_once is 0"),
    ] {
        let (_folder, config) = setting(&CONFIG.replace(change.0, change.1));
        let error = config.unwrap_err().to_string();
        assert!(error.contains(want), "{want}: {error}");
    }
}
