//! Every rule bites, and its fault says where; what keeps the rules passes.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use ptx_emu::{Checks, Fault, FaultKind, Launch, Memory, MemoryError, Module, Param};
use support::upload;

/// A kernel on a buffer of 64 words, `%d1`; `%r1` is the thread, `%d2` the place of its word, `%r2` the block.
fn try_run(body: &str, grid: u32, threads: u32, checks: Checks) -> Result<(), Fault> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.const .align 4 .u32 constant = 5;\n.visible .entry k(.param .u64 in)\n{{\n\
        .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>;\n.shared .align 16 .b8 s[512];\n\
        .local .align 8 .b8 l[16];\nld.param.u64 %d1, [in];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmul.wide.u32 %d2, %r1, 4;\n\
        mov.u64 %d3, s;\nadd.s64 %d3, %d3, %d2;\nadd.s64 %d2, %d2, %d1;\n{body}\nret;\n}}\n"
    );
    let module = Module::parse("case", &text).unwrap_or_else(|error| panic!("{error}\n{text}")).with_checks(checks);
    let mut memory = Memory::new();
    let buffer = upload(&mut memory, &[3u32; 64]);
    let launch = Launch { grid: [grid, 1, 1], block: [threads, 1, 1], dynamic_shared: 0, seed: 4 };
    module.launch("k", &launch, &[Param::U64(buffer)], &mut memory).map(|_| ())
}

fn checks() -> Checks {
    let mut checks = Checks::default();
    checks.budget = 100_000;
    checks
}

#[test]
fn each_rule_bites() {
    use FaultKind::*;
    let cases: &[(FaultKind, u32, u32, &str, &str)] = &[
        (OutOfBounds, 1, 32, "one word past the end", "ld.global.u32 %r3, [%d2+132];"),
        (OutOfBounds, 1, 32, "before the beginning", "st.global.u32 [%d2+-4], %r1;"),
        (OutOfBounds, 1, 1, "no address at all", "mov.u64 %d4, 0; ld.global.u32 %r3, [%d4];"),
        (OutOfBounds, 1, 1, "a vector that begins inside", "ld.global.v4.u32 {%r3,%r4,%r5,%r6}, [%d1+256];"),
        (OutOfBounds, 1, 32, "past shared memory", "st.shared.u32 [%d3+512], %r1;"),
        (OutOfBounds, 1, 32, "past local memory", "mov.u64 %d4, l; st.local.u64 [%d4+16], %d1;"),
        (OutOfBounds, 1, 1, "past the parameters", "ld.param.u64 %d4, [in+8];"),
        (OutOfBounds, 1, 1, "an atomic", "red.global.add.u32 [%d1+256], 1;"),
        (Misaligned, 1, 1, "a word", "ld.global.u32 %r3, [%d1+2];"),
        (Misaligned, 1, 1, "a vector", "ld.global.v2.u32 {%r3, %r4}, [%d1+4];"),
        (Misaligned, 1, 1, "shared memory", "st.shared.u16 [%d3+1], 1;"),
        (Misaligned, 1, 1, "local memory", "mov.u64 %d4, l; st.local.u32 [%d4+1], 1;"),
        (
            Misaligned,
            1,
            32,
            "a row of a matrix",
            "st.shared.u32 [%d3], 1; mov.u32 %r3, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];",
        ),
        (
            Misaligned,
            1,
            1,
            "the source of a copy",
            "mov.u32 %r3, s; add.s64 %d4, %d1, 8; cp.async.cg.shared.global [%r3], [%d4], 16;",
        ),
        (Uninitialised, 1, 32, "shared memory", "ld.shared.u32 %r3, [%d3];"),
        (Uninitialised, 1, 1, "half of a word", "st.shared.u16 [s], 1; ld.shared.u32 %r3, [s];"),
        (
            SharedRace,
            1,
            64,
            "write and read of two warps",
            "st.shared.u32 [%d3], 0; bar.sync 0; st.shared.u32 [%d3], %r1; xor.b32 %r3, %r1, 32; mul.wide.u32 %d4, %r3, 4; mov.u64 %d5, s; add.s64 %d4, %d4, %d5; ld.shared.u32 %r4, [%d4];",
        ),
        (SharedRace, 1, 64, "two writes", "st.shared.u32 [s], %r1;"),
        (SharedRace, 1, 64, "two writes of one value by two warps", "st.shared.u32 [s], 1;"),
        (SharedRace, 1, 32, "different values of one warp", "st.shared.u32 [s], %r1;"),
        (
            SharedRace,
            1,
            32,
            "lanes without synchronisation",
            "st.shared.u32 [%d3], %r1; xor.b32 %r3, %r1, 1; mul.wide.u32 %d4, %r3, 4; mov.u64 %d5, s; add.s64 %d4, %d4, %d5; ld.shared.u32 %r4, [%d4];",
        ),
        (
            SharedRace,
            1,
            64,
            "a read that a write overtakes",
            "setp.lt.u32 %p1, %r1, 32; @%p1 st.shared.u32 [%d3], 1; bar.sync 0; ld.shared.u32 %r3, [s]; st.shared.u32 [s], %r3;",
        ),
        (
            SharedRace,
            1,
            64,
            "an atomic and a plain read",
            "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [s], 0; bar.sync 0; red.shared.add.u32 [s], 1; ld.shared.u32 %r3, [s];",
        ),
        (
            SharedRace,
            1,
            64,
            "a copy that only its own warp waited for",
            "mov.u32 %r3, s; cvt.u64.u32 %d4, %r1; and.b64 %d4, %d4, 15; shl.b64 %d4, %d4, 4; add.s64 %d4, %d4, %d1; mad.lo.u32 %r3, %r1, 4, %r3; setp.lt.u32 %p1, %r1, 32; @%p1 cp.async.ca.shared.global [%r3], [%d4], 4; cp.async.wait_all; xor.b32 %r5, %r1, 32; @%p1 bra E; bar.warp.sync -1; and.b32 %r5, %r1, 31; mul.wide.u32 %d5, %r5, 4; mov.u64 %d6, s; add.s64 %d5, %d5, %d6; st.shared.u32 [%d5], 1; E:",
        ),
        (
            PendingCopy,
            1,
            1,
            "read before the wait",
            "mov.u32 %r3, s; cp.async.cg.shared.global [%r3], [%d1], 16; cp.async.commit_group; ld.shared.u32 %r4, [s];",
        ),
        (
            PendingCopy,
            1,
            1,
            "write before the wait",
            "mov.u32 %r3, s; cp.async.ca.shared.global [%r3], [%d1], 8; st.shared.u8 [s+7], 1;",
        ),
        (
            PendingCopy,
            1,
            1,
            "the group isn't committed",
            "mov.u32 %r3, s; cp.async.cg.shared.global [%r3], [%d1], 16; cp.async.wait_group 0; ld.shared.u32 %r4, [s];",
        ),
        (
            PendingCopy,
            1,
            1,
            "one of two groups",
            "mov.u32 %r3, s; cp.async.cg.shared.global [%r3], [%d1], 16; cp.async.commit_group; cp.async.cg.shared.global [%r3+16], [%d1], 16; cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r4, [s]; ld.shared.u32 %r4, [s+16];",
        ),
        (GlobalRace, 2, 1, "two blocks write", "st.global.u32 [%d1], %r2;"),
        (GlobalRace, 2, 1, "two blocks write half a word", "st.global.u16 [%d1], 1;"),
        (
            GlobalRace,
            2,
            1,
            "one reads what the other writes",
            "setp.eq.u32 %p1, %r2, 0; @%p1 st.global.u32 [%d1], 1; @!%p1 ld.global.u32 %r3, [%d1];",
        ),
        (GlobalRace, 2, 1, "an atomic and a plain read", "red.global.add.u32 [%d1], 1; ld.global.u32 %r3, [%d1];"),
        (
            GlobalRace,
            2,
            1,
            "an atomic without fence",
            "st.global.u32 [%d1], 1; red.global.add.u32 [%d1+4], 1; ld.global.u32 %r3, [%d1];",
        ),
        (GlobalRace, 1, 1, "the read-only path", "st.global.u32 [%d1], 1; ld.global.nc.u32 %r3, [%d1];"),
        (
            Divergence,
            1,
            32,
            "a barrier for half a warp",
            "setp.lt.u32 %p1, %r1, 16; @%p1 bar.sync 0; @!%p1 bar.sync 0;",
        ),
        (Divergence, 1, 32, "lanes that left", "setp.lt.u32 %p1, %r1, 16; @%p1 ret; bar.sync 0;"),
        (
            Divergence,
            1,
            16,
            "a matrix for half a warp",
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r3,%r4,%r5,%r6}, {%r1,%r1}, {%r1}, {%r1,%r1,%r1,%r1};",
        ),
        (
            Divergence,
            1,
            32,
            "a vote in two places",
            "setp.lt.u32 %p1, %r1, 16; @%p1 bra A; vote.sync.ballot.b32 %r3, %p1, -1; bra B; A: vote.sync.ballot.b32 %r3, %p1, -1; B:",
        ),
        (Deadlock, 1, 64, "a barrier that one warp skips", "setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0;"),
        (Deadlock, 1, 64, "two barriers", "setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 1; B:"),
        (Budget, 1, 1, "a loop without end", "A: bra A;"),
        (Trap, 1, 1, "trap", "trap;"),
        (
            Operand,
            1,
            32,
            "a shuffle out of nowhere",
            "setp.lt.u32 %p1, %r1, 16; @%p1 ret; shfl.sync.bfly.b32 %r3, %r1, 16, 31, -1;",
        ),
        (Operand, 1, 32, "a lane that isn't a member", "vote.sync.ballot.b32 %r3, 1, 0xffff;"),
        (Operand, 1, 1, "an index without target", "L: .branchtargets A; mov.u32 %r3, 1; brx.idx %r3, L; A:"),
        (Operand, 1, 32, "a barrier for too many", "bar.sync 0, 64;"),
        (Operand, 1, 32, "a barrier that isn't there", "bar.sync 16;"),
        (Operand, 1, 1, "a copy longer than itself", "mov.u32 %r3, s; cp.async.ca.shared.global [%r3], [%d1], 4, 8;"),
        (Operand, 1, 1, "an atomic on local memory", "mov.u64 %d4, l; cvta.local.u64 %d4, %d4; red.add.u32 [%d4], 1;"),
    ];
    for (kind, grid, threads, name, body) in cases {
        let Err(fault) = try_run(body, *grid, *threads, checks()) else { panic!("{name}: no fault") };
        assert_eq!(fault.kind(), *kind, "{name}: {fault}");
        let report = fault.report();
        assert_eq!(report.kernel, "k", "{name}");
        assert_eq!(report.text, *body, "{name}: line {}", report.line);
        assert!(report.warp.is_some(), "{name}");
    }
}

#[test]
fn what_keeps_the_rules_passes() {
    for (grid, threads, body) in [
        // Parts of a word belong to different lanes, warps and blocks.
        (
            1,
            64,
            "cvt.u64.u32 %d4, %r1; mov.u64 %d5, s; add.s64 %d4, %d4, %d5; st.shared.u8 [%d4], 1; bar.sync 0; ld.shared.v4.u32 {%r3,%r4,%r5,%r6}, [s];",
        ),
        (2, 1, "mul.wide.u32 %d4, %r2, 2; add.s64 %d4, %d4, %d1; st.global.u16 [%d4], 1;"),
        // One value by one instruction.
        (1, 32, "st.shared.u32 [s], 1; bar.sync 0; ld.shared.u32 %r3, [s];"),
        // Atomics by all, then a barrier.
        (
            1,
            64,
            "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [s], 0; bar.sync 0; red.shared.add.u32 [s], 1; bar.sync 0; ld.shared.u32 %r3, [s];",
        ),
        (2, 32, "red.global.add.u32 [%d1], 1;"),
        // A copy of which the rest is zero, and one of nothing from nowhere.
        (
            1,
            1,
            "mov.u32 %r3, s; cp.async.cg.shared.global [%r3], [%d1+240], 16, 4; cp.async.ca.shared.global [%r3+16], [%d1+1024], 8, 0; cp.async.wait_all; ld.shared.v2.u32 {%r4, %r5}, [s+16];",
        ),
        // The wait for all but the last group.
        (
            1,
            1,
            "mov.u32 %r3, s; cp.async.cg.shared.global [%r3], [%d1], 16; cp.async.commit_group; cp.async.cg.shared.global [%r3+16], [%d1], 16; cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r4, [s]; cp.async.wait_group 0; ld.shared.u32 %r4, [s+16];",
        ),
        // Whoever comes last, after a fence and an atomic, may read what the others wrote.
        (
            2,
            1,
            "mul.wide.u32 %d4, %r2, 4; add.s64 %d4, %d4, %d1; st.global.u32 [%d4+8], 9; membar.gl; atom.global.add.u32 %r3, [%d1], 1; setp.eq.u32 %p1, %r3, 4; membar.gl; @%p1 ld.global.v2.u32 {%r4, %r5}, [%d1+8];",
        ),
        // Lanes that leave before a barrier of others don't matter to other warps' shuffles.
        (1, 32, "setp.lt.u32 %p1, %r1, 16; @%p1 ret; shfl.sync.bfly.b32 %r3, %r1, 1, 31, 0xffff0000;"),
        (1, 48, "bar.sync 0;"),
        (1, 1, "ld.const.u32 %r3, [constant]; prefetch.global.L2 [%d1]; nanosleep.u32 20; fence.acq_rel.gpu; exit;"),
    ] {
        try_run(body, grid, threads, checks()).unwrap_or_else(|fault| panic!("{body}: {fault}"));
    }
}

#[test]
fn checks_can_be_turned_off() {
    let mut lax = checks();
    lax.uninitialised = false;
    try_run("ld.shared.u32 %r3, [%d3];", 1, 32, lax).unwrap();
    lax.races = false;
    try_run("st.shared.u32 [s], %r1; st.global.u32 [%d1], %r2;", 2, 64, lax).unwrap();
    // Copies under way are no matter of races.
    let body = "mov.u32 %r3, s; cp.async.cg.shared.global [%r3], [%d1], 16; ld.shared.u32 %r4, [s];";
    assert_eq!(try_run(body, 1, 1, lax).unwrap_err().kind(), FaultKind::PendingCopy);
}

#[test]
fn the_message_holds_all_of_it() {
    let fault = try_run("mov.u32 %r3, 7;\nst.global.u32 [%d2+256], %r3;", 3, 40, checks()).unwrap_err();
    let text = fault.to_string();
    for part in ["kernel `k`", "out of bounds", "case:18", "st.global.u32 [%d2+256], %r3;", "warp", "lane", "256"] {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    assert!(!text.contains('\n'));
}

#[test]
fn launches_are_checked() {
    let text = ".version 8.0 .target sm_80 .address_size 64
        .visible .entry a(.param .u64 p, .param .u32 n) .maxntid 128, 1, 1 { .shared .b8 s[1024]; ret; }
        .visible .entry b() .reqntid 64, 2, 1 { ret; }";
    let module = Module::parse("m", text).unwrap();
    assert!(module.kernels().eq(["a", "b"]));
    let go = |kernel: &str, block: [u32; 3], grid: [u32; 3], dynamic_shared: u32, params: &[Param]| {
        let launch = Launch { grid, block, dynamic_shared, seed: 0 };
        module.launch(kernel, &launch, params, &mut Memory::new()).map_err(|fault| {
            assert_eq!(fault.kind(), FaultKind::Launch);
            fault.to_string()
        })
    };
    let good = [Param::U64(0), Param::I32(5)];
    assert_eq!(go("a", [128, 1, 1], [1; 3], 2048, &good).unwrap().shared_bytes, 3072);
    assert!(go("b", [64, 2, 1], [1; 3], 0, &[]).is_ok());
    for (result, expected) in [
        (go("c", [1; 3], [1; 3], 0, &[]), "no such kernel"),
        (go("a", [1; 3], [1; 3], 0, &good[..1]), "takes 2"),
        (go("a", [1; 3], [1; 3], 0, &[Param::U32(0), Param::U32(5)]), "`p` has 8 bytes"),
        (go("a", [129, 1, 1], [1; 3], 0, &good), "at most 128"),
        (go("b", [128, 1, 1], [1; 3], 0, &[]), "requires"),
        (go("a", [0, 1, 1], [1; 3], 0, &good), "empty"),
        (go("a", [1; 3], [1, 0, 1], 0, &good), "empty"),
        (go("a", [1; 3], [u32::MAX; 3], 0, &good), "at most"),
        (go("a", [1; 3], [1; 3], 1 << 20, &good), "shared memory"),
    ] {
        let text = result.unwrap_err();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn memory_is_checked_too() {
    let mut memory = Memory::with_limit(1 << 20);
    let (a, b) = (memory.alloc(100).unwrap(), memory.alloc(100).unwrap());
    assert!(a % 256 == 0 && b % 256 == 0 && b - a > 1 << 20);
    let mut bytes = [0; 100];
    memory.read(a, &mut bytes).unwrap();
    assert_eq!(bytes, [0xa5; 100]);
    memory.write(a + 10, &[1, 2]).unwrap();
    assert!(memory.is_written(a + 10, 2).unwrap() && !memory.is_written(a + 10, 3).unwrap());
    assert!(matches!(memory.alloc(1 << 20), Err(MemoryError::OutOfMemory { in_use: 200, .. })));
    for (result, expected) in [
        (memory.write(a + 99, &[1, 2]), "byte 99 of the 100"),
        (memory.read(a - 1, &mut bytes[..1]), "cannot read 1 bytes"),
        (memory.free(a + 1), "begins at"),
        (memory.write(0, &[1]), "no allocation"),
    ] {
        assert!(result.as_ref().unwrap_err().to_string().contains(expected), "{result:?}");
    }
    memory.free(a).unwrap();
    assert_eq!(memory.in_use(), 100);
    assert!(memory.write(a, &[1]).unwrap_err().to_string().contains("freed"));
    let empty = memory.alloc(0).unwrap();
    assert!(empty > b && memory.read(empty, &mut []).is_ok());
}
