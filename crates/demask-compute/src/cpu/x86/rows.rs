//! The row-wise operations, compiled for an instruction set.

/// A function with the given signature that runs `$body` compiled for `$features`.
macro_rules! compiled_for {
    ($features:literal, fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, $body:path) => {{
        fn kernel($($arg: $ty),*) $(-> $ret)? {
            #[target_feature(enable = $features)]
            fn compiled($($arg: $ty),*) $(-> $ret)? {
                $body($($arg),*)
            }
            // SAFETY: tables are handed out only after these features were detected.
            unsafe { compiled($($arg),*) }
        }
        kernel
    }};
}
pub(super) use compiled_for;

/// [`RowKernels`] compiled for a set of target features.
macro_rules! row_kernels {
    ($features:literal) => {{
        use $crate::cpu::head::{self, Partial};
        use $crate::cpu::rowwise::{self, RowKernels};
        use $crate::cpu::x86::rows::compiled_for;
        RowKernels {
            rms_norm: compiled_for!(
                $features,
                fn(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]),
                rowwise::rms_norm
            ),
            silu_mul: compiled_for!($features, fn(gate: &[f32], up: &[f32], out: &mut [f32]), rowwise::silu_mul),
            softmax: compiled_for!(
                $features,
                fn(scores: &mut [f32], scale: f32, greatest: f32) -> f32,
                rowwise::softmax
            ),
            greatest: compiled_for!($features, fn(values: &[f32]) -> f32, rowwise::greatest),
            scale: compiled_for!($features, fn(values: &mut [f32], factor: f32), rowwise::scale),
            widen_f16: compiled_for!($features, fn(halves: &[u16], out: &mut [f32]), rowwise::widen_f16),
            widen_bf16: compiled_for!($features, fn(halves: &[u16], out: &mut [f32]), rowwise::widen_bf16),
            quantize: super::quantize::quantize_groups,
            statistics: compiled_for!(
                $features,
                fn(partials: &mut [Partial], first: u32, logits: &[f32], count: usize, excluded: &[u32]),
                head::statistics
            ),
        }
    }};
}
pub(super) use row_kernels;
