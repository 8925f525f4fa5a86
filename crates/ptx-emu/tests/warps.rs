//! What lanes do together, and what memory does: shuffles, votes, matrices, barriers, atomics, loads of all kinds.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use half::{bf16, f16};
use ptx_emu::{Fault, FaultKind, Launch, Memory, Module, Param, Statistics};
use support::{Random, download, upload};

const REGISTERS: &str = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>;";

/// A kernel with a buffer for input, `%d1`, and one for output, `%d2`; `%r1` is the thread.
fn module(declarations: &str, body: &str) -> Module {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{declarations}\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
        {REGISTERS}\nld.param.u64 %d1, [in];\nld.param.u64 %d2, [out];\nmov.u32 %r1, %tid.x;\n{body}\nret;\n}}\n"
    );
    Module::parse("case", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Each thread's `%r0` of a block.
fn run(threads: u32, input: &[u32], body: &str) -> Vec<u32> {
    let body = format!("{body}\nmul.wide.u32 %d19, %r1, 4;\nadd.s64 %d19, %d19, %d2;\nst.global.u32 [%d19], %r0;");
    let (_, out) = launch(&module("", &body), [1, 1, 1], threads, input, threads as usize).unwrap();
    out
}

fn launch(
    module: &Module,
    grid: [u32; 3],
    threads: u32,
    input: &[u32],
    results: usize,
) -> Result<(Statistics, Vec<u32>), Fault> {
    let mut memory = Memory::new();
    let (from, to) = (upload(&mut memory, input), upload(&mut memory, &vec![0u32; results]));
    let launch = Launch { grid, block: [threads, 1, 1], dynamic_shared: 0, seed: 11 };
    let statistics = module.launch("k", &launch, &[Param::U64(from), Param::U64(to)], &mut memory)?;
    Ok((statistics, download(&memory, to, results)))
}

fn fault(threads: u32, body: &str) -> Fault {
    launch(&module("", body), [1, 1, 1], threads, &[7; 64], 64).unwrap_err()
}

#[test]
fn shuffles() {
    let lane = |body: &str| run(32, &[0], &format!("mov.u32 %r2, %laneid; mul.lo.u32 %r3, %r2, 10;\n{body}"));
    let expect = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<_>>();
    assert_eq!(lane("shfl.sync.bfly.b32 %r0, %r3, 5, 31, -1;"), expect(|i| (i ^ 5) * 10));
    assert_eq!(lane("shfl.sync.up.b32 %r0, %r3, 3, 0, -1;"), expect(|i| if i < 3 { i * 10 } else { (i - 3) * 10 }));
    assert_eq!(
        lane("shfl.sync.down.b32 %r0, %r3, 4, 31, -1;"),
        expect(|i| if i + 4 > 31 { i * 10 } else { (i + 4) * 10 })
    );
    assert_eq!(lane("shfl.sync.idx.b32 %r0, %r3, 6, 31, -1;"), expect(|_| 60));
    // Segments of eight lanes: `c` is their mask and their last lane.
    assert_eq!(lane("shfl.sync.idx.b32 %r0, %r3, 2, 0x181f, -1;"), expect(|i| ((i & 24) + 2) * 10));
    assert_eq!(
        lane("shfl.sync.down.b32 %r0|%p1, %r3, 1, 0x181f, -1; selp.b32 %r0, %r0, 7, %p1;"),
        expect(|i| if i % 8 == 7 { 7 } else { (i + 1) * 10 })
    );
    assert_eq!(
        lane("shfl.sync.up.b32 %r0|%p1, %r3, 2, 0, -1; @!%p1 mov.u32 %r0, 1;"),
        expect(|i| if i < 2 { 1 } else { (i - 2) * 10 })
    );
    // Lanes of two sets that meet in different places.
    assert_eq!(
        lane(
            "setp.lt.u32 %p1, %r2, 16;\n@%p1 bra LOW;\nshfl.sync.bfly.b32 %r0, %r3, 1, 31, 0xffff0000;\nbra DONE;\n\
            LOW: shfl.sync.bfly.b32 %r0, %r3, 2, 31, 0xffff;\nDONE:"
        ),
        expect(|i| if i < 16 { (i ^ 2) * 10 } else { (i ^ 1) * 10 })
    );
}

#[test]
fn votes_matches_and_reductions() {
    let lane = |body: &str| run(32, &[0], &format!("mov.u32 %r2, %laneid; setp.lt.u32 %p1, %r2, 5;\n{body}"));
    assert_eq!(lane("vote.sync.ballot.b32 %r0, %p1, -1;"), vec![31; 32]);
    assert_eq!(lane("vote.sync.ballot.b32 %r0, !%p1, -1;"), vec![!31; 32]);
    assert_eq!(lane("vote.sync.any.pred %p2, %p1, -1; selp.b32 %r0, 1, 0, %p2;"), vec![1; 32]);
    assert_eq!(lane("vote.sync.all.pred %p2, %p1, -1; selp.b32 %r0, 1, 0, %p2;"), vec![0; 32]);
    assert_eq!(lane("vote.sync.uni.pred %p2, %p1, -1; selp.b32 %r0, 1, 0, %p2;"), vec![0; 32]);
    let parts = lane("mov.u32 %r0, 0; @%p1 bra A; bra B;\nA: activemask.b32 %r0;\nB:");
    assert_eq!(parts, (0..32).map(|i| if i < 5 { 31 } else { 0 }).collect::<Vec<_>>());
    assert_eq!(
        lane("and.b32 %r3, %r2, 3; match.any.sync.b32 %r0, %r3, -1;"),
        (0..32).map(|i| 0x1111_1111 << (i % 4)).collect::<Vec<_>>()
    );
    assert_eq!(lane("match.all.sync.b32 %r0|%p2, 3, -1; @!%p2 mov.u32 %r0, 9;"), vec![u32::MAX; 32]);
    assert_eq!(lane("match.all.sync.b32 %r0|%p2, %r2, -1; @!%p2 mov.u32 %r0, 9;"), vec![9; 32]);
    assert_eq!(lane("redux.sync.add.s32 %r0, %r2, -1;"), vec![496; 32]);
    assert_eq!(lane("sub.u32 %r3, %r2, 7; redux.sync.min.s32 %r0, %r3, -1;"), vec![-7i32 as u32; 32]);
    assert_eq!(lane("sub.u32 %r3, %r2, 7; redux.sync.max.u32 %r0, %r3, -1;"), vec![u32::MAX; 32]);
    assert_eq!(lane("redux.sync.xor.b32 %r0, %r2, -1;"), vec![(0..32).fold(0, |x, i| x ^ i); 32]);
    assert_eq!(lane("redux.sync.or.b32 %r0, %r2, -1;"), vec![31; 32]);
}

#[test]
fn special_registers() {
    let body = "mov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %nctaid.x;\nmov.u32 %r4, %ctaid.x;\nmad.lo.u32 %r5, %r2, %r3, %r4;\n\
        mov.u32 %r6, %tid.y;\nmov.u32 %r7, %ntid.x;\nmad.lo.u32 %r8, %r6, %r7, %r1;\nmad.lo.u32 %r9, %r5, 64, %r8;\n\
        mov.u32 %r10, %warpid;\nmov.u32 %r11, %laneid;\nmad.lo.u32 %r12, %r10, 32, %r11;\nmov.u32 %r13, %lanemask_lt;\n\
        popc.b32 %r14, %r13;\nmad.lo.u32 %r12, %r12, 1000, %r14;\nmul.wide.u32 %d3, %r9, 4;\nadd.s64 %d3, %d3, %d2;\nst.global.u32 [%d3], %r12;";
    let module = module("", body);
    let mut memory = Memory::new();
    let out = memory.alloc(4 * 64 * 6).unwrap();
    let launch = Launch { grid: [2, 3, 1], block: [16, 4, 1], dynamic_shared: 0, seed: 5 };
    module.launch("k", &launch, &[Param::U64(out), Param::U64(out)], &mut memory).unwrap();
    let found: Vec<u32> = download(&memory, out, 64 * 6);
    let expected: Vec<u32> = (0..64 * 6).map(|i| (i % 64) * 1000 + i % 32).collect();
    assert_eq!(found, expected);
}

#[test]
fn loads_and_stores_of_all_widths() {
    let input: Vec<u32> = (0..64u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = "mul.wide.u32 %d3, %r1, 4;\nadd.s64 %d4, %d1, %d3;\n";
    let word = |i: usize| input[i];
    let cases: &[(&str, &dyn Fn(usize) -> u32)] = &[
        ("ld.global.s8 %r0, [%d4+1];", &|i| bytes[4 * i + 1] as i8 as u32),
        ("ld.global.u8 %r0, [%d4+3];", &|i| u32::from(bytes[4 * i + 3])),
        ("ld.global.s16 %r0, [%d4+2];", &|i| (word(i) >> 16) as i16 as u32),
        ("ld.global.s8 %h1, [%d4]; cvt.s32.s16 %r0, %h1;", &|i| bytes[4 * i] as i8 as u32),
        ("ld.global.s32 %d5, [%d4]; shr.u64 %d5, %d5, 32; cvt.u32.u64 %r0, %d5;", &|i| ((word(i) as i32) >> 31) as u32),
        ("ld.u32 %r0, [%d4];", &word),
        ("ld.global.v4.u8 {%r2, %r3, %r4, %r0}, [%d4];", &|i| word(i) >> 24),
        (
            "shl.b64 %d5, %d3, 1; and.b64 %d5, %d5, 127; add.s64 %d5, %d5, %d1; ld.global.nc.v2.u32 {%r2, %r0}, [%d5];",
            &|i| word((2 * i) % 32 + 1),
        ),
        ("cvta.to.global.u64 %d5, %d4; ld.volatile.global.u32 %r0, [%d5];", &word),
        ("st.global.v2.u16 [%d4], {%h3, %h3}; ld.global.u32 %r0, [%d4];", &|_| 0),
    ];
    for (body, expected) in cases {
        let body = format!("mov.u16 %h3, 0;\n{at}{body}");
        assert_eq!(run(32, &input, &body), (0..32).map(expected).collect::<Vec<_>>(), "{body}");
    }
    // Shared memory: static, in scopes, dynamic, by generic addresses.
    let body = ".shared .align 8 .b8 a[128];\n{ .shared .align 4 .b32 b[32]; mul.lo.u32 %r2, %r1, 4; mov.u32 %r3, b;\n\
        add.u32 %r3, %r3, %r2; mul.lo.u32 %r4, %r1, 3; st.shared.u32 [%r3], %r4;\nbar.warp.sync -1;\nxor.b32 %r5, %r2, 4;\n\
        mov.u32 %r6, b; add.u32 %r6, %r6, %r5; ld.shared.u32 %r0, [%r6]; }\nmov.u64 %d5, a; cvta.shared.u64 %d5, %d5;\n\
        mul.wide.u32 %d6, %r1, 4; add.s64 %d5, %d5, %d6; st.u32 [%d5], %r0; cvta.to.shared.u64 %d7, %d5;\n\
        ld.shared.u32 %r7, [%d7]; isspacep.shared %p1, %d5; isspacep.global %p2, %d5; selp.b32 %r8, 1000, 0, %p1;\n\
        selp.b32 %r9, 5000, 0, %p2; add.u32 %r0, %r7, %r8; add.u32 %r0, %r0, %r9;";
    assert_eq!(run(32, &[0], body), (0..32).map(|i| (i ^ 1) * 3 + 1000).collect::<Vec<u32>>());
    // Local memory, byte by byte, is each lane's own.
    let body = ".local .align 8 .b8 l[16];\nmov.u64 %d5, l; cvta.local.u64 %d6, %d5; st.local.u32 [%d5+4], %r1;\n\
        cvt.u64.u32 %d7, %r1; and.b64 %d7, %d7, 3; add.s64 %d8, %d6, %d7; st.u8 [%d8+8], 200; ld.u32 %r0, [%d6+4];\n\
        ld.local.u8 %r2, [%d5+4]; add.u32 %r0, %r0, %r2;";
    assert_eq!(run(32, &[0], body), (0..32).map(|i| 2 * i).collect::<Vec<u32>>());
    // Variables of the module.
    let declarations =
        ".const .align 4 .b8 c[12] = {1, 0, 0, 0, 2, 0, 0, 0, 3};\n.global .align 4 .u32 g[2] = {40, -2};";
    let body = "ld.const.u32 %r2, [c+8];\nld.global.u32 %r3, [g];\nld.global.s32 %r4, [g+4];\nmov.u64 %d5, c;\nld.const.u8 %r5, [%d5+4];\n\
        add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4; mad.lo.u32 %r0, %r5, 100, %r0;\nst.global.u32 [%d2], %r0;";
    let (_, out) = launch(&module(declarations, body), [1, 1, 1], 1, &[0], 1).unwrap();
    assert_eq!(out, [241]);
}

#[test]
fn branches_by_index_and_calls() {
    let body = "and.b32 %r2, %r1, 3;\nLIST: .branchtargets A, B, C, A;\nbrx.idx %r2, LIST;\nA: mov.u32 %r0, 10;\nbra E;\nB: mov.u32 %r0, 20;\n\
        bra E;\nC: mov.u32 %r0, 30;\nE: add.u32 %r0, %r0, 1;";
    let expected: Vec<u32> = (0..32).map(|i| [11, 21, 31, 11][i % 4]).collect();
    assert_eq!(run(32, &[0], body), expected);
    // A function that is called by some lanes only, returns early for some of them, and calls another.
    let declarations = ".func (.param .b32 r) inner(.param .b32 x)\n{ .reg .b32 %r<4>; ld.param.u32 %r1, [x]; mul.lo.u32 %r1, %r1, %r1;\n\
        st.param.b32 [r], %r1; ret; }\n\
        .func (.param .b32 result) outer(.param .b32 x, .param .align 4 .b8 pair[8])\n{ .reg .pred %p<2>; .reg .b32 %r<8>;\n\
        ld.param.u32 %r1, [x]; ld.param.u32 %r2, [pair+4]; setp.gt.u32 %p1, %r1, 20; add.u32 %r3, %r1, %r2; @%p1 bra BIG;\n\
        st.param.b32 [result], %r3; ret;\nBIG: { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3;\ncall.uni (b), inner, (a);\n\
        ld.param.b32 %r4, [b]; } st.param.b32 [result], %r4; ret; }";
    let body = "and.b32 %r2, %r1, 1;\nsetp.eq.u32 %p1, %r2, 1;\nmov.u32 %r0, 5;\n{ .param .b32 p; .param .align 4 .b8 q[8]; .param .b32 s;\n\
        st.param.b32 [p], %r1; st.param.b32 [q], 0; st.param.b32 [q+4], 100;\n@%p1 call (s), outer, (p, q);\n@%p1 ld.param.b32 %r0, [s]; }\n\
        mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d3, %d2; st.global.u32 [%d3], %r0;";
    let (_, out) = launch(&module(declarations, body), [1, 1, 1], 32, &[0], 32).unwrap();
    let value = |i: u32| {
        if i.is_multiple_of(2) {
            5
        } else if i > 20 {
            (i + 100) * (i + 100)
        } else {
            i + 100
        }
    };
    assert_eq!(out, (0..32).map(value).collect::<Vec<_>>());
    let recursive = format!(
        ".version 8.0 .target sm_80 .address_size 64 .func a() {{ {REGISTERS} call.uni b, (); ret; }} .func b() {{ call.uni a; ret; }}"
    );
    assert!(Module::parse("r", &recursive).unwrap_err().to_string().contains("recursive"));
}

#[test]
fn atomics() {
    for (space, at) in [("global", "[%d2]"), ("shared", "[v]"), ("", "[%d5]")] {
        let cases: &[(&str, u32)] = &[
            ("atom.SPACE.add.u32 %r3, AT, %r1;", 100 + 496),
            ("red.SPACE.max.s32 AT, %r1;", 100),
            ("red.SPACE.min.u32 AT, %r1;", 0),
            ("atom.SPACE.exch.b32 %r3, AT, 77;", 77),
            ("red.SPACE.or.b32 AT, %r1;", 127),
            ("red.SPACE.and.b32 AT, %r1;", 0),
            ("red.SPACE.xor.b32 AT, %r1;", 100),
            ("atom.SPACE.cas.b32 %r3, AT, 100, 4;", 4),
            ("atom.SPACE.inc.u32 %r3, AT, 110;", (100 + 32) % 111),
            ("atom.SPACE.dec.u32 %r3, AT, 110;", 68),
            ("mov.u32 %r4, 0f3F800000; red.SPACE.add.f32 AT, %r4;", 32f32.to_bits()),
            ("atom.relaxed.gpu.SPACE.add.noftz.f16x2 %r3, AT, 0x3c004000;", 0x5000_5400),
        ];
        for (body, expected) in cases {
            let start = if body.contains("add.f32") || body.contains("f16x2") { 0 } else { 100 };
            let (space, dot) = if space.is_empty() { ("", "") } else { (space, ".") };
            let body = body.replace(".SPACE", &format!("{dot}{space}")).replace("AT", at);
            let body = format!(
                ".shared .align 4 .b32 v;\nmov.u64 %d5, v; cvta.shared.u64 %d5, %d5;\nsetp.eq.u32 %p1, %r1, 0;\n\
                @%p1 st.shared.u32 [v], {start};\n@%p1 st.global.u32 [%d2], {start};\nbar.sync 0;\n{body}\nbar.sync 0;\n\
                {}",
                if space == "global" { "" } else { "@%p1 ld.shared.u32 %r5, [v];\n@%p1 st.global.u32 [%d2], %r5;" }
            );
            let (_, out) = launch(&module("", &body), [1, 1, 1], 32, &[0], 1).unwrap_or_else(|f| panic!("{body}: {f}"));
            assert_eq!(out[0], *expected, "{body}");
        }
    }
}

/// A matrix element by its place in the fragments, as the PTX manual has them.
struct Fragments {
    m: usize,
    k: usize,
    bits: usize,
}

impl Fragments {
    /// Register and bit offset of element `(row, inner)` of the left operand, and its lane.
    fn a(&self, row: usize, inner: usize) -> (usize, usize, usize) {
        let per = 32 / self.bits;
        let lane = row % 8 * 4 + inner / per % 4;
        let register = inner / (4 * per) * (self.m / 8) + row / 8;
        (lane, register, inner % per * self.bits)
    }

    fn b(&self, inner: usize, column: usize) -> (usize, usize, usize) {
        let per = 32 / self.bits;
        (column * 4 + inner / per % 4, inner / (4 * per), inner % per * self.bits)
    }
}

#[test]
fn matrix_multiplications() {
    let mut random = Random(3);
    let float = |bits: u64, kind: &str| match kind {
        "f16" => f16::from_bits(bits as u16).to_f64(),
        "bf16" => bf16::from_bits(bits as u16).to_f64(),
        _ => f64::from(f32::from_bits(bits as u32)),
    };
    for (shape, kinds, bits) in [
        ((16, 32), ["s32", "s8", "s8", "s32"], 8),
        ((16, 32), ["s32", "u8", "s8", "s32"], 8),
        ((16, 16), ["s32", "s8", "u8", "s32"], 8),
        ((8, 16), ["s32", "u8", "u8", "s32"], 8),
        ((16, 64), ["s32", "s4", "u4", "s32"], 4),
        ((16, 32), ["s32", "u4", "s4", "s32"], 4),
        ((8, 32), ["s32", "s4", "s4", "s32"], 4),
        ((16, 16), ["f32", "f16", "f16", "f32"], 16),
        ((16, 8), ["f32", "f16", "f16", "f32"], 16),
        ((16, 16), ["f16", "f16", "f16", "f16"], 16),
        ((16, 16), ["f32", "bf16", "bf16", "f32"], 16),
        ((16, 8), ["f32", "bf16", "bf16", "f32"], 16),
        ((16, 8), ["f32", "tf32", "tf32", "f32"], 32),
        ((16, 4), ["f32", "tf32", "tf32", "f32"], 32),
    ] {
        let (m, k) = shape;
        let fragments = Fragments { m, k, bits };
        let (a_count, b_count) = (m * k * bits / 1024, 8 * k * bits / 1024);
        let halves = kinds[0] == "f16";
        let c_count = if halves { m / 8 } else { m / 4 };
        let mut element = |kind: &str| match kind {
            "f16" => u64::from(f16::from_f32(random.unit()).to_bits()),
            "bf16" => u64::from(bf16::from_f32(random.unit()).to_bits()),
            "tf32" => u64::from(random.unit().to_bits() & !0x1fff),
            _ => random.bits() & ((1 << bits) - 1),
        };
        let a: Vec<u64> = (0..m * k).map(|_| element(kinds[1])).collect();
        let b: Vec<u64> = (0..8 * k).map(|_| element(kinds[2])).collect();
        let c: Vec<f32> = (0..m * 8)
            .map(|i| if halves { f16::from_f32(i as f32 / 64.0 - 1.0).to_f32() } else { i as f32 - 50.0 })
            .collect();
        // Sixteen words per lane: four of each operand.
        let mut words = vec![0u32; 32 * 16];
        for row in 0..m {
            for inner in 0..k {
                let (lane, register, shift) = fragments.a(row, inner);
                words[lane * 16 + register] |= (a[row * k + inner] << shift) as u32;
            }
        }
        for inner in 0..fragments.k {
            for column in 0..8 {
                let (lane, register, shift) = fragments.b(inner, column);
                words[lane * 16 + 4 + register] |= (b[column * k + inner] << shift) as u32;
            }
        }
        let place = |row: usize, column: usize| (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2);
        for row in 0..m {
            for column in 0..8 {
                let (lane, index) = place(row, column);
                let value = c[row * 8 + column];
                let word = &mut words[lane * 16 + 8 + if halves { index / 2 } else { index }];
                *word |= match kinds[3] {
                    "s32" => value as i32 as u32,
                    "f16" => u32::from(f16::from_f32(value).to_bits()) << (16 * (index % 2)),
                    _ => value.to_bits(),
                };
            }
        }
        let list = |first: usize, count: usize| {
            let names: Vec<String> = (first..first + count).map(|i| format!("%r{i}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let shape_name = format!("m{m}n8k{k}.row.col.{}", kinds.join("."));
        let body = format!(
            "mul.wide.u32 %d3, %r1, 64;\nadd.s64 %d4, %d1, %d3;\nld.global.v4.u32 {{%r4,%r5,%r6,%r7}}, [%d4];\n\
            ld.global.v4.u32 {{%r8,%r9,%r10,%r11}}, [%d4+16];\nld.global.v4.u32 {{%r12,%r13,%r14,%r15}}, [%d4+32];\n\
            mov.u32 %r16, 0; mov.u32 %r17, 0; mov.u32 %r18, 0; mov.u32 %r19, 0;\nmma.sync.aligned.{shape_name} {}, {}, {}, {};\n\
            mul.wide.u32 %d5, %r1, 16;\nadd.s64 %d5, %d5, %d2;\nst.global.v4.u32 [%d5], {{%r16,%r17,%r18,%r19}};",
            list(16, c_count),
            list(4, a_count),
            list(8, b_count),
            list(12, c_count)
        );
        let (_, out) = launch(&module("", &body), [1, 1, 1], 32, &words, 128).unwrap();
        for row in 0..m {
            for column in 0..8 {
                let (lane, index) = place(row, column);
                let found = out[lane * 4 + if halves { index / 2 } else { index }];
                let start = f64::from(c[row * 8 + column]);
                let pairs = (0..k).map(|inner| (a[row * k + inner], b[column * k + inner]));
                if kinds[0] == "s32" {
                    let integer = |bits_of: u64, kind: &str| {
                        let shift = 64 - bits;
                        if kind.starts_with('s') { (bits_of << shift) as i64 >> shift } else { bits_of as i64 }
                    };
                    let sum: i64 = pairs.map(|(x, y)| integer(x, kinds[1]) * integer(y, kinds[2])).sum();
                    assert_eq!(found as i32, (sum + start as i64) as i32, "{shape_name} row {row} column {column}");
                } else {
                    let sum: f64 = pairs.map(|(x, y)| float(x, kinds[1]) * float(y, kinds[2])).sum::<f64>() + start;
                    let found = match kinds[0] {
                        "f16" => f16::from_bits((found >> (16 * (index % 2))) as u16).to_f64(),
                        _ => f64::from(f32::from_bits(found)),
                    };
                    let unit = if halves { 1e-3 } else { 1e-6 };
                    assert!(
                        (found - sum).abs() <= unit * sum.abs().max(1.0),
                        "{shape_name} row {row} column {column}: {found} {sum}"
                    );
                }
            }
        }
    }
}

#[test]
fn matrices_between_shared_memory_and_registers() {
    // Element (row, column) of matrix i is 1000 i + 10 row + column; each matrix has rows of 16 bytes.
    let rows: Vec<u32> = (0..4 * 8 * 4)
        .map(|word| {
            let (matrix, row, column) = (word / 32, word / 4 % 8, word % 4 * 2);
            let element = |column: u32| 1000 * matrix + 10 * row + column;
            element(column) | element(column + 1) << 16
        })
        .collect();
    let load = |modifier: &str, regs: &str| {
        format!(
            ".shared .align 16 .b8 s[1024];\nmul.wide.u32 %d3, %r1, 16;\nadd.s64 %d4, %d1, %d3;\nld.global.v4.u32 {{%r4,%r5,%r6,%r7}}, [%d4];\n\
            mov.u32 %r2, s; mul.lo.u32 %r3, %r1, 16; add.u32 %r8, %r2, %r3; st.shared.v4.u32 [%r8], {{%r4,%r5,%r6,%r7}};\nbar.sync 0;\n\
            ldmatrix.sync.aligned.m8n8.{modifier}.shared.b16 {regs}, [%r8];\n"
        )
    };
    let element = |matrix: u32, row: u32, column: u32| 1000 * matrix + 10 * row + column;
    let out = run(32, &rows, &(load("x4", "{%r10, %r11, %r12, %r0}")));
    assert_eq!(
        out,
        (0..32).map(|i| element(3, i / 4, i % 4 * 2) | element(3, i / 4, i % 4 * 2 + 1) << 16).collect::<Vec<_>>()
    );
    let out = run(32, &rows, &(load("x2.trans", "{%r10, %r0}")));
    let transposed: Vec<u32> =
        (0..32).map(|i| element(1, i % 4 * 2, i / 4) | element(1, i % 4 * 2 + 1, i / 4) << 16).collect();
    assert_eq!(out, transposed);
    let out = run(32, &rows, &(load("x2", "{%r10, %r11}") + "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r11;"));
    assert_eq!(out, transposed);
    // Stored transposed behind the rest and loaded again.
    let store = "add.u32 %r20, %r8, 512; bar.warp.sync -1; stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r20], {%r10, %r11};\n\
        bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r12, %r0}, [%r20];";
    assert_eq!(run(32, &rows, &(load("x2", "{%r10, %r11}") + store)), transposed);
}

#[test]
fn barriers() {
    // Each warp writes, all wait, each reads another's; then a reduction over the block.
    let body = ".shared .align 4 .b32 s[128];\nmul.wide.u32 %d3, %r1, 4; mov.u64 %d4, s; add.s64 %d4, %d4, %d3; st.shared.u32 [%d4], %r1;\n\
        bar.sync 3;\nxor.b32 %r2, %r1, 96; mul.wide.u32 %d3, %r2, 4; mov.u64 %d4, s; add.s64 %d4, %d4, %d3; ld.shared.u32 %r0, [%d4];\n\
        setp.lt.u32 %p1, %r1, 10; bar.red.popc.u32 %r3, 0, %p1; bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, !%p1;\n\
        selp.b32 %r4, 1000, 0, %p2; selp.b32 %r5, 5000, 0, %p3; mad.lo.u32 %r0, %r3, 200, %r0; add.u32 %r0, %r0, %r4; add.u32 %r0, %r0, %r5;";
    assert_eq!(run(128, &[0], body), (0..128).map(|i| (i ^ 96) + 2000 + 1000).collect::<Vec<u32>>());
    // A producer that only arrives, a consumer that waits.
    let body = ".shared .align 4 .b32 s[32];\nand.b32 %r2, %r1, 31; mul.wide.u32 %d3, %r2, 4; mov.u64 %d4, s; add.s64 %d4, %d4, %d3;\n\
        mov.u32 %r0, 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra CONSUMER;\nst.shared.u32 [%d4], %r1; bar.arrive 1, 64; bra DONE;\n\
        CONSUMER: bar.sync 1, 64; ld.shared.u32 %r0, [%d4];\nDONE:";
    let expected: Vec<u32> = (0..64).map(|i: u32| i.saturating_sub(32)).collect();
    assert_eq!(run(64, &[0], body), expected);
    // Arriving promises nothing for what is written later.
    let late =
        body.replace("st.shared.u32 [%d4], %r1; bar.arrive 1, 64;", "bar.arrive 1, 64; st.shared.u32 [%d4], %r1;");
    let kind = fault(64, &late).kind();
    assert!(matches!(kind, FaultKind::SharedRace | FaultKind::Uninitialised), "{kind}");
}

/// Lanes that part ways meet again, even where the code of one of them lies elsewhere.
#[test]
fn reconvergence() {
    let body = "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; mov.u32 %r3, 1;\n@%p1 bra FAR;\nNEAR: add.u32 %r3, %r3, 1;\nJOIN: \
        redux.sync.add.u32 %r0, %r3, -1;\nbra END;\nFAR: mul.lo.u32 %r3, %r1, 2;\nbra JOIN;\nEND:";
    let sum: u32 = (0..32).map(|i| if i % 2 == 1 { i * 2 } else { 2 }).sum();
    assert_eq!(run(32, &[0], body), vec![sum; 32]);
    // Loops of different lengths.
    let body = "mov.u32 %r0, 0; mov.u32 %r2, 0;\nLOOP: setp.ge.u32 %p1, %r2, %r1; @%p1 bra OUT; add.u32 %r0, %r0, %r2; add.u32 %r2, %r2, 1; bra LOOP;\nOUT:";
    assert_eq!(run(64, &[0], body), (0..64).map(|i: u32| i * i.saturating_sub(1) / 2).collect::<Vec<_>>());
}
