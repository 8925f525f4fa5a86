//! What is remembered of downloaded files: where they came from, and that their hash was right. One small JSON file per
//! entity tag, in the XDG cache.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::names_of_server::is_sha256;
use crate::whole;

/// What is remembered of one blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What a user writes to get it: `owner/repo:QUANT`.
    pub(crate) model: String,
    /// Its name in the repository.
    pub(crate) file: String,
    /// What the hub says; for files that it stores as such only.
    pub(crate) sha256: Option<String>,
    /// Size and time of change of the file whose hash was right.
    pub(crate) verified: Option<Verified>,
}

/// A file at the moment when its hash was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verified {
    bytes: u64,
    changed_ns: u64,
}

impl Verified {
    pub(crate) fn of(metadata: &Metadata) -> Verified {
        let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let changed_ns = changed.and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or(0);
        Verified { bytes: metadata.len(), changed_ns }
    }
}

/// The folder of records.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(crate) fn new(folder: &Path) -> Records {
        Records { folder: folder.join("hub") }
    }

    pub(crate) fn get(&self, etag: &str) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.path(etag)).ok()?).ok()
    }

    /// Whether the file is the one whose hash was right.
    pub(crate) fn is_verified(&self, etag: &str, metadata: &Metadata) -> bool {
        self.get(etag).is_some_and(|record| record.verified == Some(Verified::of(metadata)))
    }

    /// Remembers. A record that can't be written only costs a hash another time.
    pub(crate) fn put(&self, etag: &str, record: &Record) {
        if let Ok(text) = serde_json::to_vec(record) {
            let _ = whole::write(&self.path(etag), &text);
        }
    }

    pub(crate) fn forget(&self, etag: &str) {
        let _ = fs::remove_file(self.path(etag));
    }

    /// The record of a file that has no blob: it was moved to its place.
    pub(crate) fn of_file(&self, model_repo: &str, file: &str, metadata: &Metadata) -> Option<(String, Record)> {
        let entries = fs::read_dir(&self.folder).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let etags = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned));
        let belongs = |record: &Record| {
            record.file == file
                && record.model.split([':', '@']).next() == Some(model_repo)
                && record.verified.is_none_or(|verified| verified.bytes == metadata.len())
        };
        etags.filter_map(|etag| Some((self.get(&etag)?, etag))).find(|(record, _)| belongs(record)).map(|(r, e)| (e, r))
    }

    fn path(&self, etag: &str) -> PathBuf {
        self.folder.join(format!("{etag}.json"))
    }
}

/// The SHA-256 that a blob must have: the record's, or its own name if that is one.
pub(crate) fn expected_hash(etag: &str, record: Option<&Record>) -> Option<String> {
    record.and_then(|record| record.sha256.clone()).or_else(|| is_sha256(etag).then(|| etag.to_ascii_lowercase()))
}
