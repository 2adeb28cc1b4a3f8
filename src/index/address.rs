//! What looks like a URL where the folder of an index is wanted.
//!
//! In: the place of an index as somebody wrote it. Out: whether it is a URL that indexes are read from, or what to write
//! in its place. Knows no network: reading from URLs is the loader's.

use std::path::Path;

/// What stands before `://` in the URLs of indexes.
const SCHEMES: [&str; 10] = [
    "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https", "file",
];

/// The URL that a place is, where indexes can be read from such ones; `None` for folders and all else.
pub fn remote_url(place: &Path) -> Option<&str> {
    let text = place.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    SCHEMES
        .contains(&scheme.to_ascii_lowercase().as_str())
        .then_some(text)
}

/// Why a place that is no folder cannot be used, if it was meant as a URL; `None` where it was not.
pub(super) fn mistaken(place: &Path) -> Option<String> {
    let (scheme, rest) = place.to_str()?.split_once(':')?;
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c));
    if !is_scheme || !rest.starts_with('/') {
        return None;
    }
    let known = SCHEMES.contains(&scheme.to_ascii_lowercase().as_str());
    Some(match (known, rest.starts_with("//")) {
        (true, true) => "it is a URL, and here a folder is wanted: copy the index to one (`aws s3 cp --recursive`, \
            `rclone copy`, `wget -r`), or use the folder that it was uploaded from. Trainers read URLs as they are, and hold \
            every file against the manifest's checksum"
            .into(),
        (true, false) => format!(
            "there is no such folder; a URL has two slashes: {scheme}://{}",
            rest.trim_start_matches('/')
        ),
        (false, _) => format!(
            "indexes are read from folders and from URLs of s3://, gs://, az://, http(s):// and file://, not of {scheme}://"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_from_a_folder() {
        for place in ["s3://b/i", "gs://b", "az://c/i", "HTTPS://h/i", "file:///i"] {
            assert_eq!(remote_url(place.as_ref()), Some(place));
        }
        for place in ["s3", "./s3:/x", "C://x", "runs/a://b", "/s3://b", "ftp://b"] {
            assert_eq!(remote_url(place.as_ref()), None, "{place}");
        }
    }

    #[test]
    fn what_was_meant_as_a_url_is_said() {
        for (place, said) in [
            ("s3://b/i", "a folder is wanted"),
            ("s3:/b/i", "two slashes: s3://b/i"),
            ("https:/h", "two slashes: https://h"),
            ("ftp://h/i", "not of ftp://"),
            ("hdfs:/h/i", "not of hdfs://"),
        ] {
            let reason = mistaken(place.as_ref()).unwrap();
            assert!(reason.contains(said), "{reason}");
        }
        for place in ["index", "./s3:/x", "C:/x", "a:b", "runs/a://b", "1s3://x"] {
            assert_eq!(mistaken(place.as_ref()), None, "{place}");
        }
    }
}
