//! Conversions between numbers, exactly: every rounding, every format.

use crate::syntax::Type;

/// How a number is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// To the nearest, ties away from zero.
    NearestAway,
    Zero,
    Down,
    Up,
}

/// A conversion of one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Conversion {
    pub(crate) from: Type,
    pub(crate) to: Type,
    pub(crate) rounding: Rounding,
    /// To an integral value, though of a float.
    pub(crate) integral: bool,
    /// Subnormal f32 become zero.
    pub(crate) flush: bool,
    /// Floats are clamped to 0..=1, integers to their range.
    pub(crate) saturate: bool,
    /// Negative results become zero.
    pub(crate) relu: bool,
    /// Bits of the target register, to which a signed result is extended.
    pub(crate) register_bits: u32,
}

/// A floating-point format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    exponent: u32,
    fraction: u32,
}

pub(crate) const F16: Format = Format { exponent: 5, fraction: 10 };
pub(crate) const BF16: Format = Format { exponent: 8, fraction: 7 };
pub(crate) const F32: Format = Format { exponent: 8, fraction: 23 };
pub(crate) const F64: Format = Format { exponent: 11, fraction: 52 };
/// The part of an f32 that matrix units read.
pub(crate) const TF32: Format = Format { exponent: 8, fraction: 10 };

impl Format {
    fn of(kind: Type) -> Self {
        match kind {
            Type::F16 => F16,
            Type::Bf16 => BF16,
            Type::F64 => F64,
            _ => F32,
        }
    }

    /// The number that is not one, as the hardware makes it.
    fn nan(self) -> u64 {
        if self.fraction == 52 { 0x7ff8 << 48 } else { (1 << (self.exponent + self.fraction)) - 1 }
    }
}

/// The value of bits of a format; all formats here fit into an f64.
pub(crate) fn widen(bits: u64, format: Format) -> f64 {
    if format.fraction == 52 {
        return f64::from_bits(bits);
    }
    if format.exponent == 8 {
        return f64::from(f32::from_bits((bits << (23 - format.fraction)) as u32));
    }
    let sign = bits >> (format.exponent + format.fraction) & 1;
    let exponent = bits >> format.fraction & ((1 << format.exponent) - 1);
    let fraction = bits & ((1 << format.fraction) - 1);
    let bias = (1i64 << (format.exponent - 1)) - 1;
    let magnitude = if exponent == (1 << format.exponent) - 1 {
        if fraction == 0 { f64::INFINITY } else { f64::NAN }
    } else if exponent == 0 {
        fraction as f64 * pow2(1 - bias - i64::from(format.fraction))
    } else {
        (fraction | 1 << format.fraction) as f64 * pow2(exponent as i64 - bias - i64::from(format.fraction))
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// The value of an f16. Its fields are moved to where an f32 has them, which is off by a factor.
#[inline(always)]
pub(crate) fn half_value(bits: u64) -> f32 {
    let moved = (bits as u32 & 0x7fff) << 13;
    let scaled = f32::from_bits(moved) * f32::from_bits(0x7780_0000);
    let special = if moved >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | (bits as u32 & 0x8000) << 16)
}

/// A power of two within the normal range of f64.
fn pow2(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The bits of an f64 rounded to a format.
pub(crate) fn narrow(value: f64, format: Format, rounding: Rounding) -> u64 {
    if value.is_nan() {
        return format.nan();
    }
    let bits = value.to_bits();
    let (negative, exponent, fraction) = (bits >> 63 == 1, (bits >> 52 & 0x7ff) as i64, bits & ((1 << 52) - 1));
    if exponent == 0x7ff {
        return encode_infinity(negative, format);
    }
    if exponent == 0 {
        return encode(negative, fraction, -1074, format, rounding);
    }
    encode(negative, fraction | 1 << 52, exponent - 1075, format, rounding)
}

/// The bits of an integer rounded to a format.
pub(crate) fn from_integer(value: i128, format: Format, rounding: Rounding) -> u64 {
    // Magnitudes of 64-bit integers fit.
    encode(value < 0, value.unsigned_abs() as u64, 0, format, rounding)
}

fn encode_infinity(negative: bool, format: Format) -> u64 {
    let infinity = ((1u64 << format.exponent) - 1) << format.fraction;
    infinity | u64::from(negative) << (format.exponent + format.fraction)
}

/// Rounds `significand * 2^exponent`.
fn encode(negative: bool, significand: u64, exponent: i64, format: Format, rounding: Rounding) -> u64 {
    let sign = u64::from(negative) << (format.exponent + format.fraction);
    if significand == 0 {
        return sign;
    }
    let bias = (1i64 << (format.exponent - 1)) - 1;
    // Exponent of the leading bit, and of the last bit that the result keeps.
    let leading = exponent + 63 - i64::from(significand.leading_zeros());
    let last = leading.max(1 - bias) - i64::from(format.fraction);
    let drop = last - exponent;
    let (mut kept, half, rest) = if drop <= 0 {
        (significand << -drop, false, false)
    } else if drop > 64 {
        (0, false, true)
    } else {
        let wide = u128::from(significand);
        let half = wide >> (drop - 1) & 1 == 1;
        ((wide >> drop) as u64, half, wide & ((1 << (drop - 1)) - 1) != 0)
    };
    let up = match rounding {
        Rounding::Nearest => half && (rest || kept & 1 == 1),
        Rounding::NearestAway => half,
        Rounding::Zero => false,
        Rounding::Down => negative && (half || rest),
        Rounding::Up => !negative && (half || rest),
    };
    kept += u64::from(up);
    let mut last = last;
    if kept >> (format.fraction + 1) != 0 {
        kept >>= 1;
        last += 1;
    }
    if kept >> format.fraction == 0 {
        return sign | kept; // subnormal
    }
    let biased = last + i64::from(format.fraction) + bias;
    if biased >= (1 << format.exponent) - 1 {
        let largest = (((1u64 << format.exponent) - 1) << format.fraction) - 1;
        let to_infinity = match rounding {
            Rounding::Nearest | Rounding::NearestAway => true,
            Rounding::Zero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        };
        return if to_infinity { encode_infinity(negative, format) } else { sign | largest };
    }
    sign | (biased as u64) << format.fraction | (kept & ((1 << format.fraction) - 1))
}

/// A float rounded to an integral value.
pub(crate) fn to_integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// An f32 without subnormals.
#[inline]
pub(crate) fn flush(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(value) } else { value }
}

/// The lowest `bits` bits of a value, as a signed number.
#[inline]
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

/// The lowest `bits` bits of a value.
#[inline]
pub(crate) fn truncate(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// Converts one value.
pub(crate) fn convert(value: u64, how: &Conversion) -> u64 {
    let (from, to) = (how.from, how.to);
    if from.is_float() {
        let mut number = widen(truncate(value, from.bits()), Format::of(from));
        if how.flush && from == Type::F32 {
            number = f64::from(flush(number as f32));
        }
        if to.is_float() {
            return float_to_float(number, how);
        }
        return float_to_integer(number, how);
    }
    let integer = if from.is_signed() {
        i128::from(sign_extend(value, from.bits()))
    } else {
        i128::from(truncate(value, from.bits()))
    };
    if to.is_float() {
        let bits = from_integer(integer, Format::of(to), how.rounding);
        return if how.saturate { clamp_unit(bits, Format::of(to)) } else { bits };
    }
    let integer = if how.saturate { integer.clamp(lowest(to), highest(to)) } else { integer };
    extend(integer as u64, how)
}

/// An integer result in its register: truncated to its type, then extended.
fn extend(value: u64, how: &Conversion) -> u64 {
    let bits = how.to.bits();
    let extended = if how.to.is_signed() { sign_extend(value, bits) as u64 } else { truncate(value, bits) };
    truncate(extended, how.register_bits)
}

fn float_to_float(mut number: f64, how: &Conversion) -> u64 {
    let format = Format::of(how.to);
    if how.integral {
        number = to_integral(number, how.rounding);
    }
    let mut bits = narrow(number, format, how.rounding);
    if how.flush && how.to == Type::F32 {
        bits = u64::from(flush(f32::from_bits(bits as u32)).to_bits());
    }
    if how.saturate {
        bits = clamp_unit(bits, format);
    }
    let sign = 1u64 << (format.exponent + format.fraction);
    if how.relu && bits & sign != 0 { 0 } else { bits }
}

/// Clamps to 0..=1; what is not a number becomes zero.
fn clamp_unit(bits: u64, format: Format) -> u64 {
    let number = widen(bits, format);
    // Written so that NaN and -0 become +0.
    if number > 0.0 { narrow(number.min(1.0), format, Rounding::Nearest) } else { 0 }
}

fn float_to_integer(number: f64, how: &Conversion) -> u64 {
    // Out of range means the nearest end of the range; what is not a number becomes zero, except in 64 bits.
    if number.is_nan() {
        let value = if how.from == Type::F64 || how.to.bits() == 64 { 1 << (how.to.bits() - 1) } else { 0 };
        return extend(value, how);
    }
    let whole = to_integral(number, how.rounding) as i128; // saturates
    extend(whole.clamp(lowest(how.to), highest(how.to)) as u64, how)
}

fn lowest(kind: Type) -> i128 {
    if kind.is_signed() { -(1 << (kind.bits() - 1)) } else { 0 }
}

fn highest(kind: Type) -> i128 {
    if kind.is_signed() { (1 << (kind.bits() - 1)) - 1 } else { (1 << kind.bits()) - 1 }
}
