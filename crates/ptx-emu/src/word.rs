//! Numbers in registers: what 64 bits of a lane mean to an instruction of a type.

/// A number that a register holds in its lowest bits.
pub(crate) trait Word: Copy {
    /// From a register of any width.
    fn get(bits: u64) -> Self;
    /// To a register, with zeros above.
    fn put(self) -> u64;
}

macro_rules! words {
    ($($number:ty as $bits:ty),*) => {$(
        impl Word for $number {
            #[inline(always)]
            fn get(bits: u64) -> Self {
                bits as $number
            }
            #[inline(always)]
            fn put(self) -> u64 {
                u64::from(self as $bits)
            }
        }
    )*};
}
words!(u8 as u8, u16 as u16, u32 as u32, u64 as u64, i8 as u8, i16 as u16, i32 as u32, i64 as u64);

impl Word for f32 {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    /// All that isn't a number has the same bits.
    #[inline(always)]
    fn put(self) -> u64 {
        if self.is_nan() { 0x7fff_ffff } else { u64::from(self.to_bits()) }
    }
}

impl Word for f64 {
    #[inline(always)]
    fn get(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    #[inline(always)]
    fn put(self) -> u64 {
        if self.is_nan() { 0x7ff8 << 48 } else { self.to_bits() }
    }
}

/// What integers do in PTX and not in Rust.
pub(crate) trait Integer: Word + PartialOrd {
    /// Upper half of the product.
    fn mul_high(self, other: Self) -> Self;
    /// The quotient; by zero, all ones.
    fn quotient(self, other: Self) -> Self;
    /// The remainder; by zero, the dividend.
    fn remainder(self, other: Self) -> Self;
    /// Shifted left; out of range, zero.
    fn shift_left(self, by: u32) -> Self;
    /// Shifted right; out of range, all sign bits.
    fn shift_right(self, by: u32) -> Self;
}

macro_rules! integers {
    ($($number:ty, $wide:ty, $ones:expr);*) => {$(
        impl Integer for $number {
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                ((self as $wide * other as $wide) >> <$number>::BITS) as $number
            }
            #[inline(always)]
            fn quotient(self, other: Self) -> Self {
                if other == 0 { $ones } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn shift_left(self, by: u32) -> Self {
                if by >= <$number>::BITS { 0 } else { self << by }
            }
            #[inline(always)]
            fn shift_right(self, by: u32) -> Self {
                if by < <$number>::BITS { self >> by } else { self >> (<$number>::BITS - 1) >> 1 }
            }
        }
    )*};
}
integers!(
    u16, u32, u16::MAX; u32, u64, u32::MAX; u64, u128, u64::MAX;
    i16, i32, -1; i32, i64, -1; i64, i128, -1
);
