//! Plans of folders and files: order, names, domains, and what is refused.

use super::*;

struct Corpus(tempfile::TempDir);

impl Corpus {
    fn new(files: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            let path = dir.path().join("corpus").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn plan(&self, inputs: &[&str]) -> Result<Plan, PlanError> {
        let inputs: Vec<PathBuf> = inputs.iter().map(|i| self.path(i)).collect();
        Plan::new(&inputs, &[], &PlanOptions::default())
    }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.sources.iter().map(|s| s.name.as_str()).collect()
}

#[test]
fn record_files_of_a_folder_are_a_source_each_in_the_order_of_names() {
    let corpus = Corpus::new(&["b/1.jsonl", "b/0.jsonl.zst", "a.parquet", "c.json"]);
    let plan = corpus.plan(&["corpus"]).unwrap();
    assert_eq!(
        names(&plan),
        [
            "corpus/a.parquet",
            "corpus/b/0.jsonl.zst",
            "corpus/b/1.jsonl",
            "corpus/c.json"
        ]
    );
    let domains = |s: &Source| (s.file_domain.clone(), s.folder_domain.clone());
    assert_eq!(domains(&plan.sources[1]), ("0".into(), "b".into()));
    assert_eq!(domains(&plan.sources[3]), ("c".into(), "corpus".into()));
    assert_eq!(plan.sources[1].bytes, "b/0.jsonl.zst".len() as u64);
}

#[test]
fn a_file_given_alone_has_its_own_name_and_folder() {
    let corpus = Corpus::new(&["web/x.y.jsonl.gz"]);
    let plan = corpus.plan(&["corpus/web/x.y.jsonl.gz"]).unwrap();
    let source = &plan.sources[0];
    assert_eq!(source.name, "x.y.jsonl.gz");
    assert_eq!(
        (source.file_domain.as_str(), source.folder_domain.as_str()),
        ("x.y", "web")
    );
    assert_eq!(source.kind, SourceKind::Lines(Compression::Gzip));
}

#[test]
fn the_text_files_of_a_folder_are_one_source() {
    let corpus = Corpus::new(&["code/a.rs", "prose/b.txt", "c.md"]);
    let plan = corpus.plan(&["corpus"]).unwrap();
    assert_eq!(names(&plan), ["corpus/"]);
    assert_eq!(plan.sources[0].kind, SourceKind::TextFolder);
    assert_eq!(plan.sources[0].bytes, 9 + 11 + 4);
}

#[test]
fn a_readme_beside_record_files_is_left_out_but_not_in_silence() {
    let corpus = Corpus::new(&["README.md", "a.jsonl", ".cache/x"]);
    let plan = corpus.plan(&["corpus"]).unwrap();
    assert_eq!(names(&plan), ["corpus/", "corpus/a.jsonl"]);
    assert_eq!(plan.sources[0].kind, SourceKind::Nothing);
    let left: Vec<_> = plan.sources[0]
        .left_out
        .iter()
        .map(|l| (l.reason, l.count, l.first.as_str()))
        .collect();
    assert_eq!(
        left,
        [
            ("hidden", 1, ".cache"),
            ("text beside record files", 1, "README.md")
        ]
    );
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let corpus = Corpus::new(&["good/a.jsonl", "odd/a.txt", "odd/b.png", "odd/c.jpg"]);
    fs::create_dir(corpus.path("corpus/empty")).unwrap();
    let text = |inputs: &[&str]| corpus.plan(inputs).unwrap_err().to_string();
    let odd = text(&["corpus/odd"]);
    assert!(odd.contains("b.png") && odd.contains("1 more"), "{odd}");
    assert!(odd.contains("--text-extension"), "{odd}");
    assert!(text(&["corpus/odd/b.png"]).contains("--on-error skip"));
    assert!(text(&["corpus/empty"]).contains("holds no file"));
    assert!(text(&["corpus/absent.jsonl"]).contains("absent.jsonl"));
    assert!(text(&["corpus/good", "corpus/good/a.jsonl"]).contains("given twice"));
    assert!(matches!(corpus.plan(&[]), Err(PlanError::Nothing)));
}

#[test]
fn unknown_files_are_counted_where_they_may_be_skipped() {
    let corpus = Corpus::new(&["a.txt", "b.png", "c.jpg"]);
    let options = PlanOptions {
        skip_faults: true,
        ..PlanOptions::default()
    };
    let plan = Plan::new(&[corpus.path("corpus")], &[], &options).unwrap();
    let left = &plan.sources[0].left_out[0];
    assert_eq!(
        (left.reason, left.count, left.first.as_str()),
        ("unknown format", 2, "b.png")
    );
}

#[cfg(unix)]
#[test]
fn what_cannot_be_looked_at_is_counted_where_it_may_be_skipped() {
    let corpus = Corpus::new(&["a.jsonl"]);
    for (link, to) in [("b.jsonl", "gone"), ("c", "c")] {
        std::os::unix::fs::symlink(to, corpus.path("corpus").join(link)).unwrap();
    }
    let error = corpus.plan(&["corpus"]).unwrap_err().to_string();
    assert!(error.contains("b.jsonl"), "{error}");
    let options = PlanOptions {
        skip_faults: true,
        ..PlanOptions::default()
    };
    let plan = Plan::new(&[corpus.path("corpus")], &[], &options).unwrap();
    let left = &plan.sources[0].left_out[0];
    assert_eq!(
        (left.reason, left.count, left.first.as_str()),
        ("unreadable", 2, "b.jsonl")
    );
    assert_eq!(plan.sources[1].name, "corpus/a.jsonl");
    // A folder given by name must be there.
    assert!(Plan::new(&[corpus.path("corpus/c")], &[], &options).is_err());
}

#[test]
fn held_out_inputs_follow_the_others() {
    let corpus = Corpus::new(&["a.jsonl", "b.jsonl"]);
    let plan = Plan::new(
        &[corpus.path("corpus/b.jsonl")],
        &[corpus.path("corpus/a.jsonl")],
        &PlanOptions::default(),
    )
    .unwrap();
    let splits: Vec<_> = plan
        .sources
        .iter()
        .map(|s| (s.name.as_str(), s.split))
        .collect();
    assert_eq!(
        splits,
        [("b.jsonl", Split::ByHash), ("a.jsonl", Split::HeldOut)]
    );
}

#[test]
fn a_changed_file_has_another_stamp() {
    let corpus = Corpus::new(&["a.jsonl"]);
    let before = corpus.plan(&["corpus"]).unwrap();
    assert_eq!(before, corpus.plan(&["corpus"]).unwrap());
    fs::write(corpus.path("corpus/a.jsonl"), "longer than before").unwrap();
    let after = corpus.plan(&["corpus"]).unwrap();
    assert_ne!(before.sources[0].stamp, after.sources[0].stamp);
}

#[cfg(unix)]
#[test]
fn a_second_hard_link_to_a_file_is_refused() {
    let corpus = Corpus::new(&["a.jsonl", "b/x.jsonl"]);
    fs::hard_link(corpus.path("corpus/a.jsonl"), corpus.path("corpus/c.jsonl")).unwrap();
    for inputs in [
        &["corpus/a.jsonl", "corpus/c.jsonl"][..],
        &["corpus/b", "corpus/c.jsonl", "corpus/a.jsonl"],
        &["corpus"],
    ] {
        let error = corpus.plan(inputs).unwrap_err().to_string();
        assert!(error.contains("is given twice"), "{error}");
    }
    // One of them alone is a file like any other.
    assert_eq!(corpus.plan(&["corpus/a.jsonl"]).unwrap().sources.len(), 1);
}
