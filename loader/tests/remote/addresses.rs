//! Addresses where there is no index, and what answers there in its place.

use crate::faults::answer_with;
use crate::reader::Task;

fn refusal(place: &str) -> String {
    let cache = tempfile::tempdir().unwrap();
    let error = Task::new(place, cache.path()).open().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(place), "{text}");
    text
}

#[test]
fn a_web_page_in_place_of_a_manifest_is_said_to_be_one() {
    let page = "<!DOCTYPE html>\n<html><head><title>Sign in to Coffee WiFi</title></head></html>";
    let length = page.len();
    let chunk = format!("{length:x}\r\n{page}\r\n0\r\n\r\n");
    for head in [
        format!("Content-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}"),
        format!("Content-Length: {}\r\n\r\n\u{feff}\n {page}", length + 5),
        // Made while it is sent, so that its length is not known before.
        format!("Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"),
    ] {
        let url = answer_with(move |_| format!("HTTP/1.1 200 OK\r\n{head}").into_bytes());
        let text = refusal(&format!("{url}/index"));
        assert!(text.contains("/index/manifest.json: "), "{text}");
        assert!(text.contains("web page"), "{text}");
        assert!(text.contains("check the address"), "{text}");
    }
    for (body, want) in [
        (
            "Welcome!",
            "no manifest; check the address; it begins \"Welcome!\"",
        ),
        ("", "the manifest is empty"),
        ("{\"format\": \"hds-ind", "EOF while parsing"),
    ] {
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        let url = answer_with(move |_| answer.clone().into_bytes());
        let text = refusal(&url);
        assert!(text.contains(want), "{text}");
    }
}

#[test]
fn a_mistyped_url_is_told_what_it_should_be() {
    for (place, want) in [
        (
            "s3:/bucket/index",
            "a URL has two slashes: s3://bucket/index",
        ),
        (
            "http:/host/index",
            "a URL has two slashes: http://host/index",
        ),
        ("ftp://host/index", "not of ftp://"),
        ("hdfs://host/index", "not of hdfs://"),
        (
            "http:///index",
            "it names no server; an index is at http://server/path",
        ),
        (
            "s3:///index",
            "it names no bucket; an index is at s3://bucket/path",
        ),
        ("az://", "it names no container"),
        ("file://host/index", "file:///"),
    ] {
        let text = refusal(place);
        assert!(text.contains(want), "{text}");
    }
}
