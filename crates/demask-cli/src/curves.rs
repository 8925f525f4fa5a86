//! What forward passes cost on this machine, measured once per model and device and kept in the user's cache folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use demask::diffusion::Curve;
use demask::{Device, Model};
use demask_gguf::escape;

use crate::output;
use crate::report::quantisation;

/// The file, by the name of what was measured: rows and seconds.
type Kept = BTreeMap<String, Vec<(usize, f64)>>;

/// The curve of a model on a device for canvases of `positions`: the kept one, else a measured one, which is kept.
pub(crate) fn of(model: &Model, device: &Device, positions: usize) -> Result<Curve, demask::Error> {
    let file = file();
    let kept = file.as_deref().and_then(|path| read(path).remove(&key(model, device)));
    if let Some(curve) = kept.and_then(Curve::new) {
        return Ok(curve);
    }
    output::line("note", "measuring forward passes for `--recipe auto`, once for this model on this machine");
    let start = Instant::now();
    let curve = model.curve(positions, &mut || start.elapsed().as_secs_f64())?;
    keep(model, device, &curve);
    Ok(curve)
}

/// Keeps a measured curve. Where that can't be done it is measured again the next time, which a note says.
pub(crate) fn keep(model: &Model, device: &Device, curve: &Curve) {
    let Some(path) = file() else {
        output::line("note", "there is no cache folder (XDG_CACHE_HOME, HOME): what was measured isn't kept");
        return;
    };
    let mut kept = read(&path);
    kept.insert(key(model, device), curve.points().to_vec());
    if let Err(error) = write(&path, &kept) {
        output::line("note", &format!("what was measured isn't kept: {error:#}"));
    }
}

/// What a curve depends on.
fn key(model: &Model, device: &Device) -> String {
    let (gguf, spec) = (model.gguf(), model.spec());
    let shape = format!("{}x{}", spec.layers, spec.width);
    let version = env!("CARGO_PKG_VERSION");
    let (quantisation, bytes) = (quantisation(gguf), gguf.file_bytes());
    format!("{version}; {}; {} {shape}; {quantisation}; {bytes} bytes", device.describe(), spec.architecture)
}

fn file() -> Option<PathBuf> {
    Some(demask_hub::own_folder("XDG_CACHE_HOME", ".cache")?.join("curves.json"))
}

/// What is kept; nothing if the file isn't there or holds something else.
fn read(path: &Path) -> Kept {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write(path: &Path, kept: &Kept) -> Result<()> {
    let name = || format!("cannot write `{}`", escape(path.as_os_str().as_encoded_bytes()));
    demask_hub::write_whole(path, &serde_json::to_vec_pretty(kept)?).with_context(name)
}
