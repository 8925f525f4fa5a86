//! A block: its shared memory, its barriers, and whose turn it is.

use crate::code::{BarrierKind, Guard, Reg};
use crate::error::{FaultKind, Outcome, Trouble};
use crate::lanes::{ALL, LANES};
use crate::shared::Shared;

use super::{Run, Wait, Warp, register, write, write_predicate};

/// Barriers of a block.
const BARRIERS: usize = 16;
/// Instructions of a warp before another one has its turn.
const TURN: u32 = 2048;

/// A warp that has reached a barrier.
#[derive(Debug)]
struct Arrival {
    warp: usize,
    kind: BarrierKind,
    /// Lanes with a predicate, and how many lanes the warp has.
    votes: u32,
    present: u32,
    /// What happened before: the warp's own accesses, and what it knows of others.
    tick: u32,
    seen: Vec<u32>,
}

/// A barrier that some warps have reached.
#[derive(Debug, Default)]
struct Barrier {
    arrivals: Vec<Arrival>,
    /// Warps that it takes.
    expected: usize,
}

/// Numbers in an order that looks random: splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % limit.max(1) as u64) as usize
    }
}

/// A block. It is reused for one after the other.
pub(crate) struct Block {
    pub(crate) shared: Shared,
    /// The counter that stamps accesses to shared memory.
    pub(crate) tick: u32,
    barriers: [Barrier; BARRIERS],
    warps: usize,
}

impl Block {
    pub(crate) fn new(shared: usize, warps: usize) -> Self {
        Self { shared: Shared::new(shared), tick: 1, barriers: std::array::from_fn(|_| Barrier::default()), warps }
    }

    /// Another block.
    pub(crate) fn begin(&mut self) {
        self.tick += 1;
        self.shared.begin_block(self.tick);
        for barrier in &mut self.barriers {
            barrier.arrivals.clear();
        }
    }
}

impl Run<'_> {
    /// Runs a block to its end. On trouble, says in which warp.
    pub(crate) fn block(
        &mut self,
        block: &mut Block,
        warps: &mut [Warp],
        random: &mut Random,
    ) -> Result<(), (usize, Box<Trouble>)> {
        // Anyone ready may be next: races must not depend on it.
        let mut ready: Vec<usize> = (0..warps.len()).collect();
        while !ready.is_empty() {
            let place = random.below(ready.len());
            let index = ready[place];
            self.turn(block, &mut warps[index], TURN).map_err(|trouble| (index, trouble))?;
            match warps[index].wait {
                Wait::None => {}
                Wait::Ended => {
                    ready.swap_remove(place);
                }
                Wait::Barrier { id, .. } => {
                    ready.swap_remove(place);
                    ready.extend(release(&mut block.barriers[id], index, &mut block.tick, warps));
                }
            }
        }
        let waits = |warp: &Warp| match warp.wait {
            Wait::Barrier { id, pc } => Some((warp.id, id, self.program.code[pc as usize].line)),
            _ => None,
        };
        let Some((index, id, _)) = warps.iter().find_map(waits) else {
            return Ok(());
        };
        let waiting: Vec<String> = warps
            .iter()
            .filter_map(waits)
            .map(|(warp, id, line)| format!("warp {warp} at barrier {id}, line {line}"))
            .collect();
        let ended: Vec<String> =
            warps.iter().filter(|warp| waits(warp).is_none()).map(|warp| warp.id.to_string()).collect();
        let barrier = &block.barriers[id];
        let mut what = format!("barrier {id} takes {} warps and {} came", barrier.expected, barrier.arrivals.len());
        what += &format!("; waiting: {}", waiting.join(", "));
        if !ended.is_empty() {
            what += &format!("; ended: warps {}", ended.join(", "));
        }
        if let Wait::Barrier { pc, .. } = warps[index].wait {
            warps[index].pc = pc;
        }
        Err((index, Box::new(Trouble { kind: FaultKind::Deadlock, what, lane: None, address: None })))
    }

    /// A warp, whole, reaches a barrier.
    pub(super) fn barrier(
        &mut self,
        kind: BarrierKind,
        id: Reg,
        threads: Option<Reg>,
        a: Guard,
        block: &mut Block,
        warp: &mut Warp,
    ) -> Outcome {
        let lane = warp.mask.trailing_zeros() as usize;
        let id = register(&warp.registers, self.constants, id)[lane] as usize;
        if id >= BARRIERS {
            return Trouble::of(FaultKind::Operand, format!("barrier {id}, where there are {BARRIERS}"));
        }
        let expected = match threads {
            None => block.warps,
            Some(threads) => {
                let threads = register(&warp.registers, self.constants, threads)[lane] as usize;
                if threads == 0 || !threads.is_multiple_of(LANES) || threads / LANES > block.warps {
                    let what = format!("a barrier for {threads} threads, in a block of {} warps", block.warps);
                    return Trouble::of(FaultKind::Operand, what);
                }
                threads / LANES
            }
        };
        let barrier = &mut block.barriers[id];
        if barrier.arrivals.is_empty() {
            barrier.expected = expected;
        } else if barrier.expected != expected {
            let what = format!("barrier {id} for {expected} warps, where others wait for {}", barrier.expected);
            return Trouble::of(FaultKind::Operand, what);
        }
        if barrier.arrivals.iter().any(|arrival| arrival.warp == warp.id) {
            return Trouble::of(FaultKind::Operand, format!("the warp has already arrived at barrier {id}"));
        }
        let votes = warp.guard(a) & warp.mask;
        barrier.arrivals.push(Arrival {
            warp: warp.id,
            kind,
            votes,
            present: warp.present,
            tick: block.tick,
            seen: warp.seen.clone(),
        });
        if kind == BarrierKind::Arrive {
            // What it does from now on isn't covered.
            warp.synced.fill(block.tick);
            block.tick += 1;
        }
        warp.wait = Wait::Barrier { id, pc: warp.pc };
        Ok(())
    }
}

/// Lets warps go on that wait for nothing more, now that one has arrived, and tells which.
fn release(barrier: &mut Barrier, newcomer: usize, tick: &mut u32, warps: &mut [Warp]) -> Vec<usize> {
    let mut released = Vec::new();
    // Who only arrives doesn't wait.
    if barrier.arrivals.last().is_some_and(|arrival| arrival.kind == BarrierKind::Arrive) {
        warps[newcomer].wait = Wait::None;
        released.push(newcomer);
    }
    if barrier.arrivals.len() < barrier.expected {
        return released;
    }
    let arrivals = std::mem::take(&mut barrier.arrivals);
    let mut known = vec![0u32; warps.len()];
    let (mut count, mut all, mut any) = (0u64, true, false);
    for arrival in &arrivals {
        for (known, seen) in known.iter_mut().zip(&arrival.seen) {
            *known = (*known).max(*seen);
        }
        count += u64::from(arrival.votes.count_ones());
        all &= arrival.votes == arrival.present;
        any |= arrival.votes != 0;
    }
    for arrival in &arrivals {
        let until = if arrival.kind == BarrierKind::Arrive { arrival.tick } else { *tick };
        known[arrival.warp] = known[arrival.warp].max(until);
    }
    for arrival in &arrivals {
        let warp = &mut warps[arrival.warp];
        match arrival.kind {
            BarrierKind::Arrive => continue,
            BarrierKind::Sync => {}
            BarrierKind::Count(d) => write(&mut warp.registers, d, ALL, &[count; LANES]),
            BarrierKind::All(p) => write_predicate(&mut warp.predicates, p, ALL, if all { ALL } else { 0 }),
            BarrierKind::Any(p) => write_predicate(&mut warp.predicates, p, ALL, if any { ALL } else { 0 }),
        }
        for (seen, known) in warp.seen.iter_mut().zip(&known) {
            *seen = (*seen).max(*known);
        }
        warp.synced.fill(*tick);
        warp.wait = Wait::None;
        released.push(arrival.warp);
    }
    *tick += 1;
    released
}
