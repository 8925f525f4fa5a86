//! Any bytes: opened, and where that succeeds, read to the end.
#![no_main]

use demask_gguf::{Gguf, Value};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Gguf::from_bytes("fuzz", bytes.to_vec()) {
        Ok(gguf) => {
            for (_, value) in gguf.metadata().iter() {
                assert!(!value.to_string().contains(char::is_control));
                if let Value::Array(array) = value {
                    assert_eq!(array.iter().count(), array.len());
                }
            }
            for tensor in gguf.tensors() {
                assert_eq!(gguf.bytes(tensor).len() as u64, tensor.byte_len());
            }
        }
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control));
            let _ = error.hint();
        }
    }
});
