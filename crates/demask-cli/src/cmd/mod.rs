//! The commands, one file each.

pub(crate) mod auto;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod completions;
mod decode;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod infill;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod logits;
pub(crate) mod man;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod replay;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod tokenize;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use demask::{Device, Model, ModelFile};
use demask_compute::Stopwatch;
use demask_gguf::Gguf;

use crate::output;
use crate::view::progress::Progress;

/// Takes a model's metadata; what it leaves open is told on stderr.
fn read_model(gguf: Gguf) -> Result<ModelFile> {
    let name = gguf.name().to_owned();
    let file = ModelFile::from_gguf(gguf).map_err(|error| name_file(error.into(), &name))?;
    for warning in file.tokenizer().warnings() {
        output::line("warning", warning);
    }
    Ok(file)
}

/// Loads a model's weights.
fn load_model(file: ModelFile, device: &Device) -> Result<Model> {
    let name = file.gguf().name().to_owned();
    let mut progress = Progress::new();
    let model = file.load(device, &mut |done, all| progress.update(done, all));
    let model = model.map_err(|error| name_file(error.into(), &name))?;
    drop(progress);
    tell_place(&model);
    Ok(model)
}

/// Says where a model went, if that wasn't the user's own choice.
fn tell_place(model: &Model) {
    if let Some(note) = model.placement_note() {
        output::line("note", note);
    }
}

/// The same, with a stopwatch over its forward passes.
fn load_timed_model(file: ModelFile, device: &Device) -> Result<(Model, Option<Arc<Stopwatch>>)> {
    fn clock() -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
    let name = file.gguf().name().to_owned();
    let mut progress = Progress::new();
    let loaded = file.load_timed(device, clock, &mut |done, all| progress.update(done, all));
    let loaded = loaded.map_err(|error| name_file(error.into(), &name))?;
    drop(progress);
    tell_place(&loaded.0);
    Ok(loaded)
}

/// A message about a model names its file; one about a prompt doesn't.
fn name_file(error: Error, name: &str) -> Error {
    if !error.is::<demask::Error>() && !error.is::<demask_gguf::Error>() {
        return error;
    }
    if error.to_string().contains(name) { error } else { error.context(format!("cannot use {}", quoted(name))) }
}

fn quoted(name: &str) -> String {
    if name == crate::embedded::NAME { name.to_owned() } else { format!("`{name}`") }
}
