//! Whole reports of synthetic runs, good and bad.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::synthetic::Synthetic;
use super::{METRICS_FILE, summary_table, write_report};

mod refusals;

/// A run folder with these lines as its log.
fn folder_of(lines: &[String]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    fs::write(folder.path().join(METRICS_FILE), lines.concat()).expect("written");
    folder
}

fn lines_of(run: &Synthetic) -> Vec<String> {
    let mut bytes = Vec::new();
    run.write(&mut bytes).expect("written");
    let text = String::from_utf8(bytes).expect("UTF-8");
    text.split_inclusive('\n').map(str::to_owned).collect()
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

fn page_of(folder: &Path) -> String {
    let path = write_report(folder).expect("a report");
    assert_eq!(path, folder.join("report.html"));
    fs::read_to_string(path).expect("readable")
}

fn page(lines: &[String]) -> String {
    page_of(folder_of(lines).path())
}

/// The figure with this id, to its end.
fn figure<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page
        .find(&format!("id=\"{id}\""))
        .unwrap_or_else(|| panic!("no figure {id}"));
    let rest = &page[start..];
    &rest[..rest.find("</figure>").expect("closed")]
}

#[test]
fn a_run_of_twenty_domains_fills_every_plot() {
    let page = page(&lines_of(&Synthetic::new(20, 1000)));
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    let empty: Vec<_> = page
        .match_indices("no data: ")
        .map(|(i, _)| &page[i..i + 60])
        .collect();
    assert_eq!(
        empty.len(),
        1,
        "only the configuration is missing: {empty:?}"
    );
    let domain_lines = |id| figure(&page, id).matches("<path class=\"ln d").count();
    // A linear and a logarithmic line a domain, and the legend has none.
    assert_eq!(domain_lines("held-out-domains"), 2 * 20);
    assert_eq!(domain_lines("weights-lines"), 2 * 20);
    assert_eq!(
        figure(&page, "stack").matches("<path class=\"area").count(),
        20
    );
    for id in ["ratio", "total", "alignment", "alignment-raw", "diversity"] {
        assert_eq!(figure(&page, id).matches("<g data-d=").count(), 20, "{id}");
    }
    for id in [
        "loss",
        "learning-rate",
        "gradient-norm",
        "held-out",
        "departure",
        "effective",
        "expected",
        "stability",
        "throughput",
        "seconds",
        "policy-0",
        "policy-1",
        "policy-2",
        "policy-3",
        "policy-4",
    ] {
        assert!(
            figure(&page, id).contains("<path class=\"ln m0\" d=\"M"),
            "{id}"
        );
    }
    assert_eq!(page.matches("<tr data-d=").count(), 20);
    // The mark of the warm-up, at step 20 of 1000.
    assert!(figure(&page, "loss").contains("<g class=\"warm\"><line x1=\"2%\""));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = page(&lines_of(&Synthetic::new(3, 20)));
    for reference in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(
        !page.contains("NaN")
            || !page
                .split("<script>")
                .next()
                .expect("a page")
                .contains("NaN")
    );
}

#[test]
fn headline_figures_are_those_of_the_log() {
    let run = Synthetic::new(4, 100);
    let last = run.evaluation(100);
    let expected = format!(
        "{:.2}",
        last["macro_perplexity"].as_f64().expect("a number")
    );
    let page = page(&lines_of(&run));
    assert!(
        page.contains(&format!("<span>Macro perplexity</span><b>{expected}</b>")),
        "{expected}"
    );
    assert!(page.contains("<span>Tokens</span><b>512k</b>"));
    let drawn: u64 = (0..100)
        .map(|s| run.step(s)["samples"][2].as_u64().expect("a count"))
        .sum();
    assert!(page.contains(&format!("<td data-v=\"{drawn}\">")));
}

#[test]
fn a_target_is_shown_wherever_results_are() {
    let mut run = Synthetic::new(3, 100);
    run.target = Some(vec![0.0, 0.25, 0.75]);
    let last = &run.evaluation(100);
    let want = 0.25 * last["losses"][1].as_f64().expect("a loss")
        + 0.75 * last["losses"][2].as_f64().expect("a loss");
    let want = format!("{:.2}", want.exp());
    let folder = folder_of(&lines_of(&run));
    let page = page_of(folder.path());
    assert!(page.contains("target: Books3 75 %, PubMed Central 25 %"));
    let tile = format!("<span>Target perplexity</span><b>{want}</b>");
    assert!(page.contains(&tile), "{tile}");
    assert!(page.contains("Held-out perplexity under the target went from"));
    assert!(figure(&page, "held-out").contains("<path class=\"ln m2\" d=\"M"));
    assert!(page.contains("<td data-v=\"0.75\">75 %</td>"));
    let table = summary_table(folder.path()).expect("a table");
    let row = table.lines().find(|l| l.contains("target-weighted"));
    assert!(row.expect("a row").contains(&want), "{table}");
    assert!(table.contains("75 %"), "{table}");

    // Every domain alike is the macro mean, and older logs say nothing.
    for target in [Some(vec![1.0 / 3.0; 3]), None] {
        run.target = target;
        let folder = folder_of(&lines_of(&run));
        let page = page_of(folder.path());
        assert!(!page.contains("Target perplexity") && !page.contains(" · target"));
        assert!(!figure(&page, "held-out").contains("ln m2"));
        let table = summary_table(folder.path()).expect("a table");
        assert!(!table.contains("target"), "{table}");
    }
    run.target = Some(vec![0.5, 0.5]);
    let error = write_report(folder_of(&lines_of(&run)).path()).expect_err("refused");
    assert!(
        error.to_string().contains("target_weights has 2"),
        "{error}"
    );
}

#[test]
fn names_from_the_run_are_escaped() {
    let mut run = Synthetic::new(3, 30);
    run.domains[1] = "</script><img src=x onerror='alert(\"1\")'>&".to_owned();
    let folder = folder_of(&lines_of(&run));
    fs::write(
        folder.path().join("config.toml"),
        "x = \"</pre><script>alert(1)</script>\"",
    )
    .expect("written");
    let page = page_of(folder.path());
    assert!(!page.contains("<img"));
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;img src=x onerror='alert(&quot;1&quot;)'&gt;&amp;"));
    assert!(page.contains("&lt;/pre&gt;&lt;script&gt;alert(1)"));
    // The script elements that were opened are ours alone.
    assert_eq!(
        page.matches("<script").count(),
        page.matches("</script>").count()
    );
}

#[test]
fn fixed_weights_have_no_rewards_and_the_page_says_so() {
    let mut run = Synthetic::new(5, 50);
    run.fixed = true;
    let page = page(&lines_of(&run));
    assert!(page.contains("no data: the run logged no rewards (policy fixed)"));
    assert!(page.contains("no data: policy fixed logs none"));
    assert!(!page.contains("warm-up ends"));
    assert!(page.contains("The weights stayed at the base weights."));
    // Rounding is no departure, and gives no rank to domains.
    assert!(page.contains("no data: the weights stayed at the base weights"));
    assert!(!page.contains("rank correlation"));
    assert!(figure(&page, "departure").contains("\"v\":[0,0,"));
}

#[test]
fn a_run_without_evaluations_or_steps_still_gives_a_page() {
    let run = Synthetic::new(3, 40);
    let no_evaluations: Vec<_> = lines_of(&run)
        .into_iter()
        .filter(|l| !l.contains("\"eval\""))
        .collect();
    assert!(page(&no_evaluations).contains("no data: no held-out evaluation was logged"));
    let header_only = page(&[line(&run.run())]);
    assert!(header_only.contains("no data: no step was logged yet"));
    assert!(header_only.contains("0 of 40 steps are logged"));
    assert!(!header_only.contains("<figure class=\"plot\""));
}

#[test]
fn a_single_step_is_a_dot() {
    let run = Synthetic::new(2, 1);
    let page = page(&[line(&run.run()), line(&run.step(0))]);
    assert!(figure(&page, "loss").contains("h0\""));
}

#[test]
fn null_values_are_gaps() {
    let run = Synthetic::new(2, 5);
    let mut lines = vec![line(&run.run())];
    for step in 0..5 {
        let mut record = run.step(step);
        if step == 2 {
            record["loss"] = Value::Null;
            record["weights"] = json!([null, null]);
            record["rewards"]["total"] = json!([null, 1.0]);
            record["losses"] = Value::Null;
            record["timing"] = Value::Null;
        }
        lines.push(line(&record));
    }
    let page = page(&lines);
    // Two pieces: before and after the gap.
    assert_eq!(figure(&page, "loss").matches("M0 ").count() % 2, 0);
    let data = figure(&page, "loss")
        .rsplit("<script")
        .next()
        .expect("a readout");
    assert!(data.contains(",null,"), "{data}");
}

#[test]
fn a_last_line_cut_short_is_left_out() {
    let run = Synthetic::new(3, 10);
    let mut lines = lines_of(&run);
    let whole = page(&lines);
    let mut cut = line(&run.step(10));
    cut.truncate(cut.len() / 2);
    lines.push(cut);
    let with_cut = page(&lines);
    assert!(with_cut.contains("The last line of the log is incomplete"));
    assert_eq!(figure(&whole, "loss"), figure(&with_cut, "loss"));
}

#[test]
fn unknown_kinds_and_repeated_steps_are_counted_and_left_out() {
    let run = Synthetic::new(3, 10);
    let mut lines = lines_of(&run);
    let plain = page(&lines);
    lines.insert(
        4,
        "{\"kind\":\"note\",\"text\":\"a newer version wrote this\"}\n".to_owned(),
    );
    lines.insert(6, line(&run.step(0)));
    let page = page(&lines);
    assert!(page.contains("1 records of kinds unknown"));
    assert!(page.contains("1 step records repeat"));
    assert_eq!(figure(&plain, "stack"), figure(&page, "stack"));
}

#[test]
fn the_page_does_not_grow_with_the_steps() {
    let size = |steps| page(&lines_of(&Synthetic::new(3, steps))).len();
    let (short, long) = (size(1500), size(12_000));
    assert!(
        long < short * 5 / 4,
        "{short} bytes at 1,500 steps, {long} at 12,000"
    );
}

#[test]
fn many_domains_stay_on_one_page() {
    let page = page(&lines_of(&Synthetic::new(120, 30)));
    assert_eq!(page.matches("<tr data-d=").count(), 120);
}

#[test]
fn the_terminal_table_has_first_and_last_of_every_domain() {
    let mut run = Synthetic::new(3, 100);
    run.domains[2] = "bell\u{7}".to_owned();
    let table = summary_table(folder_of(&lines_of(&run)).path()).expect("a table");
    let row = table
        .lines()
        .find(|l| l.contains("PubMed Central"))
        .expect("a row");
    let first = run.evaluation(0)["losses"][1]
        .as_f64()
        .expect("a loss")
        .exp();
    let last = run.evaluation(100)["losses"][1]
        .as_f64()
        .expect("a loss")
        .exp();
    assert!(row.contains(&format!("{first:.0}")), "{row}");
    assert!(
        row.contains(&format!("{last:.2}").trim_end_matches('0').to_owned()),
        "{row}"
    );
    assert!(table.contains("macro") && table.contains("base-weighted"));
    assert!(!table.contains('\u{7}'));
}
