//! Moves and conversions.

use crate::code::{LOCAL_WINDOW, Op, PARAM_WINDOW, SHARED_WINDOW};
use crate::lanes::{Map1, Map2, map};
use crate::round::{BF16, Conversion, F16, Format, Rounding, TF32, half_value, narrow, sign_extend, truncate};
use crate::syntax::{Operand, Space, Type};
use crate::word::Word;

use super::opcode::Opcode;
use super::{Decoded, Lowering};

impl<'a> Lowering<'a, '_> {
    pub(super) fn mov(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        let [d, a] = Self::exactly(operands)?;
        if kind == Type::Pred {
            let d = self.conditions_out(d)?.0;
            let a = self.condition(a)?;
            return Ok(Op::Predicate { logic: crate::code::Logic::And, d, a, b: crate::code::Guard::ALWAYS });
        }
        match (d, a) {
            (Operand::Vector(parts), a) => {
                let bits = part_bits(kind, parts.len())?;
                let parts = parts.iter().map(|part| self.target_bits(part, bits, bits).map(|(reg, _)| reg));
                let parts = parts.collect::<Decoded<Vec<_>>>()?;
                Ok(Op::Unpack { parts, a: self.source(a, kind)?, bits })
            }
            (d, Operand::Vector(parts)) => {
                let bits = part_bits(kind, parts.len())?;
                let parts = parts.iter().map(|part| self.source_bits(part, bits, bits)).collect::<Decoded<Vec<_>>>()?;
                Ok(Op::Pack { d: self.target(d, kind)?, parts, bits })
            }
            (Operand::Name(_), Operand::Name(name @ ("%clock" | "%clock64" | "%globaltimer" | "%clock_hi"))) => {
                let wide = matches!(*name, "%clock64" | "%globaltimer");
                let d = self.target(d, if wide { Type::B64 } else { Type::B32 })?;
                Ok(Op::Clock { d, wide })
            }
            (d, Operand::Address(Some(name), offset)) => {
                let a = self.address_of(name, *offset as u64)?.1;
                Ok(Op::Map1(map!(|a| a), self.target(d, kind)?, a))
            }
            (d, a) => {
                let f: Map1 = match kind.bits() {
                    16 => map!(|a| truncate(a, 16)),
                    32 => map!(|a| truncate(a, 32)),
                    64 => map!(|a| a),
                    _ => return Err(format!("type {kind:?} is not supported")),
                };
                Ok(Op::Map1(f, self.target(d, kind)?, self.source(a, kind)?))
            }
        }
    }

    pub(super) fn cvt(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        if opcode.take("pack") {
            return self.pack(opcode, operands);
        }
        let rounding = opcode.rounding();
        let (flush, saturate, relu) = (opcode.take("ftz"), opcode.take("sat"), opcode.take("relu"));
        if opcode.take("tf32") {
            opcode.kind()?;
            let f: Map1 = match rounding {
                Some((Rounding::Nearest, false)) => {
                    map!(|a| narrow(f64::from(f32::get(a)), TF32, Rounding::Nearest) << 13)
                }
                _ => map!(|a| narrow(f64::from(f32::get(a)), TF32, Rounding::NearestAway) << 13),
            };
            return self.map1(f, operands, Type::B32, Type::F32);
        }
        let (to, from) = (opcode.kind()?, opcode.kind()?);
        if let (Type::F16x2 | Type::Bf16x2, Type::F32) = (to, from) {
            return self.cvt_pair(to, rounding, relu, operands);
        }
        let [d, a] = Self::exactly(operands)?;
        let (d, register_bits) = self.target_bits(d, to.bits(), 64)?;
        let a = self.source_bits(a, from.bits(), 64)?;
        let bad = matches!(to, Type::Pred | Type::F16x2 | Type::Bf16x2)
            || matches!(from, Type::Pred | Type::F16x2 | Type::Bf16x2);
        if bad || (to.is_float() && register_bits != to.bits().max(16)) {
            return Err(format!("no conversion from {from:?} to {to:?}"));
        }
        // A conversion to a narrower float, or of any float to an integer, must say how it rounds.
        let must_round = (from.is_float() && !to.is_float())
            || (to.is_float() && !from.is_float())
            || (to.is_float() && to.bits() < from.bits());
        let (rounding, integral) = match rounding {
            Some(rounding) => rounding,
            None if must_round => return Err("expected a rounding".to_owned()),
            None => (Rounding::Nearest, false),
        };
        let how = Conversion { from, to, rounding, integral, flush, saturate, relu, register_bits };
        if let Some(f) = quick(&how) {
            return Ok(Op::Map1(f, d, a));
        }
        Ok(Op::Convert(Box::new(how), d, a))
    }

    /// Two f32 to a pair of halves; the first operand is the upper one.
    fn cvt_pair(
        &mut self,
        to: Type,
        rounding: Option<(Rounding, bool)>,
        relu: bool,
        operands: &[Operand<'a>],
    ) -> Decoded<Op> {
        fn one(value: u64, format: Format, rounding: Rounding, relu: bool) -> u64 {
            let bits = narrow(f64::from(f32::get(value)), format, rounding);
            if relu && bits & 0x8000 != 0 { 0 } else { bits }
        }
        macro_rules! pair {
            ($format:expr, $rounding:expr, $relu:expr) => {
                map!(|a, b| one(a, $format, $rounding, $relu) << 16 | one(b, $format, $rounding, $relu))
            };
        }
        let f: Map2 = match (to, rounding, relu) {
            (Type::F16x2, Some((Rounding::Nearest, false)), false) => pair!(F16, Rounding::Nearest, false),
            (Type::F16x2, Some((Rounding::Nearest, false)), true) => pair!(F16, Rounding::Nearest, true),
            (Type::F16x2, Some((Rounding::Zero, false)), false) => pair!(F16, Rounding::Zero, false),
            (Type::F16x2, Some((Rounding::Zero, false)), true) => pair!(F16, Rounding::Zero, true),
            (Type::Bf16x2, Some((Rounding::Nearest, false)), false) => pair!(BF16, Rounding::Nearest, false),
            (Type::Bf16x2, Some((Rounding::Nearest, false)), true) => pair!(BF16, Rounding::Nearest, true),
            (Type::Bf16x2, Some((Rounding::Zero, false)), false) => pair!(BF16, Rounding::Zero, false),
            (Type::Bf16x2, Some((Rounding::Zero, false)), true) => pair!(BF16, Rounding::Zero, true),
            _ => return Err("expected `.rn` or `.rz`".to_owned()),
        };
        self.map2(f, operands, [Type::B32, Type::F32, Type::F32])
    }

    /// Two saturated integers below the lower part of a third operand.
    fn pack(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        if !opcode.take("sat") {
            return Err("expected `.sat`".to_owned());
        }
        let kinds = opcode.kinds();
        match kinds.as_slice() {
            [Type::U8, Type::S32, Type::B32] => self.map3(
                map!(|a, b, c| {
                    let narrow = |value: u64| u64::from((value as i32).clamp(0, 255) as u8);
                    truncate(c << 16, 32) | narrow(a) << 8 | narrow(b)
                }),
                operands,
                [Type::B32, Type::S32, Type::S32, Type::B32],
            ),
            [Type::S8, Type::S32, Type::B32] => self.map3(
                map!(|a, b, c| {
                    let narrow = |value: u64| u64::from((value as i32).clamp(-128, 127) as u8);
                    truncate(c << 16, 32) | narrow(a) << 8 | narrow(b)
                }),
                operands,
                [Type::B32, Type::S32, Type::S32, Type::B32],
            ),
            _ => Err("these types are not supported".to_owned()),
        }
    }

    /// `cvta`: between addresses of a space and generic ones.
    pub(super) fn cvta(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        let to = opcode.take("to");
        let space = opcode.take_with(super::memory::space_named).ok_or("expected a state space")?;
        let f: Map1 = match (space, to) {
            (Space::Shared, false) => map!(|a| a.wrapping_add(SHARED_WINDOW)),
            (Space::Shared, true) => map!(|a| a.wrapping_sub(SHARED_WINDOW)),
            (Space::Local, false) => map!(|a| a.wrapping_add(LOCAL_WINDOW)),
            (Space::Local, true) => map!(|a| a.wrapping_sub(LOCAL_WINDOW)),
            // Parameters of functions are addresses of local memory already.
            (Space::Param, false) => map!(|a| if a < LOCAL_WINDOW { a.wrapping_add(PARAM_WINDOW) } else { a }),
            (Space::Param, true) => map!(|a| if a >= PARAM_WINDOW { a.wrapping_sub(PARAM_WINDOW) } else { a }),
            _ => map!(|a| a),
        };
        if kind.bits() != 64 {
            return Err("expected 64-bit addresses".to_owned());
        }
        self.map1(f, operands, kind, kind)
    }
}

/// Bits of each part if a register is split into so many.
fn part_bits(kind: Type, parts: usize) -> Decoded<u32> {
    match (kind.bits(), parts) {
        (bits @ (16 | 32 | 64), 2 | 4) if bits / parts as u32 >= 8 => Ok(bits / parts as u32),
        _ => Err(format!("type {kind:?} cannot be split into {parts}")),
    }
}

/// A function for the conversions that kernels are full of.
fn quick(how: &Conversion) -> Option<Map1> {
    if how.saturate || how.relu {
        return None;
    }
    let (from, to, wide) = (how.from, how.to, how.register_bits);
    if !from.is_float() && !to.is_float() {
        // From and to: what is kept of the source, then how it is extended.
        let bits = from.bits().min(to.bits());
        let signed = if to.bits() > from.bits() { from.is_signed() } else { to.is_signed() };
        let result = if to.bits() > from.bits() && !to.is_signed() { to.bits() } else { wide };
        return Some(match (bits, signed, result) {
            (8, false, _) => map!(|a| a & 0xff),
            (16, false, _) => map!(|a| a & 0xffff),
            (32, false, _) => map!(|a| a & 0xffff_ffff),
            (64, ..) => map!(|a| a),
            (8, true, 16) => map!(|a| truncate(sign_extend(a, 8) as u64, 16)),
            (8, true, 32) => map!(|a| truncate(sign_extend(a, 8) as u64, 32)),
            (8, true, 64) => map!(|a| sign_extend(a, 8) as u64),
            (16, true, 16) => map!(|a| truncate(a, 16)),
            (16, true, 32) => map!(|a| truncate(sign_extend(a, 16) as u64, 32)),
            (16, true, 64) => map!(|a| sign_extend(a, 16) as u64),
            (32, true, 32) => map!(|a| truncate(a, 32)),
            (32, true, 64) => map!(|a| sign_extend(a, 32) as u64),
            _ => return None,
        });
    }
    if how.flush {
        return None;
    }
    Some(match (from, to, how.rounding, how.integral) {
        (Type::S32, Type::F32, Rounding::Nearest, false) => map!(|a| ((a as i32) as f32).put()),
        (Type::U32, Type::F32, Rounding::Nearest, false) => map!(|a| ((a as u32) as f32).put()),
        (Type::F32, Type::F64, _, false) => map!(|a| f64::from(f32::get(a)).put()),
        (Type::F64, Type::F32, Rounding::Nearest, false) => map!(|a| (f64::get(a) as f32).put()),
        (Type::F32, Type::F16, Rounding::Nearest, false) => {
            map!(|a| narrow(f64::from(f32::get(a)), F16, Rounding::Nearest))
        }
        (Type::F32, Type::Bf16, Rounding::Nearest, false) => {
            map!(|a| narrow(f64::from(f32::get(a)), BF16, Rounding::Nearest))
        }
        (Type::F16, Type::F32, _, false) => map!(|a| half_value(a).put()),
        (Type::Bf16, Type::F32, _, false) => map!(|a| f32::get((a & 0xffff) << 16).put()),
        (Type::F32, Type::S32, Rounding::Nearest, _) if wide == 32 => {
            map!(|a| (f32::get(a).round_ties_even() as i32).put())
        }
        (Type::F32, Type::S32, Rounding::Zero, _) if wide == 32 => map!(|a| (f32::get(a) as i32).put()),
        (Type::F32, Type::F32, Rounding::Nearest, true) => map!(|a| f32::get(a).round_ties_even().put()),
        _ => return None,
    })
}
