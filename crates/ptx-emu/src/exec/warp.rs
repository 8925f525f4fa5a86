//! A warp: registers, and where its lanes stand.
//!
//! Lanes that stand at the same instruction run together. Of several such groups the one at the lowest address runs,
//! so that lanes meet again after a branch. A group that needs lanes of other groups is parked until they come.

use crate::code::{Guard, Kernel, SPECIAL};
use crate::lanes::{ALL, LANES, Lanes};
use crate::launch::Launch;
use crate::memory::POISON;

/// Lanes at an instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    /// Lanes that must be here before the instruction can be executed; none if it can.
    pub(crate) needs: Option<u32>,
}

/// What a warp waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    None,
    /// A barrier, reached at this address.
    Barrier {
        id: usize,
        pc: u32,
    },
    /// Nothing more: it has ended.
    Ended,
}

/// An asynchronous copy under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) lane: u8,
    pub(crate) bytes: u8,
    pub(crate) line: u32,
    /// Number of the lane's group to which it belongs.
    pub(crate) group: u32,
    pub(crate) address: u64,
    pub(crate) data: [u8; 16],
}

/// A warp.
#[derive(Debug)]
pub(crate) struct Warp {
    pub(crate) id: usize,
    pub(crate) registers: Vec<Lanes>,
    pub(crate) predicates: Vec<u32>,
    /// Carry of the last addition.
    pub(crate) carry: u32,
    /// Local memory, lane by lane.
    pub(crate) local: Vec<u8>,
    pub(crate) pc: u32,
    /// Lanes that run.
    pub(crate) mask: u32,
    /// Lowest address of the other groups that can run.
    pub(crate) next: u32,
    pub(crate) others: Vec<Group>,
    /// Lanes that exist, and those that haven't ended.
    pub(crate) present: u32,
    pub(crate) live: u32,
    pub(crate) wait: Wait,
    /// Copies of all lanes in the order of their issue, and how many groups each lane has committed.
    pub(crate) pending: Vec<Pending>,
    pub(crate) committed: [u32; LANES],
    /// By warp: up to which tick its accesses happened before now.
    pub(crate) seen: Vec<u32>,
    /// By lane: tick of its last synchronisation with the rest of the warp.
    pub(crate) synced: [u32; LANES],
}

impl Warp {
    /// A warp for blocks of a kernel.
    pub(crate) fn new(id: usize, kernel: &Kernel, warps: usize) -> Self {
        Self {
            id,
            registers: vec![[0; LANES]; kernel.registers],
            predicates: vec![0; kernel.predicates],
            carry: 0,
            local: vec![POISON; kernel.local * LANES],
            pc: 0,
            mask: 0,
            next: u32::MAX,
            others: Vec::new(),
            present: 0,
            live: 0,
            wait: Wait::Ended,
            pending: Vec::new(),
            committed: [0; LANES],
            seen: vec![0; warps],
            synced: [0; LANES],
        }
    }

    /// Puts the warp at the beginning of a kernel, in a block.
    pub(crate) fn begin(&mut self, kernel: &Kernel, launch: &Launch, block: [u32; 3], tick: u32) {
        let threads: u32 = launch.block.iter().product();
        let first = self.id as u32 * LANES as u32;
        self.present = ALL >> (32 - (threads - first).min(32));
        self.live = self.present;
        self.mask = self.present;
        self.pc = kernel.code.start;
        self.next = u32::MAX;
        self.others.clear();
        self.wait = Wait::None;
        self.carry = 0;
        // What was never written is the same in every block: nothing is left over from the last one.
        self.registers.fill([0xa5a5; LANES]);
        self.predicates.fill(0);
        self.predicates[0] = ALL;
        self.local.fill(POISON);
        self.pending.clear();
        self.committed = [0; LANES];
        self.seen.fill(tick - 1);
        self.synced = [tick - 1; LANES];
        let [width, height, _] = launch.block;
        let warps = threads.div_ceil(32);
        let (dynamic, total) = (launch.dynamic_shared, launch.dynamic_shared + kernel.shared as u32);
        for lane in 0..LANES {
            let thread = first + lane as u32;
            let bit = 1u32 << lane;
            let values = [
                thread % width,
                thread / width % height,
                thread / width / height,
                launch.block[0],
                launch.block[1],
                launch.block[2],
                block[0],
                block[1],
                block[2],
                launch.grid[0],
                launch.grid[1],
                launch.grid[2],
                lane as u32,
                self.id as u32,
                warps,
                bit,
                bit | (bit - 1),
                bit - 1,
                !(bit - 1),
                !(bit | (bit - 1)),
                0,
                1,
                0,
                dynamic,
                total,
                LANES as u32,
            ];
            debug_assert_eq!(values.len(), SPECIAL.len());
            for (register, value) in self.registers.iter_mut().zip(values) {
                register[lane] = u64::from(value);
            }
        }
    }

    /// Lanes for which a guard holds.
    #[inline]
    pub(crate) fn guard(&self, guard: Guard) -> u32 {
        let mask = self.predicates[guard.pred as usize];
        if guard.negated { !mask } else { mask }
    }

    /// These of the running lanes go to a target, the others on.
    #[inline]
    pub(crate) fn branch(&mut self, mask: u32, target: u32) {
        if mask == self.mask {
            self.pc = target;
            return;
        }
        self.pc += 1;
        if mask != 0 {
            self.mask &= !mask;
            self.join(target, mask);
        }
    }

    /// Lanes come to stand at an instruction.
    pub(crate) fn join(&mut self, pc: u32, mask: u32) {
        self.next = self.next.min(pc);
        match self.others.iter_mut().find(|group| group.pc == pc && group.needs.is_none()) {
            Some(group) => group.mask |= mask,
            None => self.others.push(Group { pc, mask, needs: None }),
        }
    }

    /// The running lanes wait here for others.
    pub(crate) fn park(&mut self, needs: u32) {
        self.others.push(Group { pc: self.pc, mask: self.mask, needs: Some(needs) });
        self.mask = 0;
    }

    /// Runs the group at the lowest address; false if none can run.
    pub(crate) fn regroup(&mut self) -> bool {
        if self.mask != 0 {
            self.join(self.pc, self.mask);
            self.mask = 0;
        }
        // A parked group whose missing lanes have ended can go on, if only to say so.
        let able = |group: &Group, live: u32| group.needs.is_none_or(|needs| needs & live & !group.mask == 0);
        let runnable =
            self.others.iter().enumerate().filter(|(_, group)| group.needs.is_none()).min_by_key(|(_, g)| g.pc);
        let chosen = runnable.or_else(|| self.others.iter().enumerate().find(|(_, group)| able(group, self.live)));
        let Some(index) = chosen.map(|(index, _)| index) else {
            return false;
        };
        let group = self.others.swap_remove(index);
        (self.pc, self.mask) = (group.pc, group.mask);
        let runnable = self.others.iter().filter(|group| group.needs.is_none());
        self.next = runnable.map(|group| group.pc).min().unwrap_or(u32::MAX);
        true
    }
}
