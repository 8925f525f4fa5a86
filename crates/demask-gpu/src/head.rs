//! The head: row statistics without logits in memory, tokens drawn on the device, and logits for the host.

use bytemuck::{Pod, Zeroable};
use demask_compute::{RowStatistics, Sample, Sampling, SamplingRule};

use crate::args::Args;
use crate::backend::{BLOCK_FEATURES, Done, Gpu, Matrix, OVERWRITE, Operand, STATISTICS, TILE, Target};
use crate::kernels::{Kernel, SAMPLE, rows};

/// Statistics of a row that couldn't be computed.
pub(crate) const NOTHING: RowStatistics =
    RowStatistics { token: 0, probability: 0.0, runner_up: 0.0, entropy: 0.0, finite: false };

/// A draw that couldn't be made.
pub(crate) const NOTHING_DRAWN: Sample =
    Sample { token: 0, probability: 0.0, margin: 0.0, entropy: 0.0, plain_entropy: 0.0, finite: false };

/// Bytes of partial statistics or logits that are made at a time.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of a `Partial`.
const PARTIAL: usize = 32;
/// Numbers of the scratch memories.
const PARTIALS: usize = 0;
const WHOLES: usize = 1;
const LOGITS: usize = 2;
const DRAWS: usize = 3;

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

/// `Draw` of `sample.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Draw {
    total: f64,
    weighted: f64,
    warm_total: f64,
    warm_weighted: f64,
    greatest: f32,
    best: f32,
    second: f32,
    drawn: f32,
    token: u32,
    finite: u32,
    padding: [u32; 2],
}

impl Draw {
    fn finish(&self, sampling: &Sampling<'_>) -> Sample {
        let (temperature, total, weighted) = match sampling.rule {
            SamplingRule::Gumbel => (1.0, self.total, self.weighted),
            SamplingRule::Categorical => (sampling.temperature, self.warm_total, self.warm_weighted),
        };
        let scaled = |logit: f32| f64::from(logit) / temperature;
        let probability = |logit: f32| (scaled(logit) - scaled(self.greatest)).exp() / total;
        Sample {
            token: self.token,
            probability: probability(self.drawn),
            margin: probability(self.best) - probability(self.second),
            entropy: total.ln() - weighted / total,
            plain_entropy: self.total.ln() - self.weighted / self.total,
            finite: self.finite != 0,
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

/// Draws from logits that stay on the device.
pub(crate) fn sample(gpu: &Gpu, x: &Operand, head: &Matrix, sampling: &Sampling<'_>, out: &mut Vec<Sample>) -> Done {
    let ascending = sampling.places.is_sorted_by_key(|place| place.row);
    assert!(ascending && sampling.places.iter().all(|place| (place.row as usize) < x.rows), "rows ascend and exist");
    out.clear();
    let kernel = Kernel { module: SAMPLE, function: "sample" };
    let step = rows_at_a_time(head.rows * 4).min(x.rows.next_multiple_of(TILE));
    let mut left = sampling.places;
    while let Some(place) = left.first() {
        let first = place.row as usize / step * step;
        let count = step.min(x.rows - first);
        let (places, rest) = left.split_at(left.partition_point(|place| (place.row as usize) < first + count));
        left = rest;
        let logits = gpu.shared.scratch(LOGITS, step * head.rows * 4)?;
        let draws = gpu.shared.scratch(DRAWS, places.len() * size_of::<Draw>())?;
        gpu.product(x, head, first, count, Target { out: logits, into: OVERWRITE, ..Target::default() })?;
        // What changes from step to step is an input: the launch stays the same.
        let mut words = vec![sampling.seed as u32, (sampling.seed >> 32) as u32, sampling.step, sampling.mask_token];
        words.extend(places.iter().flat_map(|place| [place.row - first as u32, place.position]));
        let args = Args::default().with(logits).with(gpu.shared.input(&words)?).with(draws);
        let args = args.with(sampling.temperature).with(u32::from(sampling.rule == SamplingRule::Categorical));
        gpu.shared.launch(kernel, [places.len(), 1], 256, args.with(head.rows as u32))?;
        let mut found = vec![Draw::zeroed(); places.len()];
        gpu.shared.download(draws, bytemuck::cast_slice_mut(&mut found))?;
        out.extend(found.iter().map(|draw| draw.finish(sampling)));
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
