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
mod writable;

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
    let started = Instant::now();
    let model = file.load(device, &mut |done, all| progress.update(done, all));
    let model = model.map_err(|error| name_file(error.into(), &name))?;
    drop(progress);
    tell_load(&model, started.elapsed());
    Ok(model)
}

/// Says where a model went, if that wasn't the user's own choice, and what may help if it took long.
fn tell_load(model: &Model, took: Duration) {
    let slow = slow_load(model.gguf().file_bytes(), took).filter(|_| model.gguf().is_mapped());
    for note in model.placement_note().map(str::to_owned).into_iter().chain(slow) {
        output::line("note", &note);
    }
}

/// What is said of a load that no disk of this machine explains.
fn slow_load(bytes: u64, took: Duration) -> Option<String> {
    let rate = bytes as f64 / 1e6 / took.as_secs_f64();
    (took > Duration::from_secs(15) && rate < 50.0).then(|| {
        format!(
            "loading took {:.0} s ({rate:.0} MB/s); if the file is on a network drive, `--no-mmap` may be faster",
            took.as_secs_f64()
        )
    })
}

/// The same, with a stopwatch over its forward passes.
fn load_timed_model(file: ModelFile, device: &Device) -> Result<(Model, Option<Arc<Stopwatch>>)> {
    fn clock() -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
    let name = file.gguf().name().to_owned();
    let mut progress = Progress::new();
    let started = Instant::now();
    let loaded = file.load_timed(device, clock, &mut |done, all| progress.update(done, all));
    let loaded = loaded.map_err(|error| name_file(error.into(), &name))?;
    drop(progress);
    tell_load(&loaded.0, started.elapsed());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e07_slow_loads_are_told() {
        let note = slow_load(4_000_000_000, Duration::from_secs(200)).expect("20 MB/s is slow");
        assert!(note.contains("200 s (20 MB/s)") && note.contains("`--no-mmap`"), "{note}");
        assert_eq!(slow_load(4_000_000_000, Duration::from_secs(40)), None, "a disk's speed");
        assert_eq!(slow_load(1_000, Duration::from_secs(3)), None, "nobody waits for that");
    }
}
