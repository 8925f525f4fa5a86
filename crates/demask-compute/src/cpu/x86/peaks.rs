//! Loops of nothing but arithmetic on registers: what a core can do at most.

use std::arch::asm;

use super::super::kernels::Peak;

/// Repetitions of a loop's body per call: a fraction of a millisecond.
const ROUNDS: usize = 5_000;

/// A loop around `$body`, which does `$macs` multiply-accumulates.
macro_rules! peak {
    ($name:ident, $macs:expr, [$($body:expr),* $(,)?]) => {
        fn $name() -> usize {
            // SAFETY: registers only, all declared; peaks are handed out only after their features were detected.
            unsafe {
                asm!(
                    "vpcmpeqw ymm15, ymm15, ymm15",
                    "vpsrlw ymm15, ymm15, 15",
                    "vpackuswb ymm14, ymm15, ymm15",
                    "vpxor ymm13, ymm13, ymm13",
                    "2:",
                    $($body,)*
                    "dec {rounds}",
                    "jnz 2b",
                    "vzeroupper",
                    rounds = inout(reg) ROUNDS => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                    out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nomem, nostack),
                );
            }
            ROUNDS * $macs
        }
    };
}

/// One 16-bit sum of `vpmaddubsw` results, widened and added to a 32-bit one: the first multiplication starts it, one
/// more follows per `$more`.
macro_rules! sum {
    ($s:literal, $t:literal, $acc:literal $(, $more:tt)*) => {
        concat!(
            "vpmaddubsw ", $s, ", ymm14, ymm14\n",
            $("vpmaddubsw ", $t, ", ymm14, ymm14\nvpaddw ", $s, ", ", $s, ", ", $t, "\n", sum!(@ $more),)*
            "vpmaddwd ", $s, ", ", $s, ", ymm15\nvpaddd ", $acc, ", ", $acc, ", ", $s,
        )
    };
    (@ $more:tt) => { "" };
}

/// Four independent sums.
macro_rules! maddubs {
    ($name:ident, $per_sum:literal $(, $more:tt)*) => {
        peak!($name, 4 * $per_sum * 32, [
            sum!("ymm0", "ymm4", "ymm8" $(, $more)*),
            sum!("ymm1", "ymm5", "ymm9" $(, $more)*),
            sum!("ymm2", "ymm6", "ymm10" $(, $more)*),
            sum!("ymm3", "ymm7", "ymm11" $(, $more)*),
        ]);
    };
}

/// The same instruction on twelve independent sums.
macro_rules! twelve {
    ($name:ident, $macs:literal, $operation:literal, $register:literal) => {
        peak!($name, 12 * $macs, [
            twelve!(@ $operation, $register, "0"), twelve!(@ $operation, $register, "1"),
            twelve!(@ $operation, $register, "2"), twelve!(@ $operation, $register, "3"),
            twelve!(@ $operation, $register, "4"), twelve!(@ $operation, $register, "5"),
            twelve!(@ $operation, $register, "6"), twelve!(@ $operation, $register, "7"),
            twelve!(@ $operation, $register, "8"), twelve!(@ $operation, $register, "9"),
            twelve!(@ $operation, $register, "10"), twelve!(@ $operation, $register, "11"),
        ]);
    };
    (@ $operation:literal, $register:literal, $number:literal) => {
        concat!($operation, " ", $register, $number, ", ", $register, "13, ", $register, "13")
    };
}

maddubs!(maddubs_8, 8, 1, 2, 3, 4, 5, 6, 7);
maddubs!(maddubs_4, 4, 1, 2, 3);
maddubs!(maddubs_2, 2, 1);
peak!(
    madd,
    6 * 16,
    [
        "vpmaddwd ymm0, ymm14, ymm15\nvpaddd ymm6, ymm6, ymm0",
        "vpmaddwd ymm1, ymm14, ymm15\nvpaddd ymm7, ymm7, ymm1",
        "vpmaddwd ymm2, ymm14, ymm15\nvpaddd ymm8, ymm8, ymm2",
        "vpmaddwd ymm3, ymm14, ymm15\nvpaddd ymm9, ymm9, ymm3",
        "vpmaddwd ymm4, ymm14, ymm15\nvpaddd ymm10, ymm10, ymm4",
        "vpmaddwd ymm5, ymm14, ymm15\nvpaddd ymm11, ymm11, ymm5",
    ]
);
twelve!(fma_ymm, 8, "vfmadd231ps", "ymm");
twelve!(fma_zmm, 16, "vfmadd231ps", "zmm");
twelve!(dpbusd_ymm, 32, "{{vex}} vpdpbusd", "ymm");
twelve!(dpbusd_zmm, 64, "vpdpbusd", "zmm");

pub(super) static AVX2: &[Peak] = &[
    Peak { name: "maddubs, 8 per madd", run: maddubs_8 },
    Peak { name: "maddubs, 4 per madd", run: maddubs_4 },
    Peak { name: "maddubs, 2 per madd", run: maddubs_2 },
    Peak { name: "madd of 16 bits", run: madd },
    Peak { name: "fma ymm", run: fma_ymm },
];
pub(super) static AVX_VNNI: &[Peak] =
    &[Peak { name: "vpdpbusd ymm", run: dpbusd_ymm }, Peak { name: "fma ymm", run: fma_ymm }];
pub(super) static AVX512_VNNI: &[Peak] =
    &[Peak { name: "vpdpbusd zmm", run: dpbusd_zmm }, Peak { name: "fma zmm", run: fma_zmm }];
