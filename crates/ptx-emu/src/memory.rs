//! Global memory: allocations far apart, which bytes were written, and which blocks used which word.

use std::collections::HashMap;

use crate::error::{FaultKind, MemoryError, Outcome, Trouble};

/// Address of the first allocation; below it lie the windows of shared and local memory and of parameters.
const FIRST: u64 = 0x10_0000_0000;
/// Addresses are looked up by pages; an allocation has pages of its own.
const PAGE: u64 = 1 << 16;
/// Pages that nothing owns between two allocations: an index that runs away by a row or two still lands there.
const GAP_PAGES: u64 = 16;
/// Every allocation is aligned to this and to nothing more, as on a device.
const ALIGNMENT: u64 = 256;
/// What unwritten bytes hold.
pub(crate) const POISON: u8 = 0xa5;
/// A page that belongs to nothing.
const NOBODY: u32 = u32::MAX;
/// Bytes that a [`Memory::new`] may hold.
const DEFAULT_LIMIT: usize = 8 << 30;

/// Blocks are numbered in this many bits of a [`word`].
pub(crate) const BLOCK_BITS: u32 = 20;
const MANY: u64 = (1 << BLOCK_BITS) - 1;

/// The memory of a device.
///
/// Allocations outlive launches. What was never written is *poisoned*: to read it is a fault.
#[derive(Debug)]
pub struct Memory {
    allocations: Vec<Allocation>,
    /// Allocation by page, counted from [`FIRST`].
    pages: Vec<u32>,
    limit: usize,
    in_use: usize,
    /// Number of the current launch, in the 16 bits that a word has for it; never 0.
    launch: u16,
    /// Where the variables of a module are, by the module's number.
    modules: HashMap<u64, Vec<u64>>,
}

#[derive(Debug)]
struct Allocation {
    base: u64,
    data: Vec<u8>,
    /// One bit per byte.
    written: Vec<u64>,
    /// Who used each grain of the allocation in the launch; see [`word`].
    users: Vec<u64>,
    /// A grain has `1 << grain` bytes: four until something narrower is accessed.
    grain: u8,
    freed: bool,
}

impl Allocation {
    /// The users of an access that is aligned to its width.
    #[inline]
    fn grains(&mut self, at: usize, bytes: usize) -> &mut [u64] {
        if bytes < 1 << self.grain {
            self.refine(bytes);
        }
        &mut self.users[at >> self.grain..(at + bytes).div_ceil(1 << self.grain)]
    }

    /// Makes grains as small as an access.
    #[cold]
    fn refine(&mut self, bytes: usize) {
        let finer = if bytes == 1 { 0 } else { 1 };
        let copies = 1 << (self.grain - finer);
        self.users = self.users.iter().flat_map(|&user| std::iter::repeat_n(user, copies)).collect();
        self.grain = finer;
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty memory of 8 GiB.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }

    /// An empty memory that holds at most this many bytes. The host needs about three times what is allocated.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { allocations: Vec::new(), pages: Vec::new(), limit, in_use: 0, launch: 1, modules: HashMap::new() }
    }

    /// Bytes allocated at present.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Allocates poisoned bytes and returns their address, a multiple of 256.
    ///
    /// # Errors
    /// If the limit of this memory or that of the host would be exceeded.
    pub fn alloc(&mut self, bytes: usize) -> Result<u64, MemoryError> {
        let out = MemoryError::OutOfMemory { bytes, in_use: self.in_use, limit: self.limit };
        if bytes > self.limit - self.in_use {
            return Err(out);
        }
        let words = bytes.div_ceil(4);
        let mut allocation =
            Allocation { base: 0, data: Vec::new(), written: Vec::new(), users: Vec::new(), grain: 2, freed: false };
        if allocation.data.try_reserve_exact(bytes).is_err()
            || allocation.written.try_reserve_exact(bytes.div_ceil(64)).is_err()
            || allocation.users.try_reserve_exact(words).is_err()
        {
            return Err(out);
        }
        allocation.data.resize(bytes, POISON);
        allocation.written.resize(bytes.div_ceil(64), 0);
        allocation.users.resize(words, 0);

        self.pages.extend(std::iter::repeat_n(NOBODY, GAP_PAGES as usize));
        allocation.base = FIRST + self.pages.len() as u64 * PAGE + ALIGNMENT;
        let pages = (ALIGNMENT + bytes as u64).div_ceil(PAGE) as usize;
        self.pages.extend(std::iter::repeat_n(self.allocations.len() as u32, pages));
        self.in_use += bytes;
        let base = allocation.base;
        self.allocations.push(allocation);
        Ok(base)
    }

    /// Writes bytes from the host.
    ///
    /// # Errors
    /// If they don't all lie in one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (index, at) = self.find("write", address, bytes.len())?;
        let allocation = &mut self.allocations[index];
        allocation.data[at..at + bytes.len()].copy_from_slice(bytes);
        set_bits(&mut allocation.written, at, bytes.len());
        Ok(())
    }

    /// Reads bytes to the host. Poisoned ones read as `0xa5`.
    ///
    /// # Errors
    /// If they don't all lie in one allocation.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let (index, at) = self.find("read", address, bytes.len())?;
        bytes.copy_from_slice(&self.allocations[index].data[at..at + bytes.len()]);
        Ok(())
    }

    /// Whether all these bytes were written since they were allocated.
    ///
    /// # Errors
    /// If they don't all lie in one allocation.
    pub fn is_written(&self, address: u64, bytes: usize) -> Result<bool, MemoryError> {
        let (index, at) = self.find("read", address, bytes)?;
        Ok(first_clear(&self.allocations[index].written, at, bytes).is_none())
    }

    /// Frees an allocation. Its address is never given out again.
    ///
    /// # Errors
    /// If the address isn't that of a live allocation.
    pub fn free(&mut self, address: u64) -> Result<(), MemoryError> {
        let (index, at) = self.find("free", address, 0)?;
        let allocation = &mut self.allocations[index];
        if at != 0 {
            let why = format!("the allocation begins at {:#x}", allocation.base);
            return Err(MemoryError::BadAddress { action: "free", address, bytes: 0, why });
        }
        self.in_use -= allocation.data.len();
        allocation.data = Vec::new();
        allocation.written = Vec::new();
        allocation.users = Vec::new();
        allocation.freed = true;
        Ok(())
    }

    fn find(&self, action: &'static str, address: u64, bytes: usize) -> Result<(usize, usize), MemoryError> {
        match self.locate(address, bytes) {
            Some(place) => Ok(place),
            None => Err(MemoryError::BadAddress { action, address, bytes, why: self.around(address, bytes) }),
        }
    }

    /// Allocation and offset of an access that lies wholly inside.
    #[inline]
    fn locate(&self, address: u64, bytes: usize) -> Option<(usize, usize)> {
        let page = address.checked_sub(FIRST)? / PAGE;
        let index = *self.pages.get(usize::try_from(page).ok()?)? as usize;
        let allocation = self.allocations.get(index)?;
        let at = usize::try_from(address.checked_sub(allocation.base)?).ok()?;
        (!allocation.freed && at.checked_add(bytes)? <= allocation.data.len()).then_some((index, at))
    }

    /// What is near an address that isn't in bounds, in words.
    fn around(&self, address: u64, bytes: usize) -> String {
        let before = self.allocations.partition_point(|allocation| allocation.base <= address);
        let nearest = before.checked_sub(1).and_then(|index| self.allocations.get(index));
        let Some(allocation) = nearest else {
            return "no allocation lies there or below".to_owned();
        };
        if allocation.freed {
            return format!("the allocation at {:#x} has been freed", allocation.base);
        }
        let offset = address - allocation.base;
        format!("{bytes} bytes from byte {offset} of the {} allocated at {:#x}", allocation.data.len(), allocation.base)
    }

    /// A new launch: who used which word is forgotten.
    pub(crate) fn begin_launch(&mut self) {
        self.launch = self.launch.wrapping_add(1);
        if self.launch == 0 {
            self.launch = 1;
            for allocation in &mut self.allocations {
                allocation.users.fill(0);
            }
        }
    }

    /// Addresses of a module's variables, which are allocated when it is first launched on this memory.
    pub(crate) fn variables(&mut self, module: u64, contents: &[Vec<u8>]) -> Result<Vec<u64>, MemoryError> {
        if let Some(addresses) = self.modules.get(&module) {
            return Ok(addresses.clone());
        }
        let mut addresses = Vec::new();
        for content in contents {
            let address = self.alloc(content.len())?;
            self.write(address, content)?;
            addresses.push(address);
        }
        self.modules.insert(module, addresses.clone());
        Ok(addresses)
    }

    /// Bytes that a lane reads, after all checks.
    #[inline]
    pub(crate) fn load(
        &mut self,
        user: &mut User,
        lane: usize,
        address: u64,
        bytes: usize,
        read_only: bool,
    ) -> Outcome<&[u8]> {
        let (index, at) = match self.locate(address, bytes) {
            Some(place) => place,
            None => return self.out_of_bounds("read", lane, address, bytes),
        };
        let launch = self.launch;
        let allocation = &mut self.allocations[index];
        if user.check_written
            && let Some(byte) = first_clear(&allocation.written, at, bytes)
        {
            let what = format!(
                "read of {bytes} bytes, of which byte {} was never written; it is byte {byte} of the {} allocated at {:#x}",
                byte - at,
                allocation.data.len(),
                allocation.base
            );
            return Trouble::at(FaultKind::Uninitialised, lane, address, what);
        }
        if user.check_races {
            for word in allocation.grains(at, bytes) {
                if let Err(other) = word::read(word, launch, user) {
                    return race(lane, address, bytes, "read", other);
                }
                if read_only && word::is_written(*word) {
                    let what = format!(
                        "read of {bytes} bytes through the read-only path (`.nc`), which this launch has written"
                    );
                    return Trouble::at(FaultKind::GlobalRace, lane, address, what);
                }
            }
        }
        Ok(&allocation.data[at..at + bytes])
    }

    /// Bytes that a lane is about to write, after all checks.
    #[inline]
    pub(crate) fn store(&mut self, user: &mut User, lane: usize, address: u64, bytes: usize) -> Outcome<&mut [u8]> {
        let (index, at) = match self.locate(address, bytes) {
            Some(place) => place,
            None => return self.out_of_bounds("write", lane, address, bytes),
        };
        let launch = self.launch;
        let allocation = &mut self.allocations[index];
        set_bits(&mut allocation.written, at, bytes);
        if user.check_races {
            for word in allocation.grains(at, bytes) {
                if let Err(other) = word::write(word, launch, user) {
                    return race(lane, address, bytes, "write", other);
                }
            }
        }
        Ok(&mut allocation.data[at..at + bytes])
    }

    #[cold]
    fn out_of_bounds<T>(&self, action: &str, lane: usize, address: u64, bytes: usize) -> Outcome<T> {
        let what = format!("{action} outside global memory: {}", self.around(address, bytes));
        Trouble::at(FaultKind::OutOfBounds, lane, address, what)
    }
}

#[cold]
fn race<T>(lane: usize, address: u64, bytes: usize, action: &str, other: Other) -> Outcome<T> {
    let did = if other.wrote { "wrote" } else { "read" };
    let who = other.block.map_or("several other blocks".to_owned(), |block| format!("block number {block}"));
    let what = format!("{action} of {bytes} bytes that {who} {did} in the same launch, with nothing to order the two");
    Trouble::at(FaultKind::GlobalRace, lane, address, what)
}

/// Who accesses global memory, and what orders it after others.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) check_written: bool,
    pub(crate) check_races: bool,
    /// An atomic or a volatile access: ordered with others of its kind.
    pub(crate) strong: bool,
    /// Number of the block, from 0.
    pub(crate) block: u32,
    /// Fences that this block has executed.
    pub(crate) fences: u8,
    /// By block: how many of its fences happened before now, plus one; empty while nothing was acquired.
    pub(crate) acquired: Vec<u8>,
    /// By address of an atomic: what those who used it had released.
    pub(crate) released: HashMap<u64, Vec<(u32, u8)>>,
}

impl User {
    pub(crate) fn new(checks: &crate::launch::Checks) -> Self {
        Self {
            check_written: checks.uninitialised,
            check_races: checks.races,
            strong: false,
            block: 0,
            fences: 0,
            acquired: Vec::new(),
            released: HashMap::new(),
        }
    }

    /// Another block runs.
    pub(crate) fn begin_block(&mut self, block: u32) {
        self.block = block;
        self.fences = 0;
        self.acquired.clear();
    }

    /// What was done before a fence is released by the atomics after it.
    pub(crate) fn fence(&mut self) {
        self.fences = (self.fences + 1).min(word::MAX_FENCES);
    }

    /// An atomic at an address: what others released there happened before, and what this block did before its
    /// last fence happens before whoever comes next.
    pub(crate) fn synchronise(&mut self, address: u64) {
        let known = self.released.entry(address).or_default();
        for &(block, fences) in known.iter() {
            if block == self.block {
                continue;
            }
            if self.acquired.len() <= block as usize {
                self.acquired.resize(block as usize + 1, 0);
            }
            let mine = &mut self.acquired[block as usize];
            *mine = (*mine).max(fences);
        }
        if self.fences > 0 {
            known.retain(|(block, _)| *block != self.block);
            known.push((self.block, self.fences));
        }
    }

    /// Whether what a block did after `fences` of its fences happened before now.
    fn is_after(&self, block: u32, fences: u8) -> bool {
        // Past the largest count, all are taken for released: better a race that isn't seen than one that isn't there.
        self.acquired.get(block as usize).is_some_and(|&known| known > fences || known == word::MAX_FENCES)
    }
}

/// The block in whose way an access is.
struct Other {
    block: Option<u32>,
    wrote: bool,
}

/// A grain of global memory, a word or less: which block last wrote it, and which read it. Blocks run one after the other, so that
/// an access races with every earlier one of another block in the launch, whether it was earlier on a device or not.
mod word {
    use super::{BLOCK_BITS, MANY, Other, User};

    /// Bits: launch 16, fences of the writer before it wrote 7, written by an atomic 1, writer 20, reader 20.
    /// Writers and readers count from 1; a reader of all ones stands for several.
    const WRITER: u32 = BLOCK_BITS;
    const STRONG: u64 = 1 << (2 * BLOCK_BITS);
    const FENCES: u32 = 2 * BLOCK_BITS + 1;
    const LAUNCH: u32 = 48;
    pub(super) const MAX_FENCES: u8 = 127;

    fn current(word: u64, launch: u16) -> u64 {
        if (word >> LAUNCH) as u16 == launch { word } else { u64::from(launch) << LAUNCH }
    }

    /// Fails if another block wrote this word and that isn't ordered before the user.
    #[inline]
    fn check_writer(word: u64, user: &User) -> Result<(), Other> {
        let writer = (word >> WRITER) & MANY;
        if writer == 0 || writer == u64::from(user.block) + 1 || (user.strong && word & STRONG != 0) {
            return Ok(());
        }
        let block = writer as u32 - 1;
        if user.is_after(block, (word >> FENCES) as u8 & MAX_FENCES) {
            return Ok(());
        }
        Err(Other { block: Some(block), wrote: true })
    }

    /// Whether a word that was read now has been written in the launch.
    pub(super) fn is_written(word: u64) -> bool {
        (word >> WRITER) & MANY != 0
    }

    #[inline]
    pub(super) fn read(word: &mut u64, launch: u16, user: &User) -> Result<(), Other> {
        let mut now = current(*word, launch);
        check_writer(now, user)?;
        if !user.strong {
            let me = u64::from(user.block) + 1;
            let reader = now & MANY;
            let readers = if reader == 0 || reader == me { me } else { MANY };
            now = now & !MANY | readers;
        }
        *word = now;
        Ok(())
    }

    #[inline]
    pub(super) fn write(word: &mut u64, launch: u16, user: &User) -> Result<(), Other> {
        let now = current(*word, launch);
        check_writer(now, user)?;
        let me = u64::from(user.block) + 1;
        let reader = now & MANY;
        if reader != 0 && reader != me {
            let block = (reader != MANY).then(|| reader as u32 - 1);
            if !block.is_some_and(|block| user.is_after(block, 0)) {
                return Err(Other { block, wrote: false });
            }
        }
        let strong = if user.strong { STRONG } else { 0 };
        let fences = u64::from(user.fences.min(MAX_FENCES)) << FENCES;
        *word = now & MANY | me << WRITER | strong | fences | u64::from(launch) << LAUNCH;
        Ok(())
    }
}

/// Sets `count` bits from `at` on.
#[inline]
pub(crate) fn set_bits(bits: &mut [u64], at: usize, count: usize) {
    let (mut at, end) = (at, at + count);
    while at < end {
        let step = (64 - at % 64).min(end - at);
        bits[at / 64] |= (u64::MAX >> (64 - step)) << (at % 64);
        at += step;
    }
}

/// First of `count` bits from `at` on that isn't set.
#[inline]
pub(crate) fn first_clear(bits: &[u64], at: usize, count: usize) -> Option<usize> {
    let (mut at, end) = (at, at + count);
    while at < end {
        let step = (64 - at % 64).min(end - at);
        let clear = !bits[at / 64] & ((u64::MAX >> (64 - step)) << (at % 64));
        if clear != 0 {
            return Some(at / 64 * 64 + clear.trailing_zeros() as usize);
        }
        at += step;
    }
    None
}
