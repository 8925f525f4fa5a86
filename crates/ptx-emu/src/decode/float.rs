//! Arithmetic on f32 and f64, and the approximations.
//!
//! Sums, products, quotients and roots are those of IEEE 754, rounded to the nearest. Approximate functions are
//! computed in f64 and rounded: better than a device, which promises only a few units in the last place.

use crate::code::Op;
use crate::lanes::{Map1, Map2, Map3, compare, map};
use crate::round::flush;
use crate::syntax::{Operand, Type};
use crate::word::Word;

use super::half::approximate_half;
use super::opcode::Opcode;
use super::{Decoded, Lowering};

/// A function on f32 with and without subnormals, and clamped to 0..=1 or not.
macro_rules! single {
    ($flush:expr, $saturate:expr, |$($name:ident),*| $e:expr) => {
        match ($flush, $saturate) {
            (false, false) => map!(|$($name),*| {
                $(let $name = f32::get($name);)*
                Word::put($e)
            }),
            (true, false) => map!(|$($name),*| {
                $(let $name = flush(f32::get($name));)*
                Word::put(flush($e))
            }),
            (false, true) => map!(|$($name),*| {
                $(let $name = f32::get($name);)*
                Word::put(clamp_unit($e))
            }),
            (true, true) => map!(|$($name),*| {
                $(let $name = flush(f32::get($name));)*
                Word::put(clamp_unit(flush($e)))
            }),
        }
    };
}

/// A function on f64.
macro_rules! double {
    (|$($name:ident),*| $e:expr) => {
        map!(|$($name),*| {
            $(let $name = f64::get($name);)*
            Word::put($e)
        })
    };
}

/// Clamps to 0..=1; what is not a number becomes zero.
fn clamp_unit(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// The smaller one; -0 is smaller than +0, and what is not a number loses.
pub(super) fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || (b < a) || (a == b && b.is_sign_negative()) { b } else { a }
}

/// The larger one.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || (b > a) || (a == b && b.is_sign_positive()) { b } else { a }
}

fn min32(a: f32, b: f32) -> f32 {
    if a.is_nan() || (b < a) || (a == b && b.is_sign_negative()) { b } else { a }
}

fn max32(a: f32, b: f32) -> f32 {
    if a.is_nan() || (b > a) || (a == b && b.is_sign_positive()) { b } else { a }
}

/// The same if one of them isn't a number, then neither is the result.
fn strict(a: f32, b: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { f(a, b) }
}

/// A function of one f32 by way of f64.
fn by_double(value: f32, f: impl Fn(f64) -> f64) -> f32 {
    f(f64::from(value)) as f32
}

impl<'a> Lowering<'a, '_> {
    pub(super) fn float(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        match opcode.name {
            "testp" => return self.test(opcode, operands),
            "copysign" => {
                let kind = opcode.kind()?;
                let f: Map2 = match kind {
                    Type::F32 => map!(|a, b| (b & 0x7fff_ffff) | (a & 0x8000_0000)),
                    Type::F64 => map!(|a, b| (b << 1 >> 1) | (a >> 63 << 63)),
                    other => return Err(format!("type {other:?} is not supported")),
                };
                return self.map2(f, operands, [kind; 3]);
            }
            "ex2" | "lg2" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "tanh" => {
                return self.float_function(opcode, operands);
            }
            _ => {}
        }
        let kind = opcode.kind()?;
        match kind {
            Type::F32 => self.single(opcode, operands),
            Type::F64 => self.double(opcode, operands),
            other => Err(format!("type {other:?} is not supported")),
        }
    }

    fn single(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let (flushes, saturates) = (opcode.take("ftz"), opcode.take("sat"));
        if opcode.name == "div" {
            opcode.take_any(&["approx", "full"]);
        }
        opcode.rounds_to_nearest()?;
        let strict_nan = matches!(opcode.name, "min" | "max") && opcode.take("NaN");
        let binary: Map2 = match opcode.name {
            "add" => single!(flushes, saturates, |a, b| a + b),
            "sub" => single!(flushes, saturates, |a, b| a - b),
            "mul" => single!(flushes, saturates, |a, b| a * b),
            "div" => single!(flushes, saturates, |a, b| a / b),
            "min" if strict_nan => single!(flushes, saturates, |a, b| strict(a, b, min32)),
            "max" if strict_nan => single!(flushes, saturates, |a, b| strict(a, b, max32)),
            "min" => single!(flushes, saturates, |a, b| min32(a, b)),
            "max" => single!(flushes, saturates, |a, b| max32(a, b)),
            "fma" | "mad" => {
                let f: Map3 = single!(flushes, saturates, |a, b, c| a.mul_add(b, c));
                return self.map3(f, operands, [Type::F32; 4]);
            }
            // The sign of what isn't a number may change here, as its bits are not touched otherwise.
            "abs" | "neg" => {
                let f: Map1 = match (opcode.name, flushes) {
                    ("abs", false) => map!(|a| a & 0x7fff_ffff),
                    ("abs", true) => map!(|a| u64::from(flush(f32::get(a)).to_bits()) & 0x7fff_ffff),
                    (_, false) => map!(|a| a ^ 0x8000_0000),
                    (_, true) => map!(|a| u64::from(flush(f32::get(a)).to_bits()) ^ 0x8000_0000),
                };
                return self.map1(f, operands, Type::F32, Type::F32);
            }
            _ => return Err("unknown instruction".to_owned()),
        };
        self.map2(binary, operands, [Type::F32; 3])
    }

    fn double(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        opcode.rounds_to_nearest()?;
        let binary: Map2 = match opcode.name {
            "add" => double!(|a, b| a + b),
            "sub" => double!(|a, b| a - b),
            "mul" => double!(|a, b| a * b),
            "div" => double!(|a, b| a / b),
            "min" => double!(|a, b| minimum(a, b)),
            "max" => double!(|a, b| maximum(a, b)),
            "fma" | "mad" => return self.map3(double!(|a, b, c| a.mul_add(b, c)), operands, [Type::F64; 4]),
            "abs" => return self.map1(map!(|a| a << 1 >> 1), operands, Type::F64, Type::F64),
            "neg" => return self.map1(map!(|a| a ^ 1 << 63), operands, Type::F64, Type::F64),
            _ => return Err("unknown instruction".to_owned()),
        };
        self.map2(binary, operands, [Type::F64; 3])
    }

    /// Functions of one number.
    fn float_function(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        let approximate = opcode.take("approx");
        let flushes = opcode.take("ftz");
        opcode.rounds_to_nearest()?;
        let only_approximate = matches!(opcode.name, "ex2" | "lg2" | "rsqrt" | "sin" | "cos" | "tanh");
        if only_approximate && !approximate {
            return Err("expected `.approx`".to_owned());
        }
        let f: Map1 = match kind {
            Type::F32 => match opcode.name {
                "ex2" => single!(flushes, false, |a| by_double(a, f64::exp2)),
                "lg2" => single!(flushes, false, |a| by_double(a, f64::log2)),
                "rcp" => single!(flushes, false, |a| 1.0 / a),
                "sqrt" => single!(flushes, false, |a| a.sqrt()),
                "rsqrt" => single!(flushes, false, |a| by_double(a, |a| 1.0 / a.sqrt())),
                "sin" => single!(flushes, false, |a| by_double(a, f64::sin)),
                "cos" => single!(flushes, false, |a| by_double(a, f64::cos)),
                _ => single!(flushes, false, |a| by_double(a, f64::tanh)),
            },
            Type::F64 => match opcode.name {
                "rcp" => double!(|a| 1.0 / a),
                "sqrt" => double!(|a| a.sqrt()),
                "rsqrt" => double!(|a| 1.0 / a.sqrt()),
                _ => return Err("type F64 is not supported".to_owned()),
            },
            _ => approximate_half(opcode.name, kind).ok_or_else(|| format!("type {kind:?} is not supported"))?,
        };
        self.map1(f, operands, kind, kind)
    }

    fn test(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        let tests = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
        let name = opcode.take_any(&tests).ok_or("expected a test")?;
        macro_rules! test {
            ($number:ty) => {
                match name {
                    "finite" => compare!(|a, _b| <$number>::get(a).is_finite()),
                    "infinite" => compare!(|a, _b| <$number>::get(a).is_infinite()),
                    "number" => compare!(|a, _b| !<$number>::get(a).is_nan()),
                    "notanumber" => compare!(|a, _b| <$number>::get(a).is_nan()),
                    "normal" => compare!(|a, _b| <$number>::get(a).is_normal()),
                    _ => compare!(|a, _b| <$number>::get(a).is_subnormal()),
                }
            };
        }
        let f = match kind {
            Type::F32 => test!(f32),
            Type::F64 => test!(f64),
            other => return Err(format!("type {other:?} is not supported")),
        };
        let [p, a] = Self::exactly(operands)?;
        let (p, q) = self.conditions_out(p)?;
        let a = self.source(a, kind)?;
        Ok(Op::Compare { f, p, q, a, b: a, combine: None })
    }
}
