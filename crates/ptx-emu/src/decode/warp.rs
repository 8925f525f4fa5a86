//! What the lanes of a warp do together: matrices, shuffles, votes, barriers.

use crate::code::{BarrierKind, Element, Guard, Matrix, NO_PRED, Op, Reduction, SINK, Shuffle, Vote};
use crate::syntax::{Operand, Type};

use super::opcode::Opcode;
use super::{Decoded, Lowering};

impl<'a> Lowering<'a, '_> {
    pub(super) fn warp(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        match opcode.name {
            "mma" => self.multiply_matrices(opcode, operands),
            "ldmatrix" | "stmatrix" => self.move_matrices(opcode, operands),
            "movmatrix" => {
                Self::expect(opcode, &["sync", "aligned", "trans", "m8n8"])?;
                opcode.kind()?;
                let [d, a] = Self::exactly(operands)?;
                Ok(Op::TransposeMatrix { d: self.target(d, Type::B32)?, a: self.source(a, Type::B32)? })
            }
            "shfl" => self.shuffle(opcode, operands),
            "vote" => self.vote(opcode, operands),
            "match" => {
                Self::expect(opcode, &["sync"])?;
                let any = opcode.take_any(&["any", "all"]).ok_or("expected `.any` or `.all`")? == "any";
                let kind = opcode.kind()?;
                let [d, a, members] = Self::exactly(operands)?;
                let (d, p) = self.target_and_condition(d, Type::B32)?;
                let (a, members) = (self.source(a, kind)?, self.source(members, Type::B32)?);
                Ok(if any { Op::MatchAny { d, a, members } } else { Op::MatchAll { d, p, a, members } })
            }
            "redux" => {
                Self::expect(opcode, &["sync"])?;
                let op = opcode.take_any(&["add", "min", "max", "and", "or", "xor"]).ok_or("expected an operation")?;
                let op = match (op, opcode.kind()?) {
                    ("add", Type::U32 | Type::S32) => Reduction::Add,
                    ("min", Type::U32) => Reduction::MinU,
                    ("max", Type::U32) => Reduction::MaxU,
                    ("min", Type::S32) => Reduction::MinS,
                    ("max", Type::S32) => Reduction::MaxS,
                    ("and", Type::B32) => Reduction::And,
                    ("or", Type::B32) => Reduction::Or,
                    ("xor", Type::B32) => Reduction::Xor,
                    (op, kind) => return Err(format!("`.{op}` of type {kind:?} is not supported")),
                };
                let [d, a, members] = Self::exactly(operands)?;
                let (a, members) = (self.source(a, Type::B32)?, self.source(members, Type::B32)?);
                Ok(Op::ReduceWarp { op, d: self.target(d, Type::B32)?, a, members })
            }
            "activemask" => {
                opcode.kind()?;
                let [d] = Self::exactly(operands)?;
                Ok(Op::ActiveMask { d: self.target(d, Type::B32)? })
            }
            "bar" | "barrier" => self.barrier(opcode, operands),
            "nanosleep" => {
                opcode.kind()?;
                Ok(Op::Nothing)
            }
            _ => {
                // Dependent launches: here each launch ends before the next begins.
                opcode.take_any(&["wait", "launch_dependents"]).ok_or("expected what to do")?;
                Ok(Op::Nothing)
            }
        }
    }

    /// Modifiers that must be there.
    fn expect(opcode: &mut Opcode<'a>, modifiers: &[&'static str]) -> Decoded<()> {
        for modifier in modifiers {
            if !opcode.take(modifier) {
                return Err(format!("expected `.{modifier}`"));
            }
        }
        Ok(())
    }

    fn multiply_matrices(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        Self::expect(opcode, &["sync", "aligned", "row", "col"])?;
        let saturate = opcode.take("satfinite");
        let shapes = ["m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m16n8k64", "m8n8k16", "m8n8k32"];
        let shape = opcode.take_any(&shapes).ok_or("expected a shape that is supported")?;
        // Types of operands that PTX knows in matrices only are no types of registers.
        let mut narrow = [None; 2];
        for place in &mut narrow {
            *place = opcode.take_with(|modifier| match modifier {
                "tf32" => Some(Element::Tf32),
                "s4" => Some(Element::S4),
                "u4" => Some(Element::U4),
                _ => None,
            });
        }
        let kinds = opcode.kinds();
        let element = |kind: Type| match kind {
            Type::F16 => Some(Element::F16),
            Type::Bf16 => Some(Element::Bf16),
            Type::S8 => Some(Element::S8),
            Type::U8 => Some(Element::U8),
            _ => None,
        };
        let (d_kind, a_kind, b_kind, c_kind) = match (kinds.as_slice(), narrow) {
            (&[d, a, b, c], [None, None]) => match (element(a), element(b)) {
                (Some(a), Some(b)) => (d, a, b, c),
                _ => return Err(format!("elements of types {a:?} and {b:?} are not supported")),
            },
            (&[d, c], [Some(a), Some(b)]) => (d, a, b, c),
            _ => return Err("expected four types".to_owned()),
        };
        let k: usize = shape[shape.find('k').map_or(0, |at| at + 1)..].parse().unwrap_or(0);
        let m = if shape.starts_with("m16") { 16 } else { 8 };
        let per_register = match a_kind {
            Element::Tf32 => 1,
            Element::F16 | Element::Bf16 => 2,
            Element::S8 | Element::U8 => 4,
            Element::S4 | Element::U4 => 8,
        };
        let integers = matches!(a_kind, Element::S8 | Element::U8 | Element::S4 | Element::U4);
        let shapes_of_kind: &[(usize, usize)] = match a_kind {
            Element::Tf32 => &[(16, 4), (16, 8)],
            Element::F16 | Element::Bf16 => &[(16, 8), (16, 16)],
            Element::S8 | Element::U8 => &[(8, 16), (16, 16), (16, 32)],
            Element::S4 | Element::U4 => &[(8, 32), (16, 32), (16, 64)],
        };
        let results = match a_kind {
            _ if integers => d_kind == Type::S32 && c_kind == Type::S32,
            Element::F16 => matches!((d_kind, c_kind), (Type::F32 | Type::F16, Type::F32 | Type::F16)),
            _ => d_kind == Type::F32 && c_kind == Type::F32,
        };
        let alike =
            if integers { per_register == 4 || matches!(b_kind, Element::S4 | Element::U4) } else { a_kind == b_kind };
        let b_integers = matches!(b_kind, Element::S8 | Element::U8 | Element::S4 | Element::U4);
        if !shapes_of_kind.contains(&(m, k)) || !results || !alike || integers != b_integers || (saturate && !integers)
        {
            return Err(format!("no multiplication {shape} of {a_kind:?} and {b_kind:?} to {d_kind:?}"));
        }
        // Each lane holds its thirty-second part.
        let a_registers = m * k / (32 * per_register);
        let b_registers = 8 * k / (32 * per_register);
        let accumulators = |kind: Type| if kind == Type::F16 { m * 8 / 64 } else { m * 8 / 32 };
        let register = |kind: Type| if kind == Type::F16 { Type::B32 } else { kind };
        let [d, a, b, c] = Self::exactly(operands)?;
        Ok(Op::Matrix(Box::new(Matrix {
            m,
            k,
            a_kind,
            b_kind,
            d_kind,
            c_kind,
            saturate,
            d: self.targets(d, accumulators(d_kind), register(d_kind))?,
            a: self.sources(a, a_registers, Type::B32)?,
            b: self.sources(b, b_registers, Type::B32)?,
            c: self.sources(c, accumulators(c_kind), register(c_kind))?,
        })))
    }

    fn move_matrices(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        Self::expect(opcode, &["sync", "aligned", "m8n8"])?;
        if opcode.take_any(&["shared", "shared::cta"]).is_none() {
            return Err("expected `.shared`".to_owned());
        }
        let count = match opcode.take_any(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => return Err("expected `.x1`, `.x2` or `.x4`".to_owned()),
        };
        let transposed = opcode.take("trans");
        match opcode.kind()? {
            Type::B16 => {}
            other => return Err(format!("type {other:?} is not supported")),
        }
        let [first, second] = Self::exactly(operands)?;
        if opcode.name == "ldmatrix" {
            let regs = self.targets(first, count, Type::B32)?;
            Ok(Op::LoadMatrix { regs, address: self.address(second)?.0, transposed })
        } else {
            let regs = self.sources(second, count, Type::B32)?;
            Ok(Op::StoreMatrix { regs, address: self.address(first)?.0, transposed })
        }
    }

    fn shuffle(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        Self::expect(opcode, &["sync"])?;
        let mode = match opcode.take_any(&["up", "down", "bfly", "idx"]) {
            Some("up") => Shuffle::Up,
            Some("down") => Shuffle::Down,
            Some("bfly") => Shuffle::Butterfly,
            Some(_) => Shuffle::Index,
            None => return Err("expected a mode".to_owned()),
        };
        opcode.kind()?;
        let [d, a, b, c, members] = Self::exactly(operands)?;
        let (d, p) = match d {
            Operand::Pair("_", p) => (SINK, self.predicate(p)?),
            other => self.target_and_condition(other, Type::B32)?,
        };
        let (a, b) = (self.source(a, Type::B32)?, self.source(b, Type::B32)?);
        let (c, members) = (self.source(c, Type::B32)?, self.source(members, Type::B32)?);
        Ok(Op::Shuffle { mode, d, p, a, b, c, members })
    }

    fn vote(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        Self::expect(opcode, &["sync"])?;
        let mode = opcode.take_any(&["all", "any", "uni", "ballot"]).ok_or("expected a mode")?;
        opcode.kind()?;
        let [d, a, members] = Self::exactly(operands)?;
        let (a, members) = (self.condition(a)?, self.source(members, Type::B32)?);
        let vote = match mode {
            "ballot" => return Ok(Op::Ballot { d: self.target(d, Type::B32)?, a, members }),
            "all" => Vote::All,
            "any" => Vote::Any,
            _ => Vote::Uniform,
        };
        Ok(Op::Vote { vote, p: self.conditions_out(d)?.0, a, members })
    }

    fn barrier(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        if opcode.take("warp") {
            Self::expect(opcode, &["sync"])?;
            let [members] = Self::exactly(operands)?;
            return Ok(Op::SyncWarp { members: self.source(members, Type::B32)? });
        }
        opcode.take("cta");
        opcode.take("aligned");
        let what = opcode.take_any(&["sync", "arrive", "red"]).ok_or("expected `.sync`, `.arrive` or `.red`")?;
        let (mut kind, mut a, mut rest) = (BarrierKind::Sync, Guard::ALWAYS, operands);
        match what {
            "arrive" => {
                kind = BarrierKind::Arrive;
                if operands.len() != 2 {
                    return Err("expected a barrier and a number of threads".to_owned());
                }
            }
            "red" => {
                let mode = opcode.take_any(&["popc", "and", "or"]).ok_or("expected `.popc`, `.and` or `.or`")?;
                opcode.kind()?;
                let ([d, middle @ .., last], true) = (operands, operands.len() >= 3) else {
                    return Err("expected three or four operands".to_owned());
                };
                kind = match mode {
                    "popc" => BarrierKind::Count(self.target(d, Type::U32)?),
                    "and" => BarrierKind::All(self.conditions_out(d)?.0),
                    _ => BarrierKind::Any(self.conditions_out(d)?.0),
                };
                if matches!(kind, BarrierKind::All(NO_PRED) | BarrierKind::Any(NO_PRED)) {
                    return Err("expected a predicate".to_owned());
                }
                a = self.condition(last)?;
                rest = middle;
            }
            _ => {}
        }
        let (id, threads) = match rest {
            [id] => (id, None),
            [id, threads] => (id, Some(self.source(threads, Type::U32)?)),
            _ => return Err("expected a barrier and perhaps a number of threads".to_owned()),
        };
        Ok(Op::Barrier { kind, id: self.source(id, Type::U32)?, threads, a })
    }
}
