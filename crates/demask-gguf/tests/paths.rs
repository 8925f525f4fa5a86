//! Paths: what is no file, odd names, split models.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

use demask_gguf::{ErrorKind, Gguf, TensorType, Writer};

fn tensor_bytes(number: usize) -> Vec<u8> {
    (0..16u8).map(|i| i.wrapping_mul(3).wrapping_add(number as u8)).collect()
}

/// Part `number` (from 0) of `count`, with two tensors of its own.
fn part(number: u32, count: u32, tensors: i32, alignment: u32) -> Writer<'static> {
    let mut writer = Writer::new();
    if number == 0 {
        writer.add("general.architecture", "llada").unwrap();
    }
    writer.add("general.alignment", alignment).unwrap();
    writer.add("split.no", number as u16).unwrap();
    writer.add("split.count", count as u16).unwrap();
    writer.add("split.tensors.count", tensors).unwrap();
    for n in [2 * number as usize, 2 * number as usize + 1] {
        writer.tensor(&format!("t.{n}"), &[4], TensorType::F32, tensor_bytes(n)).unwrap();
    }
    writer
}

fn part_path(dir: &Path, number: u32, count: u32) -> PathBuf {
    dir.join(format!("m-{number:05}-of-{count:05}.gguf"))
}

fn split_in_3(dir: &Path) {
    for number in 0..3 {
        part(number, 3, 6, 8 << number).save(part_path(dir, number + 1, 3)).unwrap();
    }
}

#[test]
fn a19_a_split_model_opens_from_any_part() {
    let dir = tempfile::tempdir().unwrap();
    split_in_3(dir.path());
    for given in 1..=3 {
        let gguf = Gguf::open(part_path(dir.path(), given, 3)).unwrap();
        assert_eq!(gguf.metadata().require_string("general.architecture").unwrap(), "llada");
        let names: Vec<&str> = gguf.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["t.0", "t.1", "t.2", "t.3", "t.4", "t.5"]);
        for (n, tensor) in gguf.tensors().iter().enumerate() {
            assert_eq!(gguf.bytes(tensor)[..], tensor_bytes(n)[..]);
            assert_eq!(tensor.part(), n / 2);
            gguf.bytes(tensor).release(0..usize::MAX);
            assert_eq!(gguf.bytes(tensor)[..], tensor_bytes(n)[..]);
        }
        assert_eq!((gguf.parts(), gguf.alignment()), (3, 8));
        let read = Gguf::read(part_path(dir.path(), given, 3)).unwrap();
        assert!(gguf.is_mapped() && !read.is_mapped());
        for (mapped, tensor) in gguf.tensors().iter().zip(read.tensors()) {
            assert!(gguf.bytes(mapped) == read.bytes(tensor));
        }
        let on_disk: u64 = (1..=3).map(|n| fs::metadata(part_path(dir.path(), n, 3)).unwrap().len()).sum();
        assert_eq!(gguf.file_bytes(), on_disk);
    }
}

#[test]
fn a19_the_folder_names_part_1() {
    let dir = tempfile::tempdir().unwrap();
    split_in_3(dir.path());
    fs::write(dir.path().join("a.txt"), "x").unwrap();
    let error = Gguf::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("a directory") && error.contains("m-00001-of-00003.gguf"), "{error}");
}

#[test]
fn a19_a_missing_part_is_named() {
    let dir = tempfile::tempdir().unwrap();
    split_in_3(dir.path());
    fs::remove_file(part_path(dir.path(), 2, 3)).unwrap();
    for given in [1, 3] {
        let error = Gguf::open(part_path(dir.path(), given, 3)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("part 2 of 3 is missing") && text.contains("m-00002-of-00003.gguf"), "{text}");
        assert!(error.hint().unwrap().contains("folder"));
    }
}

#[test]
fn a19_parts_that_do_not_fit_together_are_refused() {
    let refuse = |change: &dyn Fn(&Path), given: u32, words: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        split_in_3(dir.path());
        change(dir.path());
        let text = Gguf::open(part_path(dir.path(), given, 3)).unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text} lacks one of {words:?}");
    };
    let put = |dir: &Path, at: u32, mut writer: Writer<'_>| {
        writer.save(part_path(dir, at, 3)).unwrap();
    };
    // Two parts have changed places, or the given one has another's name.
    refuse(&|dir| put(dir, 2, part(2, 3, 6, 32)), 1, &["m-00002-of-00003", "split.no", "found 2"]);
    refuse(&|dir| put(dir, 1, part(1, 3, 6, 32)), 1, &["part 2 of 3", "-00002-of-00003.gguf"]);
    // A part of another set.
    refuse(&|dir| put(dir, 3, part(2, 4, 6, 32)), 1, &["m-00003-of-00003", "split.count", "found 4"]);
    refuse(&|dir| put(dir, 3, part(2, 3, 7, 32)), 1, &["split.tensors.count", "found 7"]);
    refuse(&|dir| (0..3).for_each(|n| put(dir, n + 1, part(n, 3, 9, 32))), 2, &["9 by", "found 6"]);
    // A whole model, or none at all, under the name of a part.
    refuse(&|dir| put(dir, 3, Writer::new()), 1, &["m-00003-of-00003", "a whole model"]);
    refuse(&|dir| fs::write(part_path(dir, 3, 3), "<html>").unwrap(), 1, &["m-00003-of-00003", "web page"]);
    // The same tensor in two parts.
    let twice = |dir: &Path| {
        let mut writer = part(2, 3, 7, 32);
        writer.tensor("t.0", &[4], TensorType::F32, tensor_bytes(0)).unwrap();
        put(dir, 3, writer);
        (0..2).for_each(|n| put(dir, n + 1, part(n, 3, 7, 32)));
    };
    refuse(&twice, 1, &["tensor `t.0`", "parts 1 and 3"]);
    // Numbers that are no part numbers.
    refuse(&|dir| put(dir, 1, part(5, 3, 6, 32)), 1, &["split.no", "below the 3", "found 5"]);
}

#[test]
fn a19_a_renamed_part_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    split_in_3(dir.path());
    let path = dir.path().join("model.gguf");
    fs::rename(part_path(dir.path(), 2, 3), &path).unwrap();
    let text = Gguf::open(&path).unwrap_err().to_string();
    assert!(text.contains("part 2 of 3") && text.contains("-00002-of-00003.gguf"), "{text}");
    let text = Gguf::from_bytes("m", fs::read(&path).unwrap()).unwrap_err().to_string();
    assert!(text.contains("one part of 3"), "{text}");
}

#[test]
fn a19_a_set_of_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    part(0, 1, 2, 32).save(&path).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().parts(), 1);
}

#[test]
fn a33_what_is_no_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Gguf::open(dir.path()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotAFile { example: None, .. }), "{error}");
    assert!(error.to_string().contains("a directory"), "{error}");
}

#[cfg(unix)]
#[test]
fn a33_pipes_and_devices_are_refused_without_being_opened() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let started = std::time::Instant::now();
    let error = Gguf::open(&pipe).unwrap_err().to_string();
    assert!(error.contains("a named pipe") && error.contains("pipe.gguf"), "{error}");
    let error = Gguf::open("/dev/null").unwrap_err().to_string();
    assert!(error.contains("a device") && error.contains("/dev/null"), "{error}");
    assert!(started.elapsed().as_secs() < 1);
}

#[test]
fn e36_the_reason_of_the_system_is_told() {
    let error = Gguf::open("no/such/file.gguf").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { error, .. } if error.kind() == std::io::ErrorKind::NotFound));
    assert!(error.to_string().starts_with("cannot read `no/such/file.gguf`: cannot open it: "), "{error}");
    assert!(error.hint().is_none());
    assert!(Gguf::open("~/file.gguf").unwrap_err().hint().unwrap().contains("shell"));
}

#[test]
fn e15_odd_names_open_and_are_shown_on_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut names: Vec<std::ffi::OsString> =
        ["\u{43c}\u{43e}\u{434}\u{435}\u{43b}\u{44c}", "\u{fc}", "u\u{308}", "a b", "it's", "\u{3000}", "\u{1f999}"]
            .map(|name| format!("{name}.gguf").into())
            .to_vec();
    names.push("n".repeat(255).into());
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt as _;
        names.push("a\nb\x1b[2J.gguf".into());
        names.push(std::ffi::OsString::from_vec(b"a\xff.gguf".to_vec()));
    }
    for name in names {
        let path = dir.path().join(&name);
        let mut file = Vec::new();
        part(0, 1, 2, 32).write_to(&mut file).unwrap();
        fs::write(&path, &file).unwrap();
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!(gguf.path(), Some(&*path));
        assert!(!gguf.name().chars().any(char::is_control), "{}", gguf.name());
        fs::write(&path, &file[..30]).unwrap();
        let error = Gguf::open(&path).unwrap_err().to_string();
        assert!(!error.chars().any(char::is_control) && error.contains(gguf.name()), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn e15_a_split_model_under_a_name_that_is_not_utf8() {
    use std::os::unix::ffi::OsStringExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = |n: u32| {
        let name = [b"a\xff", format!("-{n:05}-of-00003.gguf").as_bytes()].concat();
        dir.path().join(std::ffi::OsString::from_vec(name))
    };
    for n in 0..3 {
        part(n, 3, 6, 32).save(path(n + 1)).unwrap();
    }
    assert_eq!(Gguf::open(path(2)).unwrap().tensors().len(), 6);
}

#[test]
fn e07_what_was_read_stays_whatever_becomes_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut writer = Writer::new();
    writer.tensor("t", &[4], TensorType::F32, tensor_bytes(1)).unwrap();
    writer.save(&path).unwrap();
    let read = Gguf::read(&path).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert_eq!(read.bytes(read.tensor("t").unwrap())[..], tensor_bytes(1)[..]);
    let error = Gguf::read(&path).unwrap_err();
    assert_eq!(error.to_string(), Gguf::open(&path).unwrap_err().to_string());
}
