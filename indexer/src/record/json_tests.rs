//! Good lines give their fields; every kind of bad line gives its own fault and place.

use super::*;

fn read(line: &[u8]) -> Result<(String, Option<String>), JsonFault> {
    let mut found = Found::default();
    read_object(
        line,
        &"text".parse().unwrap(),
        Some(&"meta.pile_set_name".parse().unwrap()),
        &mut found,
    )?;
    Ok((found.text, found.has_domain.then_some(found.domain)))
}

fn good(line: &str) -> (String, Option<String>) {
    read(line.as_bytes()).unwrap()
}

#[test]
fn fields_are_found_in_any_order_and_unescaped() {
    let web = || Some("web".to_owned());
    assert_eq!(
        good(r#"{"text":"a\n\u00e9\ud83d\ude00\u0000","meta":{"pile_set_name":"web"}}"#),
        ("a\né😀\0".into(), web())
    );
    assert_eq!(
        good(r#" {"meta":{"x":[1,{"text":2}],"pile_set_name":"web"},"n":1e5,"text":""} "#),
        (String::new(), web())
    );
    assert_eq!(good("{\"text\":\"x\"}\r"), ("x".into(), None));
    // Keys may be written with escapes too.
    assert_eq!(good(r#"{"t\u0065xt":"x"}"#), ("x".into(), None));
}

#[test]
fn a_domain_below_something_that_is_no_object_is_absent() {
    for meta in ["null", "1", "\"s\"", "[1,[2]]", "true", "1.5", "-1", "{}"] {
        assert_eq!(good(&format!("{{\"meta\":{meta},\"text\":\"x\"}}")).1, None);
    }
}

#[test]
fn both_fields_may_lie_in_one_object() {
    let mut found = Found::default();
    let (text, domain) = ("d.t".parse().unwrap(), "d.s".parse().unwrap());
    read_object(
        br#"{"d":{"s":"web","t":"x"}}"#,
        &text,
        Some(&domain),
        &mut found,
    )
    .unwrap();
    assert_eq!((found.text.as_str(), found.domain.as_str()), ("x", "web"));
    // The same field for both.
    read_object(br#"{"d":{"t":"x"}}"#, &text, None, &mut found).unwrap();
    assert!(!found.has_domain);
}

#[test]
fn every_fault_is_told_apart_and_located() {
    let cases: &[(&[u8], &str, u64)] = &[
        (b"", "broken JSON", 0),
        (b"{", "broken JSON", 0),
        (b"{\"text\":\"x\"", "broken JSON", 10),
        (b"{\"text\":\"x", "broken JSON", 9),
        (b"{\"text\":\"a\x01b\"}", "broken JSON", 10),
        (b"{\"text\":\"a\x00b\"}", "broken JSON", 10),
        (b"{'text':'x'}", "broken JSON", 1),
        (b"{\"text\":\"x\",}", "broken JSON", 12),
        (b"{\"text\":\"x\",\"n\":01}", "broken JSON", 17),
        (b"nonsense", "broken JSON", 1),
        (b"[1]", "not an object", 0),
        (b"1", "not an object", 0),
        (b"-1", "not an object", 1),
        (b"\"text\"", "not an object", 5),
        (b"null", "not an object", 3),
        (b"true", "not an object", 3),
        (
            b"{\"text\":\"x\"}{\"text\":\"y\"}",
            "two values on a line",
            12,
        ),
        (b"{\"text\":\"x\"} ,", "two values on a line", 13),
        (b"{\"txt\":\"x\"}", "field missing", 0),
        (b"{\"text\":1}", "field not a string", 8),
        (b"{\"text\":null}", "field not a string", 11),
        (b"{\"text\":[\"x\"]}", "field not a string", 8),
        (b"{\"text\":{}}", "field not a string", 9),
        (
            b"{\"meta\":{\"pile_set_name\":7},\"text\":\"x\"}",
            "field not a string",
            25,
        ),
        (b"{\"text\":\"x\",\"text\":\"y\"}", "field twice", 17),
        (b"{\"text\":\"a\xff\"}", "not UTF-8", 10),
        (b"{\"text\":\"\\ud800\"}", "lone surrogate", 15),
        (b"{\"text\":\"\\udc00x\"}", "lone surrogate", 14),
        (b"{\"text\":\"\\ud800\\u0041\"}", "lone surrogate", 20),
    ];
    for (line, kind, byte) in cases {
        let shown = String::from_utf8_lossy(line);
        let got = read(line).expect_err(&shown);
        assert_eq!(
            (got.fault.kind(), got.byte),
            (*kind, *byte),
            "{shown}: {}",
            got.fault
        );
    }
}

#[test]
fn deep_nesting_in_unwanted_fields_is_no_fault_and_no_overflow() {
    let deep = format!(
        "{{\"x\":{}{},\"text\":\"y\"}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(good(&deep).0, "y");
    let deep = format!("{{\"meta\":{}", "{\"pile_set_name\":".repeat(100_000));
    assert!(read(deep.as_bytes()).is_err());
}

proptest::proptest! {
    /// Whatever an object holds, the fields are those that a whole parse finds.
    #[test]
    fn equals_a_whole_parse(
        text in ".*", domain in ".*", other in ".*", key in "[a-z_.\\\\\"é]{0,6}", order in 0usize..6, pretty: bool,
    ) {
        let mut meta = serde_json::Map::new();
        meta.insert(key.clone(), other.clone().into());
        meta.insert("pile_set_name".into(), domain.clone().into());
        let fields = [
            ("text".to_owned(), serde_json::Value::from(text.clone())),
            ("meta".to_owned(), meta.into()),
            (format!("x{key}"), serde_json::json!([{"text": other}, null, -1.5e-7])),
        ];
        let mut line = String::from("{");
        for i in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][order] {
            let (name, value) = &fields[i];
            let name = serde_json::Value::from(name.as_str());
            let value = if pretty { format!("{value:#}") } else { value.to_string() };
            line += &format!("{}{name}: {value}", if line.len() > 1 { "," } else { "" });
        }
        line += "}";
        let whole: serde_json::Value = serde_json::from_str(&line).unwrap();
        let (got_text, got_domain) = good(&line);
        proptest::prop_assert_eq!(Some(got_text.as_str()), whole["text"].as_str());
        proptest::prop_assert_eq!(got_domain.as_deref(), whole["meta"]["pile_set_name"].as_str());
    }

    /// Any bytes give fields or a fault inside the line, and agree with a whole parse on whether they are JSON.
    #[test]
    fn any_bytes_are_read_or_refused(mut line in proptest::collection::vec(proptest::num::u8::ANY, 0..60), cut: bool) {
        if cut {
            let good = br#"{"text":"a\u00e9\n","meta":{"pile_set_name":"web"},"n":[1,2.5,{"x":null}]}"#;
            let at = line.first().map_or(0, |b| usize::from(*b) % good.len());
            let mut mixed = good.to_vec();
            mixed.splice(at..(at + 2).min(good.len()), line.iter().copied().skip(1).take(2));
            line = mixed;
        }
        let whole = serde_json::from_slice::<serde_json::Value>(&line);
        match read(&line) {
            Ok((text, _)) => {
                let whole = whole.unwrap();
                proptest::prop_assert_eq!(Some(text.as_str()), whole["text"].as_str());
            }
            Err(e) => proptest::prop_assert!(e.byte <= line.len() as u64),
        }
    }
}
