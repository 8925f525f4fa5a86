//! Loops of nothing but arithmetic on registers: what a core can do at most.

use std::arch::asm;

use super::super::kernels::Peak;

/// Repetitions of a loop's body per call: a fraction of a millisecond.
const ROUNDS: usize = 5_000;

/// A loop around an instruction on sixteen independent sums, `$macs` multiply-accumulates each, for processors with
/// `$feature`.
macro_rules! sixteen {
    ($name:ident, $feature:literal, $macs:literal, $operation:literal, $operands:literal) => {
        fn $name() -> usize {
            #[target_feature(enable = $feature)]
            fn repeat() {
                // SAFETY: registers only, all declared.
                unsafe {
                    asm!(
                        "movi v16.16b, #0",
                        "2:",
                        sixteen!(@ $operation, $operands, "0"), sixteen!(@ $operation, $operands, "1"),
                        sixteen!(@ $operation, $operands, "2"), sixteen!(@ $operation, $operands, "3"),
                        sixteen!(@ $operation, $operands, "4"), sixteen!(@ $operation, $operands, "5"),
                        sixteen!(@ $operation, $operands, "6"), sixteen!(@ $operation, $operands, "7"),
                        sixteen!(@ $operation, $operands, "17"), sixteen!(@ $operation, $operands, "18"),
                        sixteen!(@ $operation, $operands, "19"), sixteen!(@ $operation, $operands, "20"),
                        sixteen!(@ $operation, $operands, "21"), sixteen!(@ $operation, $operands, "22"),
                        sixteen!(@ $operation, $operands, "23"), sixteen!(@ $operation, $operands, "24"),
                        "subs {rounds}, {rounds}, #1",
                        "b.ne 2b",
                        rounds = inout(reg) ROUNDS => _,
                        out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _,
                        out("v7") _, out("v16") _, out("v17") _, out("v18") _, out("v19") _, out("v20") _,
                        out("v21") _, out("v22") _, out("v23") _, out("v24") _,
                        options(nomem, nostack),
                    );
                }
            }
            // SAFETY: peaks are handed out only after their features were detected.
            unsafe { repeat() }
            ROUNDS * 16 * $macs
        }
    };
    (@ $operation:literal, $operands:literal, $number:literal) => {
        concat!($operation, " v", $number, ".4s, ", $operands)
    };
}

sixteen!(sdot, "neon,dotprod", 16, "sdot", "v16.16b, v16.16b");
sixteen!(smmla, "neon,i8mm", 32, "smmla", "v16.16b, v16.16b");
sixteen!(fmla, "neon", 4, "fmla", "v16.4s, v16.4s");

pub(super) static DOT: &[Peak] = &[Peak { name: "sdot", run: sdot }, Peak { name: "fmla", run: fmla }];
pub(super) static I8MM: &[Peak] = &[Peak { name: "smmla", run: smmla }, Peak { name: "fmla", run: fmla }];
