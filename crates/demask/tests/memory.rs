//! A model that doesn't fit is refused before its weights are touched.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use demask::{Device, Error, ModelFile};
use demask_gguf::{Gguf, TensorType, Writer};

#[test]
fn a_model_larger_than_memory_is_refused_with_both_numbers() {
    let device = Device::cpu(Some(1)).unwrap();
    let Some(available) = device.memory_available() else {
        eprintln!("SKIPPED: this system doesn't tell how much memory is available");
        return;
    };
    // A tiny model with one more tensor, which a sparse file holds: twice what is available.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    let tiny = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tiny-llada-f32.gguf")).unwrap();
    let mut writer = Writer::new();
    for (key, value) in tiny.metadata().iter() {
        writer.add(key, value.clone()).unwrap();
    }
    for tensor in tiny.tensors() {
        writer.tensor(&tensor.name, &tensor.dims, tensor.ty, tiny.bytes(tensor).to_vec()).unwrap();
    }
    let rows = 2 * available / 4 / 1024;
    let length = 4 * 1024 * rows;
    writer
        .tensor_with("large.weight", &[1024, rows], TensorType::F32, |_| Err(std::io::ErrorKind::Unsupported.into()))
        .unwrap();
    let written = write_sparse(&mut writer, &path, length);
    if !written {
        eprintln!("SKIPPED: a sparse file of {length} bytes can't be made here");
        return;
    }
    let file = ModelFile::open(&path).unwrap();
    let needed = file.memory_needed();
    let error = file.load(&device, &mut |_, _| {}).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Memory { needed: n, .. } if n == needed && n > length), "{error}");
    let text = error.to_string();
    assert!(text.contains("GB of memory") && text.contains("available"), "{text}");
    assert!(error.hint().unwrap().contains('%'));
}

/// Writes everything but the last tensor's data, then stretches the file over it.
fn write_sparse(writer: &mut Writer<'_>, path: &std::path::Path, length: u64) -> bool {
    struct Front(std::fs::File);
    impl std::io::Write for Front {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            self.0.flush()
        }
    }
    // The last tensor refuses to be written; what stands before it has been written by then.
    let file = std::fs::File::create(path).unwrap();
    assert!(writer.write_to(Front(file)).is_err());
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let front = file.metadata().unwrap().len();
    file.set_len(front + length + 64).is_ok()
}
