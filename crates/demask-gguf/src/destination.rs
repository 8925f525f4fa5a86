//! Where a file is written: under another name first, so that it is there as a whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file to be: what is written appears under its name with [`Destination::keep`], and is gone if that doesn't come.
/// Links are followed; what isn't a file, such as a pipe, is written to as it is.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    /// Where it is written meanwhile.
    part: Option<PathBuf>,
}

impl Destination {
    /// The place that `path` leads to. Nothing is made yet.
    pub fn of(path: &Path) -> Destination {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_special = fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir());
        let part = (!is_special).then(|| Destination::beside(&path));
        Destination { path, part }
    }

    /// A name beside `path` that no other process and no other thread of this one writes to.
    pub fn beside(path: &Path) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        path.with_file_name(name)
    }

    /// Opens it for writing.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(&self) -> io::Result<File> {
        match &self.part {
            Some(part) => File::create(part),
            None => File::options().write(true).open(&self.path),
        }
    }

    /// Gives what was written its name; what had the name is gone then.
    ///
    /// # Errors
    /// Those of the system. A file that was there is as before then.
    pub fn keep(mut self) -> io::Result<()> {
        if let Some(part) = &self.part {
            fs::rename(part, &self.path)?;
            self.part = None;
        }
        Ok(())
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = fs::remove_file(part);
        }
    }
}
