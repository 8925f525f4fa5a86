//! Loads, stores, atomics and asynchronous copies of a warp.

use crate::code::{
    Access, Address, AsyncCopy, Atomic, AtomicOp, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, SINK, WINDOW,
};
use crate::error::{FaultKind, Outcome, Trouble};
use crate::lanes::{LANES, Lanes, each};
use crate::round::{BF16, F16, Format, Rounding, narrow, sign_extend, truncate, widen};
use crate::shared::Who;
use crate::syntax::{Space, Type};
use crate::word::Word;

use super::warp::Pending;
use super::{Block, Run, Warp, register};

/// The space in which an address lies, and the address there.
#[inline]
pub(super) fn resolve(space: Space, address: u64) -> (Space, u64) {
    let within = |window: u64| (window..window + WINDOW).contains(&address);
    match space {
        Space::Generic if within(SHARED_WINDOW) => (Space::Shared, address - SHARED_WINDOW),
        Space::Generic | Space::Param if within(LOCAL_WINDOW) => (Space::Local, address - LOCAL_WINDOW),
        Space::Generic if within(PARAM_WINDOW) => (Space::Param, address - PARAM_WINDOW),
        Space::Generic | Space::Const => (Space::Global, address),
        other => (other, address),
    }
}

#[inline]
fn addresses(run: &Run<'_>, warp: &Warp, address: Address) -> Lanes {
    let mut addresses = *register(&warp.registers, run.constants, address.base);
    for lane in &mut addresses {
        *lane = lane.wrapping_add(address.offset);
    }
    addresses
}

/// A number of 1, 2, 4 or 8 bytes.
#[inline]
fn little_endian(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

#[inline]
fn check_alignment(lane: usize, address: u64, bytes: usize) -> Outcome {
    if address & (bytes as u64 - 1) == 0 {
        return Ok(());
    }
    let what = format!("{bytes} bytes at an address that is not a multiple of {bytes}");
    Trouble::at(FaultKind::Misaligned, lane, address, what)
}

#[cold]
fn outside<T>(what: &str, size: usize, lane: usize, address: u64, bytes: usize) -> Outcome<T> {
    let what = format!("access of {bytes} bytes outside the {size} of {what}");
    Trouble::at(FaultKind::OutOfBounds, lane, address, what)
}

/// A part of a lane's own memory, as a range.
fn local_range(size: usize, lane: usize, address: u64, bytes: usize) -> Outcome<std::ops::Range<usize>> {
    match usize::try_from(address) {
        Ok(at) if at.checked_add(bytes).is_some_and(|end| end <= size) => {
            Ok(lane * size + at..lane * size + at + bytes)
        }
        _ => outside("local memory", size, lane, address, bytes),
    }
}

impl Run<'_> {
    pub(super) fn who<'w>(&self, block: &Block, warp: &'w Warp, line: u32, strong: bool) -> Who<'w> {
        Who {
            warp: warp.id,
            line,
            tick: block.tick,
            seen: &warp.seen,
            synced: &warp.synced,
            strong,
            check_written: self.checks.uninitialised,
            check_races: self.checks.races,
        }
    }

    pub(super) fn load(
        &mut self,
        access: &Access,
        line: u32,
        block: &mut Block,
        warp: &mut Warp,
        mask: u32,
    ) -> Outcome {
        match access.regs.len() {
            1 => self.load_elements::<1>(access, line, block, warp, mask),
            2 => self.load_elements::<2>(access, line, block, warp, mask),
            4 => self.load_elements::<4>(access, line, block, warp, mask),
            _ => self.load_elements::<8>(access, line, block, warp, mask),
        }
    }

    fn load_elements<const N: usize>(
        &mut self,
        access: &Access,
        line: u32,
        block: &mut Block,
        warp: &mut Warp,
        mask: u32,
    ) -> Outcome {
        let addresses = addresses(self, warp, access.address);
        let bytes = N * access.width;
        self.user.strong = access.strong;
        let mut values: [Lanes; N] = [[0; LANES]; N];
        let who = self.who(block, warp, line, access.strong);
        for lane in each(mask) {
            let (space, address) = resolve(access.space, addresses[lane]);
            check_alignment(lane, address, bytes)?;
            let found = match space {
                Space::Shared => block.shared.load(&who, lane, address, bytes)?,
                Space::Local => &warp.local[local_range(self.kernel.local, lane, address, bytes)?],
                Space::Param => {
                    let end = address.checked_add(bytes as u64).and_then(|end| usize::try_from(end).ok());
                    match end.and_then(|end| self.params.get(end - bytes..end)) {
                        Some(found) => found,
                        None => return outside("parameters", self.params.len(), lane, address, bytes),
                    }
                }
                _ => {
                    if access.ordered {
                        self.user.synchronise(address);
                    }
                    self.memory.load(&mut self.user, lane, address, bytes, access.read_only)?
                }
            };
            for (value, part) in values.iter_mut().zip(found.chunks_exact(access.width)) {
                value[lane] = little_endian(part);
            }
        }
        for (&reg, value) in access.regs.iter().zip(&mut values) {
            if access.extend != 0 {
                for lane in value.iter_mut() {
                    *lane = truncate(sign_extend(*lane, access.width as u32 * 8) as u64, access.extend);
                }
            }
            super::write(&mut warp.registers, reg, mask, value);
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        access: &Access,
        line: u32,
        block: &mut Block,
        warp: &mut Warp,
        mask: u32,
    ) -> Outcome {
        let addresses = addresses(self, warp, access.address);
        let bytes = access.regs.len() * access.width;
        self.user.strong = access.strong;
        let mut buffer = [0u8; 64];
        for lane in each(mask) {
            let (space, address) = resolve(access.space, addresses[lane]);
            check_alignment(lane, address, bytes)?;
            for (&reg, part) in access.regs.iter().zip(buffer.chunks_exact_mut(access.width)) {
                let value = register(&warp.registers, self.constants, reg)[lane];
                part.copy_from_slice(&value.to_le_bytes()[..access.width]);
            }
            let data = &buffer[..bytes];
            match space {
                Space::Shared => {
                    let who = self.who(block, warp, line, access.strong);
                    block.shared.store(&who, lane, address, data)?;
                }
                Space::Local => {
                    let range = local_range(self.kernel.local, lane, address, bytes)?;
                    warp.local[range].copy_from_slice(data);
                }
                Space::Param => {
                    let what = "the parameters of a kernel cannot be written".to_owned();
                    return Trouble::at(FaultKind::ReadOnly, lane, address, what);
                }
                _ => {
                    if access.ordered {
                        self.user.fence();
                    }
                    self.memory.store(&mut self.user, lane, address, bytes)?.copy_from_slice(data);
                    if access.ordered {
                        self.user.synchronise(address);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        atomic: &Atomic,
        line: u32,
        block: &mut Block,
        warp: &mut Warp,
        mask: u32,
    ) -> Outcome {
        let addresses = addresses(self, warp, atomic.address);
        let bytes = atomic.kind.bytes();
        self.user.strong = true;
        if atomic.ordered {
            self.user.fence();
        }
        for lane in each(mask) {
            let (space, address) = resolve(atomic.space, addresses[lane]);
            check_alignment(lane, address, bytes)?;
            let b = register(&warp.registers, self.constants, atomic.b)[lane];
            let c = register(&warp.registers, self.constants, atomic.c)[lane];
            let old = match space {
                Space::Shared => {
                    let who = self.who(block, warp, line, true);
                    let old = little_endian(block.shared.load(&who, lane, address, bytes)?);
                    let new = combine(atomic, old, b, c);
                    block.shared.store(&who, lane, address, &new.to_le_bytes()[..bytes])?;
                    old
                }
                Space::Global => {
                    self.user.synchronise(address);
                    let old = little_endian(self.memory.load(&mut self.user, lane, address, bytes, false)?);
                    let new = combine(atomic, old, b, c);
                    let place = self.memory.store(&mut self.user, lane, address, bytes)?;
                    place.copy_from_slice(&new.to_le_bytes()[..bytes]);
                    old
                }
                _ => {
                    let what = "an atomic on memory that is neither global nor shared".to_owned();
                    return Trouble::at(FaultKind::Operand, lane, address, what);
                }
            };
            if atomic.d != SINK {
                warp.registers[atomic.d as usize][lane] = old;
            }
        }
        Ok(())
    }

    pub(super) fn copy(
        &mut self,
        copy: &AsyncCopy,
        line: u32,
        block: &mut Block,
        warp: &mut Warp,
        mask: u32,
    ) -> Outcome {
        let (targets, sources) = (addresses(self, warp, copy.target), addresses(self, warp, copy.source));
        let ignored = warp.guard(copy.ignore);
        self.user.strong = false;
        for lane in each(mask) {
            let wanted = copy
                .source_bytes
                .map_or(copy.bytes as u64, |reg| truncate(register(&warp.registers, self.constants, reg)[lane], 32));
            if wanted > copy.bytes as u64 {
                let what = format!("{wanted} bytes to read for a copy of {}", copy.bytes);
                return Trouble::at(FaultKind::Operand, lane, sources[lane], what);
            }
            let wanted = if ignored >> lane & 1 == 1 { 0 } else { wanted as usize };
            let (space, source) = resolve(Space::Generic, sources[lane]);
            let (target_space, target) = match resolve(Space::Generic, targets[lane]) {
                (Space::Global, target) => (Space::Shared, target), // An offset into shared memory.
                other => other,
            };
            check_alignment(lane, target, copy.bytes)?;
            check_alignment(lane, source, copy.bytes)?;
            if target_space != Space::Shared || (space != Space::Global && wanted > 0) {
                let what = "an asynchronous copy that is not from global to shared memory".to_owned();
                return Trouble::at(FaultKind::Operand, lane, targets[lane], what);
            }
            let mut data = [0; 16];
            if wanted > 0 {
                data[..wanted].copy_from_slice(self.memory.load(&mut self.user, lane, source, wanted, false)?);
            }
            let who = self.who(block, warp, line, false);
            block.shared.issue(&who, lane, target, copy.bytes)?;
            let group = warp.committed[lane];
            warp.pending.push(Pending {
                lane: lane as u8,
                bytes: copy.bytes as u8,
                line,
                group,
                address: target,
                data,
            });
        }
        Ok(())
    }

    /// Delivers the copies of all but the latest groups.
    pub(super) fn wait(&mut self, groups: Option<u32>, block: &mut Block, warp: &mut Warp, mask: u32) -> Outcome {
        let mut kept = 0;
        for index in 0..warp.pending.len() {
            let copy = warp.pending[index];
            let lane = usize::from(copy.lane);
            let done = groups.is_none_or(|groups| copy.group < warp.committed[lane].saturating_sub(groups));
            if mask >> lane & 1 == 0 || !done {
                warp.pending[kept] = copy;
                kept += 1;
                continue;
            }
            let who = self.who(block, warp, copy.line, false);
            block.shared.arrive(&who, lane, copy.address, &copy.data[..usize::from(copy.bytes)])?;
        }
        warp.pending.truncate(kept);
        Ok(())
    }
}

/// What an atomic writes.
fn combine(atomic: &Atomic, old: u64, b: u64, c: u64) -> u64 {
    let half = |format: Format| {
        let add =
            |x: u64, y: u64| narrow(widen(x & 0xffff, format) + widen(y & 0xffff, format), format, Rounding::Nearest);
        if atomic.kind.bits() == 16 { add(old, b) } else { add(old >> 16, b >> 16) << 16 | add(old, b) }
    };
    let by_sign = |smaller: bool| {
        let bits = atomic.kind.bits();
        let less = if atomic.kind.is_signed() {
            sign_extend(old, bits) < sign_extend(b, bits)
        } else {
            truncate(old, bits) < truncate(b, bits)
        };
        if less == smaller { old } else { b }
    };
    match atomic.op {
        AtomicOp::Add => match atomic.kind {
            Type::F32 => (f32::get(old) + f32::get(b)).put(),
            Type::F64 => (f64::get(old) + f64::get(b)).put(),
            Type::F16 | Type::F16x2 => half(F16),
            Type::Bf16 | Type::Bf16x2 => half(BF16),
            _ => truncate(old.wrapping_add(b), atomic.kind.bits()),
        },
        AtomicOp::Min => by_sign(true),
        AtomicOp::Max => by_sign(false),
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Exchange => b,
        AtomicOp::CompareAndSwap => {
            if old == truncate(b, atomic.kind.bits()) {
                c
            } else {
                old
            }
        }
        AtomicOp::Increment => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Decrement => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}
