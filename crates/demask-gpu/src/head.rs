//! The head: row statistics without logits in memory, and logits for the host.

use bytemuck::{Pod, Zeroable};
use demask_compute::RowStatistics;

use crate::args::Args;
use crate::backend::{BLOCK_FEATURES, Done, Gpu, Matrix, OVERWRITE, Operand, STATISTICS, TILE, Target};
use crate::kernels::rows;

/// Statistics of a row that couldn't be computed.
pub(crate) const NOTHING: RowStatistics =
    RowStatistics { token: 0, probability: 0.0, runner_up: 0.0, entropy: 0.0, finite: false };

/// Bytes of partial statistics or logits that are made at a time.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of a `Partial`.
const PARTIAL: usize = 32;
/// Numbers of the scratch memories.
const PARTIALS: usize = 0;
const WHOLES: usize = 1;
const LOGITS: usize = 2;

/// `Whole` of `rows.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Whole {
    total: f64,
    weighted: f64,
    greatest: f32,
    best: u32,
    best_logit: f32,
    second_logit: f32,
    finite: u32,
    unused: u32,
    padding: [u32; 2],
}

impl Whole {
    fn finish(&self) -> RowStatistics {
        let probability = |logit: f32| f64::from(logit - self.greatest).exp() / self.total;
        RowStatistics {
            token: self.best,
            probability: probability(self.best_logit),
            runner_up: probability(self.second_logit),
            entropy: self.total.ln() - self.weighted / self.total,
            finite: self.finite != 0 && self.best != u32::MAX,
        }
    }
}

/// Rows of which `bytes` each fit at a time, in whole tiles.
fn rows_at_a_time(bytes: usize) -> usize {
    (MOST_BYTES / bytes.max(1)).max(1).next_multiple_of(TILE)
}

pub(crate) fn row_statistics(
    gpu: &Gpu,
    x: &Operand,
    head: &Matrix,
    excluded: &[u32],
    out: &mut Vec<RowStatistics>,
) -> Done {
    out.clear();
    let tiles = head.rows.div_ceil(BLOCK_FEATURES);
    let step = rows_at_a_time(tiles * PARTIAL).min(x.rows.next_multiple_of(TILE));
    for first in (0..x.rows).step_by(step.max(1)) {
        let count = step.min(x.rows - first);
        let partials = gpu.shared.scratch(PARTIALS, tiles * step * PARTIAL)?;
        let wholes = gpu.shared.scratch(WHOLES, step * size_of::<Whole>())?;
        let target = Target {
            partials,
            excluded: if excluded.is_empty() { 0 } else { gpu.shared.input(excluded)? },
            excluded_count: excluded.len() as u32,
            into: STATISTICS,
            ..Target::default()
        };
        gpu.product(x, head, first, count, target)?;
        let args = Args::default().with(partials).with(wholes).with(tiles as u32).with(count as u32);
        gpu.shared.launch(rows("merge_statistics"), [count, 1], 32, args)?;
        let mut found = vec![Whole::zeroed(); count];
        gpu.shared.download(wholes, bytemuck::cast_slice_mut(&mut found))?;
        out.extend(found.iter().map(Whole::finish));
    }
    Ok(())
}

pub(crate) fn logits(gpu: &Gpu, x: &Operand, head: &Matrix, out: &mut [f32]) -> Done {
    let step = rows_at_a_time(head.rows * 4).min(x.rows.next_multiple_of(TILE));
    for first in (0..x.rows).step_by(step.max(1)) {
        let count = step.min(x.rows - first);
        let scratch = gpu.shared.scratch(LOGITS, step * head.rows * 4)?;
        gpu.product(x, head, first, count, Target { out: scratch, into: OVERWRITE, ..Target::default() })?;
        let part = &mut out[first * head.rows..(first + count) * head.rows];
        gpu.shared.download(scratch, bytemuck::cast_slice_mut(part))?;
    }
    Ok(())
}
