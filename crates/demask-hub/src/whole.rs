//! Files that are there as a whole or not at all: written under another name first, then renamed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A name beside `path` that no other process and no other thread of this one writes to.
pub(crate) fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    path.with_extension(format!("{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Writes a small file, and the folder that it lies in: whoever reads it finds the old bytes or the new ones. Links are
/// followed; what isn't a file, such as a pipe, is written to as it is.
///
/// # Errors
/// Those of the system. A file that was there is as before then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let path = real.as_path();
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return fs::write(path, bytes);
    }
    let part = beside(path);
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}
