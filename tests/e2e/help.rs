//! The help a user reads, as snapshots.

use hds_tests::succeed;

#[test]
fn help_texts_are_as_reviewed() {
    for (binary, command) in [
        ("hds-index", &[][..]),
        ("hds-index", &["build"]),
        ("hds-index", &["export"]),
        ("hds-index", &["import"]),
        ("hds-index", &["inspect"]),
        ("hds-index", &["merge"]),
        ("hds-index", &["sample"]),
        ("hds-index", &["stats"]),
        ("hds-index", &["train-tokenizer"]),
        ("hds-index", &["verify"]),
        ("hds-train", &[]),
        ("hds-train", &["run"]),
        ("hds-train", &["report"]),
        ("hds-train", &["compare"]),
        ("hds-train", &["eval"]),
        ("hds-train", &["export"]),
        ("hds-train", &["plan"]),
        ("hds-agent", &[]),
        ("hds-agent", &["serve"]),
    ] {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let name = [&[binary][..], command].concat().join("_");
        insta::assert_snapshot!(name, succeed(binary, &arguments));
    }
}
