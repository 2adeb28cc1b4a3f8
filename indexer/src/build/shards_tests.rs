//! Tests of the shard writers.

use super::*;

fn run(domain: &str) -> Run {
    Run {
        domain: domain.into(),
        split: Split::Train,
        tokens: vec![7; 4],
        documents: vec![DocumentRecord {
            tokens: 2,
            bytes: 1,
            words: 1,
            mtld: 1.0,
            position: 0,
            source: 0,
            content_hash: [0; 16],
        }],
    }
}

#[test]
fn a_restored_state_knows_nothing_of_what_was_written_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let (index, records) = (folder.path().join("i"), folder.path().join("r"));
        Shards::new(index, records, TokenType::U16, 100)
    };
    let mut shards = start();
    shards.append(&run("web")).unwrap();
    let noted = shards.checkpoint().unwrap();
    // Written, but in no journal: more of a known domain, and one that was not known.
    shards.append(&run("web")).unwrap();
    shards.append(&run("code")).unwrap();
    shards.checkpoint().unwrap();
    drop(shards);

    let mut shards = start();
    shards.restore(noted).unwrap();
    assert!(!folder.path().join("i/domains/code").exists());
    shards.append(&run("code")).unwrap();
    for (state, paths) in shards.finish().unwrap() {
        let length = |path: PathBuf| fs::metadata(path).unwrap().len();
        assert_eq!(length(paths.file(0, "tokens")), 4, "{}", state.domain);
        assert_eq!(length(paths.records(0)), 60, "{}", state.domain);
    }
}
