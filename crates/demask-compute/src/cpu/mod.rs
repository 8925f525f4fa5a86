//! The CPU backend: [`Backend`] by calling the files beside this one.

#[cfg(target_arch = "aarch64")]
mod arm;
mod attention;
pub(crate) mod buffer;
mod cgroup;
mod form;
mod head;
pub mod kernels;
mod linear;
pub mod memory;
mod operand;
mod packed;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod pointers;
pub mod pool;
mod rope;
mod rowwise;
mod scalar;
pub(crate) mod shared;
pub mod threads;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard};

use crate::backend::{Backend, RopeSpec, RowStatistics, Visibility, gated_in_steps};
use crate::weights::{ComputeError, Weights};

pub use attention::Kv;
use buffer::Buffer;
pub use form::CodesForm;
pub use kernels::Kernels;
pub use operand::{Operand, OperandTile};
pub use packed::Matrix;
use pool::Pool;
pub use rope::RopeTable;
pub use rowwise::RowKernels;
use shared::SharedMut;

/// Work, in element operations of some nanoseconds per dozen, that is worth a chunk of its own: about two
/// microseconds, the price of handing out a region.
const CHUNK_WORK: usize = 4096;

/// How to set up the CPU backend.
#[derive(Clone, Debug, Default)]
pub struct CpuOptions {
    /// Worker threads, at most twice the CPUs; `None` = the physical cores that affinity and cgroup quota allow, see
    /// [`threads::available`].
    pub threads: Option<usize>,
    /// Kernel table by name (`scalar`, `avx2`...); `None` = the variable `DEMASK_ISA`, else the best one.
    pub isa: Option<String>,
}

/// The CPU backend.
pub struct Cpu {
    pool: Pool,
    kernels: &'static Kernels,
    /// Partial row statistics, kept between steps so that a step allocates nothing.
    partials: Mutex<Vec<head::Partial>>,
    /// What integer sums start from, likewise.
    starts: Mutex<Vec<i32>>,
    /// Buffers per thread, likewise.
    scratch: Vec<Mutex<linear::Scratch>>,
    /// Rows that the buffers have room for.
    reserved: AtomicUsize,
}

/// f32 activations `[rows, width]` with room for more rows.
pub struct Rows {
    values: Buffer<f32>,
    width: usize,
    rows: usize,
}

impl Rows {
    /// Filled rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row is filled.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    fn resize(&mut self, rows: usize) -> &mut [f32] {
        assert!(rows * self.width <= self.values.len(), "{rows} rows of {} don't fit", self.width);
        self.rows = rows;
        &mut self.values[..rows * self.width]
    }

    fn filled(&self) -> &[f32] {
        &self.values[..self.rows * self.width]
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..(row + 1) * self.width]
    }
}

impl Cpu {
    /// Starts the worker threads and chooses the kernels.
    pub fn new(options: &CpuOptions) -> Result<Cpu, ComputeError> {
        // A few threads more than cores are slower; many more make a step crawl.
        let threads = options.threads.unwrap_or_else(threads::available).clamp(1, 2 * threads::runnable());
        let isa = options.isa.clone().or_else(|| std::env::var("DEMASK_ISA").ok().filter(|name| !name.is_empty()));
        let kernels = kernels::choose(isa.as_deref())?;
        let pool = Pool::new(threads).map_err(|source| ComputeError::Threads { threads, source })?;
        let scratch = (0..pool.threads()).map(|_| Mutex::new(linear::Scratch::new()));
        Ok(Cpu {
            scratch: scratch.collect(),
            pool,
            kernels,
            partials: Mutex::new(Vec::new()),
            starts: Mutex::new(Vec::new()),
            reserved: AtomicUsize::new(0),
        })
    }

    /// Threads that work in every operation.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Name of the kernel table in use.
    pub fn isa(&self) -> &'static str {
        self.kernels.name
    }

    /// The kernel table in use.
    pub(crate) fn kernels(&self) -> &'static Kernels {
        self.kernels
    }

    /// The buffers of `thread`; no two chunks that run at a time have the same thread, so this doesn't wait.
    fn scratch(&self, thread: usize) -> MutexGuard<'_, linear::Scratch> {
        self.scratch[thread].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs all chunks, each of about `work` element operations: on the pool if that is worth it.
    pub(crate) fn run(&self, chunks: usize, work: usize, run: &(dyn Fn(usize, usize) + Sync)) {
        if chunks.saturating_mul(work) < 2 * CHUNK_WORK {
            (0..chunks).for_each(|chunk| run(chunk, 0));
        } else {
            self.pool.run(chunks, run);
        }
    }

    /// Calls `run` for every row, where a row takes about `work` element operations.
    fn each_row(&self, rows: usize, work: usize, run: &(dyn Fn(usize) + Sync)) {
        let step = CHUNK_WORK.div_ceil(work.max(1));
        self.run(rows.div_ceil(step), step * work, &|chunk, _| {
            (chunk * step..rows.min((chunk + 1) * step)).for_each(run);
        });
    }
}

impl Backend for Cpu {
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Table = Weights;
    type RopeTable = RopeTable;
    type Rows = Rows;
    type Operand = Operand;
    type Kv = Kv;

    fn matrix(&self, weights: &Weights) -> Result<Matrix, ComputeError> {
        Matrix::pack(weights, &self.pool, self.kernels.pack)
    }

    fn vector(&self, values: &[f32]) -> Vec<f32> {
        values.to_vec()
    }

    fn table(&self, weights: &Weights) -> Result<Weights, ComputeError> {
        weights.check()?;
        Ok(weights.clone())
    }

    fn rope_table(&self, spec: &RopeSpec) -> RopeTable {
        RopeTable::new(spec)
    }

    fn rows(&self, max_rows: usize, width: usize) -> Rows {
        Rows { values: Buffer::zeroed(max_rows * width), width, rows: 0 }
    }

    fn operand(&self, max_rows: usize, width: usize) -> Operand {
        Operand::new(max_rows, width, self.kernels)
    }

    fn kv(&self, layers: usize, positions: usize, kv_heads: usize, head_dim: usize) -> Kv {
        Kv::new(layers, positions, kv_heads, head_dim)
    }

    fn embed(&self, table: &Weights, tokens: &[u32], out: &mut Rows) {
        let width = table.cols;
        let values = SharedMut::new(out.resize(tokens.len()));
        self.each_row(tokens.len(), width, &|r| {
            table.ty.decode(table.row(tokens[r] as usize), values.slice(r * width, width));
        });
    }

    fn rms_norm(&self, x: &Rows, weight: &Vec<f32>, eps: f32, out: &mut Operand) {
        let writer = out.begin(x.rows);
        let kernels = &self.kernels.rows;
        self.each_row(x.rows, 2 * x.width, &|r| {
            (kernels.rms_norm)(x.row(r), weight, eps, writer.values(r));
            (kernels.quantize)(&writer, r, 0..writer.k_groups());
        });
    }

    fn linear(&self, x: &Operand, w: &Matrix, bias: Option<&Vec<f32>>, out: &mut Rows) {
        assert_eq!(out.width, w.rows(), "output width is the matrix's row count");
        linear::linear(self, x, w, linear::Into::Overwrite(bias), out.resize(x.rows()));
    }

    fn linear_add(&self, x: &Operand, w: &Matrix, out: &mut Rows) {
        assert_eq!((out.rows, out.width), (x.rows(), w.rows()), "the residual has the product's shape");
        linear::linear(self, x, w, linear::Into::Add, out.resize(x.rows()));
    }

    fn rope(&self, x: &mut Rows, positions: &[u32], table: &RopeTable) {
        assert_eq!(x.rows, positions.len(), "one position per row");
        let width = x.width;
        let values = SharedMut::new(x.resize(positions.len()));
        self.each_row(positions.len(), width, &|r| table.rotate(values.slice(r * width, width), positions[r] as usize));
    }

    fn kv_write(&self, k: &Rows, v: &Rows, layer: usize, positions: &[u32], kv: &mut Kv) {
        kv.write(self, k, v, layer, positions);
    }

    fn attention(&self, q: &Rows, kv: &Kv, layer: usize, visible: Visibility, out: &mut Operand) {
        attention::attention(self, q, kv, layer, visible, out);
    }

    fn silu_mul(&self, gate: &Rows, up: &Rows, out: &mut Operand) {
        let writer = out.begin(gate.rows);
        let kernels = &self.kernels.rows;
        self.each_row(gate.rows, 4 * gate.width, &|r| {
            (kernels.silu_mul)(gate.row(r), up.row(r), writer.values(r));
            (kernels.quantize)(&writer, r, 0..writer.k_groups());
        });
    }

    fn gated_linear(&self, x: &Operand, [gate, up]: [&Matrix; 2], room: [&mut Rows; 2], out: &mut Operand) {
        if gate.ty() == up.ty() {
            linear::gated(self, x, [gate, up], out);
        } else {
            gated_in_steps(self, x, [gate, up], room, out);
        }
    }

    fn select(&self, x: &mut Rows, indices: &[u32]) {
        let width = x.width;
        for (to, &from) in indices.iter().enumerate() {
            let from = from as usize;
            assert!(from >= to && from < x.rows, "indices ascend and exist");
            x.values.copy_within(from * width..(from + 1) * width, to * width);
        }
        x.rows = indices.len();
    }

    fn row_statistics(&self, x: &Operand, head: &Matrix, excluded: &[u32], out: &mut Vec<RowStatistics>) {
        head::row_statistics(self, x, head, excluded, out);
    }

    fn logits(&self, x: &Operand, head: &Matrix, out: &mut Vec<f32>) {
        out.resize(x.rows() * head.rows(), 0.0);
        linear::linear(self, x, head, linear::Into::Overwrite(None), out);
    }

    fn read(&self, x: &Rows) -> Vec<f32> {
        x.filled().to_vec()
    }

    fn write(&self, values: &[f32], out: &mut Rows) {
        let rows = values.len() / out.width;
        out.resize(rows).copy_from_slice(values);
    }

    fn quantize(&self, x: &Rows, out: &mut Operand) {
        let writer = out.begin(x.rows);
        self.each_row(x.rows, 2 * x.width, &|r| {
            writer.values(r).copy_from_slice(x.row(r));
            (self.kernels.rows.quantize)(&writer, r, 0..writer.k_groups());
        });
    }
}
