//! A position in a file, every step of which is checked.

use std::fmt;
use std::ops::Range;

use crate::error::ErrorKind;
use crate::mmap::Bytes;
use crate::value::ValueType;

/// The most metadata entries and the most tensors of one file. Real files hold a few thousand at most; the bound keeps
/// a hostile one from filling the memory with a directory.
const MAX_ENTRIES: u64 = 1 << 17;

/// A position in the bytes of a file. What is read is named, so that an error can tell.
pub(crate) struct Cursor<'a> {
    pub(crate) file: &'a Bytes,
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(file: &'a Bytes) -> Cursor<'a> {
        Cursor { file, at: 0 }
    }

    /// How many bytes lie ahead.
    pub(crate) fn left(&self) -> u64 {
        (self.file.len() - self.at) as u64
    }

    /// Steps over bytes and says where they are.
    pub(crate) fn take(&mut self, needed: u64, place: fmt::Arguments<'_>) -> Result<Range<usize>, ErrorKind> {
        let left = self.left();
        if needed > left {
            return Err(ErrorKind::Truncated { place: place.to_string(), at: self.at as u64, needed, left });
        }
        let start = self.at;
        self.at += needed as usize; // not above `left`, which is a usize
        Ok(start..self.at)
    }

    fn array<const N: usize>(&mut self, place: fmt::Arguments<'_>) -> Result<[u8; N], ErrorKind> {
        let range = self.take(N as u64, place)?;
        let mut out = [0; N];
        out.copy_from_slice(&self.file[range]);
        Ok(out)
    }

    pub(crate) fn u32(&mut self, place: fmt::Arguments<'_>) -> Result<u32, ErrorKind> {
        self.array(place).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, place: fmt::Arguments<'_>) -> Result<u64, ErrorKind> {
        self.array(place).map(u64::from_le_bytes)
    }

    /// A 64-bit length and that many bytes; the range is that of the bytes.
    pub(crate) fn string(&mut self, place: fmt::Arguments<'_>) -> Result<Range<usize>, ErrorKind> {
        let len = self.u64(place)?;
        self.take(len, place)
    }

    pub(crate) fn value_type(&mut self, place: fmt::Arguments<'_>) -> Result<ValueType, ErrorKind> {
        let at = self.at as u64;
        let id = self.u32(place)?;
        ValueType::from_id(id).ok_or_else(|| ErrorKind::Malformed {
            place: place.to_string(),
            at,
            expected: "a value type from 0 to 12".to_owned(),
            found: id.to_string(),
        })
    }

    /// A count of things that take at least `least` bytes each.
    pub(crate) fn count(&mut self, what: &str, least: u64) -> Result<u64, ErrorKind> {
        let at = self.at as u64;
        let count = self.u64(format_args!("the number of {what}"))?;
        let (needed, left) = (count.saturating_mul(least), self.left());
        if needed > left {
            let place = format!("the list of {what} ({count} long)");
            return Err(ErrorKind::Truncated { place, at, needed, left });
        }
        if count > MAX_ENTRIES {
            let (place, expected) = (format!("the number of {what}"), format!("at most {MAX_ENTRIES}"));
            return Err(ErrorKind::Malformed { place, at, expected, found: count.to_string() });
        }
        Ok(count)
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> Result<Bytes, ErrorKind> {
        let (at, left) = (range.start as u64, self.left());
        self.file.slice(range).ok_or(ErrorKind::Truncated { place: "a value".to_owned(), at, needed: u64::MAX, left })
    }
}
