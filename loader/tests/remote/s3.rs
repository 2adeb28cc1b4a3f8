//! The stream over S3, with credentials.

use crate::reader::{Task, outcome, small_index, upload};
use crate::servers::{BUCKET, S3};

#[test]
fn every_batch_over_s3_is_the_one_of_the_folder() {
    let Some(server) = S3::start() else {
        return;
    };
    let files = small_index();
    upload(files.path(), &server.bucket().join("corpora/small"));
    let want = Task::new(files.path().to_str().unwrap(), files.path());
    let want = want.run().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(format!("s3://{BUCKET}/corpora/small"), cache.path());
    let environment = server.environment();
    let readers = [task.spawn(&environment), task.spawn(&environment)];
    for reader in readers {
        assert!(outcome(reader).unwrap() == want);
    }
    let with_little = Task {
        batches: 60,
        cache_limit: 24 * 4136,
        cache: cache.path().join("little"),
        ..task
    };
    assert!(outcome(with_little.spawn(&environment)).unwrap() == want[..60]);
}

#[test]
fn a_wrong_secret_a_wrong_bucket_and_a_wrong_path_are_told_apart() {
    let Some(server) = S3::start() else {
        return;
    };
    let files = small_index();
    upload(files.path(), &server.bucket().join("small"));
    let cache = tempfile::tempdir().unwrap();
    let read = |place: &str, edit: &[(&'static str, &str)]| {
        let mut environment = server.environment();
        environment.extend(edit.iter().map(|&(name, value)| (name, value.to_owned())));
        let task = Task {
            batches: 20,
            ..Task::new(place, cache.path())
        };
        outcome(task.spawn(&environment))
    };
    let good = format!("s3://{BUCKET}/small");
    read(&good, &[]).unwrap();
    for wrong in ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"] {
        let text = read(&good, &[(wrong, "nonsense")]).unwrap_err();
        assert!(
            text.contains("/small/manifest.json: the server refuses it"),
            "{text}"
        );
        assert!(text.contains("AWS_ACCESS_KEY_ID"), "{text}");
        let is_secret = wrong == "AWS_SECRET_ACCESS_KEY";
        assert!(!(is_secret && text.contains("nonsense")), "{text}");
    }
    // Without a key the client asks the machine for one.
    let nobody = "http://127.0.0.1:9";
    let mut environment = server.environment();
    environment.retain(|(name, _)| !name.contains("KEY"));
    environment.push(("AWS_METADATA_ENDPOINT", nobody.into()));
    let hasty = Task {
        patience_millis: 500,
        ..Task::new(&good, cache.path())
    };
    let text = outcome(hasty.spawn(&environment)).unwrap_err();
    assert!(text.contains("no credentials in the environment"), "{text}");
    let text = read("s3://nowhere/small", &[]).unwrap_err();
    assert!(
        text.contains("s3://nowhere/small/manifest.json: there is no index"),
        "{text}"
    );
    let text = read(&format!("s3://{BUCKET}/other"), &[]).unwrap_err();
    assert!(
        text.contains("/other/manifest.json: there is no index"),
        "{text}"
    );
}
