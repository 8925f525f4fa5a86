//! What the lanes of a warp do together, and how they come together for it.

use crate::code::{Code, Op, Reduction, Reg, Shuffle, Vote};
use crate::error::{FaultKind, Outcome, Trouble};
use crate::lanes::{ALL, LANES, Lanes, each};
use crate::round::truncate;

use super::{Block, Run, Warp, register, write, write_predicate};

/// Lanes that an instruction needs.
pub(super) enum Needs {
    /// All of the warp that exist.
    Everyone,
    /// All 32.
    Full,
    /// Those of a mask, which each lane states.
    Members(Reg),
}

impl Run<'_> {
    /// Which lanes an instruction needs that lanes execute together.
    #[inline]
    pub(super) fn needs(code: &Code) -> Needs {
        match &code.op {
            Op::Shuffle { members, .. }
            | Op::Vote { members, .. }
            | Op::Ballot { members, .. }
            | Op::MatchAny { members, .. }
            | Op::MatchAll { members, .. }
            | Op::ReduceWarp { members, .. }
            | Op::SyncWarp { members } => Needs::Members(*members),
            Op::Barrier { .. } => Needs::Everyone,
            _ => Needs::Full,
        }
    }

    /// Waits until all lanes that an instruction needs are here; then only they run. False if they aren't, and
    /// another group runs meanwhile.
    pub(super) fn company(&self, needs: Needs, warp: &mut Warp, mask: u32) -> Outcome<bool> {
        // Lanes whose guard is false go on.
        let rest = warp.mask & !mask;
        warp.mask = mask;
        if rest != 0 {
            warp.join(warp.pc + 1, rest);
        }
        let wanted = match needs {
            Needs::Everyone | Needs::Full => warp.present,
            Needs::Members(members) => {
                let members = register(&warp.registers, self.constants, members);
                let first = mask.trailing_zeros() as usize;
                let wanted = members[first] as u32;
                let alike =
                    each(mask).filter(|&lane| members[lane] as u32 == wanted).fold(0, |m, lane| m | 1u32 << lane);
                if let Some(lane) = each(alike).find(|&lane| wanted >> lane & 1 == 0) {
                    let what = format!("the lane is not among the members {wanted:#010x} that it names");
                    return Trouble::at(FaultKind::Operand, lane, 0, what);
                }
                if alike != mask {
                    // Lanes of several sets: one set after the other.
                    warp.join(warp.pc, mask & !alike);
                    warp.mask = alike;
                }
                wanted
            }
        };
        let (pc, mut here) = (warp.pc, warp.mask);
        warp.others.retain(|group| {
            let joins = group.pc == pc && group.needs == Some(wanted);
            if joins {
                here |= group.mask;
            }
            !joins
        });
        warp.mask = here;
        if wanted & warp.live & !here != 0 {
            warp.park(wanted);
            self.regroup(warp)?;
            return Ok(false);
        }
        let all = match needs {
            Needs::Members(_) => return Ok(true),
            Needs::Everyone => warp.present,
            Needs::Full => ALL,
        };
        if warp.live != all {
            let what = format!(
                "an instruction for lanes {all:#010x}, of which {:#010x} have ended or don't exist",
                all & !warp.live
            );
            return Trouble::of(FaultKind::Divergence, what);
        }
        Ok(true)
    }

    /// What the running lanes do together.
    pub(super) fn together(&mut self, code: &Code, block: &mut Block, warp: &mut Warp) -> Outcome {
        let (mask, constants) = (warp.mask, self.constants);
        match &code.op {
            Op::Shuffle { mode, d, p, a, b, c, .. } => {
                let (a, b) = (register(&warp.registers, constants, *a), register(&warp.registers, constants, *b));
                let (out, inside) = shuffle(*mode, mask, a, b, register(&warp.registers, constants, *c))?;
                write(&mut warp.registers, *d, mask, &out);
                write_predicate(&mut warp.predicates, *p, mask, inside);
            }
            Op::Vote { vote, p, a, .. } => {
                let votes = warp.guard(*a) & mask;
                let result = match vote {
                    Vote::All => votes == mask,
                    Vote::Any => votes != 0,
                    Vote::Uniform => votes == 0 || votes == mask,
                };
                write_predicate(&mut warp.predicates, *p, mask, if result { ALL } else { 0 });
            }
            Op::Ballot { d, a, .. } => {
                let votes = u64::from(warp.guard(*a) & mask);
                write(&mut warp.registers, *d, mask, &[votes; LANES]);
            }
            Op::MatchAny { d, a, .. } => {
                let a = *register(&warp.registers, constants, *a);
                let mut out = [0; LANES];
                for lane in each(mask) {
                    out[lane] = each(mask).filter(|&other| a[other] == a[lane]).fold(0, |m, other| m | 1u64 << other);
                }
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::MatchAll { d, p, a, .. } => {
                let a = *register(&warp.registers, constants, *a);
                let first = a[mask.trailing_zeros() as usize];
                let alike = each(mask).all(|lane| a[lane] == first);
                write(&mut warp.registers, *d, mask, &[if alike { u64::from(mask) } else { 0 }; LANES]);
                write_predicate(&mut warp.predicates, *p, mask, if alike { ALL } else { 0 });
            }
            Op::ReduceWarp { op, d, a, .. } => {
                let a = register(&warp.registers, constants, *a);
                let values = each(mask).map(|lane| a[lane] as u32);
                let result = values.reduce(|x, y| match op {
                    Reduction::Add => x.wrapping_add(y),
                    Reduction::MinU => x.min(y),
                    Reduction::MaxU => x.max(y),
                    Reduction::MinS => (x as i32).min(y as i32) as u32,
                    Reduction::MaxS => (x as i32).max(y as i32) as u32,
                    Reduction::And => x & y,
                    Reduction::Or => x | y,
                    Reduction::Xor => x ^ y,
                });
                write(&mut warp.registers, *d, mask, &[u64::from(result.unwrap_or(0)); LANES]);
            }
            Op::SyncWarp { .. } => {
                for lane in each(mask) {
                    warp.synced[lane] = block.tick;
                }
                block.tick += 1;
            }
            Op::Barrier { kind, id, threads, a } => {
                self.barrier(*kind, *id, *threads, *a, block, warp)?;
            }
            Op::Matrix(matrix) => super::matrix::multiply(matrix, constants, warp),
            Op::LoadMatrix { regs, address, transposed } => {
                self.load_matrices(regs, *address, *transposed, code.line, block, warp)?;
            }
            Op::StoreMatrix { regs, address, transposed } => {
                self.store_matrices(regs, *address, *transposed, code.line, block, warp)?;
            }
            Op::TransposeMatrix { d, a } => {
                let a = register(&warp.registers, constants, *a);
                let mut out = [0; LANES];
                for (lane, value) in out.iter_mut().enumerate() {
                    for half in 0..2 {
                        // Row and column of the element in the result are column and row in the source.
                        let (row, column) = (lane % 4 * 2 + half, lane / 4);
                        let element = a[row * 4 + column / 2] >> (16 * (column % 2));
                        *value |= (element & 0xffff) << (16 * half);
                    }
                }
                write(&mut warp.registers, *d, mask, &out);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Values of other lanes, and for which lanes there is one.
fn shuffle(mode: Shuffle, mask: u32, a: &Lanes, b: &Lanes, c: &Lanes) -> Outcome<(Lanes, u32)> {
    let (mut out, mut inside) = ([0; LANES], 0);
    for lane in each(mask) {
        let by = (b[lane] & 31) as i32;
        let (clamp, segment) = ((c[lane] & 31) as i32, (c[lane] >> 8 & 31) as i32);
        let me = lane as i32;
        let last = (me & segment) | (clamp & !segment);
        let first = me & segment;
        let (from, valid) = match mode {
            Shuffle::Up => (me - by, me - by >= last),
            Shuffle::Down => (me + by, me + by <= last),
            Shuffle::Butterfly => (me ^ by, (me ^ by) <= last),
            Shuffle::Index => (first | (by & !segment), (first | (by & !segment)) <= last),
        };
        let from = if valid { from as usize } else { lane };
        if mask >> from & 1 == 0 {
            let what = format!("shuffle out of lane {from}, which does not take part (lanes {mask:#010x} do)");
            return Trouble::at(FaultKind::Operand, lane, from as u64, what);
        }
        out[lane] = truncate(a[from], 32);
        inside |= u32::from(valid) << lane;
    }
    Ok((out, inside))
}
