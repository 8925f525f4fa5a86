//! Damage: every cut, random flips, claimed sizes. Nothing may panic, hang or allocate what the file cannot hold.
#![allow(clippy::unwrap_used, missing_docs)]

use std::panic::catch_unwind;

use demask_gguf::{Array, Gguf, TensorType, Value, Writer};
use proptest::prelude::*;

/// A file with every kind of value and two tensors.
fn sample() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.add("general.architecture", "llada").unwrap();
    writer.add("general.alignment", 16u32).unwrap();
    writer.add("a.bool", true).unwrap();
    writer.add("a.float", 1.5f32).unwrap();
    writer.add("a.ids", Array::from(&[1i32, -2, 3][..])).unwrap();
    writer.add("a.flags", Array::from(&[true, false][..])).unwrap();
    writer.add("a.tokens", Array::strings(["a", "", "\u{e9}t\u{e9}"])).unwrap();
    writer.tensor("t.0", &[4, 2], TensorType::F32, vec![1; 32]).unwrap();
    writer.tensor("t.1", &[32], TensorType::Q8_0, vec![2; 34]).unwrap();
    let mut file = Vec::new();
    writer.write_to(&mut file).unwrap();
    file
}

/// Opens the bytes and reads all there is; the verdict does not matter.
fn exercise(bytes: Vec<u8>) -> bool {
    match Gguf::from_bytes("damaged", bytes) {
        Ok(gguf) => {
            for (_, value) in gguf.metadata().iter() {
                assert!(!value.to_string().contains('\x1b'));
                if let Value::Array(array) = value {
                    assert_eq!(array.iter().count(), array.len());
                    assert_eq!(array.as_strings().map_or(array.len(), |s| s.iter().count()), array.len());
                }
            }
            gguf.tensors().iter().for_each(|t| assert_eq!(gguf.bytes(t).len() as u64, t.byte_len()));
            true
        }
        Err(error) => {
            assert!(!error.to_string().chars().any(char::is_control));
            false
        }
    }
}

#[test]
fn a01_every_cut_is_refused() {
    let file = sample();
    // The last tensor ends before the padding does: that much may be lost.
    let whole = Gguf::from_bytes("whole", file.clone()).unwrap();
    let end = whole.tensors().iter().map(|t| t.offset() + t.byte_len()).max().unwrap() as usize;
    for cut in 0..end {
        let cut_file = file[..cut].to_vec();
        let taken = catch_unwind(|| exercise(cut_file)).unwrap_or_else(|_| panic!("panic at cut {cut}"));
        assert!(!taken, "cut at {cut} was taken");
    }
    for cut in end..=file.len() {
        assert!(exercise(file[..cut].to_vec()), "cut at {cut} lost nothing");
    }
}

#[test]
fn a01_a_cut_file_says_how_much_is_missing() {
    let mut file = sample();
    let whole = Gguf::from_bytes("whole", file.clone()).unwrap();
    let end = whole.tensors().iter().map(|t| t.offset() + t.byte_len()).max().unwrap() as usize;
    file.truncate(end - 40);
    let error = Gguf::from_bytes("cut.gguf", file).unwrap_err();
    assert!(error.to_string().contains("tensor `t.0`") && error.to_string().contains("40 missing"), "{error}");
    assert!(error.hint().unwrap().contains("cut off"));
}

/// Every 8-byte window set to values that break arithmetic.
#[test]
fn a13_a17_extreme_numbers_at_every_place() {
    let file = sample();
    let extremes = [u64::MAX, u64::MAX - 7, 1 << 63, i64::MAX as u64, 1 << 61, 1 << 40, u64::from(u32::MAX), 0];
    for at in 4..file.len() - 8 {
        for extreme in extremes {
            let mut damaged = file.clone();
            damaged[at..at + 8].copy_from_slice(&extreme.to_le_bytes());
            catch_unwind(|| exercise(damaged)).unwrap_or_else(|_| panic!("panic for {extreme} at {at}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((0usize..1 << 16, any::<u8>()), 1..6)) {
        let mut file = sample();
        for (at, byte) in flips {
            let at = at % file.len();
            file[at] = byte;
        }
        exercise(file);
    }

    #[test]
    fn random_bytes_after_a_header_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise([b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0", &bytes[..]].concat());
        exercise(bytes);
    }
}

/// A key, a type and no more: what one entry of metadata looks like.
fn with_value(ty: u32, value: &[u8]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k".to_vec();
    file.extend(ty.to_le_bytes());
    file.extend_from_slice(value);
    file
}

#[test]
fn a13_a_claimed_array_is_not_allocated() {
    for element in [0u32, 4, 8, 10] {
        for count in [u64::MAX, 1 << 62, 1 << 61, 1 << 36] {
            let mut value = element.to_le_bytes().to_vec();
            value.extend(count.to_le_bytes());
            value.extend([0; 32]);
            let error = Gguf::from_bytes("m", with_value(9, &value)).unwrap_err().to_string();
            assert!(error.contains("ends too soon") && error.contains("`k`"), "{error}");
        }
    }
}

#[test]
fn a06_keys_and_names_have_their_own() {
    let double = |first: &[u8], second: &[u8]| {
        let mut file = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0".to_vec();
        for key in [first, second] {
            file.extend((key.len() as u64).to_le_bytes());
            file.extend_from_slice(key);
            file.extend([0, 0, 0, 0, 7]);
        }
        Gguf::from_bytes("m", file)
    };
    assert_eq!(double(b"k", b"l").unwrap().metadata().len(), 2);
    assert!(double(b"k", b"k").unwrap_err().to_string().contains("`k` a second time"));
    assert!(double(b"k", b"\xff").unwrap_err().to_string().contains(r"\xff"));
    let mut file = sample();
    let at = file.windows(3).position(|w| w == b"t.1").unwrap();
    file[at + 2] = b'0';
    let error = Gguf::from_bytes("m", file).unwrap_err().to_string();
    assert!(error.contains("`t.0`, the name of tensor 1"), "{error}");
}

#[test]
fn a35_a_bool_in_an_array_is_0_or_1() {
    let value = [&7u32.to_le_bytes()[..], &3u64.to_le_bytes(), &[0, 1, 2]].concat();
    let error = Gguf::from_bytes("m", with_value(9, &value)).unwrap_err().to_string();
    assert!(error.contains("found 2") && error.contains("byte 51"), "{error}");
    assert!(Gguf::from_bytes("m", with_value(9, &value[..14])).is_err());
}

#[test]
fn misaligned_offsets_are_refused() {
    let mut file = sample();
    let at = file.windows(3).position(|w| w == b"t.1").unwrap();
    file[at + 3 + 4 + 8 + 4] += 8;
    let error = Gguf::from_bytes("m", file).unwrap_err().to_string();
    assert!(error.contains("multiple of the alignment 16, found 40"), "{error}");
}

#[test]
fn a_directory_of_millions_is_refused() {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(131_073u64.to_le_bytes());
    file.extend([0; 8]);
    file.resize(4_000_000, 0);
    let error = Gguf::from_bytes("m", file).unwrap_err().to_string();
    assert!(error.contains("at most 131072, found 131073"), "{error}");
}
