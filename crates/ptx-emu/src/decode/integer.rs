//! Arithmetic on integers and bits, comparisons and selections of all types.

use crate::code::{Carry, Guard, Logic, Op};
use crate::lanes::{Compare, Map1, Map2, Map3, Map4, compare, map};
use crate::round::{BF16, F16, flush, sign_extend, truncate, widen};
use crate::syntax::{Operand, Type};
use crate::word::{Integer, Word};

use super::opcode::Opcode;
use super::{Decoded, Lowering};

/// A function on lanes for each integer type, out of one expression.
macro_rules! integer {
    ($kind:expr, |$($name:ident),*| $e:expr) => {
        match $kind {
            Type::U16 | Type::B16 => integer!(@ u16, |$($name),*| $e),
            Type::U32 | Type::B32 => integer!(@ u32, |$($name),*| $e),
            Type::U64 | Type::B64 => integer!(@ u64, |$($name),*| $e),
            Type::S16 => integer!(@ i16, |$($name),*| $e),
            Type::S32 => integer!(@ i32, |$($name),*| $e),
            Type::S64 => integer!(@ i64, |$($name),*| $e),
            other => return Err(format!("type {other:?} is not supported")),
        }
    };
    (@ $number:ty, |$($name:ident),*| $e:expr) => {
        map!(|$($name),*| {
            $(let $name = <$number as Word>::get($name);)*
            Word::put($e)
        })
    };
}

/// Which outcomes of a comparison make it true: less 1, equal 2, greater 4, not comparable 8.
fn outcomes(name: &str) -> Option<u32> {
    Some(match name {
        "lt" | "lo" => 1,
        "eq" => 2,
        "le" | "ls" => 3,
        "gt" | "hi" => 4,
        "ne" => 5,
        "ge" | "hs" => 6,
        "num" => 7,
        "nan" => 8,
        "ltu" => 9,
        "equ" => 10,
        "leu" => 11,
        "gtu" => 12,
        "neu" => 13,
        "geu" => 14,
        _ => return None,
    })
}

/// Whether the outcome of comparing two values is one of a set.
#[inline(always)]
fn holds<const SET: u32, T: PartialOrd>(a: T, b: T) -> bool {
    let found = u32::from(a < b) | u32::from(a == b) << 1 | u32::from(a > b) << 2;
    SET & if found == 0 { 8 } else { found } != 0
}

/// A comparison of numbers that a function takes out of registers.
macro_rules! compare_by {
    ($set:expr, $get:expr, $($number:literal)*) => {
        match $set {
            $($number => compare!(|a, b| holds::<$number, _>($get(a), $get(b))),)*
            other => return Err(format!("comparison {other} is not supported")),
        }
    };
    ($set:expr, $get:expr) => { compare_by!($set, $get, 1 2 3 4 5 6 7 8 9 10 11 12 13 14) };
}

/// A comparison of registers of a type; `high` compares the upper halves of packed numbers.
fn comparison(name: &str, kind: Type, flushes: bool, high: bool) -> Decoded<Compare> {
    let set = outcomes(name).ok_or("expected a comparison")?;
    let for_unsigned = matches!(name, "lo" | "ls" | "hi" | "hs");
    if (set >= 7 && !kind.is_float()) || (for_unsigned && (kind.is_float() || kind.is_signed())) {
        return Err(format!("comparison `.{name}` is not one of type {kind:?}"));
    }
    Ok(match (kind, high) {
        (Type::U16 | Type::B16, _) => compare_by!(set, u16::get),
        (Type::U32 | Type::B32, _) => compare_by!(set, u32::get),
        (Type::U64 | Type::B64, _) => compare_by!(set, u64::get),
        (Type::S16, _) => compare_by!(set, i16::get),
        (Type::S32, _) => compare_by!(set, i32::get),
        (Type::S64, _) => compare_by!(set, i64::get),
        (Type::F32, _) if flushes => compare_by!(set, (|bits| flush(f32::get(bits)))),
        (Type::F32, _) => compare_by!(set, f32::get),
        (Type::F64, _) => compare_by!(set, f64::get),
        (Type::F16 | Type::F16x2, false) => compare_by!(set, (|bits: u64| widen(bits & 0xffff, F16))),
        (Type::Bf16 | Type::Bf16x2, false) => compare_by!(set, (|bits: u64| widen(bits & 0xffff, BF16))),
        (Type::F16x2, true) => compare_by!(set, (|bits: u64| widen(bits >> 16 & 0xffff, F16))),
        (Type::Bf16x2, true) => compare_by!(set, (|bits: u64| widen(bits >> 16 & 0xffff, BF16))),
        (other, _) => return Err(format!("comparisons of type {other:?} are not supported")),
    })
}

const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

impl<'a> Lowering<'a, '_> {
    /// Everything that computes on lanes.
    pub(super) fn arithmetic(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        match opcode.name {
            "setp" | "set" => return self.compare(opcode, operands),
            "selp" => return self.select(opcode, operands),
            "slct" => return self.select_by_sign(opcode, operands),
            "and" | "or" | "xor" | "not" | "shl" | "shr" | "cnot" => return self.bits(opcode, operands),
            "shf" | "bfe" | "bfi" | "brev" | "popc" | "clz" | "bfind" | "prmt" | "lop3" => {
                return self.bit_fields(opcode, operands);
            }
            "dp4a" | "dp2a" => return self.dot(opcode, operands),
            "testp" | "copysign" | "ex2" | "lg2" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "tanh" => {
                return self.float(opcode, operands);
            }
            _ => {}
        }
        let carry_out = opcode.take("cc");
        if carry_out || matches!(opcode.name, "addc" | "subc" | "madc") {
            return self.carry(opcode, operands, carry_out);
        }
        match opcode.peek_kind() {
            Some(Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2) => self.half(opcode, operands),
            Some(kind) if kind.is_float() => self.float(opcode, operands),
            _ => self.integer(opcode, operands),
        }
    }

    pub(super) fn map1(&mut self, f: Map1, operands: &[Operand<'a>], to: Type, from: Type) -> Decoded<Op> {
        let [d, a] = Self::exactly(operands)?;
        Ok(Op::Map1(f, self.target(d, to)?, self.source(a, from)?))
    }

    pub(super) fn map2(&mut self, f: Map2, operands: &[Operand<'a>], kinds: [Type; 3]) -> Decoded<Op> {
        let [d, a, b] = Self::exactly(operands)?;
        Ok(Op::Map2(f, self.target(d, kinds[0])?, self.source(a, kinds[1])?, self.source(b, kinds[2])?))
    }

    pub(super) fn map3(&mut self, f: Map3, operands: &[Operand<'a>], kinds: [Type; 4]) -> Decoded<Op> {
        let [d, a, b, c] = Self::exactly(operands)?;
        let (a, b) = (self.source(a, kinds[1])?, self.source(b, kinds[2])?);
        Ok(Op::Map3(f, self.target(d, kinds[0])?, a, b, self.source(c, kinds[3])?))
    }

    pub(super) fn map4(&mut self, f: Map4, operands: &[Operand<'a>], kinds: [Type; 5]) -> Decoded<Op> {
        let [d, a, b, c, e] = Self::exactly(operands)?;
        let (a, b) = (self.source(a, kinds[1])?, self.source(b, kinds[2])?);
        let (c, e) = (self.source(c, kinds[3])?, self.source(e, kinds[4])?);
        Ok(Op::Map4(f, self.target(d, kinds[0])?, a, b, c, e))
    }

    fn integer(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        if matches!(opcode.name, "mul" | "mad" | "mul24" | "mad24") {
            return self.multiply(opcode, operands);
        }
        let kind = opcode.kind()?;
        let saturates = matches!(opcode.name, "add" | "sub") && kind == Type::S32 && opcode.take("sat");
        let f = match opcode.name {
            "add" if saturates => map!(|a, b| i32::get(a).saturating_add(i32::get(b)).put()),
            "sub" if saturates => map!(|a, b| i32::get(a).saturating_sub(i32::get(b)).put()),
            "add" => integer!(kind, |a, b| a.wrapping_add(b)),
            "sub" => integer!(kind, |a, b| a.wrapping_sub(b)),
            "div" => integer!(kind, |a, b| a.quotient(b)),
            "rem" => integer!(kind, |a, b| a.remainder(b)),
            "min" => integer!(kind, |a, b| a.min(b)),
            "max" => integer!(kind, |a, b| a.max(b)),
            "abs" if kind.is_signed() => {
                let f = match kind {
                    Type::S16 => map!(|a| i16::get(a).wrapping_abs().put()),
                    Type::S32 => map!(|a| i32::get(a).wrapping_abs().put()),
                    _ => map!(|a| i64::get(a).wrapping_abs().put()),
                };
                return self.map1(f, operands, kind, kind);
            }
            "neg" if kind.is_signed() => {
                let f = match kind {
                    Type::S16 => map!(|a| i16::get(a).wrapping_neg().put()),
                    Type::S32 => map!(|a| i32::get(a).wrapping_neg().put()),
                    _ => map!(|a| i64::get(a).wrapping_neg().put()),
                };
                return self.map1(f, operands, kind, kind);
            }
            "sad" => {
                let f = match kind {
                    Type::U16 => map!(|a, b, c| u16::get(c).wrapping_add(u16::get(a).abs_diff(u16::get(b))).put()),
                    Type::U32 => map!(|a, b, c| u32::get(c).wrapping_add(u32::get(a).abs_diff(u32::get(b))).put()),
                    Type::U64 => map!(|a, b, c| u64::get(c).wrapping_add(u64::get(a).abs_diff(u64::get(b))).put()),
                    Type::S16 => map!(|a, b, c| u16::get(c).wrapping_add(i16::get(a).abs_diff(i16::get(b))).put()),
                    Type::S32 => map!(|a, b, c| u32::get(c).wrapping_add(i32::get(a).abs_diff(i32::get(b))).put()),
                    Type::S64 => map!(|a, b, c| u64::get(c).wrapping_add(i64::get(a).abs_diff(i64::get(b))).put()),
                    other => return Err(format!("type {other:?} is not supported")),
                };
                return self.map3(f, operands, [kind; 4]);
            }
            _ => return Err(format!("this instruction of type {kind:?} is not supported")),
        };
        self.map2(f, operands, [kind; 3])
    }

    /// `mul` and `mad` of integers: the low half, the high half or the whole product.
    fn multiply(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        let part = opcode.take_any(&["lo", "hi", "wide"]).ok_or("expected `.lo`, `.hi` or `.wide`")?;
        let adds = matches!(opcode.name, "mad" | "mad24");
        if matches!(opcode.name, "mul24" | "mad24") {
            if part != "lo" {
                return Err("only `.lo` is supported".to_owned());
            }
            return match (kind, adds) {
                (Type::U32, false) => {
                    self.map2(map!(|a, b| truncate(truncate(a, 24) * truncate(b, 24), 32)), operands, [kind; 3])
                }
                (Type::S32, false) => self.map2(
                    map!(|a, b| truncate((sign_extend(a, 24) * sign_extend(b, 24)) as u64, 32)),
                    operands,
                    [kind; 3],
                ),
                (Type::U32, true) => self.map3(
                    map!(|a, b, c| truncate((truncate(a, 24) * truncate(b, 24)).wrapping_add(c), 32)),
                    operands,
                    [kind; 4],
                ),
                (Type::S32, true) => self.map3(
                    map!(|a, b, c| truncate(((sign_extend(a, 24) * sign_extend(b, 24)) as u64).wrapping_add(c), 32)),
                    operands,
                    [kind; 4],
                ),
                _ => Err(format!("type {kind:?} is not supported")),
            };
        }
        if part == "wide" {
            let wide = match kind {
                Type::U16 => Type::U32,
                Type::S16 => Type::S32,
                Type::U32 => Type::U64,
                Type::S32 => Type::S64,
                other => return Err(format!("type {other:?} has no wider one")),
            };
            if adds {
                let f = match kind {
                    Type::U16 => {
                        map!(|a, b, c| (u32::from(a as u16) * u32::from(b as u16)).wrapping_add(c as u32).put())
                    }
                    Type::S16 => {
                        map!(|a, b, c| (i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32).put())
                    }
                    Type::U32 => map!(|a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c)),
                    _ => map!(|a, b, c| (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64).put()),
                };
                return self.map3(f, operands, [wide, kind, kind, wide]);
            }
            let f = match kind {
                Type::U16 => map!(|a, b| (u32::from(a as u16) * u32::from(b as u16)).put()),
                Type::S16 => map!(|a, b| (i32::from(a as i16) * i32::from(b as i16)).put()),
                Type::U32 => map!(|a, b| u64::from(a as u32) * u64::from(b as u32)),
                _ => map!(|a, b| (i64::from(a as i32) * i64::from(b as i32)).put()),
            };
            return self.map2(f, operands, [wide, kind, kind]);
        }
        match (part, adds) {
            ("lo", false) => self.map2(integer!(kind, |a, b| a.wrapping_mul(b)), operands, [kind; 3]),
            ("lo", true) => self.map3(integer!(kind, |a, b, c| a.wrapping_mul(b).wrapping_add(c)), operands, [kind; 4]),
            (_, false) => self.map2(integer!(kind, |a, b| a.mul_high(b)), operands, [kind; 3]),
            (_, true) if kind == Type::S32 && opcode.take("sat") => self.map3(
                map!(|a, b, c| i32::get(a).mul_high(b as i32).saturating_add(c as i32).put()),
                operands,
                [kind; 4],
            ),
            (_, true) => self.map3(integer!(kind, |a, b, c| a.mul_high(b).wrapping_add(c)), operands, [kind; 4]),
        }
    }

    /// Additions that carry from one to the next.
    fn carry(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>], carry_out: bool) -> Decoded<Op> {
        let kind = opcode.kind()?;
        if !matches!(kind, Type::U32 | Type::S32 | Type::B32 | Type::U64 | Type::S64 | Type::B64) {
            return Err(format!("type {kind:?} is not supported"));
        }
        let carry_in = matches!(opcode.name, "addc" | "subc" | "madc");
        let (bits, signed) = (kind.bits(), kind.is_signed());
        let (op, d, a, b, c) = match opcode.name {
            "add" | "addc" | "sub" | "subc" => {
                let [d, a, b] = Self::exactly(operands)?;
                let op = if opcode.name.starts_with("add") { Carry::Add } else { Carry::Sub };
                (op, d, a, b, None)
            }
            "mad" | "madc" => {
                let [d, a, b, c] = Self::exactly(operands)?;
                let part = opcode.take_any(&["lo", "hi"]).ok_or("expected `.lo` or `.hi`")?;
                (if part == "lo" { Carry::MadLow } else { Carry::MadHigh }, d, a, b, Some(c))
            }
            _ => return Err("this instruction doesn't carry".to_owned()),
        };
        let (d, a, b) = (self.target(d, kind)?, self.source(a, kind)?, self.source(b, kind)?);
        let c = match c {
            Some(c) => self.source(c, kind)?,
            None => self.constant(0),
        };
        Ok(Op::Carry { op, bits, signed, carry_in, carry_out, d, a, b, c })
    }

    /// Logic on bits or predicates, and shifts.
    fn bits(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        if kind == Type::Pred {
            return self.predicates(opcode, operands);
        }
        if kind.is_float() || kind == Type::B8 {
            return Err(format!("type {kind:?} is not supported"));
        }
        let by = [kind, kind, Type::U32];
        match opcode.name {
            "and" => self.map2(map!(|a, b| a & b), operands, [kind; 3]),
            "or" => self.map2(map!(|a, b| a | b), operands, [kind; 3]),
            "xor" => self.map2(map!(|a, b| a ^ b), operands, [kind; 3]),
            "not" => self.map1(integer!(kind, |a| !a), operands, kind, kind),
            "cnot" => self.map1(map!(|a| u64::from(a == 0)), operands, kind, kind),
            "shl" => {
                let f = match kind.bits() {
                    16 => map!(|a, by| u16::get(a).shift_left(by as u32).put()),
                    32 => map!(|a, by| u32::get(a).shift_left(by as u32).put()),
                    _ => map!(|a, by| a.shift_left(by as u32)),
                };
                self.map2(f, operands, by)
            }
            _ => {
                let f = match kind {
                    Type::S16 => map!(|a, by| i16::get(a).shift_right(by as u32).put()),
                    Type::S32 => map!(|a, by| i32::get(a).shift_right(by as u32).put()),
                    Type::S64 => map!(|a, by| i64::get(a).shift_right(by as u32).put()),
                    _ => map!(|a, by| a.shift_right(by as u32)),
                };
                self.map2(f, operands, by)
            }
        }
    }

    fn predicates(&mut self, opcode: &Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let logic = match opcode.name {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => {
                let [d, a] = Self::exactly(operands)?;
                let (d, mut a) = (self.conditions_out(d)?.0, self.condition(a)?);
                a.negated = !a.negated;
                return Ok(Op::Predicate { logic: Logic::And, d, a, b: Guard::ALWAYS });
            }
            _ => return Err("predicates cannot be shifted".to_owned()),
        };
        let [d, a, b] = Self::exactly(operands)?;
        let (d, _) = self.conditions_out(d)?;
        Ok(Op::Predicate { logic, d, a: self.condition(a)?, b: self.condition(b)? })
    }

    fn bit_fields(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let u32s = Type::U32;
        match opcode.name {
            "shf" => {
                let left = opcode.take_any(&["l", "r"]).ok_or("expected `.l` or `.r`")? == "l";
                let wraps = opcode.take_any(&["wrap", "clamp"]).ok_or("expected `.wrap` or `.clamp`")? == "wrap";
                opcode.kind()?;
                // Of the 64 bits `b:a`: the upper half of what was shifted left, the lower of what was shifted right.
                let f: Map3 = match (left, wraps) {
                    (true, true) => map!(|a, b, c| ((b << 32 | a) << (c & 31)) >> 32),
                    (true, false) => map!(|a, b, c| {
                        let by = truncate(c, 32).min(32);
                        truncate((u128::from(b << 32 | a) << by >> 32) as u64, 32)
                    }),
                    (false, true) => map!(|a, b, c| truncate((b << 32 | a) >> (c & 31), 32)),
                    (false, false) => map!(|a, b, c| truncate((b << 32 | a) >> truncate(c, 32).min(32), 32)),
                };
                self.map3(f, operands, [u32s; 4])
            }
            "bfe" => {
                let kind = opcode.kind()?;
                let f: Map3 = match kind {
                    Type::U32 => map!(|a, b, c| extract(a, 32, false, b, c)),
                    Type::U64 => map!(|a, b, c| extract(a, 64, false, b, c)),
                    Type::S32 => map!(|a, b, c| extract(a, 32, true, b, c)),
                    Type::S64 => map!(|a, b, c| extract(a, 64, true, b, c)),
                    other => return Err(format!("type {other:?} is not supported")),
                };
                self.map3(f, operands, [kind, kind, u32s, u32s])
            }
            "bfi" => {
                let kind = opcode.kind()?;
                let f: Map4 = match kind {
                    Type::B32 => map!(|a, b, c, e| insert(a, b, 32, c, e)),
                    Type::B64 => map!(|a, b, c, e| insert(a, b, 64, c, e)),
                    other => return Err(format!("type {other:?} is not supported")),
                };
                self.map4(f, operands, [kind, kind, kind, u32s, u32s])
            }
            "brev" => {
                let kind = opcode.kind()?;
                let f = match kind {
                    Type::B32 => map!(|a| u32::get(a).reverse_bits().put()),
                    Type::B64 => map!(|a| a.reverse_bits()),
                    other => return Err(format!("type {other:?} is not supported")),
                };
                self.map1(f, operands, kind, kind)
            }
            "popc" => {
                let kind = opcode.kind()?;
                self.map1(map!(|a| u64::from(a.count_ones())), operands, u32s, kind)
            }
            "clz" => {
                let kind = opcode.kind()?;
                let f = match kind.bits() {
                    32 => map!(|a| u64::from(u32::get(a).leading_zeros())),
                    _ => map!(|a| u64::from(a.leading_zeros())),
                };
                self.map1(f, operands, u32s, kind)
            }
            "bfind" => {
                let kind = opcode.kind()?;
                let f = match (kind, opcode.take("shiftamt")) {
                    (Type::U32, false) => map!(|a| find(a, 32, false)),
                    (Type::U32, true) => map!(|a| find(a, 32, true)),
                    (Type::U64, false) => map!(|a| find(a, 64, false)),
                    (Type::U64, true) => map!(|a| find(a, 64, true)),
                    (Type::S32, false) => map!(|a| find(if (a as i32) < 0 { truncate(!a, 32) } else { a }, 32, false)),
                    (Type::S32, true) => map!(|a| find(if (a as i32) < 0 { truncate(!a, 32) } else { a }, 32, true)),
                    (Type::S64, false) => map!(|a| find(if (a as i64) < 0 { !a } else { a }, 64, false)),
                    (Type::S64, true) => map!(|a| find(if (a as i64) < 0 { !a } else { a }, 64, true)),
                    (other, _) => return Err(format!("type {other:?} is not supported")),
                };
                self.map1(f, operands, u32s, kind)
            }
            "prmt" => {
                opcode.kind()?;
                let f: Map3 = match opcode.take_any(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
                    None => map!(|a, b, c| permute(a, b, c)),
                    Some("f4e") => map!(|a, b, c| permute(a, b, [0x3210, 0x4321, 0x5432, 0x6543][(c & 3) as usize])),
                    Some("b4e") => map!(|a, b, c| permute(a, b, [0x5670, 0x6701, 0x7012, 0x0123][(c & 3) as usize])),
                    Some("rc8") => map!(|a, b, c| permute(a, b, [0x0000, 0x1111, 0x2222, 0x3333][(c & 3) as usize])),
                    Some("ecl") => map!(|a, b, c| permute(a, b, [0x3210, 0x3211, 0x3222, 0x3333][(c & 3) as usize])),
                    Some("ecr") => map!(|a, b, c| permute(a, b, [0x0000, 0x1110, 0x2210, 0x3210][(c & 3) as usize])),
                    _ => map!(|a, b, c| permute(a, b, [0x1010, 0x3232, 0x1010, 0x3232][(c & 3) as usize])),
                };
                self.map3(f, operands, [u32s; 4])
            }
            _ => {
                opcode.kind()?;
                self.map4(map!(|a, b, c, table| logic3(a, b, c, table)), operands, [u32s; 5])
            }
        }
    }

    /// Dot products of bytes, and of bytes with halves.
    fn dot(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let (a, b) = (opcode.kind()?, opcode.kind()?);
        let signs = match (a, b) {
            (Type::U32 | Type::S32, Type::U32 | Type::S32) => (a.is_signed(), b.is_signed()),
            _ => return Err(format!("types {a:?} and {b:?} are not supported")),
        };
        let part = if opcode.name == "dp4a" { None } else { opcode.take_any(&["lo", "hi"]) };
        if opcode.name == "dp2a" && part.is_none() {
            return Err("expected `.lo` or `.hi`".to_owned());
        }
        macro_rules! signed {
            ($f:ident $(, $extra:expr)?) => {
                match signs {
                    (false, false) => map!(|a, b, c| $f::<false, false>(a, b, c $(, $extra)?)),
                    (false, true) => map!(|a, b, c| $f::<false, true>(a, b, c $(, $extra)?)),
                    (true, false) => map!(|a, b, c| $f::<true, false>(a, b, c $(, $extra)?)),
                    (true, true) => map!(|a, b, c| $f::<true, true>(a, b, c $(, $extra)?)),
                }
            };
        }
        let f: Map3 = match part {
            None => signed!(dot4),
            Some("lo") => signed!(dot2, 0),
            _ => signed!(dot2, 16),
        };
        self.map3(f, operands, [Type::U32; 4])
    }

    fn compare(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let sets = opcode.name == "set";
        let to = if sets { Some(opcode.kind()?) } else { None };
        let kind = opcode.kind()?;
        let name = opcode.take_any(COMPARISONS).ok_or("expected a comparison")?;
        let logic = opcode.take_with(|modifier| match modifier {
            "and" => Some(Logic::And),
            "or" => Some(Logic::Or),
            "xor" => Some(Logic::Xor),
            _ => None,
        });
        let flushes = opcode.take("ftz") && kind == Type::F32;
        let (mut combine, rest) = (None, operands);
        let rest = match logic {
            Some(logic) => {
                let Some((last, rest)) = rest.split_last() else { return Err("expected four operands".to_owned()) };
                combine = Some((logic, self.condition(last)?));
                rest
            }
            None => rest,
        };
        let [d, a, b] = Self::exactly(rest)?;
        let (a, b) = (self.source(a, kind)?, self.source(b, kind)?);
        if matches!(kind, Type::F16x2 | Type::Bf16x2) {
            if sets {
                return Err("packed numbers are not supported".to_owned());
            }
            let (p, q) = self.conditions_out(d)?;
            let (low, high) = (comparison(name, kind, false, false)?, comparison(name, kind, false, true)?);
            return Ok(Op::ComparePair { low, high, p, q, a, b, combine });
        }
        let f = comparison(name, kind, flushes, false)?;
        let Some(to) = to else {
            let (p, q) = self.conditions_out(d)?;
            return Ok(Op::Compare { f, p, q, a, b, combine });
        };
        let truth = match to {
            Type::U32 | Type::S32 => 0xffff_ffff,
            Type::U16 | Type::S16 => 0xffff,
            Type::F32 => u64::from(1f32.to_bits()),
            Type::F16 => 0x3c00,
            Type::Bf16 => 0x3f80,
            other => return Err(format!("results of type {other:?} are not supported")),
        };
        Ok(Op::Set { f, d: self.target(d, to)?, a, b, truth, combine })
    }

    fn select(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        let [d, a, b, p] = Self::exactly(operands)?;
        let (d, a, b) = (self.target(d, kind)?, self.source(a, kind)?, self.source(b, kind)?);
        Ok(Op::Select { d, a, b, p: self.condition(p)? })
    }

    fn select_by_sign(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let (kind, by) = (opcode.kind()?, opcode.kind()?);
        let flushes = opcode.take("ftz");
        let f = match by {
            Type::S32 => map!(|a, b, c| if c as i32 >= 0 { a } else { b }),
            Type::F32 if flushes => map!(|a, b, c| if flush(f32::get(c)) >= 0.0 { a } else { b }),
            Type::F32 => map!(|a, b, c| if f32::get(c) >= 0.0 { a } else { b }),
            other => return Err(format!("selection by type {other:?} is not supported")),
        };
        self.map3(f, operands, [kind, kind, kind, by])
    }
}

/// `length` bits from `position` on, extended by their sign or not.
fn extract(value: u64, width: u32, signed: bool, position: u64, length: u64) -> u64 {
    let (position, length) = (position as u32 & 0xff, length as u32 & 0xff);
    let value = if signed { sign_extend(value, width) as u64 } else { truncate(value, width) };
    if length == 0 {
        return 0;
    }
    // Beyond the top, the sign of the whole goes on.
    let shifted =
        if signed { (value as i64 >> position.min(63)) as u64 } else { value.checked_shr(position).unwrap_or(0) };
    let field = if length >= 64 {
        shifted
    } else if signed {
        sign_extend(shifted, length) as u64
    } else {
        truncate(shifted, length)
    };
    truncate(field, width)
}

/// Puts `length` bits of `a` at `position` of `b`.
fn insert(a: u64, b: u64, width: u32, position: u64, length: u64) -> u64 {
    let (position, length) = (position as u32 & 0xff, length as u32 & 0xff);
    if length == 0 || position >= width {
        return truncate(b, width);
    }
    let mask = truncate(u64::MAX, length.min(64)) << position;
    truncate(b & !mask | (a << position) & mask, width)
}

/// Position of the leading one, or its distance from the top; all ones for zero.
fn find(value: u64, width: u32, distance: bool) -> u64 {
    if value == 0 {
        return 0xffff_ffff;
    }
    let position = 63 - value.leading_zeros();
    u64::from(if distance { width - 1 - position } else { position })
}

/// Four bytes out of eight, by four selectors with a sign mode each.
fn permute(a: u64, b: u64, selectors: u64) -> u64 {
    let bytes = (truncate(b, 32) << 32 | truncate(a, 32)).to_le_bytes();
    let mut result = 0;
    for place in 0..4 {
        let selector = selectors >> (4 * place) & 0xf;
        let byte = bytes[(selector & 7) as usize];
        let byte = if selector & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        result |= u64::from(byte) << (8 * place);
    }
    result
}

/// Any function of three bits, by its table.
fn logic3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    let mut result = 0;
    for row in 0..8 {
        if table >> row & 1 == 1 {
            let pick = |value: u64, bit: u64| if row & bit != 0 { value } else { !value };
            result |= pick(a, 4) & pick(b, 2) & pick(c, 1);
        }
    }
    truncate(result, 32)
}

fn byte<const SIGNED: bool>(word: u64, index: u32) -> i32 {
    let byte = (word >> (8 * index)) as u8;
    if SIGNED { i32::from(byte as i8) } else { i32::from(byte) }
}

fn dot4<const A: bool, const B: bool>(a: u64, b: u64, c: u64) -> u64 {
    (0..4).fold(c as i32, |sum, i| sum.wrapping_add(byte::<A>(a, i) * byte::<B>(b, i))).put()
}

fn dot2<const A: bool, const B: bool>(a: u64, b: u64, c: u64, first_bit: u32) -> u64 {
    let half = |index: u32| {
        let half = (a >> (16 * index)) as u16;
        if A { i32::from(half as i16) } else { i32::from(half) }
    };
    (0..2).fold(c as i32, |sum, i| sum.wrapping_add(half(i).wrapping_mul(byte::<B>(b >> first_bit, i)))).put()
}
