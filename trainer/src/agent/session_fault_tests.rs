//! What a session is asked that no run can have, and what it must not write.

use super::tests::{facts, request, sessions, step, text};
use super::*;
use crate::scheduler::PolicyName;
use crate::signals::Gram;

const K: usize = 3;

#[test]
fn a_checkpoint_asked_for_again_stays_the_one_it_is() {
    use std::os::unix::fs::MetadataExt;
    let (_dir, sessions) = sessions();
    let mut session = Session::open(&sessions, &request("a", Start::New, facts(30))).unwrap();
    session.next(step(0)).unwrap();
    let path = session.save().unwrap();
    let inode = |path: &Path| path.metadata().unwrap().ino();
    let first = inode(&path);
    assert_eq!(session.save().unwrap(), path);
    assert_eq!(inode(&path), first);
    // Unless it is gone, or no longer whole.
    fs::write(path.join(STATE_FILE), "{}").unwrap();
    session.save().unwrap();
    assert_ne!(inode(&path), first);
    drop(session);
    let mut session = Session::open(&sessions, &request("a", Start::Resume, facts(30))).unwrap();
    session.next(step(1)).unwrap();
}

#[test]
fn networks_that_no_memory_holds_are_refused() {
    let (_dir, sessions) = sessions();
    let mut facts = facts(30);
    facts.scheduler.policy = PolicyName::AcOdm;
    facts.scheduler.ac_odm.width = 65_536;
    facts.scheduler.ac_odm.layers = 64;
    let why = text(Session::open(&sessions, &request("a", Start::New, facts)));
    assert!(why.contains("at most 8192 MB are given to a run"), "{why}");
}

#[test]
fn a_domain_without_a_vector_is_one_without_gradients() {
    let (_dir, sessions) = sessions();
    let mut session = Session::open(&sessions, &request("a", Start::New, facts(30))).unwrap();
    let mut sent = step(1);
    (sent.step, sent.samples) = (0, vec![4, 4, 4]);
    sent.losses = vec![Some(3.0); K];
    let squares = 1e6;
    if let Some(sketches) = &mut sent.sketches {
        sketches.means[2] = vec![];
        sketches.sequence_squares[2] = squares;
    }
    let signals = signals::of(&sent, &session.facts, &*session.policy).unwrap();
    let rewards = session.reward.clone().rewards(&signals);
    assert_eq!(rewards.alignment_raw[2], 0.0, "{rewards:?}");
    assert!(rewards.alignment.iter().all(|r| r.is_finite()));
    // The two others as if they were alone: standardised, they are each other's opposite.
    let (a, b) = (rewards.alignment[0], rewards.alignment[1]);
    assert!((a + b).abs() < 1e-9 && a != 0.0, "{rewards:?}");
    session.next(sent).unwrap();
}

#[test]
fn products_that_no_vectors_have_are_refused() {
    let (_dir, sessions) = sessions();
    let mut session = Session::open(&sessions, &request("a", Start::New, facts(30))).unwrap();
    let mut sent = step(0);
    sent.sketches = None;
    let gram = |off: f64, squares: f64| Gram {
        domains: K,
        products: (0..K * K)
            .map(|at| if at % (K + 1) == 0 { 1.0 } else { off })
            .collect(),
        sequence_squares: vec![squares; K],
    };
    sent.gram = Some(gram(5.0, 2.0));
    let why = text(session.next(sent.clone()));
    assert!(why.contains("more than the product of both norms"), "{why}");
    sent.gram = Some(gram(0.5, 0.01));
    let why = text(session.next(sent.clone()));
    assert!(
        why.contains("less than the squared norm of the mean"),
        "{why}"
    );
    sent.gram = Some(gram(1.0, 1.0));
    session.next(sent).unwrap();
}

#[test]
fn a_state_that_could_not_be_read_again_is_not_saved() {
    let (_dir, sessions) = sessions();
    let mut facts = facts(60);
    facts.scheduler.hds.progress_scale = 1e300;
    let mut session = Session::open(&sessions, &request("a", Start::New, facts.clone())).unwrap();
    let mut saved = Ok(PathBuf::new());
    for at in 0..20 {
        session.next(step(at)).unwrap();
        saved = session.save();
    }
    drop(session);
    match saved {
        Err(error) => assert!(error.to_string().contains("read again"), "{error}"),
        // Then it must be one that can be resumed from.
        Ok(_) => {
            let mut open = request("a", Start::Resume, facts);
            open.at_step = Some(20);
            Session::open(&sessions, &open).unwrap();
        }
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_no_error_of_the_step() {
    let (_dir, sessions) = sessions();
    let open = Open {
        checkpoint_interval_steps: 1,
        ..request("a", Start::New, facts(30))
    };
    let mut session = Session::open(&sessions, &open).unwrap();
    // A file where the folder of checkpoints would be.
    let folder = sessions.folder.join("a").join("interval");
    fs::write(&folder, "").unwrap();
    let told = |reply: Reply| match reply {
        Reply::Weights { step, notes, .. } => (step, notes),
        other => panic!("{other:?}"),
    };
    let (at, notes) = told(session.next(step(0)).unwrap());
    assert_eq!(at, 1);
    assert!(notes[0].contains("could not be written"), "{notes:?}");
    fs::remove_file(&folder).unwrap();
    assert_eq!(told(session.next(step(1)).unwrap()), (2, vec![]));
    assert_eq!(session.by_interval.steps().unwrap(), [2]);
}
