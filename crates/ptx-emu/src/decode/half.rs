//! Arithmetic on f16 and bf16, single and in pairs. Each result is rounded once.

use crate::code::Op;
use crate::lanes::{Map1, Map2, Map3, map};
use crate::round::{BF16, F16, Format, Rounding, narrow, widen};
use crate::syntax::{Operand, Type};

use super::float::{maximum, minimum};
use super::opcode::Opcode;
use super::{Decoded, Lowering};

/// The exact value of a half.
#[inline]
fn get(bits: u64, format: Format) -> f64 {
    widen(bits & 0xffff, format)
}

/// A result in f64, where sums and products of halves are exact to far more bits than a half keeps.
#[inline]
fn put(value: f64, format: Format) -> u64 {
    narrow(value, format, Rounding::Nearest)
}

fn put_saturated(value: f64, format: Format) -> u64 {
    put(if value > 0.0 { value.min(1.0) } else { 0.0 }, format)
}

fn put_relu(value: f64, format: Format) -> u64 {
    if value.is_nan() { put(value, format) } else { put(value.max(0.0), format) }
}

/// A function on halves of a type, alone or in pairs.
macro_rules! halves {
    ($kind:expr, $put:ident, |$($name:ident),*| $e:expr) => {
        match $kind {
            Type::F16 => map!(|$($name),*| {
                $(let $name = get($name, F16);)*
                $put($e, F16)
            }),
            Type::Bf16 => map!(|$($name),*| {
                $(let $name = get($name, BF16);)*
                $put($e, BF16)
            }),
            Type::F16x2 => halves!(@ F16, $put, |$($name),*| $e),
            _ => halves!(@ BF16, $put, |$($name),*| $e),
        }
    };
    (@ $format:expr, $put:ident, |$($name:ident),*| $e:expr) => {
        map!(|$($name),*| {
            let low = {
                $(let $name = get($name, $format);)*
                $put($e, $format)
            };
            let high = {
                $(let $name = get($name >> 16, $format);)*
                $put($e, $format)
            };
            high << 16 | low
        })
    };
}

/// The same if one of them isn't a number, then neither is the result.
fn strict(a: f64, b: f64, f: impl Fn(f64, f64) -> f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { f(a, b) }
}

/// The approximate functions that exist for halves.
pub(super) fn approximate_half(name: &str, kind: Type) -> Option<Map1> {
    if !matches!(kind, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) {
        return None;
    }
    match name {
        "ex2" => Some(halves!(kind, put, |a| a.exp2())),
        "tanh" => Some(halves!(kind, put, |a| a.tanh())),
        _ => None,
    }
}

impl<'a> Lowering<'a, '_> {
    pub(super) fn half(&mut self, opcode: &mut Opcode<'a>, operands: &[Operand<'a>]) -> Decoded<Op> {
        let kind = opcode.kind()?;
        opcode.rounds_to_nearest()?;
        if opcode.take("ftz") {
            return Err("`.ftz` of halves is not supported".to_owned());
        }
        opcode.take("noftz");
        let (saturates, relu) = (opcode.take("sat"), opcode.take("relu"));
        let strict_nan = matches!(opcode.name, "min" | "max") && opcode.take("NaN");
        let binary: Map2 = match (opcode.name, saturates) {
            ("add", false) => halves!(kind, put, |a, b| a + b),
            ("add", true) => halves!(kind, put_saturated, |a, b| a + b),
            ("sub", false) => halves!(kind, put, |a, b| a - b),
            ("sub", true) => halves!(kind, put_saturated, |a, b| a - b),
            ("mul", false) => halves!(kind, put, |a, b| a * b),
            ("mul", true) => halves!(kind, put_saturated, |a, b| a * b),
            ("min", false) if strict_nan => halves!(kind, put, |a, b| strict(a, b, minimum)),
            ("max", false) if strict_nan => halves!(kind, put, |a, b| strict(a, b, maximum)),
            ("min", false) => halves!(kind, put, |a, b| minimum(a, b)),
            ("max", false) => halves!(kind, put, |a, b| maximum(a, b)),
            ("fma", false) => {
                // A product of halves is exact in f64, and so is all of the sum that can decide a rounding.
                let f: Map3 = if relu {
                    halves!(kind, put_relu, |a, b, c| a.mul_add(b, c))
                } else {
                    halves!(kind, put, |a, b, c| a.mul_add(b, c))
                };
                return self.map3(f, operands, [kind; 4]);
            }
            ("fma", true) => {
                return self.map3(halves!(kind, put_saturated, |a, b, c| a.mul_add(b, c)), operands, [kind; 4]);
            }
            ("abs" | "neg", false) => {
                let f: Map1 = match (opcode.name, kind.bits()) {
                    ("abs", 16) => map!(|a| a & 0x7fff),
                    ("abs", _) => map!(|a| a & 0x7fff_7fff),
                    (_, 16) => map!(|a| a ^ 0x8000),
                    _ => map!(|a| a ^ 0x8000_8000),
                };
                return self.map1(f, operands, kind, kind);
            }
            _ => return Err(format!("this instruction of type {kind:?} is not supported")),
        };
        if relu {
            return Err("modifier `.relu` is not supported here".to_owned());
        }
        self.map2(binary, operands, [kind; 3])
    }
}
