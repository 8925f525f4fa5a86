//! Texts that are cut, mangled or made up are refused or run: they never panic, hang, or allocate what they claim.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use proptest::prelude::*;
use ptx_emu::{Checks, Launch, Memory, Module, Param};
use support::kernel_text;

const KERNELS: [&str; 5] = ["gemm_q8", "gemm_q4", "rows", "attention", "odds"];

/// Parses a text; if it is understood, runs its kernels on too little memory for a short while.
fn exercise(text: &str) {
    let Ok(module) = Module::parse("hostile", text) else { return };
    let mut checks = Checks::default();
    checks.budget = 2000;
    let module = module.with_checks(checks);
    let mut memory = Memory::with_limit(1 << 24);
    let buffer = memory.alloc(4096).unwrap();
    memory.write(buffer, &[1; 4096]).unwrap();
    for kernel in module.kernels() {
        let launch = Launch { grid: [2, 1, 1], block: [64, 1, 1], dynamic_shared: 64, seed: 1 };
        let long = vec![Param::U64(buffer); 5];
        let tail = [Param::U32(64), Param::U32(32), Param::U32(64), Param::F32(0.5)];
        for (pointers, numbers) in [(5, 3), (4, 3), (4, 2), (4, 1), (2, 1), (2, 0), (3, 1)] {
            let params = [&long[..pointers], &tail[..numbers]].concat();
            let _ = module.launch(kernel, &launch, &params, &mut memory);
        }
    }
}

#[test]
fn every_prefix_of_a_line() {
    let text = kernel_text("rows");
    for (at, _) in text.match_indices('\n').step_by(3) {
        exercise(&text[..at]);
        let cut = text.floor_char_boundary(at.saturating_sub(5));
        exercise(&text[..cut]);
    }
}

#[test]
fn claims_are_not_believed() {
    let head = ".version 8.0 .target sm_80 .address_size 64 ";
    for text in [
        ".global .b8 a[99999999999999999999];",
        ".global .b64 a[4294967296];",
        ".global .b8 a[65536][65536][65536];",
        ".shared .align 4 .b8 s[200000000]; .entry k() { ret; }",
        ".entry k() { .reg .b32 %r<4000000000>; ret; }",
        ".entry k() { .local .b8 l[268435456]; .local .b8 m[268435456]; ret; }",
        ".global .align 3 .b8 a[4];",
        ".entry k() {",
        ".entry k( { ret; }",
        "/* no end",
        ".file 1 \"no end",
        ".entry k() { @; }",
        ".entry k() { bra; }",
        ".entry k() { ret }",
        ".entry k() { A: A: ret; }",
        ".entry k() { .reg .b32 %r; .reg .b32 %r; ret; }",
        ".entry k() { mov.b32 {a, b, c}, 5; }",
        ".entry k() { ld.param.u32 _, [-99999999999999999999]; }",
        ".entry k() { .reg .b32 r; setp.; selp; call; brx.idx r, r; }",
        ".func f() { call f, (); ret; }",
        ".global .u32 a[2] = {1, 2, 3};",
        ".global .u32 a[] = {};",
        "\u{0}\u{feff}é☃",
    ] {
        assert!(Module::parse("claim", &format!("{head}{text}")).is_err(), "{text}");
    }
    let deep = format!("{head}.entry k() {{{}", "{".repeat(100_000));
    assert!(Module::parse("deep", &deep).is_err());
    let nested = format!("{head}.entry k() {{ mov.b32 {}1", "{".repeat(100_000));
    assert!(Module::parse("deep", &nested).is_err());
    // Functions that call one another in a long chain.
    let mut chain = format!("{head}.func f0() {{ ret; }}");
    for i in 1..2000 {
        chain += &format!(".func f{i}() {{ call f{}, (); ret; }}", i - 1);
    }
    exercise(&(chain + ".entry k() { call f1999, (); ret; }"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Lines removed, doubled, swapped; words replaced by others of the text or by numbers.
    #[test]
    fn mangled_kernels(kernel in 0..KERNELS.len(), edits in prop::collection::vec((any::<u32>(), any::<u32>(), 0..7u8), 1..6)) {
        let text = kernel_text(KERNELS[kernel]);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (first, second, kind) in edits {
            let (first, second) = (first as usize % lines.len(), second as usize % lines.len());
            match kind {
                0 => { lines.remove(first); }
                1 => { let line = lines[second].clone(); lines.insert(first, line); }
                2 => lines.swap(first, second),
                3 => lines[first] = lines[first].replace("%r", "%rd"),
                4 => lines[first] = lines[first].replace(['1', '4'], "7"),
                5 => lines[first] = lines[first].replace("0", "4294967295"),
                _ => {
                    let words: Vec<&str> = lines[second].split_whitespace().collect();
                    let word = words.last().copied().unwrap_or(";").to_owned();
                    let half = lines[first].len() / 2;
                    let half = lines[first].floor_char_boundary(half);
                    lines[first].replace_range(half.., &word);
                }
            }
        }
        exercise(&lines.join("\n"));
    }

    /// Any bytes somewhere in a kernel.
    #[test]
    fn noise_in_kernels(kernel in 0..KERNELS.len(), at in any::<u32>(), noise in "[ -~\\n]{0,12}", cut in 0..20usize) {
        let text = kernel_text(KERNELS[kernel]);
        let at = text.floor_char_boundary(at as usize % text.len());
        let end = text.floor_char_boundary((at + cut).min(text.len()));
        exercise(&format!("{}{noise}{}", &text[..at], &text[end..]));
    }

    /// Words of PTX in any order.
    #[test]
    fn soup(words in prop::collection::vec(prop::sample::select(vec![
        ".entry", ".func", "k", "(", ")", "{", "}", ";", ",", ".reg", ".b32", ".pred", "%r<9>", "%p<3>", "%r1", "%r2", "%p1", "@", "!",
        "[", "]", "+", "-", "1", "0f3F800000", ".param", ".u64", ".shared", ".align", "4", ".b8", "a[8]", "add.u32", "mov.u32", "ret",
        "bra", "L:", "L", "setp.lt.u32", "ld.shared.u32", "st.shared.u32", "bar.sync", "0", "=", "|", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        "cp.async.wait_all", "shfl.sync.idx.b32", ".loc", ".file", "\"x\"", ".section", ".visible", ".extern", ".global", "call",
    ]), 0..60)) {
        exercise(&format!(".version 8.0 .target sm_80 .address_size 64 {}", words.join(" ")));
    }
}
