//! Tensor files come back equal; damaged and hostile ones are refused.

use std::collections::BTreeMap;
use std::fs;

use safetensors::SafeTensors;
use tch::{Device, Kind, Tensor};

use super::*;

fn sample() -> Vec<(String, Tensor)> {
    let base = Tensor::arange(6, (Kind::Float, Device::Cpu)).view([2, 3]) - 2.5;
    vec![
        ("f32".to_owned(), base.shallow_clone()),
        ("transposed".to_owned(), base.tr()),
        ("f64".to_owned(), base.to_kind(Kind::Double)),
        ("f16".to_owned(), base.to_kind(Kind::Half)),
        ("bf16".to_owned(), base.to_kind(Kind::BFloat16)),
        ("i64".to_owned(), Tensor::from_slice(&[i64::MIN, 7])),
        ("u8".to_owned(), Tensor::from_slice(&[0u8, 255])),
        ("bool".to_owned(), Tensor::from_slice(&[true, false])),
        ("scalar".to_owned(), Tensor::from(3.5f32)),
        (
            "empty".to_owned(),
            Tensor::zeros([0, 4], (Kind::Float, Device::Cpu)),
        ),
    ]
}

#[test]
fn tensors_of_all_kinds_come_back_and_bytes_do_not_depend_on_order() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let mut tensors = sample();
    let metadata: BTreeMap<String, String> = (0..9)
        .map(|i| (format!("key{i}"), format!("value \"{i}\"")))
        .collect();
    write(&one, &tensors, &metadata).unwrap();
    let back = read(&one, Device::Cpu).unwrap();
    assert_eq!(back.len(), tensors.len());
    for (name, tensor) in &tensors {
        let got = &back[name];
        assert_eq!(got.kind(), tensor.kind(), "{name}");
        assert_eq!(got.size(), tensor.size(), "{name}");
        assert!(got.equal(tensor), "{name}");
    }
    assert_eq!(*TensorFile::open(&one).unwrap().metadata(), metadata);
    tensors.reverse();
    write(&two, &tensors, &metadata).unwrap();
    assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
}

#[test]
fn the_reference_crate_reads_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write(&path, &sample(), &BTreeMap::new()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let parsed = SafeTensors::deserialize(&bytes).unwrap();
    let view = parsed.tensor("transposed").unwrap();
    assert_eq!(view.shape(), [3, 2]);
    let floats: Vec<f32> = view
        .data()
        .chunks_exact(4)
        .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
        .collect();
    assert_eq!(floats, [-2.5, 0.5, -1.5, 1.5, -0.5, 2.5]);
}

#[test]
fn a_name_cannot_be_written_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let tensor = || ("same".to_owned(), Tensor::from_slice(&[1.0f32]));
    let error = write(&path, &[tensor(), tensor()], &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("`same`"), "{error}");
    assert!(!path.exists());
}

/// A file with the given header text and number of data bytes.
fn refused(header: &str, data: usize) -> String {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(vec![7u8; data]);
    refused_bytes(&bytes)
}

fn refused_bytes(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hostile.safetensors");
    fs::write(&path, bytes).unwrap();
    let error = read(&path, Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("hostile.safetensors"), "{error}");
    error
}

#[test]
fn hostile_files_are_refused_with_the_field() {
    let one = |shape: &str, offsets: &str, dtype: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let cases = [
        (one("[2]", "[0,8]", "F32"), 7, "data is 7 bytes"),
        (one("[2]", "[0,8]", "F32"), 9, "header says 8"),
        (one("[2]", "[4,12]", "F32"), 12, "must start at 0"),
        (one("[2]", "[8,0]", "F32"), 8, "data_offsets"),
        (one("[3]", "[0,8]", "F32"), 8, "shape [3]"),
        (one("[2]", "[0,8]", "F33"), 8, "header is not valid"),
        (one("[-2]", "[0,8]", "F32"), 8, "header is not valid"),
        (
            one("[4294967296,4294967296,2]", "[0,0]", "F32"),
            0,
            "shape",
        ),
        (
            one("[0,9223372036854775807,9]", "[0,0]", "F32"),
            0,
            "shape",
        ),
        (one("[2]", "[0,1]", "F4"), 1, "F4 is not supported"),
        (one("[1]", "[0,1]", "BOOL"), 1, "neither 0 nor 1"),
        (
            r#"{"__metadata__":{"a":1}}"#.to_owned(),
            0,
            "header is not valid",
        ),
        ("[".repeat(100_000), 0, "header is not valid"),
        (
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#.to_owned(),
            6,
            "`b`",
        ),
    ];
    for (header, data, want) in cases {
        let error = refused(&header, data);
        assert!(error.contains(want), "{error} lacks {want}");
    }
    assert!(refused_bytes(b"").contains("header length"));
    assert!(refused_bytes(&[1, 2, 3]).contains("header length"));
    assert!(refused_bytes(&u64::MAX.to_le_bytes()).contains("header length"));
    let mut long = 1_000u64.to_le_bytes().to_vec();
    long.extend(b"{}");
    assert!(refused_bytes(&long).contains("header length"));
}

#[test]
fn a_part_of_a_tensor_is_read_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    let all: Vec<f32> = (0..12).map(|i| i as f32 / 7.0).collect();
    let tensor = Tensor::from_slice(&all).view([3, 4]);
    let bytes = Tensor::from_slice(&[1u8, 2, 3]);
    write(
        &path,
        &[("t".to_owned(), tensor), ("b".to_owned(), bytes)],
        &BTreeMap::new(),
    )
    .unwrap();
    let mut file = TensorFile::open(&path).unwrap();
    let part = file.part("t", 3..9, Device::Cpu).unwrap();
    assert_eq!(Vec::<f32>::try_from(part).unwrap(), all[3..9]);
    assert_eq!(file.part("b", 3..3, Device::Cpu).unwrap().size(), [0]);
    let error = file.part("t", 3..13, Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("3..13 of 12"), "{error}");
}

#[test]
fn a_missing_name_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write(&path, &sample(), &BTreeMap::new()).unwrap();
    let mut file = TensorFile::open(&path).unwrap();
    let error = file.tensor("nothing", Device::Cpu).unwrap_err();
    assert!(error.to_string().contains("`nothing`"), "{error}");
    assert_eq!(file.shape("f32"), Some(vec![2, 3]));
}
