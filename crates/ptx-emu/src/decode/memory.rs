//! Loads, stores, atomics, asynchronous copies and fences.

use crate::code::{Access, AsyncCopy, Atomic, AtomicOp, Guard, Op, SINK};
use crate::syntax::{Operand, Space, Type};

use super::opcode::Opcode;
use super::{Decoded, Lowering};

/// A state space by the name of its modifier.
pub(super) fn space_named(name: &str) -> Option<Space> {
    Some(match name {
        "global" => Space::Global,
        "const" => Space::Const,
        "shared" | "shared::cta" => Space::Shared,
        "local" => Space::Local,
        "param" | "param::entry" | "param::func" => Space::Param,
        _ => return None,
    })
}

/// What a modifier of a memory operation means, if anything here.
enum Order {
    /// Ordinary.
    Weak,
    /// Atomic with others of its kind.
    Relaxed,
    /// A fence besides.
    Ordered,
}

impl<'a> Lowering<'a, '_> {
    pub(super) fn memory(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        match opcode.name {
            "ld" | "ldu" | "st" => self.access(opcode, operands),
            "atom" | "red" => self.atomic(opcode, operands),
            "cp" => self.copy(opcode, operands),
            "cvta" => self.cvta(opcode, operands),
            "isspacep" => {
                let space = opcode.take_with(space_named).ok_or("expected a state space")?;
                let [p, a] = Self::exactly(operands)?;
                Ok(Op::IsSpace { p: self.conditions_out(p)?.0, a: self.source(a, Type::U64)?, space })
            }
            "membar" | "fence" => {
                let proxy = opcode.take("proxy");
                while opcode
                    .take_any(&[
                        "cta",
                        "gl",
                        "sys",
                        "gpu",
                        "cluster",
                        "sc",
                        "acq_rel",
                        "async",
                        "alias",
                        "global",
                        "shared::cta",
                    ])
                    .is_some()
                {}
                Self::exactly::<0>(operands)?;
                Ok(if proxy { Op::Nothing } else { Op::Fence })
            }
            _ => {
                // Hints about caches: the address is looked at, and nothing else.
                while opcode.take_any(&["global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal"]).is_some()
                {
                }
                let Some(address) = operands.first() else { return Err("expected an address".to_owned()) };
                self.address(address)?;
                Ok(Op::Nothing)
            }
        }
    }

    /// Modifiers that say how an access is ordered with others.
    fn order(opcode: &mut Opcode<'a>) -> Order {
        while opcode.take_any(&["cta", "cluster", "gpu", "sys"]).is_some() {}
        if opcode.take("weak") {
            return Order::Weak;
        }
        if opcode.take_any(&["volatile", "relaxed"]).is_some() {
            return Order::Relaxed;
        }
        if opcode.take_any(&["acquire", "release", "acq_rel", "sc"]).is_some() { Order::Ordered } else { Order::Weak }
    }

    fn access(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let order = Self::order(opcode);
        let space = opcode.take_with(space_named).unwrap_or(Space::Generic);
        let read_only = opcode.take("nc") || opcode.name == "ldu";
        // Hints about caches.
        while opcode
            .take_with(|m| {
                (m.starts_with("L1::")
                    || m.starts_with("L2::")
                    || matches!(m, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt"))
                .then_some(())
            })
            .is_some()
        {}
        let count = match opcode.take_any(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let kind = opcode.kind()?;
        if matches!(kind, Type::Pred | Type::F16x2 | Type::Bf16x2) {
            return Err(format!("type {kind:?} is not supported"));
        }
        let loads = opcode.name != "st";
        let [first, second] = Self::exactly(operands)?;
        let (values, address) = if loads { (first, second) } else { (second, first) };
        let (address, named) = self.address(address)?;
        let space = match (space, named) {
            // A variable by its name: its own space, whatever the instruction leaves open.
            (Space::Generic, Some(space)) => space,
            (space, Some(named)) if named != space => {
                return Err(format!("the variable is in {named:?} memory, not {space:?}"));
            }
            (space, _) => space,
        };
        if !loads && space == Space::Const {
            return Err("constants cannot be written".to_owned());
        }
        let parts = Self::vector(values);
        if parts.len() != count || (count == 1 && matches!(values, Operand::Vector(_))) {
            return Err(format!("expected {count} registers, found {}", parts.len()));
        }
        let (mut regs, mut extend) = (Vec::new(), 0);
        for part in parts {
            if !loads {
                regs.push(self.source_bits(part, kind.bits(), 64)?);
                continue;
            }
            let (reg, bits) = self.target_bits(part, kind.bits(), 64)?;
            if kind.is_signed() && bits > kind.bits() && reg != SINK {
                extend = bits;
            }
            regs.push(reg);
        }
        let access = Access {
            space,
            width: kind.bytes(),
            extend,
            regs,
            address,
            strong: !matches!(order, Order::Weak),
            ordered: matches!(order, Order::Ordered),
            read_only,
        };
        Ok(if loads { Op::Load(Box::new(access)) } else { Op::Store(Box::new(access)) })
    }

    fn atomic(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let order = Self::order(opcode);
        let space = opcode.take_with(space_named).unwrap_or(Space::Generic);
        if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return Err(format!("atomics on {space:?} memory are not supported"));
        }
        let op = opcode
            .take_with(|modifier| {
                Some(match modifier {
                    "add" => AtomicOp::Add,
                    "min" => AtomicOp::Min,
                    "max" => AtomicOp::Max,
                    "and" => AtomicOp::And,
                    "or" => AtomicOp::Or,
                    "xor" => AtomicOp::Xor,
                    "exch" => AtomicOp::Exchange,
                    "cas" => AtomicOp::CompareAndSwap,
                    "inc" => AtomicOp::Increment,
                    "dec" => AtomicOp::Decrement,
                    _ => return None,
                })
            })
            .ok_or("expected an operation")?;
        opcode.take("noftz");
        let kind = opcode.kind()?;
        let good = match op {
            AtomicOp::Add => matches!(
                kind,
                Type::U32
                    | Type::S32
                    | Type::U64
                    | Type::S64
                    | Type::F32
                    | Type::F64
                    | Type::F16
                    | Type::F16x2
                    | Type::Bf16
                    | Type::Bf16x2
            ),
            AtomicOp::Min | AtomicOp::Max => matches!(kind, Type::U32 | Type::S32 | Type::U64 | Type::S64),
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => matches!(kind, Type::B32 | Type::B64),
            AtomicOp::Exchange => matches!(kind, Type::B32 | Type::B64),
            AtomicOp::CompareAndSwap => matches!(kind, Type::B16 | Type::B32 | Type::B64),
            AtomicOp::Increment | AtomicOp::Decrement => kind == Type::U32,
        };
        if !good {
            return Err(format!("type {kind:?} is not supported with this operation"));
        }
        let returns = opcode.name == "atom";
        let mut rest = operands;
        let mut d = SINK;
        if returns && let Some((first, others)) = rest.split_first() {
            d = self.target(first, kind)?;
            rest = others;
        }
        let (address, b, c) = match (rest, op) {
            ([address, b, c], AtomicOp::CompareAndSwap) => (address, b, Some(c)),
            ([address, b], _) if op != AtomicOp::CompareAndSwap => (address, b, None),
            _ => return Err(format!("wrong number of operands: {}", operands.len())),
        };
        let (address, named) = self.address(address)?;
        let space = if space == Space::Generic { named.unwrap_or(space) } else { space };
        let b = self.source(b, kind)?;
        let c = match c {
            Some(c) => self.source(c, kind)?,
            None => b,
        };
        let ordered = matches!(order, Order::Ordered);
        Ok(Op::Atomic(Box::new(Atomic { op, kind, space, address, d, b, c, ordered })))
    }

    fn copy(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        if !opcode.take("async") {
            return Err("only `cp.async` is supported".to_owned());
        }
        if opcode.take("commit_group") {
            Self::exactly::<0>(operands)?;
            return Ok(Op::Commit);
        }
        if opcode.take("wait_all") {
            Self::exactly::<0>(operands)?;
            return Ok(Op::Wait(None));
        }
        if opcode.take("wait_group") {
            let [count] = Self::exactly(operands)?;
            let Operand::Number(count) = count else { return Err("expected a number of groups".to_owned()) };
            let count = u32::try_from(*count).map_err(|_| "a negative number of groups".to_owned())?;
            return Ok(Op::Wait(Some(count)));
        }
        let bypass = match opcode.take_any(&["ca", "cg"]) {
            Some(level) => level == "cg",
            None => return Err("this form of `cp.async` is not supported".to_owned()),
        };
        opcode.take_any(&["L2::64B", "L2::128B", "L2::256B"]);
        if opcode.take_any(&["shared", "shared::cta"]).is_none() || !opcode.take("global") {
            return Err("expected `.shared.global`".to_owned());
        }
        let (target, source, bytes, last) = match operands {
            [target, source, bytes] => (target, source, bytes, None),
            [target, source, bytes, last] => (target, source, bytes, Some(last)),
            _ => return Err(format!("expected three or four operands, found {}", operands.len())),
        };
        let bytes = match bytes {
            Operand::Number(16) => 16,
            Operand::Number(bytes @ (4 | 8)) if !bypass => *bytes as usize,
            _ => return Err("expected 4, 8 or 16 bytes; `.cg` copies 16".to_owned()),
        };
        let (mut source_bytes, mut ignore) = (None, Guard::NEVER);
        match last {
            None => {}
            Some(operand @ Operand::Not(_)) => ignore = self.condition(operand)?,
            Some(operand) => match self.source(operand, Type::U32) {
                Ok(register) => source_bytes = Some(register),
                Err(_) => ignore = self.condition(operand)?,
            },
        }
        let (target, source) = (self.address(target)?.0, self.address(source)?.0);
        Ok(Op::AsyncCopy(Box::new(AsyncCopy { target, source, bytes, source_bytes, ignore })))
    }
}
