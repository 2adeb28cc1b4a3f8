//! Good manifests come back equal; each broken rule is refused with its field.

use super::*;

fn file(path: &str, bytes: u64) -> FileEntry {
    FileEntry {
        path: path.into(),
        bytes,
        blake3: Checksum::of(b""),
    }
}

fn shard(number: u64, first_token: u64, first_document: u64) -> ShardEntry {
    let stem = format!("domains/web/train/{number:05}");
    ShardEntry {
        first_token,
        tokens: 10,
        first_document,
        documents: 2,
        tokens_file: file(&format!("{stem}.tokens"), 20),
        documents_file: file(&format!("{stem}.documents.arrow"), 1),
        table_file: file(&format!("{stem}.documents.parquet"), 1),
    }
}

fn manifest() -> Manifest {
    Manifest {
        format: FORMAT_NAME.into(),
        version: FORMAT_VERSION,
        tokenizer: TokenizerEntry {
            name: "byte".into(),
            fingerprint: "x".into(),
            vocabulary: 257,
            end_of_document: 256,
        },
        token_type: TokenType::U16,
        domains: vec![DomainEntry {
            name: "web".into(),
            train: SplitEntry {
                documents: 4,
                tokens: 20,
                shards: vec![shard(0, 0, 0), shard(1, 10, 2)],
                ..SplitEntry::default()
            },
            valid: SplitEntry::default(),
        }],
        sources: vec![],
        options: BTreeMap::new(),
    }
}

#[test]
fn a_saved_manifest_loads_equal_with_a_stable_fingerprint() {
    let dir = tempfile::tempdir().unwrap();
    manifest().save(dir.path()).unwrap();
    let (loaded, fingerprint) = Manifest::load(dir.path()).unwrap();
    assert_eq!(loaded, manifest());
    manifest().save(dir.path()).unwrap();
    assert_eq!(Manifest::load(dir.path()).unwrap().1, fingerprint);
}

#[test]
fn a_folder_without_manifest_says_how_to_build_one() {
    let dir = tempfile::tempdir().unwrap();
    let text = Manifest::load(dir.path()).unwrap_err().to_string();
    assert!(text.contains("hds-index build"), "{text}");
}

#[test]
fn another_version_is_refused_by_name() {
    let mut value = serde_json::to_value(manifest()).unwrap();
    value["version"] = 2.into();
    value["something_new"] = 1.into();
    let text = Manifest::parse(value.to_string().as_bytes(), Path::new("m")).unwrap_err();
    assert!(text.to_string().contains("hds-index version 2"), "{text}");
}

#[test]
fn each_broken_rule_names_its_field() {
    type Edit = fn(&mut Manifest);
    let cases: [(Edit, &str); 14] = [
        (
            |m| m.domains[0].train.tokens = 21,
            "domains.web.train.tokens",
        ),
        (
            |m| m.domains[0].train.documents = 3,
            "domains.web.train.documents",
        ),
        (
            |m| m.domains[0].train.shards[1].first_token = 11,
            "shards[1].first_token",
        ),
        (
            |m| m.domains[0].train.shards[1].first_document = 0,
            "shards[1].first_document",
        ),
        (
            |m| m.domains[0].train.shards[0].tokens_file.bytes = 19,
            "shards[0].tokens_file.bytes",
        ),
        (
            |m| m.domains[0].train.shards[0].tokens = u64::MAX,
            "shards[0].tokens_file.bytes",
        ),
        (
            |m| m.domains[0].train.shards[0].documents = 0,
            "shards[0].tokens",
        ),
        (
            |m| m.domains[0].train.shards[0].documents = 11,
            "shards[0].tokens",
        ),
        (
            |m| m.domains[0].train.shards[0].table_file.path = "../x".into(),
            "table_file.path",
        ),
        (
            |m| m.domains[0].train.shards[0].tokens_file.path = "/etc/x".into(),
            "tokens_file.path",
        ),
        (
            |m| m.domains[0].train.shards[0].documents_file.path = "a//b".into(),
            "documents_file",
        ),
        (
            |m| m.tokenizer.end_of_document = 257,
            "tokenizer.end_of_document",
        ),
        (|m| m.tokenizer.vocabulary = 65_537, "token_type"),
        (|m| m.domains.push(m.domains[0].clone()), "domains"),
    ];
    for (edit, field) in cases {
        let mut broken = manifest();
        edit(&mut broken);
        let text = broken
            .check(Path::new("manifest.json"))
            .unwrap_err()
            .to_string();
        assert!(text.contains(field), "expected {field} in: {text}");
    }
    manifest().check(Path::new("manifest.json")).unwrap();
}

#[test]
fn unknown_fields_and_cut_files_are_refused() {
    let whole = serde_json::to_string(&manifest()).unwrap();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        assert!(Manifest::parse(&whole.as_bytes()[..cut], Path::new("m")).is_err());
    }
    let unknown = whole.replacen("\"sources\"", "\"surprise\":1,\"sources\"", 1);
    let text = Manifest::parse(unknown.as_bytes(), Path::new("m"))
        .unwrap_err()
        .to_string();
    assert!(text.contains("surprise"), "{text}");
}

#[test]
fn a_path_that_is_no_index_is_told_from_a_missing_one_a_part_and_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let said = |path: &Path| Manifest::load(path).unwrap_err().to_string();
    let absent = said(&dir.path().join("absent"));
    assert!(
        absent.contains("there is no such folder") && absent.contains("hds-index build"),
        "{absent}"
    );
    let empty = said(dir.path());
    assert!(empty.contains("it has no manifest.json"), "{empty}");
    std::fs::write(dir.path().join("part.json"), "{}").unwrap();
    let part = said(dir.path());
    assert!(
        part.contains("one part") && part.contains("hds-index merge"),
        "{part}"
    );
    manifest().save(dir.path()).unwrap();
    let file = said(&dir.path().join(MANIFEST_FILE));
    assert!(
        file.contains("a file") && file.contains("the index's folder"),
        "{file}"
    );
}

#[test]
fn verify_is_not_advised_in_what_it_finds_itself() {
    let path = PathBuf::from("x.tokens");
    let (want, got) = ("a".to_owned(), "b".to_owned());
    let reason = "ends early".to_owned();
    for error in [
        IndexError::Size {
            path: path.clone(),
            want: 2,
            got: 1,
        },
        IndexError::Checksum {
            path: path.clone(),
            want,
            got,
        },
        IndexError::Content { path, reason },
    ] {
        let (said, found) = (error.to_string(), error.finding());
        assert!(said.ends_with("; run `hds-index verify`"), "{said}");
        assert!(
            said.starts_with(&found) && !found.contains("hds-index"),
            "{found}"
        );
    }
}
