//! A session goes on bit for bit from what it saved, and what it refuses changes nothing.

use super::super::protocol::Sketches;
use super::*;
use crate::scheduler::{HdsConfig, NetworkSize, SchedulerConfig};
use crate::signals::Gram;

const K: usize = 3;

pub(in crate::agent) fn facts(steps: u64) -> Facts {
    Facts {
        domains: (0..K).map(|i| format!("d{i}")).collect(),
        base_weights: Some(vec![2.0, 1.0, 1.0]),
        natural_tokens: None,
        total_steps: steps,
        sequence_length: 128,
        layers: 1,
        model_parameters: 1_000_000,
        seed: 3,
        scheduler: SchedulerConfig {
            hds: HdsConfig {
                network: NetworkSize::Small,
                minibatch: 8,
                warm_up_fraction: 0.1,
                ..HdsConfig::default()
            },
            ..SchedulerConfig::default()
        },
        reward: Default::default(),
        target: None,
    }
}

pub(in crate::agent) fn request(run: &str, start: Start, facts: Facts) -> Open {
    Open {
        protocol: PROTOCOL,
        run: run.into(),
        start,
        at_step: None,
        checkpoint_interval_steps: 0,
        facts,
    }
}

pub(in crate::agent) fn step(at: u64) -> Step {
    let wave = |i: usize| (at as f64 * 0.3 + i as f64).sin();
    Step {
        step: at,
        samples: (0..K as u64).map(|i| (at + i) % 3).collect(),
        losses: (0..K)
            .map(|i| (!(at + i as u64).is_multiple_of(3)).then(|| 3.0 + wave(i)))
            .collect(),
        mtld: Some(vec![Some(40.0), None, Some(70.0)]),
        gram: None,
        sketches: Some(Sketches {
            means: (0..K).map(|i| vec![wave(i), 1.0]).collect(),
            sequence_squares: vec![3.0; K],
        }),
        weight_norms: vec![10.0 + at as f64 * 0.01],
        weight_change_norms: vec![0.1],
        weights: None,
    }
}

pub(super) fn sessions() -> (tempfile::TempDir, Sessions) {
    let dir = tempfile::tempdir().unwrap();
    let sessions = Sessions::new(dir.path().join("state")).unwrap();
    (dir, sessions)
}

fn weights(reply: Reply) -> (u64, Vec<f64>, u64) {
    match reply {
        Reply::Weights {
            step,
            weights,
            version,
            ..
        } => (step, weights, version),
        other => panic!("{other:?}"),
    }
}

pub(super) fn text(outcome: Result<impl Sized, SessionError>) -> String {
    outcome.err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn a_resumed_session_decides_what_one_never_closed_decides() {
    let (_dir, sessions) = sessions();
    let open = |run: &str, start| Session::open(&sessions, &request(run, start, facts(60)));
    let mut whole = open("whole", Start::New).unwrap();
    let want: Vec<_> = (0..60)
        .map(|at| weights(whole.next(step(at)).unwrap()))
        .collect();
    let moved = |w: &[f64]| (w[0] - 0.5).abs() > 0.05;
    assert!(
        want.iter().any(|(_, w, _)| moved(w)),
        "the agent never acts"
    );

    let mut first = open("cut", Start::New).unwrap();
    for (at, want) in want.iter().enumerate().take(25) {
        assert_eq!(&weights(first.next(step(at as u64)).unwrap()), want);
    }
    first.save().unwrap();
    for at in 25..30 {
        first.next(step(at)).unwrap();
    }
    first.save_at_end().unwrap();
    drop(first);
    // From where the session ended, and from the client's own checkpoint.
    for (at_step, from) in [(None, 30), (Some(25), 25)] {
        let mut again = Session::open(
            &sessions,
            &Open {
                at_step,
                ..request("cut", Start::Resume, facts(60))
            },
        )
        .unwrap();
        assert_eq!(again.steps(), from as u64);
        match again.opened() {
            Reply::Opened {
                weights, version, ..
            } => assert_eq!((&weights, version), (&want[from - 1].1, want[from - 1].2)),
            other => panic!("{other:?}"),
        }
        for (at, want) in want.iter().enumerate().skip(from) {
            assert_eq!(&weights(again.next(step(at as u64)).unwrap()), want, "{at}");
        }
    }
    // Saved again on another way, the way it has left is no longer the newest.
    let at = Open {
        at_step: Some(25),
        ..request("cut", Start::Resume, facts(60))
    };
    let mut back = Session::open(&sessions, &at).unwrap();
    back.next(step(25)).unwrap();
    back.save().unwrap();
    drop(back);
    assert_eq!(open("cut", Start::Resume).unwrap().steps(), 26);
    let error = text(whole.next(step(60)));
    assert!(error.contains("the run has 60"), "{error}");
}

#[test]
fn a_step_sent_again_gets_its_answer_and_one_out_of_order_none() {
    let (_dir, sessions) = sessions();
    let mut session = Session::open(&sessions, &request("a", Start::Any, facts(9))).unwrap();
    let first = weights(session.next(step(0)).unwrap());
    assert_eq!(weights(session.next(step(0)).unwrap()), first);
    for wrong in [2, 9] {
        let error = text(session.next(step(wrong)));
        assert!(error.contains("the next one is 1"), "{error}");
    }
    let other = Step {
        samples: vec![9; K],
        ..step(0)
    };
    assert!(text(session.next(other)).contains("the next one is 1"));
    assert_eq!(session.steps(), 1);
}

#[test]
fn what_does_not_fit_the_run_is_refused_by_name_and_changes_nothing() {
    let (_dir, sessions) = sessions();
    let mut session = Session::open(&sessions, &request("a", Start::New, facts(9))).unwrap();
    let mut twin = Session::open(&sessions, &request("b", Start::New, facts(9))).unwrap();
    let long = vec![1.0; K + 1];
    let sketches = |means| {
        Some(Sketches {
            means,
            sequence_squares: Vec::new(),
        })
    };
    let gram = |products| {
        Some(Gram {
            domains: K,
            products,
            sequence_squares: Vec::new(),
        })
    };
    let none = Step {
        sketches: None,
        ..step(0)
    };
    for (bad, field) in [
        (
            Step {
                samples: vec![1],
                ..step(0)
            },
            "samples",
        ),
        (
            Step {
                losses: vec![],
                ..step(0)
            },
            "losses",
        ),
        (
            Step {
                mtld: Some(vec![None]),
                ..step(0)
            },
            "mtld",
        ),
        (
            Step {
                weight_norms: vec![],
                ..step(0)
            },
            "weight_norms",
        ),
        (
            Step {
                weights: Some(long.clone()),
                ..step(0)
            },
            "weights",
        ),
        (
            Step {
                weights: Some(vec![0.0; K]),
                ..step(0)
            },
            "weights",
        ),
        (
            Step {
                weights: Some(vec![-1.0, 1.0, 1.0]),
                ..step(0)
            },
            "weights",
        ),
        (
            Step {
                gram: gram(vec![1.0; 9]),
                ..step(0)
            },
            "gram",
        ),
        (
            Step {
                gram: gram(long),
                ..none.clone()
            },
            "gram.products",
        ),
        (none.clone(), "gram or sketches"),
        (
            Step {
                losses: vec![Some(1e308); K],
                samples: vec![1; K],
                ..step(0)
            },
            "losses",
        ),
        (
            Step {
                losses: vec![Some(-1.0); K],
                samples: vec![1; K],
                ..step(0)
            },
            "losses",
        ),
        (
            Step {
                losses: vec![Some(1.0); K],
                samples: vec![0; K],
                ..step(0)
            },
            "losses",
        ),
        (
            Step {
                samples: vec![u64::MAX; K],
                ..step(0)
            },
            "samples",
        ),
        (
            Step {
                weight_norms: vec![-1.0],
                ..step(0)
            },
            "weight_norms",
        ),
        (
            Step {
                mtld: Some(vec![Some(-1.0); K]),
                ..step(0)
            },
            "mtld",
        ),
        (
            Step {
                weights: Some(vec![5.0; K]),
                ..step(0)
            },
            "weights",
        ),
        (
            Step {
                gram: gram(vec![-1.0; 9]),
                ..none.clone()
            },
            "gram.products",
        ),
        (
            Step {
                gram: gram(vec![1.0, 5.0, 3.0, -5.0, 1.0, 0.0, 3.0, 0.0, 1.0]),
                ..none.clone()
            },
            "gram.products",
        ),
        (
            Step {
                mtld: None,
                ..step(0)
            },
            "mtld",
        ),
        (
            Step {
                sketches: sketches(vec![]),
                ..step(0)
            },
            "sketches.means",
        ),
        (
            Step {
                sketches: sketches(vec![vec![1.0], vec![1.0, 2.0], vec![]]),
                ..step(0)
            },
            "sketches.means",
        ),
    ] {
        let error = text(session.next(bad));
        assert!(error.starts_with(&format!("{field}: ")), "{field}: {error}");
    }
    for at in 0..9 {
        let (a, b) = (session.next(step(at)), twin.next(step(at)));
        assert_eq!(weights(a.unwrap()), weights(b.unwrap()));
    }
}

#[test]
fn a_run_that_cannot_be_opened_says_why() {
    let (dir, sessions) = sessions();
    let change = |change: fn(&mut Open)| {
        let mut open = request("a", Start::New, facts(9));
        change(&mut open);
        text(Session::open(&sessions, &open))
    };
    for (error, want) in [
        (change(|o| o.protocol = 2), "protocol is 2"),
        (change(|o| o.run = "../a".into()), "run: "),
        (change(|o| o.run = ".a".into()), "run: "),
        (change(|o| o.run = "a".repeat(65)), "run: "),
        (change(|o| o.at_step = Some(1)), "at_step: "),
        (
            change(|o| o.start = Start::Resume),
            "no checkpoint to resume from",
        ),
        (change(|o| o.facts.domains.clear()), "facts.domains: "),
        (
            change(|o| o.facts.sequence_length = 0),
            "facts.sequence_length: ",
        ),
        (
            change(|o| o.facts.natural_tokens = Some(vec![0; K])),
            "facts.natural_tokens: ",
        ),
        (
            change(|o| o.facts.domains[1] = "d0".into()),
            "facts.domains: ",
        ),
        (change(|o| o.facts.total_steps = 0), "facts.total_steps: "),
        (change(|o| o.facts.layers = 1 << 40), "facts.layers: "),
        (
            change(|o| o.facts.base_weights = Some(vec![1.0])),
            "facts.base_weights: ",
        ),
        (
            change(|o| o.facts.natural_tokens = Some(vec![])),
            "natural_tokens",
        ),
        (
            change(|o| o.facts.target = Some(vec![0.0; K])),
            "reward target",
        ),
        (change(|o| o.facts.reward.clamp = -1.0), "reward.clamp"),
        (
            change(|o| o.facts.scheduler.hds.discount = 1.5),
            "scheduler.hds.discount",
        ),
        (
            change(|o| o.facts.scheduler.hds.replay_capacity = u64::MAX),
            "replay_capacity",
        ),
    ] {
        assert!(error.contains(want), "{want}: {error}");
    }
    // None of them left the name taken, or a folder beside the state's.
    assert!(sessions.is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_run_is_open_once_and_its_checkpoints_are_not_overwritten() {
    let (_dir, sessions) = sessions();
    let open = |start, facts| Session::open(&sessions, &request("a", start, facts));
    let mut session = open(Start::New, facts(9)).unwrap();
    assert!(text(open(Start::Any, facts(9))).contains("open in another session"));
    // Another process sees the lock.
    let elsewhere = Sessions::new(sessions.folder.clone()).unwrap();
    let again = Session::open(&elsewhere, &request("a", Start::Any, facts(9)));
    assert!(text(again).contains("open in another session"));
    session.next(step(0)).unwrap();
    let checkpoint = session.save().unwrap();
    drop(session);
    assert!(text(open(Start::New, facts(9))).contains("has checkpoints"));
    let error = text(open(Start::Resume, facts(10)));
    assert!(error.contains("facts.total_steps"), "{error}");
    let missing = Open {
        at_step: Some(5),
        ..request("a", Start::Resume, facts(9))
    };
    let error = text(Session::open(&sessions, &missing));
    assert!(
        error.contains("no checkpoint at step 5; there are [1]"),
        "{error}"
    );
    // A damaged one is named, never used.
    fs::write(checkpoint.join(STATE_FILE), "{}").unwrap();
    for start in [Start::Resume, Start::Any] {
        let error = text(open(start, facts(9)));
        assert!(
            error.contains("no whole checkpoint") && error.contains("agent.json"),
            "{error}"
        );
    }
}

#[test]
fn checkpoints_come_by_interval_and_old_ones_go() {
    let (_dir, sessions) = sessions();
    let open = Open {
        checkpoint_interval_steps: 2,
        ..request("a", Start::New, facts(30))
    };
    let mut session = Session::open(&sessions, &open).unwrap();
    for at in 0..21 {
        session.next(step(at)).unwrap();
    }
    session.save().unwrap();
    for at in 21..30 {
        session.next(step(at)).unwrap();
    }
    assert_eq!(
        session.by_interval.steps().unwrap(),
        [22, 24, 26, 28, 30],
        "five of those by interval"
    );
    assert_eq!(
        session.asked.steps().unwrap(),
        [21],
        "which push out none that was asked for"
    );
    drop(session);
    let open = Open {
        at_step: Some(21),
        ..request("a", Start::Resume, facts(30))
    };
    let mut session = Session::open(&sessions, &open).unwrap();
    session.next(step(21)).unwrap();
    assert_eq!(session.by_interval.steps().unwrap().len(), 5);
    session.save_at_end().unwrap();
    assert_eq!(session.unasked.steps().unwrap(), [22]);
    assert_eq!(
        session.by_interval.steps().unwrap(),
        [22],
        "later ones are of another future"
    );
}
