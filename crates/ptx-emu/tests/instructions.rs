//! Each instruction against Rust's own arithmetic, on numbers at the edges and between them.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use half::{bf16, f16};
use ptx_emu::{Launch, Memory, Module, Param};
use support::{Random, download, upload};

/// An instruction that reads `%d1`..`%d4` (64 bits), `%r1`..`%r4` (the lowest 32 of them) or `%h1`..`%h4` (the lowest 16)
/// and writes `%d0`, `%r0`, `%h0` or the predicate `%p0`; and what it should write.
type Case = (&'static str, fn(u64, u64, u64, u64) -> u64);

const THREADS: usize = 1024;

fn program(body: &str) -> String {
    let result = match ["%d0", "%r0", "%h0", "%p0"].iter().find(|name| body.contains(**name)) {
        Some(&"%d0") => "",
        Some(&"%r0") => "cvt.u64.u32 %d0, %r0;",
        Some(&"%h0") => "cvt.u64.u16 %d0, %h0;",
        _ => "selp.b64 %d0, 1, 0, %p0;",
    };
    format!(
        ".version 8.0 .target sm_80 .address_size 64
        .visible .entry k(.param .u64 in, .param .u64 out) {{
        .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>;
        mov.u32 %r10, %tid.x; mul.wide.u32 %d10, %r10, 32; ld.param.u64 %d11, [in]; add.s64 %d10, %d10, %d11;
        ld.global.v2.u64 {{%d1, %d2}}, [%d10]; ld.global.v2.u64 {{%d3, %d4}}, [%d10+16];
        cvt.u32.u64 %r1, %d1; cvt.u32.u64 %r2, %d2; cvt.u32.u64 %r3, %d3; cvt.u32.u64 %r4, %d4;
        cvt.u16.u64 %h1, %d1; cvt.u16.u64 %h2, %d2; cvt.u16.u64 %h3, %d3; cvt.u16.u64 %h4, %d4;
        {body}
        {result}
        mul.wide.u32 %d10, %r10, 8; ld.param.u64 %d11, [out]; add.s64 %d10, %d10, %d11; st.global.u64 [%d10], %d0; ret; }}"
    )
}

/// Four numbers for each thread: edges of all types, nice floats, and anything.
fn inputs() -> Vec<[u64; 4]> {
    let edges: Vec<u64> = [0u64, 1, 2, 3, 5, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 127, 128, 129, 255, 256]
        .into_iter()
        .chain([0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32])
        .chain([i64::MAX as u64, i64::MIN as u64, u64::MAX, u64::MAX - 1, 0x8000_0001, 0xffff_8000])
        .chain(
            [1.0f32, -1.0, 0.5, 1.5, 2.5, -2.5, 3.5, 1e-40, -1e-40, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY]
                .map(|x| u64::from(x.to_bits())),
        )
        .chain(
            [f32::NEG_INFINITY, f32::NAN, -0.0, 65504.0, 65519.9, 65520.0, 6e-8, 2147483648.0, -2147483904.0]
                .map(|x| u64::from(x.to_bits())),
        )
        .chain(
            [1.0f64, -1.5, 2.5, f64::INFINITY, f64::NAN, -0.0, 1e300, 1e-310, 9.3e18, -9.3e18, 1.8e19]
                .map(f64::to_bits),
        )
        .chain([0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x3c01_3c00, 0x7bff_3555])
        .collect();
    let mut random = Random(42);
    let mut number = || match random.below(8) {
        0..=2 => edges[random.below(edges.len() as u64) as usize],
        3 => u64::from((random.unit() * 100.0).to_bits()),
        4 => (f64::from(random.unit()) * 1e4).to_bits(),
        5 => random.bits() & 0xff,
        _ => random.bits(),
    };
    (0..THREADS).map(|_| std::array::from_fn(|_| number())).collect()
}

fn run(body: &str, inputs: &[[u64; 4]]) -> Vec<u64> {
    let module = Module::parse("case", &program(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut memory = Memory::new();
    let from = upload(&mut memory, &inputs.concat());
    let to = memory.alloc(inputs.len() * 8).unwrap();
    let launch = Launch { grid: [1, 1, 1], block: [inputs.len() as u32, 1, 1], dynamic_shared: 0, seed: 0 };
    module
        .launch("k", &launch, &[Param::U64(from), Param::U64(to)], &mut memory)
        .unwrap_or_else(|f| panic!("{body}: {f}"));
    download(&memory, to, inputs.len())
}

fn check(cases: &[Case]) {
    let inputs = inputs();
    let mut wrong = Vec::new();
    for (body, expected) in cases {
        let found = run(body, &inputs);
        for (&[a, b, c, e], &found) in inputs.iter().zip(&found) {
            let expected = expected(a, b, c, e);
            if found != expected {
                wrong.push(format!(
                    "{body} of {a:#x}, {b:#x}, {c:#x}, {e:#x}: expected {expected:#x}, found {found:#x}"
                ));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn u(value: u64) -> u32 {
    value as u32
}
fn s(value: u64) -> i32 {
    value as i32
}
fn from_s(value: i32) -> u64 {
    u64::from(value as u32)
}
fn f(value: u64) -> f32 {
    f32::from_bits(value as u32)
}
fn d(value: u64) -> f64 {
    f64::from_bits(value)
}
/// Bits of an f32, one NaN for all.
fn from_f(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { u64::from(value.to_bits()) }
}
fn from_d(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }
}
fn h(value: u64) -> f32 {
    f16::from_bits(value as u16).to_f32()
}
fn from_h(value: f16) -> u64 {
    if value.is_nan() { 0x7fff } else { u64::from(value.to_bits()) }
}
fn b(value: u64) -> f32 {
    bf16::from_bits(value as u16).to_f32()
}
fn from_b(value: bf16) -> u64 {
    if value.is_nan() { 0x7fff } else { u64::from(value.to_bits()) }
}
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}
/// The nearest f16 not larger in magnitude, by stepping back from the nearest.
fn f16_toward_zero(value: f32) -> u64 {
    let nearest = f16::from_f32(value);
    if value.is_nan() || f32::from(nearest).abs() <= value.abs() {
        return from_h(nearest);
    }
    u64::from(nearest.to_bits() - 1)
}

#[test]
fn integers() {
    check(&[
        ("add.s16 %h0, %h1, %h2;", |a, b, _, _| u64::from((a as u16).wrapping_add(b as u16))),
        ("add.s32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).wrapping_add(u(b)))),
        ("add.s64 %d0, %d1, %d2;", |a, b, _, _| a.wrapping_add(b)),
        ("add.sat.s32 %r0, %r1, %r2;", |a, b, _, _| from_s(s(a).saturating_add(s(b)))),
        ("sub.u32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).wrapping_sub(u(b)))),
        ("sub.sat.s32 %r0, %r1, %r2;", |a, b, _, _| from_s(s(a).saturating_sub(s(b)))),
        ("sub.s64 %d0, %d1, -5;", |a, _, _, _| a.wrapping_add(5)),
        ("mul.lo.s32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).wrapping_mul(u(b)))),
        ("mul.lo.u16 %h0, %h1, %h2;", |a, b, _, _| u64::from((a as u16).wrapping_mul(b as u16))),
        ("mul.lo.s64 %d0, %d1, %d2;", |a, b, _, _| a.wrapping_mul(b)),
        ("mul.hi.u32 %r0, %r1, %r2;", |a, b, _, _| (u64::from(u(a)) * u64::from(u(b))) >> 32),
        ("mul.hi.s32 %r0, %r1, %r2;", |a, b, _, _| from_s(((i64::from(s(a)) * i64::from(s(b))) >> 32) as i32)),
        ("mul.hi.u16 %h0, %h1, %h2;", |a, b, _, _| u64::from((u32::from(a as u16) * u32::from(b as u16)) >> 16)),
        ("mul.hi.u64 %d0, %d1, %d2;", |a, b, _, _| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        ("mul.hi.s64 %d0, %d1, %d2;", |a, b, _, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
        ("mul.wide.u32 %d0, %r1, %r2;", |a, b, _, _| u64::from(u(a)) * u64::from(u(b))),
        ("mul.wide.s32 %d0, %r1, %r2;", |a, b, _, _| (i64::from(s(a)) * i64::from(s(b))) as u64),
        ("mul.wide.s16 %r0, %h1, %h2;", |a, b, _, _| from_s(i32::from(a as i16) * i32::from(b as i16))),
        ("mul.wide.u16 %r0, %h1, 3;", |a, _, _, _| u64::from(a as u16) * 3),
        ("mad.lo.s32 %r0, %r1, %r2, %r3;", |a, b, c, _| u64::from(u(a).wrapping_mul(u(b)).wrapping_add(u(c)))),
        ("mad.hi.u32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            u64::from((((u64::from(u(a)) * u64::from(u(b))) >> 32) as u32).wrapping_add(u(c)))
        }),
        ("mad.wide.s32 %d0, %r1, %r2, %d3;", |a, b, c, _| {
            (i64::from(s(a)) * i64::from(s(b))).wrapping_add(c as i64) as u64
        }),
        ("mad.wide.u16 %r0, %h1, %h2, %r3;", |a, b, c, _| {
            u64::from((u32::from(a as u16) * u32::from(b as u16)).wrapping_add(u(c)))
        }),
        ("mul24.lo.s32 %r0, %r1, %r2;", |a, b, _, _| from_s((s(a) << 8 >> 8).wrapping_mul(s(b) << 8 >> 8))),
        ("mad24.lo.u32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            u64::from((u(a) & 0xff_ffff).wrapping_mul(u(b) & 0xff_ffff).wrapping_add(u(c)))
        }),
        ("div.u32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).checked_div(u(b)).unwrap_or(u32::MAX))),
        ("div.s32 %r0, %r1, %r2;", |a, b, _, _| if s(b) == 0 { 0xffff_ffff } else { from_s(s(a).wrapping_div(s(b))) }),
        (
            "div.s64 %d0, %d1, %d2;",
            |a, b, _, _| if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 },
        ),
        ("rem.u32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).checked_rem(u(b)).unwrap_or(u(a)))),
        (
            "rem.s32 %r0, %r1, %r2;",
            |a, b, _, _| if s(b) == 0 { a & 0xffff_ffff } else { from_s(s(a).wrapping_rem(s(b))) },
        ),
        ("rem.u64 %d0, %d1, %d2;", |a, b, _, _| a.checked_rem(b).unwrap_or(a)),
        ("min.s32 %r0, %r1, %r2;", |a, b, _, _| from_s(s(a).min(s(b)))),
        ("max.u32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).max(u(b)))),
        ("max.s16 %h0, %h1, %h2;", |a, b, _, _| u64::from((a as i16).max(b as i16) as u16)),
        ("min.u64 %d0, %d1, %d2;", |a, b, _, _| a.min(b)),
        ("abs.s32 %r0, %r1;", |a, _, _, _| from_s(s(a).wrapping_abs())),
        ("abs.s64 %d0, %d1;", |a, _, _, _| (a as i64).wrapping_abs() as u64),
        ("neg.s16 %h0, %h1;", |a, _, _, _| u64::from((a as u16).wrapping_neg())),
        ("neg.s32 %r0, %r1;", |a, _, _, _| from_s(s(a).wrapping_neg())),
        ("sad.u32 %r0, %r1, %r2, %r3;", |a, b, c, _| u64::from(u(c).wrapping_add(u(a).abs_diff(u(b))))),
        ("sad.s32 %r0, %r1, %r2, %r3;", |a, b, c, _| u64::from(u(c).wrapping_add(s(a).abs_diff(s(b))))),
        ("dp4a.s32.s32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let dot: i32 =
                (0..4).map(|i| i32::from(a.to_le_bytes()[i] as i8) * i32::from(b.to_le_bytes()[i] as i8)).sum();
            from_s(s(c).wrapping_add(dot))
        }),
        ("dp4a.u32.s32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let dot: i32 = (0..4).map(|i| i32::from(a.to_le_bytes()[i]) * i32::from(b.to_le_bytes()[i] as i8)).sum();
            from_s(s(c).wrapping_add(dot))
        }),
        ("dp2a.hi.s32.u32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let half = |i: u64| i32::from((a >> (16 * i)) as i16);
            from_s(s(c).wrapping_add(half(0) * i32::from(b.to_le_bytes()[2]) + half(1) * i32::from(b.to_le_bytes()[3])))
        }),
    ]);
}

#[test]
fn bits() {
    check(&[
        ("and.b32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a) & u(b))),
        ("or.b16 %h0, %h1, %h2;", |a, b, _, _| (a | b) & 0xffff),
        ("xor.b64 %d0, %d1, %d2;", |a, b, _, _| a ^ b),
        ("not.b32 %r0, %r1;", |a, _, _, _| u64::from(!u(a))),
        ("not.b16 %h0, %h1;", |a, _, _, _| u64::from(!(a as u16))),
        ("cnot.b32 %r0, %r1;", |a, _, _, _| u64::from(u(a) == 0)),
        ("shl.b32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).checked_shl(u(b)).unwrap_or(0))),
        ("shl.b16 %h0, %h1, %r2;", |a, b, _, _| u64::from((a as u16).checked_shl(u(b)).unwrap_or(0))),
        ("shl.b64 %d0, %d1, %r2;", |a, b, _, _| a.checked_shl(u(b)).unwrap_or(0)),
        ("shr.u32 %r0, %r1, %r2;", |a, b, _, _| u64::from(u(a).checked_shr(u(b)).unwrap_or(0))),
        ("shr.s32 %r0, %r1, %r2;", |a, b, _, _| from_s(s(a) >> u(b).min(31))),
        ("shr.s64 %d0, %d1, %r2;", |a, b, _, _| (a as i64 >> u(b).min(63)) as u64),
        ("shr.s16 %h0, %h1, %r2;", |a, b, _, _| u64::from((a as i16 >> u(b).min(15)) as u16)),
        ("shr.b64 %d0, %d1, %r2;", |a, b, _, _| a.checked_shr(u(b)).unwrap_or(0)),
        ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let n = u(c) & 31;
            u64::from(if n == 0 { u(b) } else { u(b) << n | u(a) >> (32 - n) })
        }),
        ("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let n = u(c) & 31;
            u64::from(if n == 0 { u(a) } else { u(b) << (32 - n) | u(a) >> n })
        }),
        ("shf.l.clamp.b32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            u64::from(match u(c).min(32) {
                0 => u(b),
                32 => u(a),
                n => u(b) << n | u(a) >> (32 - n),
            })
        }),
        ("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            u64::from(match u(c).min(32) {
                0 => u(a),
                32 => u(b),
                n => u(b) << (32 - n) | u(a) >> n,
            })
        }),
        ("bfe.u32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            (0..(c & 0xff).min(32)).map(|i| u64::from((b & 0xff) + i < 32 && a >> ((b & 0xff) + i) & 1 == 1) << i).sum()
        }),
        ("bfe.s32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let (position, length) = (b & 0xff, c & 0xff);
            let sign = if length == 0 { 0 } else { a >> (position + length - 1).min(31) & 1 };
            (0..32).map(|i| (if i < length && position + i < 32 { a >> (position + i) & 1 } else { sign }) << i).sum()
        }),
        ("bfe.u64 %d0, %d1, %r2, %r3;", |a, b, c, _| {
            (0..(c & 0xff).min(64)).map(|i| u64::from((b & 0xff) + i < 64 && a >> ((b & 0xff) + i) & 1 == 1) << i).sum()
        }),
        ("bfi.b32 %r0, %r1, %r2, %r3, %r4;", |a, b, c, e| {
            let (position, length) = (c & 0xff, e & 0xff);
            (0..32)
                .map(|i| (if i >= position && i < position + length { a >> (i - position) } else { b >> i } & 1) << i)
                .sum()
        }),
        ("brev.b32 %r0, %r1;", |a, _, _, _| u64::from(u(a).reverse_bits())),
        ("brev.b64 %d0, %d1;", |a, _, _, _| a.reverse_bits()),
        ("popc.b32 %r0, %r1;", |a, _, _, _| u64::from(u(a).count_ones())),
        ("popc.b64 %r0, %d1;", |a, _, _, _| u64::from(a.count_ones())),
        ("clz.b32 %r0, %r1;", |a, _, _, _| u64::from(u(a).leading_zeros())),
        ("clz.b64 %r0, %d1;", |a, _, _, _| u64::from(a.leading_zeros())),
        ("bfind.u32 %r0, %r1;", |a, _, _, _| u64::from(u(a).checked_ilog2().unwrap_or(u32::MAX))),
        ("bfind.shiftamt.s32 %r0, %r1;", |a, _, _, _| {
            let a = if s(a) < 0 { !u(a) } else { u(a) };
            if a == 0 { 0xffff_ffff } else { u64::from(a.leading_zeros()) }
        }),
        ("prmt.b32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let bytes = [&a.to_le_bytes()[..4], &b.to_le_bytes()[..4]].concat();
            (0..4)
                .map(|i| {
                    let byte = bytes[(c >> (4 * i) & 7) as usize];
                    let byte = if c >> (4 * i) & 8 == 0 {
                        byte
                    } else if byte >> 7 == 1 {
                        0xff
                    } else {
                        0
                    };
                    u64::from(byte) << (8 * i)
                })
                .sum()
        }),
        ("prmt.b32.f4e %r0, %r1, %r2, 1;", |a, b, _, _| (a >> 8 & 0xff_ffff) | (b & 0xff) << 24),
        ("prmt.b32.rc16 %r0, %r1, %r2, 1;", |a, _, _, _| (a >> 16 & 0xffff) | (a >> 16 & 0xffff) << 16),
        ("prmt.b32.ecl %r0, %r1, %r2, 2;", |a, _, _, _| {
            (a & 0xffff_ffff) >> 16 & 0xff | (a >> 16 & 0xff) << 8 | (a >> 16 & 0xff) << 16 | (a >> 24 & 0xff) << 24
        }),
        ("lop3.b32 %r0, %r1, %r2, %r3, 150;", |a, b, c, _| u64::from(u(a ^ b ^ c))),
        ("lop3.b32 %r0, %r1, %r2, %r3, 234;", |a, b, c, _| u64::from(u(a & b | c))),
        ("lop3.b32 %r0, %r1, %r2, %r3, 0x08;", |a, b, c, _| u64::from(u(!a & b & c))),
        ("mov.b32 %r0, {%h2, %h1};", |a, b, _, _| (b & 0xffff) | (a & 0xffff) << 16),
        ("mov.b32 {%h3, %h4}, %r1; mov.u16 %h0, %h4;", |a, _, _, _| a >> 16 & 0xffff),
        ("mov.b32 {_, %h0}, %r1;", |a, _, _, _| a >> 16 & 0xffff),
        ("mov.b64 %d0, {%r2, %r1};", |a, b, _, _| u64::from(u(b)) | u64::from(u(a)) << 32),
        ("mov.b64 {%r3, %r4}, %d1; sub.u32 %r0, %r4, %r3;", |a, _, _, _| {
            u64::from(((a >> 32) as u32).wrapping_sub(u(a)))
        }),
        ("mov.b64 %d0, {%h1, %h2, %h3, %h4};", |a, b, c, e| {
            a & 0xffff | (b & 0xffff) << 16 | (c & 0xffff) << 32 | (e & 0xffff) << 48
        }),
    ]);
}

#[test]
fn carries() {
    check(&[
        ("add.cc.u32 %r5, %r1, %r2; addc.u32 %r0, %r3, %r4;", |a, b, c, e| {
            let carry = u32::from(u(a).checked_add(u(b)).is_none());
            u64::from(u(c).wrapping_add(u(e)).wrapping_add(carry))
        }),
        ("add.cc.u32 %r5, %r1, %r2; addc.cc.u32 %r6, %r3, %r4; addc.u32 %r0, 0, 0;", |a, b, c, e| {
            (u64::from(u(c)) + u64::from(u(e)) + ((u64::from(u(a)) + u64::from(u(b))) >> 32)) >> 32
        }),
        ("sub.cc.u32 %r5, %r1, %r2; subc.u32 %r0, %r3, %r4;", |a, b, c, e| {
            u64::from(u(c).wrapping_sub(u(e)).wrapping_sub(u32::from(u(a) < u(b))))
        }),
        ("add.cc.u64 %d5, %d1, %d2; addc.u64 %d0, %d3, %d4;", |a, b, c, e| {
            c.wrapping_add(e).wrapping_add(u64::from(a.checked_add(b).is_none()))
        }),
        ("mad.lo.cc.u32 %r5, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, 0;", |a, b, c, _| {
            (u64::from(u(a)) * u64::from(u(b)) + u64::from(u(c))) >> 32
        }),
    ]);
}

#[test]
fn comparisons() {
    check(&[
        ("setp.lt.s32 %p0, %r1, %r2;", |a, b, _, _| u64::from(s(a) < s(b))),
        ("setp.lt.u32 %p0, %r1, %r2;", |a, b, _, _| u64::from(u(a) < u(b))),
        ("setp.hs.u64 %p0, %d1, %d2;", |a, b, _, _| u64::from(a >= b)),
        ("setp.ne.s16 %p0, %h1, %h2;", |a, b, _, _| u64::from(a as u16 != b as u16)),
        ("setp.eq.b64 %p0, %d1, %d2;", |a, b, _, _| u64::from(a == b)),
        ("setp.gt.s64 %p0, %d1, %d2;", |a, b, _, _| u64::from(a as i64 > b as i64)),
        ("setp.eq.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(f(a) == f(b))),
        ("setp.ne.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(f(a) < f(b) || f(a) > f(b))),
        ("setp.neu.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(f(a) != f(b))),
        ("setp.le.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(f(a) <= f(b))),
        ("setp.geu.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(f(a) >= f(b) || f(a).is_nan() || f(b).is_nan())),
        ("setp.equ.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(f(a) == f(b) || f(a).is_nan() || f(b).is_nan())),
        ("setp.nan.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(f(a).is_nan() || f(b).is_nan())),
        ("setp.num.f64 %p0, %d1, %d2;", |a, b, _, _| u64::from(!d(a).is_nan() && !d(b).is_nan())),
        ("setp.gt.ftz.f32 %p0, %r1, %r2;", |a, b, _, _| u64::from(flushed(f(a)) > flushed(f(b)))),
        ("setp.lt.f64 %p0, %d1, %d2;", |a, b, _, _| u64::from(d(a) < d(b))),
        ("setp.ge.f16 %p0, %h1, %h2;", |a, b, _, _| u64::from(h(a) >= h(b))),
        ("setp.lt.bf16 %p0, %h1, %h2;", |x, y, _, _| u64::from(b(x) < b(y))),
        ("setp.lt.f16x2 %p1|%p0, %r1, %r2;", |a, b, _, _| u64::from(h(a >> 16) < h(b >> 16))),
        ("setp.ne.s32 %p1, %r3, %r4; setp.lt.and.s32 %p0, %r1, %r2, %p1;", |a, b, c, e| {
            u64::from(s(a) < s(b) && u(c) != u(e))
        }),
        ("setp.ne.s32 %p1, %r3, %r4; setp.lt.xor.s32 %p2|%p0, %r1, %r2, !%p1;", |a, b, c, e| {
            u64::from((s(a) >= s(b)) != (u(c) == u(e)))
        }),
        ("setp.lt.s32 %p1, %r1, %r2; not.pred %p2, %p1; or.pred %p0, %p1, %p2;", |_, _, _, _| 1),
        ("setp.lt.s32 %p1, %r1, %r2; setp.lt.s32 %p2, %r3, %r4; xor.pred %p0, %p1, %p2;", |a, b, c, e| {
            u64::from((s(a) < s(b)) != (s(c) < s(e)))
        }),
        ("setp.lt.s32 %p1, %r1, %r2; mov.pred %p0, %p1;", |a, b, _, _| u64::from(s(a) < s(b))),
        ("set.lt.u32.s32 %r0, %r1, %r2;", |a, b, _, _| if s(a) < s(b) { 0xffff_ffff } else { 0 }),
        ("set.gt.f32.f32 %r0, %r1, %r2;", |a, b, _, _| if f(a) > f(b) { 0x3f80_0000 } else { 0 }),
        ("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r0, %r3, %r4, %p1;", |a, b, c, e| {
            u64::from(u(if s(a) < s(b) { c } else { e }))
        }),
        ("slct.b32.s32 %r0, %r1, %r2, %r3;", |a, b, c, _| u64::from(u(if s(c) >= 0 { a } else { b }))),
        ("slct.u64.f32 %d0, %d1, %d2, %r3;", |a, b, c, _| if f(c) >= 0.0 { a } else { b }),
        ("testp.finite.f32 %p0, %r1;", |a, _, _, _| u64::from(f(a).is_finite())),
        ("testp.subnormal.f32 %p0, %r1;", |a, _, _, _| u64::from(f(a).is_subnormal())),
        ("testp.notanumber.f64 %p0, %d1;", |a, _, _, _| u64::from(d(a).is_nan())),
        ("mov.u32 %r0, 1; setp.lt.s32 %p1, %r1, %r2; @%p1 mov.u32 %r0, 2; @!%p1 add.s32 %r0, %r0, 4;", |a, b, _, _| {
            if s(a) < s(b) { 2 } else { 5 }
        }),
    ]);
}

#[test]
fn floats() {
    check(&[
        ("add.f32 %r0, %r1, %r2;", |a, b, _, _| from_f(f(a) + f(b))),
        ("add.rn.ftz.f32 %r0, %r1, %r2;", |a, b, _, _| from_f(flushed(flushed(f(a)) + flushed(f(b))))),
        ("add.sat.f32 %r0, %r1, %r2;", |a, b, _, _| {
            let sum = f(a) + f(b);
            from_f(if sum > 0.0 { sum.min(1.0) } else { 0.0 })
        }),
        ("sub.f32 %r0, %r1, %r2;", |a, b, _, _| from_f(f(a) - f(b))),
        ("mul.rn.f32 %r0, %r1, %r2;", |a, b, _, _| from_f(f(a) * f(b))),
        ("fma.rn.f32 %r0, %r1, %r2, %r3;", |a, b, c, _| from_f(f(a).mul_add(f(b), f(c)))),
        ("fma.rn.ftz.f32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            from_f(flushed(flushed(f(a)).mul_add(flushed(f(b)), flushed(f(c)))))
        }),
        ("div.rn.f32 %r0, %r1, %r2;", |a, b, _, _| from_f(f(a) / f(b))),
        ("div.full.f32 %r0, %r1, %r2;", |a, b, _, _| from_f(f(a) / f(b))),
        ("rcp.rn.f32 %r0, %r1;", |a, _, _, _| from_f(1.0 / f(a))),
        ("sqrt.rn.f32 %r0, %r1;", |a, _, _, _| from_f(f(a).sqrt())),
        ("rsqrt.approx.f32 %r0, %r1;", |a, _, _, _| from_f((1.0 / f64::from(f(a)).sqrt()) as f32)),
        ("ex2.approx.f32 %r0, %r1;", |a, _, _, _| from_f(f64::from(f(a)).exp2() as f32)),
        ("ex2.approx.ftz.f32 %r0, %r1;", |a, _, _, _| from_f(flushed(f64::from(flushed(f(a))).exp2() as f32))),
        ("lg2.approx.f32 %r0, %r1;", |a, _, _, _| from_f(f64::from(f(a)).log2() as f32)),
        ("sin.approx.f32 %r0, %r1;", |a, _, _, _| from_f(f64::from(f(a)).sin() as f32)),
        ("cos.approx.f32 %r0, %r1;", |a, _, _, _| from_f(f64::from(f(a)).cos() as f32)),
        ("tanh.approx.f32 %r0, %r1;", |a, _, _, _| from_f(f64::from(f(a)).tanh() as f32)),
        ("abs.f32 %r0, %r1;", |a, _, _, _| a & 0x7fff_ffff),
        ("neg.f32 %r0, %r1;", |a, _, _, _| (a ^ 0x8000_0000) & 0xffff_ffff),
        ("neg.ftz.f32 %r0, %r1;", |a, _, _, _| u64::from((-flushed(f(a))).to_bits())),
        ("copysign.f32 %r0, %r1, %r2;", |a, b, _, _| u64::from(f(b).copysign(f(a)).to_bits())),
        ("min.f32 %r0, %r1, %r2;", |a, b, _, _| match (f(a), f(b)) {
            (x, y) if x == 0.0 && y == 0.0 => from_f(if x.is_sign_negative() { x } else { y }),
            (x, y) => from_f(x.min(y)),
        }),
        ("max.f32 %r0, %r1, %r2;", |a, b, _, _| match (f(a), f(b)) {
            (x, y) if x == 0.0 && y == 0.0 => from_f(if x.is_sign_positive() { x } else { y }),
            (x, y) => from_f(x.max(y)),
        }),
        ("max.NaN.f32 %r0, %r1, %r2;", |a, b, _, _| match (f(a), f(b)) {
            (x, y) if x.is_nan() || y.is_nan() => 0x7fff_ffff,
            (x, y) if x == 0.0 && y == 0.0 => from_f(if x.is_sign_positive() { x } else { y }),
            (x, y) => from_f(x.max(y)),
        }),
        ("add.f64 %d0, %d1, %d2;", |a, b, _, _| from_d(d(a) + d(b))),
        ("mul.rn.f64 %d0, %d1, %d2;", |a, b, _, _| from_d(d(a) * d(b))),
        ("fma.rn.f64 %d0, %d1, %d2, %d3;", |a, b, c, _| from_d(d(a).mul_add(d(b), d(c)))),
        ("div.rn.f64 %d0, %d1, %d2;", |a, b, _, _| from_d(d(a) / d(b))),
        ("sqrt.rn.f64 %d0, %d1;", |a, _, _, _| from_d(d(a).sqrt())),
        ("neg.f64 %d0, %d1;", |a, _, _, _| a ^ 1 << 63),
        ("abs.f64 %d0, %d1;", |a, _, _, _| a & !(1 << 63)),
        ("add.f32 %r0, %r1, 0f3F800000;", |a, _, _, _| from_f(f(a) + 1.0)),
        ("add.f64 %d0, %d1, 0d3FF8000000000000;", |a, _, _, _| from_d(d(a) + 1.5)),
    ]);
}

#[test]
fn halves() {
    check(&[
        ("add.f16 %h0, %h1, %h2;", |a, b, _, _| from_h(f16::from_f32(h(a) + h(b)))),
        ("sub.rn.f16 %h0, %h1, %h2;", |a, b, _, _| from_h(f16::from_f32(h(a) - h(b)))),
        ("mul.f16 %h0, %h1, %h2;", |a, b, _, _| from_h(f16::from_f32(h(a) * h(b)))),
        ("max.f16 %h0, %h1, %h2;", |a, b, _, _| match (h(a), h(b)) {
            (x, y) if x == 0.0 && y == 0.0 => from_h(f16::from_f32(if x.is_sign_positive() { x } else { y })),
            (x, y) => from_h(f16::from_f32(x.max(y))),
        }),
        ("neg.f16 %h0, %h1;", |a, _, _, _| (a ^ 0x8000) & 0xffff),
        ("abs.f16x2 %r0, %r1;", |a, _, _, _| a & 0x7fff_7fff),
        ("add.f16x2 %r0, %r1, %r2;", |a, b, _, _| {
            from_h(f16::from_f32(h(a) + h(b))) | from_h(f16::from_f32(h(a >> 16) + h(b >> 16))) << 16
        }),
        ("mul.rn.f16x2 %r0, %r1, %r2;", |a, b, _, _| {
            from_h(f16::from_f32(h(a) * h(b))) | from_h(f16::from_f32(h(a >> 16) * h(b >> 16))) << 16
        }),
        ("mul.bf16 %h0, %h1, %h2;", |x, y, _, _| from_b(bf16::from_f32(b(x) * b(y)))),
        ("ex2.approx.f16 %h0, %h1;", |a, _, _, _| from_h(f16::from_f32(h(a).exp2()))),
    ]);
    // One rounding: exact in f64, where the sum of a product and a half has at most 65 bits, of which those that decide
    // a rounding fit.
    check(&[
        ("fma.rn.f16 %h0, %h1, %h2, %h3;", |a, b, c, _| fused(f64::from(h(a)), f64::from(h(b)), f64::from(h(c)))),
        ("fma.rn.f16x2 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let one = |i: u64| fused(f64::from(h(a >> i)), f64::from(h(b >> i)), f64::from(h(c >> i)));
            one(0) | one(16) << 16
        }),
    ]);
}

/// `a * b + c` as an f16: the nearest, found among the neighbours of a first guess.
fn fused(a: f64, b: f64, c: f64) -> u64 {
    let exact = a.mul_add(b, c);
    let guess = f16::from_f32(exact as f32);
    if !exact.is_finite() || guess.is_nan() || guess.is_infinite() {
        return from_h(f16::from_f32(exact as f32));
    }
    let bits = guess.to_bits();
    let neighbours = [bits.wrapping_sub(1), bits, bits.wrapping_add(1)];
    let distance = |bits: &u16| (f16::from_bits(*bits).to_f64() - exact).abs();
    let usable = neighbours
        .into_iter()
        .filter(|bits| f16::from_bits(*bits).is_finite() && bits & 0x8000 == guess.to_bits() & 0x8000);
    // The nearest; of two, the even one.
    let best = usable.min_by(|x, y| distance(x).total_cmp(&distance(y)).then((x & 1).cmp(&(y & 1)))).unwrap();
    u64::from(best)
}

#[test]
fn conversions() {
    check(&[
        ("cvt.u32.u16 %r0, %h1;", |a, _, _, _| a & 0xffff),
        ("cvt.s32.s16 %r0, %h1;", |a, _, _, _| from_s(i32::from(a as i16))),
        ("cvt.s32.s8 %r0, %r1;", |a, _, _, _| from_s(i32::from(a as i8))),
        ("cvt.u32.u8 %r0, %r1;", |a, _, _, _| a & 0xff),
        ("cvt.s64.s32 %d0, %r1;", |a, _, _, _| i64::from(s(a)) as u64),
        ("cvt.u64.u32 %d0, %r1;", |a, _, _, _| a & 0xffff_ffff),
        ("cvt.u16.u32 %h0, %r1;", |a, _, _, _| a & 0xffff),
        ("cvt.s16.s8 %h0, %h1;", |a, _, _, _| u64::from(i16::from(a as i8) as u16)),
        ("cvt.s8.s32 %r0, %r1;", |a, _, _, _| from_s(i32::from(a as i8))),
        ("cvt.sat.s8.s32 %r0, %r1;", |a, _, _, _| from_s(s(a).clamp(-128, 127))),
        ("cvt.sat.u8.s32 %r0, %r1;", |a, _, _, _| from_s(s(a).clamp(0, 255))),
        ("cvt.sat.u32.s64 %r0, %d1;", |a, _, _, _| (a as i64).clamp(0, i64::from(u32::MAX)) as u64),
        ("cvt.sat.s16.u32 %h0, %r1;", |a, _, _, _| u64::from(u(a).min(0x7fff))),
        ("cvt.rn.f32.s32 %r0, %r1;", |a, _, _, _| from_f(s(a) as f32)),
        ("cvt.rn.f32.u32 %r0, %r1;", |a, _, _, _| from_f(u(a) as f32)),
        ("cvt.rn.f32.u64 %r0, %d1;", |a, _, _, _| from_f(a as f32)),
        ("cvt.rn.f32.s64 %r0, %d1;", |a, _, _, _| from_f(a as i64 as f32)),
        ("cvt.rn.f64.s64 %d0, %d1;", |a, _, _, _| from_d(a as i64 as f64)),
        ("cvt.rn.f64.u32 %d0, %r1;", |a, _, _, _| from_d(f64::from(u(a)))),
        ("cvt.rn.f32.s8 %r0, %r1;", |a, _, _, _| from_f(f32::from(a as i8))),
        ("cvt.rn.f16.s32 %h0, %r1;", |a, _, _, _| from_h(f16::from_f64(f64::from(s(a))))),
        ("cvt.rz.f32.u32 %r0, %r1;", |a, _, _, _| {
            let near = u(a) as f32;
            from_f(if f64::from(near) > f64::from(u(a)) { near.next_down() } else { near })
        }),
        ("cvt.rp.f32.s32 %r0, %r1;", |a, _, _, _| {
            let near = s(a) as f32;
            from_f(if f64::from(near) < f64::from(s(a)) { near.next_up() } else { near })
        }),
        ("cvt.rni.s32.f32 %r0, %r1;", |a, _, _, _| from_s(f(a).round_ties_even() as i32)),
        ("cvt.rzi.s32.f32 %r0, %r1;", |a, _, _, _| from_s(f(a) as i32)),
        ("cvt.rzi.u32.f32 %r0, %r1;", |a, _, _, _| u64::from(f(a) as u32)),
        ("cvt.rmi.s32.f32 %r0, %r1;", |a, _, _, _| from_s(f(a).floor() as i32)),
        ("cvt.rpi.s32.f32 %r0, %r1;", |a, _, _, _| from_s(f(a).ceil() as i32)),
        ("cvt.rzi.s64.f32 %d0, %r1;", |a, _, _, _| if f(a).is_nan() { 1 << 63 } else { f(a) as i64 as u64 }),
        ("cvt.rzi.u64.f64 %d0, %d1;", |a, _, _, _| if d(a).is_nan() { 1 << 63 } else { d(a) as u64 }),
        ("cvt.rni.s8.f32 %r0, %r1;", |a, _, _, _| from_s((f(a).round_ties_even() as i32).clamp(-128, 127))),
        ("cvt.rni.f32.f32 %r0, %r1;", |a, _, _, _| from_f(f(a).round_ties_even())),
        ("cvt.rmi.f32.f32 %r0, %r1;", |a, _, _, _| from_f(f(a).floor())),
        ("cvt.rzi.f64.f64 %d0, %d1;", |a, _, _, _| from_d(d(a).trunc())),
        ("cvt.ftz.f32.f32 %r0, %r1;", |a, _, _, _| from_f(flushed(f(a)))),
        ("cvt.sat.f32.f32 %r0, %r1;", |a, _, _, _| from_f(if f(a) > 0.0 { f(a).min(1.0) } else { 0.0 })),
        ("cvt.f64.f32 %d0, %r1;", |a, _, _, _| from_d(f64::from(f(a)))),
        ("cvt.rn.f32.f64 %r0, %d1;", |a, _, _, _| from_f(d(a) as f32)),
        ("cvt.rz.f32.f64 %r0, %d1;", |a, _, _, _| {
            let near = d(a) as f32;
            from_f(if f64::from(near).abs() > d(a).abs() && d(a).is_finite() {
                if near > 0.0 { near.next_down() } else { near.next_up() }
            } else {
                near
            })
        }),
        ("cvt.rn.f16.f32 %h0, %r1;", |a, _, _, _| from_h(f16::from_f32(f(a)))),
        ("cvt.rz.f16.f32 %h0, %r1;", |a, _, _, _| {
            if f(a).is_infinite() { from_h(f16::from_f32(f(a))) } else { f16_toward_zero(f(a)) }
        }),
        ("cvt.f32.f16 %r0, %h1;", |a, _, _, _| from_f(h(a))),
        ("cvt.rn.bf16.f32 %h0, %r1;", |a, _, _, _| from_b(bf16::from_f32(f(a)))),
        ("cvt.f32.bf16 %r0, %h1;", |a, _, _, _| from_f(b(a))),
        ("cvt.rn.f16x2.f32 %r0, %r1, %r2;", |a, b, _, _| {
            from_h(f16::from_f32(f(a))) << 16 | from_h(f16::from_f32(f(b)))
        }),
        ("cvt.rn.bf16x2.f32 %r0, %r1, %r2;", |a, b, _, _| {
            from_b(bf16::from_f32(f(a))) << 16 | from_b(bf16::from_f32(f(b)))
        }),
        ("cvt.rn.relu.f16x2.f32 %r0, %r1, %r2;", |a, b, _, _| {
            let relu = |x: f32| if x <= 0.0 { 0.0 } else { x };
            from_h(f16::from_f32(relu(f(a)))) << 16 | from_h(f16::from_f32(relu(f(b))))
        }),
        ("cvt.rni.s32.f16 %r0, %h1;", |a, _, _, _| from_s(h(a).round_ties_even() as i32)),
        ("cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, %r3;", |a, b, c, _| {
            let narrow = |x: u64| u64::from(s(x).clamp(-128, 127) as u8);
            (c & 0xffff) << 16 | narrow(a) << 8 | narrow(b)
        }),
        ("cvt.rna.tf32.f32 %r0, %r1;", |a, _, _, _| {
            // Half away from zero: half a unit is added to the magnitude, then the rest is cut off.
            if f(a).is_nan() {
                0x7fff_e000
            } else if f(a).is_infinite() {
                a & 0xffff_ffff
            } else {
                (a & 0x8000_0000) | (((a & 0x7fff_ffff) + 0x1000) & !0x1fff).min(0x7f80_0000)
            }
        }),
    ]);
}

/// A text with an instruction that this crate doesn't know is refused where it stands.
#[test]
fn unknown_instructions_are_refused() {
    for (body, expected) in [
        ("frobnicate.b32 %r0, %r1;", "frobnicate"),
        ("add.rz.f32 %r0, %r1, %r2;", ".rz"),
        ("add.u32 %r0, %r1;", "expected 3 operands"),
        ("add.u32 %r0, %r1, %d2;", "expected 32 bits"),
        ("add.u32 %r0, %r1, %r99;", "not declared"),
        ("add.u8 %r0, %r1, %r2;", "U8"),
        ("add.u32.wide %r0, %r1, %r2;", ".wide"),
        ("mov.b32 %p0, %r1;", "expected"),
        ("setp.lt.u32 %r0, %r1, %r2;", "not a predicate"),
        ("setp.ltu.u32 %p0, %r1, %r2;", ".ltu"),
        ("ld.global.v3.u32 {%r0, %r1, %r2}, [%d1];", ".v3"),
        (
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r0, %r1, %r2}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
            "4 registers",
        ),
        ("bra nowhere; add.u32 %r0, %r0, 1;", "no label"),
        ("call nothing, (); add.u32 %r0, %r0, 1;", "no function"),
        ("cp.async.cg.shared.global [%d1], [%d2], 4; mov.u32 %r0, 1;", "16"),
        ("cvt.f16.f32 %h0, %r1;", "rounding"),
        ("mul.u32 %r0, %r1, %r2;", ".lo"),
        ("wgmma.fence.sync.aligned; mov.u32 %r0, 1;", "wgmma"),
    ] {
        let error = Module::parse("case", &program(body)).unwrap_err();
        assert!(error.to_string().contains(expected), "{body}: {error}");
        assert_eq!(error.line, 8, "{body}: {error}");
    }
}
