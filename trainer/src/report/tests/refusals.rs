//! Logs that are missing, damaged or not ours: what is said about them.

use serde_json::json;
use tempfile::TempDir;

use super::{Synthetic, folder_of, line, lines_of};
use crate::report::{ReportError, write_report};

#[test]
fn bad_logs_are_refused_with_file_and_line() {
    let run = Synthetic::new(3, 4);
    let error = |lines: &[String]| {
        let folder = folder_of(lines);
        let error = write_report(folder.path()).expect_err("refused");
        assert!(!folder.path().join("report.html").exists());
        assert!(error.to_string().contains("metrics.jsonl"), "{error}");
        error.to_string()
    };
    let good = lines_of(&run);
    let with = |at: usize, text: &str| {
        let mut lines = good.clone();
        lines[at] = format!("{text}\n");
        lines
    };
    assert!(error(&with(3, "{\"kind\":\"step\"")).contains("line 4: not JSON"));
    assert!(error(&with(3, "")).contains("line 4: the line is empty"));
    assert!(error(&with(3, "[1]")).contains("line 4:"));
    let mut short = run.step(1);
    short["samples"] = json!([1, 2]);
    let message = error(&with(3, &short.to_string()));
    assert!(
        message.contains("line 4: samples has 2 values, but the run has 3 domains"),
        "{message}"
    );
    short["samples"] = json!([1, 2, -3]);
    assert!(error(&with(3, &short.to_string())).contains("line 4:"));
    let mut evaluation = run.evaluation(2);
    evaluation["losses"] = json!([]);
    assert!(error(&with(3, &evaluation.to_string())).contains("losses has 0 values"));

    assert!(error(&[]).contains("the file is empty"));
    assert!(error(&good[1..]).contains("line 1 should be a record with \"kind\":\"run\""));
    assert!(error(&["step,loss\n".to_owned()]).contains("is not a metrics log"));
    let mut header = run.run();
    header["domains"] = json!([]);
    assert!(error(&[line(&header)]).contains("\"domains\" is empty"));
    header["domains"] = json!(["a"]);
    assert!(error(&[line(&header)]).contains("base_weights has 3 values"));
    let mut other = run.run();
    other["domains"] = json!(["x", "y", "z"]);
    assert!(error(&with(3, &other.to_string())).contains("line 4: a second \"run\" record"));
}

#[test]
fn a_folder_without_a_log_says_what_to_give() {
    let folder = TempDir::new().expect("a temporary folder");
    let error = write_report(folder.path()).expect_err("nothing there");
    assert!(matches!(error, ReportError::Missing { .. }));
    assert!(error.to_string().contains("hds-train run --out"), "{error}");
}

#[test]
fn numbers_at_the_edge_of_their_types_do_not_break_the_page() {
    let run = Synthetic::new(2, 4);
    let mut far = run.step(3);
    far["step"] = json!(u64::MAX);
    far["samples"] = json!([u64::MAX, u64::MAX]);
    far["loss"] = json!(1e308);
    far["gradient_norm"] = json!(-1e308);
    let mut evaluation = run.evaluation(4);
    evaluation["step"] = json!(u64::MAX);
    evaluation["losses"] = json!([800.0, -1e300]);
    for lines in [
        vec![
            line(&run.run()),
            line(&run.step(0)),
            line(&far),
            line(&evaluation),
        ],
        vec![line(&run.run()), line(&far), line(&evaluation)],
    ] {
        let folder = folder_of(&lines);
        let page = std::fs::read_to_string(write_report(folder.path()).expect("a page"))
            .expect("readable");
        let figures = &page[..page.rfind("<script>").expect("the script")];
        for number in ["NaN", "inf%", " inf", "\"inf", "Linf", "Minf"] {
            let found = figures
                .find(number)
                .map(|at| &figures[at.saturating_sub(80)..at + 20]);
            assert_eq!(found, None, "a number that SVG cannot read");
        }
    }
}
