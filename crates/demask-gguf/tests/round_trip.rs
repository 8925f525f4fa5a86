//! What the writer writes, the reader reads.
#![allow(clippy::unwrap_used, missing_docs)]

use demask_gguf::{Array, ErrorKind, Gguf, GgufString, TensorType, Value, ValueType, Writer};

fn written(writer: &mut Writer<'_>) -> Gguf {
    let mut file = Vec::new();
    let size = writer.write_to(&mut file).unwrap();
    assert_eq!(size, file.len() as u64);
    Gguf::from_bytes("memory", file).unwrap()
}

#[test]
fn every_value_type_comes_back() {
    let values: Vec<(&str, Value)> = vec![
        ("u8", u8::MAX.into()),
        ("i8", i8::MIN.into()),
        ("u16", u16::MAX.into()),
        ("i16", i16::MIN.into()),
        ("u32", u32::MAX.into()),
        ("i32", i32::MIN.into()),
        ("u64", u64::MAX.into()),
        ("i64", i64::MIN.into()),
        ("f32", 0.1f32.into()),
        ("f64", 0.1f64.into()),
        ("bool", true.into()),
        ("text", "a\n\u{1f999}".into()),
        ("bytes", GgufString::new(b"\xff\0".to_vec()).into()),
        ("u8s", Array::from(&[0u8, 255][..]).into()),
        ("i8s", Array::from(&[-1i8][..]).into()),
        ("u16s", Array::from(&[1u16, 2][..]).into()),
        ("i16s", Array::from(&[-1i16, 2][..]).into()),
        ("u32s", Array::from(&[1u32, u32::MAX][..]).into()),
        ("i32s", Array::from(&[-1i32, 5][..]).into()),
        ("u64s", Array::from(&[u64::MAX][..]).into()),
        ("i64s", Array::from(&[i64::MIN][..]).into()),
        ("f32s", Array::from(&[0.5f32, -1.0][..]).into()),
        ("f64s", Array::from(&[0.25f64][..]).into()),
        ("bools", Array::from(&[true, false][..]).into()),
        ("texts", Array::strings(["", "a", "\u{e9}"]).into()),
        ("none", Array::from(&[] as &[i32]).into()),
    ];
    let mut writer = Writer::new();
    for (key, value) in &values {
        writer.add(key, value.clone()).unwrap();
    }
    let gguf = written(&mut writer);
    let back: Vec<(&str, Value)> = gguf.metadata().iter().map(|(key, value)| (key, value.clone())).collect();
    assert_eq!(back, values);
    assert_eq!(gguf.version(), 3);
    assert!(gguf.tensors().is_empty());
}

#[test]
fn typed_getters_convert_and_refuse() {
    let mut writer = Writer::new();
    writer.add("count", 4u64).unwrap();
    writer.add("minus", -1i32).unwrap();
    writer.add("eps", 1e-5f64).unwrap();
    writer.add("flag", false).unwrap();
    writer.add("heads", Array::from(&[4i32, 2][..])).unwrap();
    writer.add("scores", Array::from(&[1.5f64][..])).unwrap();
    writer.add("tokens", Array::strings(["a", "bc"])).unwrap();
    writer.add("name", "x").unwrap();
    let gguf = written(&mut writer);
    let meta = gguf.metadata();
    assert_eq!(meta.require_u32("count").unwrap(), 4);
    assert_eq!(meta.u64("count").unwrap(), Some(4));
    assert_eq!(meta.i64("minus").unwrap(), Some(-1));
    assert_eq!(meta.require_f32("eps").unwrap(), 1e-5);
    assert!(!meta.require_bool("flag").unwrap());
    assert_eq!(meta.u32s("heads").unwrap().unwrap(), [4, 2]);
    assert_eq!(meta.i32s("heads").unwrap().unwrap(), [4, 2]);
    assert_eq!(meta.f32s("scores").unwrap().unwrap(), [1.5]);
    let tokens = meta.require_strings("tokens").unwrap();
    assert_eq!((tokens.len(), tokens.get(1), tokens.get(2)), (2, Some(&b"bc"[..]), None));
    assert_eq!(tokens.iter().collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
    assert_eq!(meta.u32("absent").unwrap(), None);
    assert_eq!(meta.get("heads").unwrap().value_type(), ValueType::Array);

    let fails = |error: demask_gguf::Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text} lacks one of {words:?}");
    };
    // A27: a scalar stored as an array.
    fails(meta.u32("heads").unwrap_err(), &["memory", "`heads`", "an integer", "an array of 2 i32"]);
    fails(meta.u32("minus").unwrap_err(), &["`minus`", "from 0 to 4294967295", "i32 -1"]);
    fails(meta.u32("eps").unwrap_err(), &["`eps`", "f64 0.00001"]);
    fails(meta.f32("count").unwrap_err(), &["`count`", "a float", "u64 4"]);
    fails(meta.bool("count").unwrap_err(), &["`count`", "a bool"]);
    fails(meta.string("tokens").unwrap_err(), &["`tokens`", "a string", "an array of 2 string"]);
    fails(meta.strings("heads").unwrap_err(), &["`heads`", "an array of strings"]);
    fails(meta.i32s("tokens").map(drop).unwrap_err(), &["`tokens`", "an array of 32-bit integers"]);
    fails(meta.f32s("heads").unwrap_err(), &["`heads`", "i32 4 at element 0"]);
    fails(meta.require_u32("absent").unwrap_err(), &["metadata key `absent` is missing"]);
    fails(meta.require_strings("absent").map(drop).unwrap_err(), &["`absent` is missing"]);
}

/// The place of the data depends on the length of the header: an error shows at some lengths only.
#[test]
fn a09_alignments_and_name_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let a: Vec<u8> = (0..16u8).map(|i| i.wrapping_mul(7).wrapping_add(1)).collect();
    let b: Vec<u8> = a.iter().rev().copied().collect();
    let mut files = 0;
    for alignment in [8u32, 16, 32, 64] {
        for length in 0..32 {
            let mut writer = Writer::new();
            writer.add("general.alignment", alignment).unwrap();
            writer.add("general.name", "n".repeat(length)).unwrap();
            writer.tensor("a", &[4], TensorType::F32, &a).unwrap();
            writer.tensor("b", &[4], TensorType::F32, &b).unwrap();
            let path = dir.path().join(format!("{alignment}-{length}.gguf"));
            writer.save(&path).unwrap();
            let gguf = Gguf::open(&path).unwrap();
            assert_eq!(gguf.alignment(), u64::from(alignment));
            for (name, bytes) in [("a", &a), ("b", &b)] {
                let tensor = gguf.tensor(name).unwrap();
                assert_eq!(gguf.bytes(tensor)[..], bytes[..], "{name} at {alignment}, {length}");
                assert_eq!(tensor.offset() % u64::from(alignment), 0);
            }
            files += 1;
        }
    }
    assert_eq!(files, 128);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 128, "no half file is left behind");
}

#[test]
fn every_known_tensor_type_has_a_size_that_both_sides_agree_on() {
    let mut writer = Writer::new();
    for ty in TensorType::all() {
        let bytes = vec![ty.id() as u8; 3 * ty.block_bytes() as usize];
        writer.tensor(ty.name(), &[ty.block_len(), 3], ty, bytes).unwrap();
    }
    let gguf = written(&mut writer);
    assert_eq!(gguf.tensors().len(), TensorType::all().count());
    for tensor in gguf.tensors() {
        assert_eq!(tensor.ty.name(), tensor.name);
        assert_eq!((tensor.rows(), tensor.row_len()), (3, tensor.ty.block_len()));
        assert!(gguf.bytes(tensor).iter().all(|byte| u32::from(*byte) == tensor.ty.id()));
    }
}

#[test]
fn data_can_be_streamed() {
    let mut writer = Writer::new();
    writer
        .tensor_with("big", &[256, 1000], TensorType::Q4_K, |out| {
            (0..1000u32).try_for_each(|row| out.write_all(&[row as u8; 144]))
        })
        .unwrap();
    writer.tensor("after", &[1], TensorType::I8, vec![9]).unwrap();
    let gguf = written(&mut writer);
    let big = gguf.bytes(gguf.tensor("big").unwrap());
    assert!(big.chunks(144).enumerate().all(|(row, bytes)| bytes.iter().all(|byte| *byte == row as u8)));
    assert_eq!(gguf.bytes(gguf.tensor("after").unwrap())[..], [9]);
    // The bytes outlive the file they came from, on any thread.
    drop(gguf);
    assert_eq!(std::thread::spawn(move || big[144]).join().unwrap(), 1);
}

#[test]
fn a_stream_of_the_wrong_length_is_refused_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    for count in [3, 5] {
        let mut writer = Writer::new();
        writer.tensor_with("t", &[4], TensorType::I8, move |out| out.write_all(&vec![0; count])).unwrap();
        let error = writer.save(dir.path().join("m.gguf")).unwrap_err().to_string();
        assert!(error.starts_with("cannot write `") && error.contains("m.gguf"), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let mut writer = Writer::new();
    writer.add("k", 1u32).unwrap();
    writer.tensor("t", &[4], TensorType::I8, vec![0; 4]).unwrap();
    let long = "n".repeat(65);
    let mut texts = vec![
        writer.add("", 1u32).err().unwrap().to_string(),
        writer.add("k", 1u32).err().unwrap().to_string(),
        writer.add(&"k".repeat(65536), 1u32).err().unwrap().to_string(),
        writer.add("general.alignment", 24u32).err().unwrap().to_string(),
        writer.add("general.alignment", "32").err().unwrap().to_string(),
    ];
    let mut refuse = |name: &str, dims: &[u64], ty: TensorType, len: usize| {
        let error = writer.tensor(name, dims, ty, vec![0; len]).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Unwritable { .. }));
        texts.push(error.to_string());
    };
    refuse("t", &[4], TensorType::I8, 4);
    refuse("", &[4], TensorType::I8, 4);
    refuse(&long, &[4], TensorType::I8, 4);
    refuse("u", &[4, 1, 1, 1, 1], TensorType::I8, 4);
    refuse("u", &[4], TensorType(4), 4);
    refuse("u", &[33], TensorType::Q8_0, 34);
    refuse("u", &[1 << 62, 4], TensorType::I8, 4);
    refuse("u", &[4], TensorType::I8, 5);
    assert!(texts.iter().all(|text| text.starts_with("cannot write a GGUF file: ")), "{texts:#?}");
    // What was refused has left nothing behind.
    let gguf = written(writer.tensor("u", &[], TensorType::F64, vec![1; 8]).unwrap());
    assert_eq!((gguf.metadata().len(), gguf.tensors().len()), (1, 2));
}

#[test]
fn a_model_in_the_program_is_not_copied() {
    let mut writer = Writer::new();
    writer.tensor("t", &[4], TensorType::I8, vec![1, 2, 3, 4]).unwrap();
    let mut file = Vec::new();
    writer.write_to(&mut file).unwrap();
    let file: &'static [u8] = file.leak();
    let gguf = Gguf::from_static("embedded", file).unwrap();
    let tensor = gguf.tensor("t").unwrap();
    gguf.bytes(tensor).release(0..usize::MAX);
    assert_eq!(gguf.bytes(tensor)[..], [1, 2, 3, 4]);
    assert!(file.as_ptr_range().contains(&gguf.bytes(tensor).as_ptr()));
    assert_eq!((gguf.name(), gguf.path()), ("embedded", None));
}
