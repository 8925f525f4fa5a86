//! Where the bytes of a file live: mapped, in the program itself, or on the heap. The only unsafe code of the crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The owner of a file's bytes. A mapping is read-only and stays until the last [`Bytes`] of it goes.
enum Source {
    Static(&'static [u8]),
    Owned(Box<[u8]>),
    Mapped(memmap2::Mmap),
}

impl Source {
    fn as_slice(&self) -> &[u8] {
        match self {
            Source::Static(bytes) => bytes,
            Source::Owned(bytes) => bytes,
            Source::Mapped(map) => map,
        }
    }
}

/// A run of bytes of an open file that keeps the file's mapping alive.
///
/// Cloning copies a pointer, never the bytes; it is `Send`, `Sync` and `'static`, so a backend may keep it. The bytes
/// of a mapped file are read from the disk when they are first touched. Whoever changes or cuts the file on the disk
/// meanwhile changes what is read here, and reading past a new end kills the process: the price of a mapping.
#[derive(Clone)]
pub struct Bytes {
    source: Arc<Source>,
    start: usize,
    len: usize,
}

/// The bytes of one tensor; see [`Bytes`].
pub type TensorBytes = Bytes;

impl Bytes {
    /// Maps a whole regular file for reading. The file must not be empty.
    pub(crate) fn map(file: &File) -> io::Result<Bytes> {
        // SAFETY: the mapping is read-only and private to this type, which hands out shared slices only. That nobody
        // changes the file while it is open cannot be enforced; the type's documentation asks for it. Offsets are
        // checked again whenever they are used, so a changed file gives wrong values, not accesses out of bounds.
        let map = unsafe { memmap2::Mmap::map(file)? };
        Ok(Bytes::whole(Source::Mapped(map)))
    }

    /// Reads a whole regular file.
    pub(crate) fn read(mut file: &File) -> io::Result<Bytes> {
        let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        file.read_to_end(&mut bytes)?;
        Ok(Bytes::from_vec(bytes))
    }

    /// Whether the bytes are those of a file.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(*self.source, Source::Mapped(_))
    }

    /// Bytes that are part of the program.
    pub(crate) fn from_static(bytes: &'static [u8]) -> Bytes {
        Bytes::whole(Source::Static(bytes))
    }

    /// Bytes on the heap.
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Bytes {
        Bytes::whole(Source::Owned(bytes.into_boxed_slice()))
    }

    fn whole(source: Source) -> Bytes {
        let len = source.as_slice().len();
        Bytes { source: Arc::new(source), start: 0, len }
    }

    /// A part of these bytes, or nothing when the range does not lie inside.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        Some(Bytes { source: Arc::clone(&self.source), start: self.start + range.start, len: range.len() })
    }

    /// Tells the system that `range` of these bytes will not be read again soon, as after it was repacked, so that it may
    /// drop their pages. Ranges outside are cut off; bytes in memory stay as they are.
    ///
    /// A hint: it can fail without harm, and reading the bytes again fetches them from the file.
    pub fn release(&self, range: Range<usize>) {
        let range = range.start.min(self.len)..range.end.min(self.len);
        #[cfg(unix)]
        if let Source::Mapped(map) = &*self.source
            && !range.is_empty()
        {
            // SAFETY: the range lies inside the mapping (a field invariant, and cut to it above). The mapping is of a
            // file and is never written through, so dropped pages come back from the file with the same content; no
            // page holds data that exists only in memory.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.start + range.start, range.len())
            };
        }
        #[cfg(not(unix))]
        drop(range);
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // `slice` and `whole` keep start + len inside the source.
        &self.source.as_slice()[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Bytes {}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({} at {})", self.len, self.start)
    }
}
