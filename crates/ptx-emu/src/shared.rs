//! Shared memory of a block: its bytes, which of them were written, and who used them in which order.
//!
//! Order is told by ticks. The block has a counter that every synchronisation advances; an access is stamped with its
//! value. A warp knows, for each warp, up to which tick that one's accesses happened before now: `seen`. Within a warp,
//! each lane knows the tick of its last synchronisation with the others: `synced`. Two accesses of which one writes
//! race if neither is known to have happened before the other.

use crate::error::{FaultKind, Outcome, Trouble};
use crate::memory::{POISON, first_clear, set_bits};

/// Who accesses shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who<'w> {
    pub(crate) warp: usize,
    pub(crate) line: u32,
    pub(crate) tick: u32,
    pub(crate) seen: &'w [u32],
    pub(crate) synced: &'w [u32; 32],
    /// An atomic or volatile access.
    pub(crate) strong: bool,
    pub(crate) check_written: bool,
    pub(crate) check_races: bool,
}

/// The last uses of a word, or of a byte of a word that is used by parts.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// Ticks of the last write and of the reads since; 0 if there is none.
    write_stamp: u32,
    read_stamp: u32,
    /// Warps that have read since the last write.
    readers: u32,
    write_line: u32,
    read_line: u32,
    write_warp: u8,
    write_lane: u8,
    /// The lane that read, or [`MANY`].
    read_lane: u8,
    flags: u8,
}

/// Several lanes.
const MANY: u8 = 0xff;
/// The bytes of this word have cells of their own.
const SPLIT: u8 = 1;
/// The target of an asynchronous copy under way.
const PENDING: u8 = 2;
/// The last write was an atomic or a volatile one.
const STRONG: u8 = 4;

/// What an access does to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    /// An asynchronous copy is issued.
    Issue,
    /// It arrives.
    Arrive,
}

/// Why an access is refused.
struct Conflict {
    kind: FaultKind,
    with: String,
}

/// The shared memory of a block; reused from block to block.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    data: Vec<u8>,
    written: Vec<u64>,
    words: Vec<Cell>,
    /// Cells of bytes, once there are any.
    bytes: Vec<Cell>,
    /// Tick at which the block began: what is older belongs to another.
    base: u32,
}

impl Shared {
    pub(crate) fn new(bytes: usize) -> Self {
        let padded = bytes.next_multiple_of(4);
        Self {
            data: vec![POISON; bytes],
            written: vec![0; bytes.div_ceil(64)],
            words: vec![Cell::default(); padded / 4],
            bytes: Vec::new(),
            base: 1,
        }
    }

    /// Another block: nothing is written.
    pub(crate) fn begin_block(&mut self, tick: u32) {
        self.data.fill(POISON);
        self.written.fill(0);
        self.base = tick;
    }

    fn place(&self, lane: usize, address: u64, bytes: usize, action: &str) -> Outcome<usize> {
        match usize::try_from(address) {
            Ok(at) if at.checked_add(bytes).is_some_and(|end| end <= self.data.len()) => Ok(at),
            _ => {
                let what = format!("{action} of {bytes} bytes outside the {} of shared memory", self.data.len());
                Trouble::at(FaultKind::OutOfBounds, lane, address, what)
            }
        }
    }

    /// Bytes that a lane reads, after all checks.
    #[inline]
    pub(crate) fn load(&mut self, who: &Who<'_>, lane: usize, address: u64, bytes: usize) -> Outcome<&[u8]> {
        let at = self.place(lane, address, bytes, "read")?;
        self.touch_read(who, lane, at, bytes)?;
        if who.check_written
            && let Some(byte) = first_clear(&self.written, at, bytes)
        {
            let what = format!("read of {bytes} bytes of shared memory, of which byte {byte} was never written");
            return Trouble::at(FaultKind::Uninitialised, lane, address, what);
        }
        Ok(&self.data[at..at + bytes])
    }

    /// Writes bytes, after all checks.
    #[inline]
    pub(crate) fn store(&mut self, who: &Who<'_>, lane: usize, address: u64, bytes: &[u8]) -> Outcome {
        let at = self.place(lane, address, bytes.len(), "write")?;
        self.touch(who, lane, at, bytes.len(), Use::Write, Some(bytes))?;
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        set_bits(&mut self.written, at, bytes.len());
        Ok(())
    }

    /// An asynchronous copy begins to write here.
    pub(crate) fn issue(&mut self, who: &Who<'_>, lane: usize, address: u64, bytes: usize) -> Outcome {
        let at = self.place(lane, address, bytes, "asynchronous write")?;
        self.touch(who, lane, at, bytes, Use::Issue, None)
    }

    /// An asynchronous copy that was issued here is complete.
    pub(crate) fn arrive(&mut self, who: &Who<'_>, lane: usize, address: u64, bytes: &[u8]) -> Outcome {
        let at = self.place(lane, address, bytes.len(), "asynchronous write")?;
        self.touch(who, lane, at, bytes.len(), Use::Arrive, None)?;
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        set_bits(&mut self.written, at, bytes.len());
        Ok(())
    }

    /// The same as [`Self::touch`] for what kernels do most: reads of whole words.
    #[inline]
    fn touch_read(&mut self, who: &Who<'_>, lane: usize, at: usize, len: usize) -> Outcome {
        if !(at | len).is_multiple_of(4) || !who.check_races {
            return self.touch(who, lane, at, len, Use::Read, None);
        }
        for cell in &mut self.words[at / 4..(at + len) / 4] {
            if read_before(cell, who, lane) {
                continue;
            }
            let plain =
                cell.flags & (SPLIT | PENDING) == 0 && (cell.write_stamp >= self.base || cell.read_stamp >= self.base);
            if !plain || who.strong || check_writer(cell, who, lane, Use::Read, || false).is_err() {
                return self.touch(who, lane, at, len, Use::Read, None);
            }
            record_read(cell, who, lane);
        }
        Ok(())
    }

    /// Checks a use of bytes and records it.
    fn touch(&mut self, who: &Who<'_>, lane: usize, at: usize, len: usize, how: Use, new: Option<&[u8]>) -> Outcome {
        if !who.check_races && how == Use::Read {
            // Copies under way are checked all the same.
            let pending =
                self.words[at / 4..(at + len).div_ceil(4)].iter().any(|cell| cell.flags & (PENDING | SPLIT) != 0);
            if !pending {
                return Ok(());
            }
        }
        let end = at + len;
        let count = self.words.len();
        for word in at / 4..end.div_ceil(4) {
            let cell = &mut self.words[word];
            if cell.write_stamp < self.base && cell.read_stamp < self.base {
                *cell = Cell::default();
            }
            let (from, to) = (at.max(word * 4), end.min(word * 4 + 4));
            if to - from == 4 && cell.flags & SPLIT == 0 {
                let same = || new.is_some_and(|new| new[from - at..to - at] == self.data[from..to]);
                if let Err(conflict) = use_cell(cell, who, lane, how, same) {
                    return refuse(conflict, lane, at as u64, len, how);
                }
                continue;
            }
            if cell.flags & SPLIT == 0 {
                if self.bytes.is_empty() {
                    self.bytes.resize(count * 4, Cell::default());
                }
                self.bytes[word * 4..word * 4 + 4].fill(*cell);
                cell.flags |= SPLIT;
            }
            // The word counts as used, so that its parts don't count as left over from another block.
            cell.write_stamp = who.tick;
            for byte in from..to {
                let same = || new.is_some_and(|new| new[byte - at] == self.data[byte]);
                if let Err(conflict) = use_cell(&mut self.bytes[byte], who, lane, how, same) {
                    return refuse(conflict, lane, at as u64, len, how);
                }
            }
            if to - from == 4 && how != Use::Read {
                *cell = self.bytes[from]; // All parts are alike again.
            }
        }
        Ok(())
    }
}

/// Checks one use of a cell against those before, and records it.
#[inline]
fn use_cell(
    cell: &mut Cell,
    who: &Who<'_>,
    lane: usize,
    how: Use,
    same: impl FnOnce() -> bool,
) -> Result<(), Conflict> {
    if cell.flags & PENDING != 0 && how != Use::Arrive {
        return Err(Conflict {
            kind: FaultKind::PendingCopy,
            with: format!(
                "the target of an asynchronous copy that lane {} of warp {} issued at line {} and has not waited for",
                cell.write_lane, cell.write_warp, cell.write_line
            ),
        });
    }
    if who.check_races && how != Use::Arrive {
        check_writer(cell, who, lane, how, same)?;
        if how != Use::Read {
            check_readers(cell, who, lane)?;
        }
    }
    match how {
        Use::Read if who.strong => {}
        Use::Read => record_read(cell, who, lane),
        Use::Write | Use::Issue | Use::Arrive => {
            *cell = Cell {
                write_stamp: who.tick,
                write_line: if how == Use::Arrive { cell.write_line } else { who.line },
                write_warp: who.warp as u8,
                write_lane: lane as u8,
                flags: if how == Use::Issue { PENDING } else { 0 } | if who.strong { STRONG } else { 0 },
                ..Cell::default()
            };
        }
    }
    Ok(())
}

/// Whether the last write happened before this access.
#[inline]
fn check_writer(
    cell: &Cell,
    who: &Who<'_>,
    lane: usize,
    how: Use,
    same: impl FnOnce() -> bool,
) -> Result<(), Conflict> {
    if cell.write_stamp == 0 || (who.strong && cell.flags & STRONG != 0) {
        return Ok(());
    }
    let (warp, other) = (usize::from(cell.write_warp), usize::from(cell.write_lane));
    let ordered = if warp == who.warp {
        other == lane
            || cell.write_stamp <= who.synced[lane].min(who.synced[other])
            // Lanes that write one value in one instruction.
            || (how == Use::Write && cell.write_line == who.line && cell.write_stamp == who.tick && same())
    } else {
        cell.write_stamp <= who.seen[warp]
    };
    if ordered {
        return Ok(());
    }
    let with = format!("what lane {other} of warp {warp} wrote at line {}", cell.write_line);
    Err(Conflict { kind: FaultKind::SharedRace, with })
}

/// A warp that has read since the last write, and not before this access.
#[inline]
fn unordered_reader(cell: &Cell, who: &Who<'_>, lane: usize) -> Option<usize> {
    let mut readers = cell.readers;
    while readers != 0 {
        let warp = readers.trailing_zeros() as usize;
        readers &= readers - 1;
        let ordered = if warp == who.warp {
            usize::from(cell.read_lane) == lane || cell.read_stamp <= who.synced[lane]
        } else {
            cell.read_stamp <= who.seen[warp]
        };
        if !ordered {
            return Some(warp);
        }
    }
    None
}

/// Whether all reads since the last write happened before this write.
#[inline]
fn check_readers(cell: &Cell, who: &Who<'_>, lane: usize) -> Result<(), Conflict> {
    match unordered_reader(cell, who, lane) {
        None => Ok(()),
        Some(warp) => Err(Conflict {
            kind: FaultKind::SharedRace,
            with: format!("what warp {warp} read at line {}", cell.read_line),
        }),
    }
}

/// Whether this lane, or several lanes of its warp, have read this word at this very tick: nothing can have changed.
#[inline]
fn read_before(cell: &Cell, who: &Who<'_>, lane: usize) -> bool {
    cell.read_stamp == who.tick
        && cell.readers >> who.warp & 1 == 1
        && (cell.read_lane == MANY || usize::from(cell.read_lane) == lane)
        && cell.flags & (SPLIT | PENDING) == 0
}

#[inline]
fn record_read(cell: &mut Cell, who: &Who<'_>, lane: usize) {
    let me = 1u32 << who.warp;
    if cell.read_stamp == who.tick && cell.readers & me != 0 {
        if usize::from(cell.read_lane) != lane {
            cell.read_lane = MANY;
        }
        return;
    }
    // Readers that happened before this one need no longer be remembered.
    if unordered_reader(cell, who, lane).is_none() {
        cell.readers = me;
        cell.read_stamp = who.tick;
        cell.read_lane = lane as u8;
    } else {
        cell.readers |= me;
        cell.read_lane = MANY;
    }
    cell.read_line = who.line;
}

#[cold]
fn refuse(conflict: Conflict, lane: usize, address: u64, len: usize, how: Use) -> Outcome {
    let action = match how {
        Use::Read => "read",
        Use::Write => "write",
        Use::Issue | Use::Arrive => "asynchronous write",
    };
    let end = if conflict.kind == FaultKind::SharedRace { ", with nothing to order the two" } else { "" };
    let what = format!("{action} of {len} bytes of shared memory: {}{end}", conflict.with);
    Trouble::at(conflict.kind, lane, address, what)
}
