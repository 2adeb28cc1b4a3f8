//! `hds-train run` in several processes: the same run as in one, and no process left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hds_tests::{binary, succeed, terminate, text};
use serde_json::Value;

use crate::precision::{assert_aligned, first_alignment};
use crate::training::{Setting, records, setting, steps, wait_for_steps};

const STEPS: usize = 60;

/// Whether the program can train in several processes; says so where it cannot, and fails where it should.
fn supported() -> bool {
    let version = succeed("hds-train", &["--version"]);
    if version.contains("several processes: yes") {
        return true;
    }
    assert!(
        !Path::new("/usr/include/gloo/config.h").exists(),
        "Gloo's headers are there, and hds-train was built without them: {version}"
    );
    println!("skipped: hds-train is built without Gloo's headers (libgloo-dev)");
    false
}

/// The processes of a run.
struct Ranks {
    children: Vec<Child>,
    errors: Vec<PathBuf>,
}

impl Ranks {
    /// Starts ranks `from` of `world`, rank r with `arguments(r)` after those that all have.
    fn start(
        setting: &Setting,
        out: &Path,
        world: usize,
        from: &[usize],
        arguments: impl Fn(usize) -> Vec<&'static str>,
    ) -> Self {
        let from: Vec<_> = from.iter().map(|&rank| (rank, world, out)).collect();
        Self::start_at(setting, free_port(), &from, arguments)
    }

    /// Starts processes at a port, each with its rank, number of ranks and run folder.
    fn start_at(
        setting: &Setting,
        port: u16,
        processes: &[(usize, usize, &Path)],
        arguments: impl Fn(usize) -> Vec<&'static str>,
    ) -> Self {
        let mut ranks = Self {
            children: Vec::new(),
            errors: Vec::new(),
        };
        for (number, &(rank, world, out)) in processes.iter().enumerate() {
            let folder = out.file_name().unwrap().display();
            let name = format!("{folder}-{world}-{rank}-{number}.err");
            let path = setting.root.join(name);
            let child = Command::new(binary("hds-train"))
                .args(["run", "--config", text(&setting.config), "--out", text(out)])
                .args(arguments(rank))
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", world.to_string())
                .env("LOCAL_RANK", rank.to_string())
                .env("LOCAL_WORLD_SIZE", world.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .env("OMP_NUM_THREADS", "1")
                .stderr(Stdio::from(fs::File::create(&path).unwrap()))
                .spawn()
                .unwrap();
            ranks.children.push(child);
            ranks.errors.push(path);
        }
        ranks
    }

    /// Waits for all, at most so long; gives their exit codes and what they said.
    fn end(mut self, within: Duration) -> Vec<(Option<i32>, String)> {
        let deadline = Instant::now() + within;
        let mut codes = Vec::new();
        for child in &mut self.children {
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                assert!(
                    Instant::now() < deadline,
                    "a rank goes on: {:?}",
                    said(&self.errors)
                );
                std::thread::sleep(Duration::from_millis(20));
            };
            codes.push(status.code());
        }
        codes.into_iter().zip(said(&self.errors)).collect()
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A test that fails leaves no process behind.
impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.children {
            // One that has ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn said(errors: &[PathBuf]) -> Vec<String> {
    errors
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// Runs `world` ranks that must all succeed.
fn train(setting: &Setting, out: &Path, world: usize, arguments: &[&'static str]) {
    let all: Vec<usize> = (0..world).collect();
    let ranks = Ranks::start(setting, out, world, &all, |_| arguments.to_vec());
    for (code, said) in ranks.end(Duration::from_secs(300)) {
        assert_eq!(code, Some(0), "{said}");
    }
}

fn number(record: &Value, key: &str) -> f64 {
    record[key].as_f64().unwrap_or(f64::NAN)
}

/// That two runs have the same losses within 10⁻⁵ nats as long as their draws are the same; gives the number of steps until then.
///
/// An agent's weights depend on what it saw, to the last bit, which sums over other numbers of processes do not share. A draw that lies
/// between the weights of both falls to another domain, and from then on they are two runs. Weights so near each other make that rare.
fn assert_close(got: &[Value], want: &[Value]) -> usize {
    assert_eq!(got.len(), want.len());
    let weights = |record: &Value| -> Vec<f64> {
        let weights = record["weights"].as_array().unwrap();
        weights.iter().map(|w| w.as_f64().unwrap()).collect()
    };
    let mut count = 0;
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got["kind"], want["kind"]);
        if got["samples"] != want["samples"] {
            for (a, b) in weights(got).iter().zip(weights(want)) {
                assert!((a - b).abs() < 1e-3, "other draws: {got}, {want}");
            }
            return count;
        }
        for (key, tolerance) in [("loss", 1e-5), ("macro_perplexity", 1e-2)] {
            if want[key].is_number() {
                let (got, want) = (number(got, key), number(want, key));
                assert!(
                    (got - want).abs() < tolerance,
                    "{key} is {got}, in one process {want}"
                );
            }
        }
        if want["kind"] == "step" {
            let (got, want) = (number(got, "gradient_norm"), number(want, "gradient_norm"));
            assert!(
                (got / want - 1.0).abs() < 1e-3,
                "gradient norm {got}, {want}"
            );
            count += 1;
        }
    }
    count
}

#[test]
fn two_and_three_processes_have_the_losses_of_one() {
    if !supported() {
        return;
    }
    let setting = setting();
    // Fixed weights, and 7 sequences that neither 2 nor 3 ranks share evenly.
    let fixed = [
        "--set",
        "scheduler.policy=fixed",
        "--set",
        "run.steps=50",
        "--set",
        "data.batch_size=7",
        "--set",
        "data.micro_batch_size=1",
    ];
    for (name, arguments, least) in [("hds", &[][..], 20), ("fixed", &fixed, 50)] {
        let one = setting.root.join(format!("{name}-1"));
        let run = [
            "run",
            "--config",
            text(&setting.config),
            "--out",
            text(&one),
        ];
        succeed("hds-train", &[&run[..], arguments].concat());
        let want = records(&one);
        for world in [2, 3] {
            let out = setting.root.join(format!("{name}-{world}"));
            train(&setting, &out, world, arguments);
            let count = assert_close(&records(&out), &want);
            assert!(count >= least, "{name}: {count} steps");
            if name == "hds" {
                let (got, want) = (first_alignment(&out), first_alignment(&one));
                assert_aligned(&got, &want, 1e-4, &format!("{world} processes"));
            }
        }
    }
    let mean = |run: &str| {
        let records = records(&setting.root.join(run));
        let losses: Vec<f64> = steps(&records).map(|r| number(r, "loss")).collect();
        losses.iter().sum::<f64>() / losses.len() as f64
    };
    assert!(mean("hds-2").is_finite() && mean("hds-2") != mean("fixed-2"));
}

#[test]
fn a_signal_to_any_rank_stops_all_and_checkpoints_move_between_numbers_of_processes() {
    if !supported() {
        return;
    }
    let setting = setting();
    let whole = setting.root.join("whole");
    train(&setting, &whole, 2, &[]);
    let want = records(&whole);

    let stopped = setting.root.join("stopped");
    let mut ranks = Ranks::start(&setting, &stopped, 2, &[0, 1], |_| vec![]);
    wait_for_steps(&stopped, 24);
    assert_eq!(terminate(&mut ranks.children[1]).code(), Some(75));
    let ended = ranks.end(Duration::from_secs(60));
    assert_eq!(ended[0].0, Some(75), "{}", ended[0].1);
    let done = steps(&records(&stopped)).count();
    assert!((24..STEPS).contains(&done), "{done} steps");

    // Nothing in a checkpoint says how many processes wrote it.
    let alone = setting.root.join("alone");
    succeed(
        "hds-train",
        &[
            "run",
            "--config",
            text(&setting.config),
            "--out",
            text(&alone),
            "--set",
            "run.steps=2",
        ],
    );
    let last = format!("checkpoints/step-{STEPS:08}");
    let first = alone.join("checkpoints/step-00000002");
    assert_eq!(shape_of(&whole.join(&last)), shape_of(&first));

    for world in [1, 2, 3] {
        let resumed = setting.root.join(format!("resumed-{world}"));
        copy_folder(&stopped, &resumed);
        match world {
            1 => drop(succeed(
                "hds-train",
                &["run", "--out", text(&resumed), "--resume"],
            )),
            _ => train(&setting, &resumed, world, &["--resume"]),
        }
        let got = records(&resumed);
        if world == 2 {
            assert_eq!(
                got, want,
                "the same number of processes gives the same bits"
            );
            let model = format!("{last}/model/model.safetensors");
            let bytes = |run: &Path| fs::read(run.join(&model)).unwrap();
            assert!(bytes(&resumed) == bytes(&whole));
        }
        // Beyond where the first run was stopped.
        let least = if world == 2 { STEPS } else { done };
        assert!(assert_close(&got, &want) >= least);
    }
}

/// Names and sizes of the files of tensors in a checkpoint.
fn shape_of(checkpoint: &Path) -> Vec<(String, u64)> {
    let files = ["optimizer.safetensors", "model/model.safetensors"];
    files
        .iter()
        .map(|file| {
            let size = fs::metadata(checkpoint.join(file)).unwrap().len();
            ((*file).to_owned(), size)
        })
        .collect()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn a_rank_that_dies_ends_the_others_and_the_run_goes_on() {
    if !supported() {
        return;
    }
    let setting = setting();
    let whole = setting.root.join("whole");
    train(&setting, &whole, 3, &[]);
    let killed = setting.root.join("killed");
    for (dies, after) in [(2usize, 13), (0, 33)] {
        let resume: &[&str] = if dies == 0 { &["--resume"] } else { &[] };
        let mut ranks = Ranks::start(&setting, &killed, 3, &[0, 1, 2], |_| resume.to_vec());
        wait_for_steps(&killed, after);
        ranks.children[dies].kill().unwrap();
        let ended = ranks.end(Duration::from_secs(60));
        let count = records_of_whole_lines(&killed);
        assert!(count < STEPS, "the run ended before a rank could be killed");
        for (rank, (code, said)) in ended.into_iter().enumerate() {
            if rank == dies {
                continue;
            }
            assert_eq!(code, Some(1), "{said}");
            let want = format!("rank {dies} of 3 ended without a word");
            assert!(said.contains(&want), "{said}");
            assert!(
                said.contains("--resume") && !said.contains("panicked"),
                "{said}"
            );
        }
    }
    train(&setting, &killed, 3, &["--resume"]);
    assert_eq!(records(&killed), records(&whole));
}

/// Steps whose record is whole.
fn records_of_whole_lines(run: &Path) -> usize {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines();
    let whole = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    whole.filter(|record| record["kind"] == "step").count()
}

#[test]
fn ranks_that_are_not_there_or_not_alike_are_named() {
    if !supported() {
        return;
    }
    let setting = setting();
    let out = setting.root.join("run");
    let waiting = "distributed.join_seconds=3";
    let start = |from: &[usize]| {
        let ranks = Ranks::start(&setting, &out, 3, from, |_| vec!["--set", waiting]);
        ranks.end(Duration::from_secs(60))
    };
    let ended = start(&[0, 1]);
    for (code, said) in &ended {
        assert_eq!(*code, Some(1), "{said}");
    }
    // The first of them whose patience ends; with it the other loses rank 0.
    let named = |said: &str| said.contains("2 did not come to 127.0.0.1");
    assert!(ended.iter().any(|(_, said)| named(said)), "{ended:?}");
    let ended = start(&[1]);
    assert!(
        ended[0].1.contains("no rank 0 at 127.0.0.1"),
        "{}",
        ended[0].1
    );
    assert!(!out.exists());

    let seeds = |rank| vec!["--set", ["run.seed=1", "run.seed=2"][rank]];
    let ranks = Ranks::start(&setting, &out, 2, &[0, 1], seeds);
    for (code, said) in ranks.end(Duration::from_secs(60)) {
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("run.seed is 2 on rank 1 and 1 on rank 0"),
            "{said}"
        );
    }
    assert!(!out.exists());

    let compare = Command::new(binary("hds-train"))
        .args(["compare", "--config", "x.toml", "--out", text(&out)])
        .env("OMPI_COMM_WORLD_SIZE", "2")
        .env("OMPI_COMM_WORLD_RANK", "0")
        .env("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compare.stderr);
    assert!(said.contains("each in one process"), "{said}");

    // What rank 0 alone finds is told by all.
    fs::create_dir_all(out.join("checkpoints")).unwrap();
    let ranks = Ranks::start(&setting, &out, 2, &[0, 1], |_| vec![]);
    for (code, said) in ranks.end(Duration::from_secs(60)) {
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("is of a run already"), "{said}");
    }
}

#[test]
fn ranks_that_cannot_meet_end_in_time_and_say_why() {
    if !supported() {
        return;
    }
    let setting = setting();
    let out = setting.root.join("run");
    let soon = Duration::from_secs(30);
    let patient = |_| vec!["--set", "distributed.join_seconds=5"];
    let start = |port: u16, processes: &[(usize, usize, &Path)]| {
        Ranks::start_at(&setting, port, processes, patient).end(soon)
    };
    let some_say = |ended: &[(Option<i32>, String)], words: &str| {
        assert!(
            ended.iter().any(|(_, said)| said.contains(words)),
            "{words}: {ended:?}"
        );
        assert!(ended.iter().all(|(code, _)| *code == Some(1)), "{ended:?}");
        assert!(!out.exists());
    };
    // Of launches of two and of three.
    let ended = start(free_port(), &[(0, 2, &out), (1, 3, &out)]);
    some_say(&ended, "was started with WORLD_SIZE =");
    let ended = start(free_port(), &[(0, 3, &out), (1, 2, &out)]);
    some_say(&ended, "start all ranks of a run alike");

    // Another program at the port, that answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let ended = start(port, &[(1, 2, &out)]);
    some_say(&ended, &format!("127.0.0.1:{port}"));

    // Somebody at rank 0's port who is no rank keeps no place, and nobody up.
    let port = free_port();
    let ranks = Ranks::start_at(&setting, port, &[(0, 2, &out)], patient);
    let deadline = Instant::now() + soon;
    let stranger = loop {
        match std::net::TcpStream::connect(("127.0.0.1", port)) {
            Ok(stranger) => break stranger,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    some_say(&ranks.end(soon), "rank 1 did not come");
    drop(stranger);

    let other = setting.root.join("other");
    let ended = start(free_port(), &[(0, 2, &out), (1, 2, &other)]);
    some_say(&ended, "--out is");
    assert!(!other.exists());
}

#[test]
fn all_ranks_skip_the_same_steps_and_give_up_together() {
    if !supported() {
        return;
    }
    let setting = setting();
    let out = setting.root.join("run");
    let arguments = vec![
        "--set",
        "run.steps=6",
        "--set",
        "optimizer.learning_rate=1e30",
        "--set",
        "optimizer.minimum_learning_rate=0.0",
    ];
    let ranks = Ranks::start(&setting, &out, 2, &[0, 1], |_| arguments.clone());
    for (code, said) in ranks.end(Duration::from_secs(120)) {
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("lower optimizer.learning_rate"), "{said}");
    }
    let records = records(&out);
    assert!(steps(&records).any(|step| step["skipped"] == true));
}
