//! Reading the fixtures.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::PathBuf;

use demask::{Device, ModelFile};

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

pub(crate) fn read_f32s(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(fixture(name)).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

pub(crate) fn load(file: &str, threads: usize) -> demask::Model {
    let device = Device::cpu(Some(threads)).unwrap();
    ModelFile::open(fixture(file)).unwrap().load(&device, &mut |_, _| {}).unwrap()
}

pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) model: demask::Model,
    pub(crate) golden: serde_json::Value,
}

/// The models that have a golden file in `folder` and an architecture that runs.
pub(crate) fn models(folder: &str) -> impl Iterator<Item = Model> {
    let mut names: Vec<String> = std::fs::read_dir(fixture("golden").join(folder))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().unwrap().strip_suffix(".json").map(str::to_owned))
        .filter(|name| demask::model::ARCHITECTURES.iter().any(|row| name.starts_with(&format!("tiny-{}", row.name))))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no golden files in {folder}");
    let folder = folder.to_owned();
    names.into_iter().map(move |name| {
        let text = std::fs::read_to_string(fixture(&format!("golden/{folder}/{name}.json"))).unwrap();
        Model { model: load(&format!("{name}.gguf"), 2), golden: serde_json::from_str(&text).unwrap(), name }
    })
}
