//! What may be wrong in the cache, found without changing anything.

use std::fs;
use std::path::PathBuf;

use crate::cache::{Cache, etag_of, files_below};
use crate::choose::quant_of;
use crate::download::hash_file;
use crate::name::ModelName;
use crate::records::{Records, expected_hash};
use crate::settings::Settings;

/// Something wrong in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFault {
    /// What it is.
    pub kind: FaultKind,
    /// Where it is.
    pub path: PathBuf,
    /// The model that has it, if that is known.
    pub model: Option<String>,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A download that broke off; so many bytes of it are here.
    HalfFile {
        /// Bytes.
        bytes: u64,
    },
    /// A file of a snapshot whose blob is gone.
    BrokenLink,
    /// A file that isn't what the hub had.
    WrongHash,
    /// A file that can't be read.
    Unreadable,
}

impl Cache {
    /// Looks through all models. `hash` says whether files whose hash isn't remembered are read; `tell` hears of each such
    /// file how many bytes were read, of how many.
    pub fn faults(&self, settings: &Settings, hash: bool, tell: &mut dyn FnMut(&str, u64, u64)) -> Vec<CacheFault> {
        let records = Records::new(&settings.records);
        let mut faults = Vec::new();
        for (path, bytes) in self.unfinished() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let record = records.get(name.trim_end_matches(crate::cache::UNFINISHED));
            faults.push(CacheFault {
                kind: FaultKind::HalfFile { bytes },
                path,
                model: record.map(|record| record.model),
            });
        }
        let mut seen = std::collections::HashSet::new();
        for repo in self.repos() {
            for (path, name) in files_below(&repo.folder.join("snapshots")) {
                if !name.to_ascii_lowercase().ends_with(".gguf") {
                    continue;
                }
                let file = name.split_once('/').map_or(name.as_str(), |(_, file)| file);
                let etag = etag_of(&path);
                let blob = etag.clone().unwrap_or_else(|| path.to_string_lossy().into_owned());
                let kind = match fs::metadata(&path) {
                    Err(_) => Some(FaultKind::BrokenLink),
                    Ok(_) if !seen.insert(blob) || !hash => None,
                    Ok(meta) => {
                        let moved = || records.of_file(&repo.id().to_string(), file, &meta).map(|(etag, _)| etag);
                        let etag = etag.or_else(moved);
                        etag.and_then(|etag| {
                            wrong_hash(&records, &etag, &path, &meta, &mut |done| tell(file, done, meta.len()))
                        })
                    }
                };
                if let Some(kind) = kind {
                    let whole = ModelName::whole(repo.id().clone());
                    let base = file.rsplit('/').next().unwrap_or(file).to_owned();
                    let model = whole.with_quant(&quant_of(file).unwrap_or(base)).to_string();
                    faults.push(CacheFault { kind, path, model: Some(model) });
                }
            }
        }
        faults
    }
}

fn wrong_hash(
    records: &Records,
    etag: &str,
    path: &std::path::Path,
    meta: &fs::Metadata,
    tell: &mut dyn FnMut(u64),
) -> Option<FaultKind> {
    let expected = expected_hash(etag, records.get(etag).as_ref())?;
    if records.is_verified(etag, meta) {
        return None;
    }
    match hash_file(path, tell) {
        Err(_) => Some(FaultKind::Unreadable),
        Ok(found) => (found != expected).then_some(FaultKind::WrongHash),
    }
}
