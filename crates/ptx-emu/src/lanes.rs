//! A register of a warp: one value per lane, and what is computed on them.

/// Threads of a warp.
pub(crate) const LANES: usize = 32;
/// A mask of all lanes.
pub(crate) const ALL: u32 = u32::MAX;
/// A register of any width for each lane; bits above its width are zero.
pub(crate) type Lanes = [u64; LANES];

/// Computes one register from one, two, three or four.
pub(crate) type Map1 = fn(&Lanes, &mut Lanes);
pub(crate) type Map2 = fn(&Lanes, &Lanes, &mut Lanes);
pub(crate) type Map3 = fn(&Lanes, &Lanes, &Lanes, &mut Lanes);
pub(crate) type Map4 = fn(&Lanes, &Lanes, &Lanes, &Lanes, &mut Lanes);
/// Compares two registers: one bit per lane.
pub(crate) type Compare = fn(&Lanes, &Lanes) -> u32;

/// Lanes of a mask, in order.
#[inline]
pub(crate) fn each(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}

/// A function on lanes out of an expression on their values: monomorphic, so that it can be vectorised.
macro_rules! map {
    (|$a:ident| $e:expr) => {{
        fn f(a: &$crate::lanes::Lanes, d: &mut $crate::lanes::Lanes) {
            for (d, &$a) in d.iter_mut().zip(a) {
                *d = $e;
            }
        }
        f as $crate::lanes::Map1
    }};
    (|$a:ident, $b:ident| $e:expr) => {{
        fn f(a: &$crate::lanes::Lanes, b: &$crate::lanes::Lanes, d: &mut $crate::lanes::Lanes) {
            for ((d, &$a), &$b) in d.iter_mut().zip(a).zip(b) {
                *d = $e;
            }
        }
        f as $crate::lanes::Map2
    }};
    (|$a:ident, $b:ident, $c:ident| $e:expr) => {{
        fn f(
            a: &$crate::lanes::Lanes,
            b: &$crate::lanes::Lanes,
            c: &$crate::lanes::Lanes,
            d: &mut $crate::lanes::Lanes,
        ) {
            for (((d, &$a), &$b), &$c) in d.iter_mut().zip(a).zip(b).zip(c) {
                *d = $e;
            }
        }
        f as $crate::lanes::Map3
    }};
    (|$a:ident, $b:ident, $c:ident, $e4:ident| $e:expr) => {{
        fn f(
            a: &$crate::lanes::Lanes,
            b: &$crate::lanes::Lanes,
            c: &$crate::lanes::Lanes,
            e4: &$crate::lanes::Lanes,
            d: &mut $crate::lanes::Lanes,
        ) {
            for ((((d, &$a), &$b), &$c), &$e4) in d.iter_mut().zip(a).zip(b).zip(c).zip(e4) {
                *d = $e;
            }
        }
        f as $crate::lanes::Map4
    }};
}

/// A comparison of lanes out of an expression on two values.
macro_rules! compare {
    (|$a:ident, $b:ident| $e:expr) => {{
        fn f(a: &$crate::lanes::Lanes, b: &$crate::lanes::Lanes) -> u32 {
            let mut mask = 0;
            for lane in 0..$crate::lanes::LANES {
                let ($a, $b) = (a[lane], b[lane]);
                mask |= u32::from($e) << lane;
            }
            mask
        }
        f as $crate::lanes::Compare
    }};
}

pub(crate) use {compare, map};
