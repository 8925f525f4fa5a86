//! Runs warps: one instruction after the other, for all lanes that stand at it.

mod block;
mod exchange;
mod matrix;
mod memory;
mod warp;

use crate::code::{CONSTANT, Carry, Class, Code, Kernel, NO_PRED, Op, Pred, Program, Reg, SINK};
use crate::error::{FaultKind, Outcome, Trouble};
use crate::lanes::{ALL, LANES, Lanes, each};
use crate::launch::Checks;
use crate::memory::{Memory, User};
use crate::round::{convert, sign_extend, truncate};
use crate::syntax::Space;

pub(crate) use self::block::{Block, Random};
pub(crate) use self::warp::{Wait, Warp};

/// A launch under way: what all of its blocks share.
pub(crate) struct Run<'r> {
    pub(crate) program: &'r Program,
    pub(crate) kernel: &'r Kernel,
    pub(crate) constants: &'r [Lanes],
    pub(crate) params: &'r [u8],
    pub(crate) memory: &'r mut Memory,
    pub(crate) user: User,
    pub(crate) checks: Checks,
    /// How often each instruction was executed.
    pub(crate) counts: Vec<u64>,
    pub(crate) executed: u64,
}

/// A register or a constant.
#[inline]
fn register<'v>(registers: &'v [Lanes], constants: &'v [Lanes], index: Reg) -> &'v Lanes {
    if index & CONSTANT == 0 { &registers[index as usize] } else { &constants[(index & !CONSTANT) as usize] }
}

/// Writes those lanes of a register.
#[inline]
fn write(registers: &mut [Lanes], index: Reg, mask: u32, values: &Lanes) {
    if index == SINK {
        return;
    }
    let target = &mut registers[index as usize];
    if mask == ALL {
        *target = *values;
    } else {
        for lane in 0..LANES {
            if mask >> lane & 1 == 1 {
                target[lane] = values[lane];
            }
        }
    }
}

/// Writes those lanes of a predicate.
#[inline]
fn write_predicate(predicates: &mut [u32], index: Pred, mask: u32, values: u32) {
    if index != NO_PRED {
        let target = &mut predicates[index as usize];
        *target = *target & !mask | values & mask;
    }
}

impl Run<'_> {
    /// Runs a warp until it waits, ends, or has had its turn.
    pub(crate) fn turn(&mut self, block: &mut Block, warp: &mut Warp, instructions: u32) -> Outcome {
        let program = self.program;
        for _ in 0..instructions {
            self.executed += 1;
            if self.executed > self.checks.budget {
                let what = format!("more than {} instructions of warps; a loop without end?", self.checks.budget);
                return Trouble::of(FaultKind::Budget, what);
            }
            let code = &program.code[warp.pc as usize];
            self.counts[warp.pc as usize] += 1;
            let mask = warp.mask & warp.guard(code.guard);
            match code.class {
                Class::Control => self.control(code, warp, mask)?,
                _ if mask == 0 => warp.pc += 1,
                Class::Alone => {
                    self.alone(code, block, warp, mask)?;
                    warp.pc += 1;
                }
                Class::Together => {
                    if !self.company(Self::needs(code), warp, mask)? {
                        continue;
                    }
                    self.together(code, block, warp)?;
                    warp.pc += 1;
                    if warp.wait != Wait::None {
                        return Ok(());
                    }
                }
            }
            if warp.mask == 0 {
                if warp.others.is_empty() {
                    warp.wait = Wait::Ended;
                    return Ok(());
                }
                self.regroup(warp)?;
            } else if warp.pc >= warp.next {
                warp.regroup();
            }
        }
        Ok(())
    }

    /// Branches and ends. A warp without running lanes comes back if they went apart.
    #[inline]
    fn control(&mut self, code: &Code, warp: &mut Warp, mask: u32) -> Outcome {
        match &code.op {
            Op::Branch(target) => warp.branch(mask, *target),
            Op::BranchIndexed { targets, index } => {
                let index = *register(&warp.registers, self.constants, *index);
                for lane in each(mask) {
                    let Some(&target) = targets.get(truncate(index[lane], 32) as usize) else {
                        let what = format!("index {} of {} targets", truncate(index[lane], 32), targets.len());
                        return Trouble::at(FaultKind::Operand, lane, 0, what);
                    };
                    warp.join(target, 1 << lane);
                }
                warp.mask &= !mask;
                warp.pc += 1;
            }
            Op::Call { target, link } => {
                let back = u64::from(warp.pc + 1);
                write(&mut warp.registers, *link, mask, &[back; LANES]);
                warp.branch(mask, *target);
            }
            Op::Return { link } => {
                let back = warp.registers[*link as usize];
                for lane in each(mask) {
                    warp.join(back[lane] as u32, 1 << lane);
                }
                warp.mask &= !mask;
                warp.pc += 1;
            }
            Op::Exit => {
                warp.live &= !mask;
                warp.mask &= !mask;
                warp.pc += 1;
            }
            Op::Trap if mask != 0 => {
                let lane = Some(mask.trailing_zeros());
                let what = "the kernel executed a trap".to_owned();
                return Err(Box::new(Trouble { kind: FaultKind::Trap, what, lane, address: None }));
            }
            // A trap for nobody.
            _ => warp.pc += 1,
        }
        Ok(())
    }

    /// Runs another group of a warp, or says why none can.
    fn regroup(&self, warp: &mut Warp) -> Outcome {
        if warp.regroup() {
            return Ok(());
        }
        let mut places = warp.others.clone();
        places.sort_by_key(|group| group.pc);
        let lines = |pc: u32| self.program.code[pc as usize].line;
        let list: Vec<String> =
            places.iter().map(|group| format!("lanes {:#010x} at line {}", group.mask, lines(group.pc))).collect();
        let mut what = format!("an instruction for lanes {:#010x}", places[0].needs.unwrap_or(ALL) & warp.present);
        what += &format!(" is not reached by all of them: {}", list.join(", "));
        let ended = warp.present & !warp.live;
        if ended != 0 {
            what += &format!(", lanes {ended:#010x} have ended");
        }
        warp.pc = places[0].pc;
        Trouble::of(FaultKind::Divergence, what)
    }

    /// What a lane does for itself.
    fn alone(&mut self, code: &Code, block: &mut Block, warp: &mut Warp, mask: u32) -> Outcome {
        let constants = self.constants;
        let mut out: Lanes = [0; LANES];
        match &code.op {
            Op::Map1(f, d, a) => {
                f(register(&warp.registers, constants, *a), &mut out);
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Map2(f, d, a, b) => {
                let registers = &warp.registers;
                f(register(registers, constants, *a), register(registers, constants, *b), &mut out);
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Map3(f, d, a, b, c) => {
                let get = |index: Reg| register(&warp.registers, constants, index);
                f(get(*a), get(*b), get(*c), &mut out);
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Map4(f, d, a, b, c, e) => {
                let get = |index: Reg| register(&warp.registers, constants, index);
                f(get(*a), get(*b), get(*c), get(*e), &mut out);
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Convert(how, d, a) => {
                let a = register(&warp.registers, constants, *a);
                for lane in each(mask) {
                    out[lane] = convert(a[lane], how);
                }
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Compare { f, p, q, a, b, combine } => {
                let get = |index: Reg| register(&warp.registers, constants, index);
                let found = f(get(*a), get(*b));
                let (mut yes, mut no) = (found, !found);
                if let Some((logic, guard)) = combine {
                    let with = warp.guard(*guard);
                    (yes, no) = (logic.apply(yes, with), logic.apply(no, with));
                }
                write_predicate(&mut warp.predicates, *p, mask, yes);
                write_predicate(&mut warp.predicates, *q, mask, no);
            }
            Op::ComparePair { low, high, p, q, a, b, combine } => {
                let get = |index: Reg| register(&warp.registers, constants, index);
                let (mut first, mut second) = (low(get(*a), get(*b)), high(get(*a), get(*b)));
                if let Some((logic, guard)) = combine {
                    let with = warp.guard(*guard);
                    (first, second) = (logic.apply(first, with), logic.apply(second, with));
                }
                write_predicate(&mut warp.predicates, *p, mask, first);
                write_predicate(&mut warp.predicates, *q, mask, second);
            }
            Op::Set { f, d, a, b, truth, combine } => {
                let get = |index: Reg| register(&warp.registers, constants, index);
                let mut found = f(get(*a), get(*b));
                if let Some((logic, guard)) = combine {
                    found = logic.apply(found, warp.guard(*guard));
                }
                for (lane, value) in out.iter_mut().enumerate() {
                    *value = if found >> lane & 1 == 1 { *truth } else { 0 };
                }
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Select { d, a, b, p } => {
                let chosen = warp.guard(*p);
                let (a, b) = (register(&warp.registers, constants, *a), register(&warp.registers, constants, *b));
                for lane in 0..LANES {
                    out[lane] = if chosen >> lane & 1 == 1 { a[lane] } else { b[lane] };
                }
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Predicate { logic, d, a, b } => {
                let value = logic.apply(warp.guard(*a), warp.guard(*b));
                write_predicate(&mut warp.predicates, *d, mask, value);
            }
            Op::Carry { .. } => carry(&code.op, constants, warp, mask),
            Op::Pack { d, parts, bits } => {
                for (place, part) in parts.iter().enumerate() {
                    let part = register(&warp.registers, constants, *part);
                    for lane in 0..LANES {
                        out[lane] |= truncate(part[lane], *bits) << (place as u32 * bits);
                    }
                }
                write(&mut warp.registers, *d, mask, &out);
            }
            Op::Unpack { parts, a, bits } => {
                let a = *register(&warp.registers, constants, *a);
                for (place, part) in parts.iter().enumerate() {
                    for lane in 0..LANES {
                        out[lane] = truncate(a[lane] >> (place as u32 * bits), *bits);
                    }
                    write(&mut warp.registers, *part, mask, &out);
                }
            }
            Op::Clock { d, wide } => {
                let now = if *wide { self.executed } else { truncate(self.executed, 32) };
                write(&mut warp.registers, *d, mask, &[now; LANES]);
            }
            Op::ActiveMask { d } => {
                write(&mut warp.registers, *d, mask, &[u64::from(mask); LANES]);
            }
            Op::IsSpace { p, a, space } => {
                let a = register(&warp.registers, constants, *a);
                let mut found = 0;
                for (lane, &address) in a.iter().enumerate() {
                    let (here, _) = memory::resolve(Space::Generic, address);
                    found |= u32::from(here == *space) << lane;
                }
                write_predicate(&mut warp.predicates, *p, mask, found);
            }
            Op::Load(access) => self.load(access, code.line, block, warp, mask)?,
            Op::Store(access) => self.store(access, code.line, block, warp, mask)?,
            Op::Atomic(atomic) => self.atomic(atomic, code.line, block, warp, mask)?,
            Op::AsyncCopy(copy) => self.copy(copy, code.line, block, warp, mask)?,
            Op::Fence => self.user.fence(),
            Op::Commit => {
                for lane in each(mask) {
                    warp.committed[lane] += 1;
                }
            }
            Op::Wait(groups) => self.wait(*groups, block, warp, mask)?,
            Op::Pass { from, to, bytes } => {
                let size = self.kernel.local;
                for lane in each(mask) {
                    let from = lane * size + *from as usize;
                    warp.local.copy_within(from..from + *bytes as usize, lane * size + *to as usize);
                }
            }
            // Branches, and what lanes do together, were done elsewhere.
            _ => {}
        }
        Ok(())
    }
}

/// Adds, subtracts or multiplies with a carry.
fn carry(op: &Op, constants: &[Lanes], warp: &mut Warp, mask: u32) {
    let Op::Carry { op, bits, signed, carry_in, carry_out, d, a, b, c } = op else { return };
    let get = |index: Reg| register(&warp.registers, constants, index);
    let (a, b, c) = (get(*a), get(*b), get(*c));
    let mut out: Lanes = [0; LANES];
    let mut carries = 0;
    for lane in each(mask) {
        let old = if *carry_in { u128::from(warp.carry >> lane & 1) } else { 0 };
        let (x, y) = (truncate(a[lane], *bits), truncate(b[lane], *bits));
        let product = || {
            if *signed {
                (i128::from(sign_extend(x, *bits)) * i128::from(sign_extend(y, *bits))) as u128
            } else {
                u128::from(x) * u128::from(y)
            }
        };
        let third = u128::from(truncate(c[lane], *bits));
        let sum = match op {
            Carry::Add => u128::from(x) + u128::from(y) + old,
            // The borrow: set if the difference would be negative.
            Carry::Sub => u128::from(x).wrapping_sub(u128::from(y)).wrapping_sub(old),
            Carry::MadLow => u128::from(truncate(product() as u64, *bits)) + third + old,
            Carry::MadHigh => u128::from(truncate((product() >> bits) as u64, *bits)) + third + old,
        };
        out[lane] = truncate(sum as u64, *bits);
        carries |= u32::from(sum >> bits & 1 == 1) << lane;
    }
    write(&mut warp.registers, *d, mask, &out);
    if *carry_out {
        warp.carry = warp.carry & !mask | carries & mask;
    }
}
