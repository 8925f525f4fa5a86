//! The crafted files in `cases/`: each is taken or refused as `cases/manifest.json` says.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use demask_gguf::{Error, Gguf, Value, escape};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn open(file: &str) -> Result<Gguf, Error> {
    Gguf::open(dir().join(file))
}

fn manifest() -> Vec<serde_json::Value> {
    serde_json::from_slice(&std::fs::read(dir().join("manifest.json")).unwrap()).unwrap()
}

/// One line, nothing that drives a terminal.
fn assert_clean(text: &str) {
    assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text:?}");
}

/// Reads everything that an inspection would show.
fn read_all(gguf: &Gguf) {
    for (key, value) in gguf.metadata().iter() {
        assert_clean(&escape(key));
        assert_clean(&value.to_string());
        if let Value::Array(array) = value {
            assert_eq!(array.iter().count(), array.len());
        }
    }
    for tensor in gguf.tensors() {
        assert_clean(&escape(&tensor.name));
        assert_eq!(gguf.bytes(tensor).len() as u64, tensor.byte_len());
        assert_eq!(tensor.rows() * tensor.row_bytes(), tensor.byte_len());
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
    }
}

#[test]
fn every_case_behaves_as_the_manifest_says() {
    let mut faults = Vec::new();
    for entry in manifest() {
        let (case, file) = (entry["case"].as_str().unwrap(), entry["file"].as_str().unwrap());
        let started = Instant::now();
        let result = open(file);
        if started.elapsed() > Duration::from_secs(1) {
            faults.push(format!("{case} {file}: took {:?}", started.elapsed()));
        }
        match (result, entry["verdict"].as_str().unwrap()) {
            (Ok(gguf), "accept") => {
                read_all(&gguf);
                if gguf.tensors().len() as u64 != entry["tensors"].as_u64().unwrap() {
                    faults.push(format!("{case} {file}: {} tensors", gguf.tensors().len()));
                }
            }
            (Err(error), "refuse") => {
                let text = error.to_string();
                assert_clean(&text);
                if let Some(hint) = error.hint() {
                    assert_clean(&hint);
                }
                let words = entry["words"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
                let lacking: Vec<&str> = words.chain([file]).filter(|word| !text.contains(word)).collect();
                if !lacking.is_empty() {
                    faults.push(format!("{case} {file}: `{text}` lacks {lacking:?}"));
                }
            }
            (Ok(_), _) => faults.push(format!("{case} {file}: taken")),
            (Err(error), _) => faults.push(format!("{case} {file}: {error}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn manifest_and_directory_agree() {
    let named: BTreeSet<String> = manifest().iter().map(|entry| entry["file"].as_str().unwrap().to_owned()).collect();
    let there: BTreeSet<String> = std::fs::read_dir(dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".gguf"))
        .collect();
    assert_eq!(named, there);
    assert_eq!(named.len(), 80);
}

/// The same files from memory give the same verdicts and the same words.
#[test]
fn memory_and_file_agree() {
    for entry in manifest() {
        let file = entry["file"].as_str().unwrap();
        let path = dir().join(file);
        let bytes = std::fs::read(&path).unwrap();
        if bytes.is_empty() {
            continue; // an empty file is refused before it is read
        }
        let memory = Gguf::from_bytes(&path.to_string_lossy(), bytes).map(|g| g.tensors().to_vec());
        let mapped = open(file).map(|g| g.tensors().to_vec());
        assert_eq!(memory.map_err(|e| e.to_string()), mapped.map_err(|e| e.to_string()), "{file}");
    }
}

#[test]
fn a09_tensors_are_read_from_the_right_place_at_every_alignment() {
    for alignment in [8, 16, 64, 4096] {
        let gguf = open(&format!("ok_align{alignment}.gguf")).unwrap();
        assert_eq!(gguf.alignment(), alignment);
        let a: Vec<u8> = (0..16u8).map(|i| i.wrapping_mul(7).wrapping_add(1)).collect();
        let b: Vec<u8> = a.iter().rev().copied().collect();
        assert_eq!(gguf.bytes(gguf.tensor("a").unwrap())[..], a[..], "alignment {alignment}");
        assert_eq!(gguf.bytes(gguf.tensor("b").unwrap())[..], b[..], "alignment {alignment}");
    }
}

#[test]
fn a05_a_tensor_without_elements_is_empty() {
    for (file, rows) in [("dim_0_first.gguf", 1), ("dim_0_second.gguf", 0)] {
        let gguf = open(file).unwrap();
        let tensor = &gguf.tensors()[0];
        assert_eq!((tensor.rows(), tensor.elements(), tensor.byte_len()), (rows, 0, 0), "{file}");
        assert!(gguf.bytes(tensor).is_empty());
        gguf.bytes(tensor).release(0..usize::MAX);
    }
}

#[test]
fn a11_bytes_after_the_last_tensor_do_not_matter() {
    let plain = open("ok_v3.gguf").unwrap();
    for file in ["ok_v3_nopadend.gguf", "ok_trailing.gguf", "ok_v2.gguf"] {
        let other = open(file).unwrap();
        assert_eq!(other.tensors(), plain.tensors(), "{file}");
        assert_eq!(other.bytes(&other.tensors()[0]), plain.bytes(&plain.tensors()[0]), "{file}");
    }
}

#[test]
fn a15_nested_arrays_need_no_stack() {
    let deep = std::thread::Builder::new().stack_size(256 * 1024);
    let error = deep.spawn(|| open("arr_nested20000.gguf").map(drop)).unwrap().join().unwrap();
    assert!(error.unwrap_err().to_string().contains("array inside an array"));
}

#[test]
fn a21_a_type_that_is_not_known_is_named_and_the_known_ones_are_listed() {
    let error = open("ttype_q4_2.gguf").unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("Q4_K") && hint.contains("IQ3_S") && !hint.contains("Q4_2"), "{hint}");
    assert_eq!(open("ttype_next.gguf").unwrap().tensors()[0].ty.name(), "NVFP4");
}

#[test]
fn a28_nul_is_an_ordinary_byte() {
    let gguf = open("key_trailing_nul.gguf").unwrap();
    let error = gguf.metadata().require_string("general.architecture").unwrap_err();
    assert!(error.to_string().ends_with("metadata key `general.architecture` is missing"), "{error}");
    assert_eq!(escape(gguf.metadata().iter().next().unwrap().0), r"general.architecture\0");
    assert_eq!(open("str_nul.gguf").unwrap().metadata().string("general.name").unwrap(), Some("a\0b"));
}

#[test]
fn a31_text_of_a_file_never_drives_the_terminal() {
    let gguf = open("str_ansi.gguf").unwrap();
    assert_eq!(gguf.metadata().get("general.name").unwrap().to_string(), r#""\x1b[2J\x1b]0;pwn\x07""#);
    let gguf = open("str_badutf8.gguf").unwrap();
    let Some(Value::String(name)) = gguf.metadata().get("general.name") else { panic!("a string") };
    assert_eq!(name.as_bytes(), b"\xff\xfe\x80");
    assert_eq!(name.to_string(), r"\xff\xfe\x80");
    let error = gguf.metadata().string("general.name").unwrap_err().to_string();
    assert!(error.contains("general.name") && error.contains("UTF-8"), "{error}");
}

#[test]
fn a35_the_edges_that_are_taken_read_right() {
    assert_eq!(open("nd_0.gguf").unwrap().tensors()[0].elements(), 1);
    let gguf = open("out_of_order.gguf").unwrap();
    assert!(gguf.tensors()[0].offset() > gguf.tensors()[1].offset());
    assert_eq!(open("key_65535.gguf").unwrap().metadata().iter().map(|(key, _)| key.len()).max(), Some(65535));
}
