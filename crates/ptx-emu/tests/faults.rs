//! Mistakes put into kernels on purpose, each of which must be caught: by a fault, or, where a kernel breaks no rule and
//! only computes something else, by comparison with the CPU.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use ptx_emu::{Checks, Fault, FaultKind, Module};
use support::{
    Outcome, attention, gemm_q4, gemm_q8, histogram, kernel_text, reverse_in_warp, rms_norm_q8, row_statistics,
};

/// How a mistake shows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Caught {
    /// A fault of this kind, at a line with this text.
    By(FaultKind, &'static str),
    /// A fault of one of these kinds, as the order of warps decides.
    ByOneOf(&'static [FaultKind], &'static str),
    /// Only the results are wrong.
    ByComparison,
}

/// An edit of a text.
enum Edit {
    /// The kernel was compiled with the mistake in its source.
    Source(&'static str),
    /// Every occurrence of a text is replaced.
    All(&'static str, &'static str),
    /// Only the occurrence with this number is.
    Nth(usize, &'static str, &'static str),
}

type Launcher = fn(&Module) -> Result<Outcome, Fault>;

struct Mistake {
    name: &'static str,
    kernel: &'static str,
    edit: Edit,
    launch: Launcher,
    caught: Caught,
}

fn q8(module: &Module) -> Result<Outcome, Fault> {
    gemm_q8(module, [70, 37, 256], 4)
}
fn q4(module: &Module) -> Result<Outcome, Fault> {
    gemm_q4(module, [48, 19, 96], 2)
}
fn norm(module: &Module) -> Result<Outcome, Fault> {
    rms_norm_q8(module, [2, 256], 2)
}
fn statistics(module: &Module) -> Result<Outcome, Fault> {
    row_statistics(module, [3, 600, 4], 1)
}
fn counts(module: &Module) -> Result<Outcome, Fault> {
    histogram(module, 1000, 1)
}
fn attend(module: &Module) -> Result<Outcome, Fault> {
    attention(module, 2, 45, 4)
}
fn reverse(module: &Module) -> Result<Outcome, Fault> {
    reverse_in_warp(module, 1)
}

const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "no wait for asynchronous copies",
        kernel: "gemm_q8",
        edit: Edit::All("cp.async.wait_group", "// cp.async.wait_group"),
        launch: q8,
        caught: Caught::By(FaultKind::PendingCopy, "ld.shared"),
    },
    Mistake {
        name: "a wait that leaves one group too many pending",
        kernel: "gemm_q8",
        edit: Edit::All("cp.async.wait_group 1;", "cp.async.wait_group 2;"),
        launch: q8,
        caught: Caught::By(FaultKind::PendingCopy, "ld.shared"),
    },
    Mistake {
        name: "the last wait leaves a group pending",
        kernel: "gemm_q8",
        edit: Edit::All("cp.async.wait_group 0;", "cp.async.wait_group 1;"),
        launch: q8,
        caught: Caught::By(FaultKind::PendingCopy, "ld.shared"),
    },
    Mistake {
        name: "no barrier between the arrival of a stage and its use",
        kernel: "gemm_q8",
        edit: Edit::Nth(0, "bar.sync", "// bar.sync"),
        launch: q8,
        caught: Caught::ByOneOf(&[FaultKind::SharedRace, FaultKind::Uninitialised], "ld.shared"),
    },
    Mistake {
        name: "no barrier between the use of a stage and the copy that overwrites it",
        kernel: "gemm_q8",
        edit: Edit::Nth(1, "bar.sync", "// bar.sync"),
        launch: q8,
        caught: Caught::By(FaultKind::SharedRace, "cp.async"),
    },
    Mistake {
        name: "the copy of the next stage into the one in use",
        kernel: "gemm_q8",
        edit: Edit::Source("one_stage"),
        launch: q8,
        caught: Caught::By(FaultKind::PendingCopy, "cp.async"),
    },
    Mistake {
        name: "one step too many along the inner dimension",
        kernel: "gemm_q8",
        edit: Edit::Source("off_by_one_step"),
        launch: q8,
        caught: Caught::By(FaultKind::OutOfBounds, "ld.global"),
    },
    Mistake {
        name: "rows beyond the last",
        kernel: "gemm_q8",
        edit: Edit::Source("unclamped_row"),
        launch: q8,
        caught: Caught::By(FaultKind::OutOfBounds, "cp.async"),
    },
    Mistake {
        name: "results stored in the wrong lane layout",
        kernel: "gemm_q8",
        edit: Edit::Source("wrong_layout"),
        launch: q8,
        caught: Caught::ByComparison,
    },
    Mistake {
        name: "rows whose length is no multiple of a copy",
        kernel: "gemm_q8",
        edit: Edit::Source("misaligned_rows"),
        launch: q8,
        caught: Caught::By(FaultKind::Misaligned, "cp.async"),
    },
    Mistake {
        name: "tiles of two blocks that overlap",
        kernel: "gemm_q8",
        edit: Edit::Source("overlapping_tiles"),
        launch: q8,
        caught: Caught::By(FaultKind::GlobalRace, "st.global"),
    },
    Mistake {
        name: "no wait before a named barrier",
        kernel: "gemm_q4",
        edit: Edit::All("cp.async.wait_all;", ""),
        launch: q4,
        caught: Caught::By(FaultKind::PendingCopy, "ld.shared"),
    },
    Mistake {
        name: "a named barrier of three warps where two come",
        kernel: "gemm_q4",
        edit: Edit::Nth(0, ", 64;", ", 96;"),
        launch: q4,
        caught: Caught::By(FaultKind::Deadlock, "bar.sync"),
    },
    Mistake {
        name: "one named barrier for both pairs of warps",
        kernel: "gemm_q4",
        edit: Edit::Nth(1, "bar.sync %r", "bar.sync 7, 64; // "),
        launch: q4,
        caught: Caught::By(FaultKind::SharedRace, "cp.async"),
    },
    Mistake {
        name: "a barrier in either branch instead of one after both",
        kernel: "rows",
        edit: Edit::Source("divergent_barrier"),
        launch: norm,
        caught: Caught::By(FaultKind::Divergence, "bar.sync"),
    },
    Mistake {
        name: "a shuffle that one lane skips",
        kernel: "rows",
        edit: Edit::Source("divergent_shuffle"),
        launch: norm,
        caught: Caught::By(FaultKind::Operand, "shfl.sync"),
    },
    Mistake {
        name: "partial sums of warps that don't exist",
        kernel: "rows",
        edit: Edit::Source("unwritten_partials"),
        launch: norm,
        caught: Caught::By(FaultKind::Uninitialised, "ld.shared"),
    },
    Mistake {
        name: "warps that leave before a barrier",
        kernel: "rows",
        edit: Edit::Source("some_warps_leave"),
        launch: statistics,
        caught: Caught::By(FaultKind::Deadlock, "bar.sync"),
    },
    Mistake {
        name: "no fence before others are told of a result",
        kernel: "rows",
        edit: Edit::All("membar.gl;", ""),
        launch: statistics,
        caught: Caught::By(FaultKind::GlobalRace, "ld.global"),
    },
    Mistake {
        name: "counting in shared memory without atomics",
        kernel: "rows",
        edit: Edit::All(
            "red.shared.add.u32 [%r16], 1;",
            "{ .reg .b32 t; ld.shared.u32 t, [%r16]; add.u32 t, t, 1; st.shared.u32 [%r16], t; }",
        ),
        launch: counts,
        caught: Caught::By(FaultKind::SharedRace, ".shared"),
    },
    Mistake {
        name: "counting in global memory without atomics",
        kernel: "rows",
        edit: Edit::All(
            "red.global.add.u32 [%rd22], %r18;",
            "{ .reg .b32 t; ld.global.u32 t, [%rd22]; add.u32 t, t, %r18; st.global.u32 [%rd22], t; }",
        ),
        launch: counts,
        caught: Caught::By(FaultKind::GlobalRace, "ld.global"),
    },
    Mistake {
        name: "lanes that exchange values without synchronisation",
        kernel: "rows",
        edit: Edit::All("bar.warp.sync -1;", ""),
        launch: reverse,
        caught: Caught::By(FaultKind::SharedRace, "ld.shared"),
    },
    Mistake {
        name: "a read of the wrong kind of matrix",
        kernel: "attention",
        edit: Edit::All(".x2.trans", ".x2"),
        launch: attend,
        caught: Caught::ByComparison,
    },
    Mistake {
        name: "keys beyond the end that aren't masked",
        kernel: "attention",
        edit: Edit::Source("unmasked_tail"),
        launch: attend,
        caught: Caught::ByComparison,
    },
    Mistake {
        name: "half of the product of a matrix",
        kernel: "attention",
        edit: Edit::Nth(5, "mma.sync", "// mma.sync"),
        launch: attend,
        caught: Caught::ByComparison,
    },
    Mistake {
        name: "a loop that never advances",
        kernel: "histogram",
        edit: Edit::All("", ""),
        launch: counts,
        caught: Caught::By(FaultKind::Budget, ""),
    },
];

fn mutate(mistake: &Mistake) -> String {
    let kernel = if mistake.kernel == "histogram" { "rows" } else { mistake.kernel };
    let text = kernel_text(kernel);
    let mutant = match mistake.edit {
        Edit::Source(fault) => kernel_text(&format!("{kernel}.{fault}")),
        Edit::All("", _) => without_advance(&text),
        Edit::All(from, to) => text.replace(from, to),
        Edit::Nth(n, from, to) => {
            let (at, _) = text.match_indices(from).nth(n).unwrap_or_else(|| panic!("{}: no `{from}`", mistake.name));
            format!("{}{to}{}", &text[..at], &text[at + from.len()..])
        }
    };
    assert_ne!(text, mutant, "{}: nothing changed", mistake.name);
    mutant
}

/// The loop over the values of `histogram` without its increment.
fn without_advance(text: &str) -> String {
    let kernel = text.find(".entry histogram").unwrap();
    let red = kernel + text[kernel..].find("red.shared").unwrap();
    let add = red + text[red..].find("add.s32").unwrap();
    let end = add + text[add..].find('\n').unwrap();
    format!("{}{}", &text[..add], &text[end..])
}

fn catch(mistake: &Mistake) -> Result<(), String> {
    let module = Module::parse("mutant.ptx", &mutate(mistake)).map_err(|error| error.to_string())?;
    let mut checks = Checks::default();
    checks.budget = 1 << 22;
    match ((mistake.launch)(&module.with_checks(checks)), mistake.caught) {
        (Err(fault), Caught::By(kind, text)) if fault.kind() == kind && fault.report().text.contains(text) => Ok(()),
        (Err(fault), Caught::ByOneOf(kinds, text))
            if kinds.contains(&fault.kind()) && fault.report().text.contains(text) =>
        {
            Ok(())
        }
        (Err(fault), _) => Err(format!("{fault}")),
        (Ok(outcome), Caught::ByComparison) if outcome.error() > 1e-2 => Ok(()),
        (Ok(outcome), _) => Err(format!("not caught; error {}", outcome.error())),
    }
}

#[test]
fn every_mistake_is_caught() {
    let missed: Vec<String> = MISTAKES
        .iter()
        .filter_map(|mistake| {
            catch(mistake).err().map(|found| format!("{}: expected {:?}, found {found}", mistake.name, mistake.caught))
        })
        .collect();
    assert!(missed.is_empty(), "{} of {} missed:\n{}", missed.len(), MISTAKES.len(), missed.join("\n"));
    assert!(MISTAKES.len() >= 12);
}

/// The same kernels without mistakes break no rule, in many orders of warps and blocks.
#[test]
fn without_mistakes_there_is_no_fault() {
    for (kernel, launch) in [("gemm_q8", q8 as Launcher), ("gemm_q4", q4), ("attention", attend)] {
        let outcome = launch(&support::module(kernel)).unwrap();
        assert!(outcome.error() < 2e-3);
    }
    let rows = support::module("rows");
    for launch in [norm as Launcher, statistics, counts, reverse] {
        launch(&rows).unwrap();
    }
}
