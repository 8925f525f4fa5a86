//! [`Backend`] on a GPU: shapes are checked here, work is done by the kernels (`kernels/*.cu`).

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use demask_compute::{
    Backend, ComputeError, QuantType, RopeSpec, RopeStyle, RowStatistics, Sample, Sampling, Visibility, Weights,
};

use crate::args::Args;
use crate::device::{DeviceError, GpuDevice};
use crate::kernels::{ATTENTION, Kernel, WIDE, rows};
use crate::pack::{Form, K_GROUP};
use crate::queue::{Buffer, Shared};

/// The longest head that the attention kernels take.
pub const MAX_HEAD_DIM: usize = 128;
/// The most rows of activations: what a grid has room for.
pub const MAX_ROWS: usize = 65_528;

/// Rows of a tile of activations.
pub(crate) const TILE: usize = 8;
/// Features and rows of a block, by `gemm_codes.cu` and `gemm_wide.cu`.
pub(crate) const BLOCK_FEATURES: usize = 64;
const CODES_ROWS: usize = 80;
const WIDE_ROWS: usize = 32;
/// Padded head dims, by `attention.cu`, and rows of a block.
const HEAD_DIMS: [(usize, &str); 4] =
    [(32, "attention_32"), (64, "attention_64"), (96, "attention_96"), (128, "attention_128")];
const QUERY_ROWS: usize = 64;
/// A position that no canvas has.
const NOWHERE: u32 = 1 << 31;

/// A GPU as a backend.
pub struct Gpu {
    pub(crate) shared: Arc<Shared>,
}

/// A weight matrix in device memory.
pub struct Matrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    store: Store,
}

enum Store {
    Wide { ty: QuantType, bytes: Buffer },
    Codes { form: Form, arrays: Box<[Buffer; 4]> },
}

/// An f32 vector in device memory.
pub struct Vector(Buffer);

/// Rotations in device memory.
pub struct RopeTable {
    spec: RopeSpec,
    turns: Buffer,
}

/// f32 activations.
pub struct Rows {
    values: Buffer,
    max_rows: usize,
    width: usize,
    rows: usize,
}

/// Activations as the matrix kernels read them (`kernels/rows.cu`).
pub struct Operand {
    pub(crate) values: Buffer,
    codes: Buffer,
    meta: Buffer,
    sums: Buffer,
    max_rows: usize,
    pub(crate) width: usize,
    pub(crate) rows: usize,
}

/// Keys and values in f16, `[layers, kv heads, positions, padded head dim]` each.
pub struct Kv {
    keys: Buffer,
    values: Buffer,
    layers: usize,
    positions: usize,
    kv_heads: usize,
    head_dim: usize,
    padded: usize,
    kernel: &'static str,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct WeightsArg {
    low: u64,
    high: u64,
    scales: u64,
    factors: u64,
    offset: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ActivationsArg {
    codes: u64,
    meta: u64,
    sums: u64,
    tiles_room: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct OperandArg {
    values: u64,
    codes: u64,
    meta: u64,
    sums: u64,
    tiles_room: u32,
    width: u32,
}

/// What becomes of products: `Target` of `statistics.h`.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(crate) struct Target {
    pub(crate) out: u64,
    pub(crate) bias: u64,
    pub(crate) partials: u64,
    pub(crate) excluded: u64,
    pub(crate) excluded_count: u32,
    pub(crate) into: u32,
}

pub(crate) const OVERWRITE: u32 = 0;
pub(crate) const ADD: u32 = 1;
pub(crate) const STATISTICS: u32 = 2;

pub(crate) type Done = Result<(), DeviceError>;

impl Gpu {
    /// A backend on a device.
    pub fn new(device: Box<dyn GpuDevice>) -> Gpu {
        Gpu { shared: Shared::new(device) }
    }

    /// What the device is, for people.
    pub fn describe(&self) -> String {
        self.shared.device.describe()
    }

    /// Bytes of device memory: free, and in all.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        self.shared.device.memory()
    }

    /// Bytes of device memory that this backend holds now, and held at most.
    pub fn usage(&self) -> (u64, u64) {
        self.shared.usage()
    }

    /// Notes a fault instead of giving it back.
    pub(crate) fn done(&self, result: Done) {
        if let Err(error) = result {
            self.shared.note(error);
        }
    }

    fn fits(&self, rows: usize) -> Result<(), DeviceError> {
        if rows <= MAX_ROWS {
            return Ok(());
        }
        Err(DeviceError::Unsupported(format!("a canvas of {rows} positions; the kernels take up to {MAX_ROWS}")))
    }

    /// `x * w^T` of `count` rows from `first` on (a multiple of [`TILE`]).
    pub(crate) fn product(&self, x: &Operand, w: &Matrix, first: usize, count: usize, target: Target) -> Done {
        assert_eq!(x.width, w.cols, "operand and matrix agree on K");
        assert!(first.is_multiple_of(TILE) && first + count <= x.rows, "rows of the operand");
        let (features, rows) = (w.rows as u32, count as u32);
        let feature_blocks = w.rows.div_ceil(BLOCK_FEATURES);
        match &w.store {
            Store::Wide { ty, bytes } => {
                let function = wide_function("gemm", *ty);
                let values = at(&x.values)? + 4 * (first * x.width) as u64;
                let args = Args::default().with(at(bytes)?).with(values).with(target);
                let args = args.with(w.cols as u32).with(rows).with(features);
                self.shared.launch(function, [feature_blocks, count.div_ceil(WIDE_ROWS)], 128, args)
            }
            Store::Codes { form, arrays } => {
                let tile = (first / TILE) as u64;
                let activations = ActivationsArg {
                    codes: at(&x.codes)? + tile * 256,
                    meta: at(&x.meta)? + tile * 64,
                    sums: at(&x.sums)? + tile * 32,
                    tiles_room: x.tiles_room(),
                    padding: 0,
                };
                let args = Args::default().with(weights_arg(form, arrays)?).with(activations).with(target);
                let args = args.with((w.cols / K_GROUP) as u32).with(rows).with(features);
                let kernel = Kernel { module: form.module, function: "gemm_codes" };
                self.shared.launch(kernel, [feature_blocks, count.div_ceil(CODES_ROWS)], 128, args)
            }
        }
    }

    fn linear_into(&self, x: &Operand, w: &Matrix, bias: Option<&Vector>, out: &mut Rows, into: u32) -> Done {
        let bias = bias.map_or(Ok(0), |bias| at(&bias.0))?;
        let target = Target { out: at(&out.values)?, bias, into, ..Target::default() };
        self.product(x, w, 0, x.rows, target)
    }

    /// Runs a kernel that makes an operand of `rows` rows with `width` values from `args` up to the row count.
    fn make_operand(&self, function: &'static str, args: Args, rows: usize, out: &mut Operand) -> Done {
        let args = args.with(rows as u32).with(out.arg()?);
        let padded = rows.next_multiple_of(TILE);
        let groups = out.width.div_ceil(K_GROUP);
        if function == "rms_norm" {
            return self.shared.launch(crate::kernels::rows(function), [padded, 1], 256, args);
        }
        self.shared.launch(crate::kernels::rows(function), [groups.div_ceil(4), padded], 128, args)
    }
}

/// The address of a buffer, or the reason why it isn't there.
pub(crate) fn at(buffer: &Buffer) -> Result<u64, DeviceError> {
    buffer.address().map_err(Clone::clone)
}

fn wide_function(operation: &str, ty: QuantType) -> Kernel {
    let function = match (operation, ty) {
        ("gemm", QuantType::F32) => "gemm_f32",
        ("gemm", QuantType::F16) => "gemm_f16",
        ("gemm", _) => "gemm_bf16",
        (_, QuantType::F32) => "embed_f32",
        (_, QuantType::F16) => "embed_f16",
        (_, _) => "embed_bf16",
    };
    Kernel { module: WIDE, function }
}

fn weights_arg(form: &Form, arrays: &[Buffer; 4]) -> Result<WeightsArg, DeviceError> {
    let [low, high, scales, factors] = arrays;
    Ok(WeightsArg {
        low: at(low)?,
        high: at(high)?,
        scales: at(scales)?,
        factors: at(factors)?,
        offset: u32::from(form.offset) * 0x0101_0101,
        padding: 0,
    })
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

    fn resize(&mut self, rows: usize) {
        assert!(rows <= self.max_rows, "{rows} rows don't fit {}", self.max_rows);
        self.rows = rows;
    }
}

impl Operand {
    fn tiles_room(&self) -> u32 {
        self.max_rows.div_ceil(TILE) as u32
    }

    fn resize(&mut self, rows: usize) {
        assert!(rows <= self.max_rows, "operand of {} rows is asked for {rows}", self.max_rows);
        self.rows = rows;
    }

    fn arg(&self) -> Result<OperandArg, DeviceError> {
        Ok(OperandArg {
            values: at(&self.values)?,
            codes: at(&self.codes)?,
            meta: at(&self.meta)?,
            sums: at(&self.sums)?,
            tiles_room: self.tiles_room(),
            width: self.width as u32,
        })
    }
}

impl Backend for Gpu {
    type Matrix = Matrix;
    type Vector = Vector;
    type Table = Matrix;
    type RopeTable = RopeTable;
    type Rows = Rows;
    type Operand = Operand;
    type Kv = Kv;

    fn status(&self) -> Result<(), ComputeError> {
        Ok(self.shared.take_fault()?)
    }

    fn matrix(&self, weights: &Weights) -> Result<Matrix, ComputeError> {
        weights.check()?;
        let store = match Form::of(weights.ty.row()) {
            None => Store::Wide { ty: weights.ty, bytes: self.shared.hold(&weights.bytes)? },
            Some(form) => {
                let packed = form.pack(weights);
                weights.bytes.release(0..weights.bytes.len());
                let hold = |bytes: &[u8]| self.shared.hold(bytes);
                Store::Codes {
                    form,
                    arrays: Box::new([
                        hold(&packed.low)?,
                        hold(&packed.high)?,
                        hold(&packed.scales)?,
                        hold(&packed.factors)?,
                    ]),
                }
            }
        };
        Ok(Matrix { rows: weights.rows, cols: weights.cols, store })
    }

    fn vector(&self, values: &[f32]) -> Vector {
        Vector(self.shared.hold(bytemuck::cast_slice(values)).unwrap_or_else(|error| self.shared.absent(error)))
    }

    fn table(&self, weights: &Weights) -> Result<Matrix, ComputeError> {
        self.matrix(weights)
    }

    fn rope_table(&self, spec: &RopeSpec) -> RopeTable {
        let pairs = spec.head_dim / 2;
        let turn = |position: usize, pair: usize| {
            let angle = position as f64 * spec.theta.powf(-2.0 * pair as f64 / spec.head_dim as f64);
            [angle.cos() as f32, angle.sin() as f32]
        };
        let turns: Vec<[f32; 2]> = (0..spec.positions).flat_map(|p| (0..pairs).map(move |i| turn(p, i))).collect();
        let turns = self.shared.hold(bytemuck::cast_slice(&turns)).unwrap_or_else(|error| self.shared.absent(error));
        RopeTable { spec: *spec, turns }
    }

    fn rows(&self, max_rows: usize, width: usize) -> Rows {
        let values = match self.fits(max_rows) {
            Ok(()) => self.shared.alloc(max_rows * width * 4),
            Err(error) => self.shared.absent(error),
        };
        Rows { values, max_rows, width, rows: 0 }
    }

    fn operand(&self, max_rows: usize, width: usize) -> Operand {
        let cells = width.div_ceil(K_GROUP) * max_rows.next_multiple_of(TILE);
        let alloc = |bytes: usize| match self.fits(max_rows) {
            Ok(()) => self.shared.alloc(bytes),
            Err(error) => self.shared.absent(error),
        };
        Operand {
            values: alloc(max_rows * width * 4),
            codes: alloc(cells * K_GROUP),
            meta: alloc(cells * 8),
            sums: alloc(cells * 4),
            max_rows,
            width,
            rows: 0,
        }
    }

    fn kv(&self, layers: usize, positions: usize, kv_heads: usize, head_dim: usize) -> Kv {
        let fitting = HEAD_DIMS.iter().find(|(dim, _)| head_dim <= *dim && head_dim.is_multiple_of(2));
        let (padded, kernel) = fitting.copied().unwrap_or((head_dim, ""));
        let alloc = || match fitting {
            Some(_) => self.shared.alloc(layers * kv_heads * positions * padded * 2),
            None => self.shared.absent(DeviceError::Unsupported(format!(
                "its heads have {head_dim} features; the kernels take even numbers up to {MAX_HEAD_DIM}"
            ))),
        };
        Kv { keys: alloc(), values: alloc(), layers, positions, kv_heads, head_dim, padded, kernel }
    }

    fn embed(&self, table: &Matrix, tokens: &[u32], out: &mut Rows) {
        assert!(tokens.iter().all(|&token| (token as usize) < table.rows), "tokens are in the table");
        assert_eq!(table.cols, out.width, "the table has the output's width");
        out.resize(tokens.len());
        self.done((|| {
            let (input, to) = (self.shared.input(tokens)?, at(&out.values)?);
            let grid = [table.cols.div_ceil(128), tokens.len()];
            match &table.store {
                Store::Wide { ty, bytes } => {
                    let args = Args::default().with(at(bytes)?).with(input).with(to).with(table.cols as u32);
                    self.shared.launch(wide_function("embed", *ty), grid, 128, args)
                }
                Store::Codes { form, arrays } => {
                    let args = Args::default().with(weights_arg(form, arrays)?).with(input).with(to);
                    let kernel = Kernel { module: form.module, function: "embed_codes" };
                    self.shared.launch(kernel, grid, 128, args.with((table.cols / K_GROUP) as u32))
                }
            }
        })());
    }

    fn rms_norm(&self, x: &Rows, weight: &Vector, eps: f32, out: &mut Operand) {
        assert_eq!(x.width, out.width, "one width");
        out.resize(x.rows);
        self.done((|| {
            let args = Args::default().with(at(&x.values)?).with(at(&weight.0)?).with(eps);
            self.make_operand("rms_norm", args, x.rows, out)
        })());
    }

    fn linear(&self, x: &Operand, w: &Matrix, bias: Option<&Vector>, out: &mut Rows) {
        assert_eq!(out.width, w.rows, "output width is the matrix's row count");
        out.resize(x.rows);
        self.done(self.linear_into(x, w, bias, out, OVERWRITE));
    }

    fn linear_add(&self, x: &Operand, w: &Matrix, out: &mut Rows) {
        assert_eq!((out.rows, out.width), (x.rows, w.rows), "the residual has the product's shape");
        self.done(self.linear_into(x, w, None, out, ADD));
    }

    fn rope(&self, x: &mut Rows, positions: &[u32], table: &RopeTable) {
        assert_eq!(x.rows, positions.len(), "one position per row");
        assert!(positions.iter().all(|&p| (p as usize) < table.spec.positions), "positions are in the table");
        let half_split = u32::from(table.spec.style == RopeStyle::HalfSplit);
        self.done((|| {
            let args = Args::default().with(at(&x.values)?).with(self.shared.input(positions)?);
            let args = args.with(at(&table.turns)?).with(x.width as u32).with(table.spec.head_dim as u32);
            self.shared.launch(rows("rope"), [(x.width / 2).div_ceil(128), x.rows], 128, args.with(half_split))
        })());
    }

    fn kv_write(&self, k: &Rows, v: &Rows, layer: usize, positions: &[u32], kv: &mut Kv) {
        assert!(k.rows == positions.len() && v.rows == positions.len(), "one position per row");
        assert!(positions.iter().all(|&p| (p as usize) < kv.positions), "positions exist");
        assert!(k.width == kv.kv_heads * kv.head_dim && v.width == k.width && layer < kv.layers, "the store's shape");
        self.done((|| {
            let args = Args::default().with(at(&k.values)?).with(at(&v.values)?).with(self.shared.input(positions)?);
            let args = args.with(at(&kv.keys)? + kv.offset(layer)).with(at(&kv.values)? + kv.offset(layer));
            let args = args.with(k.width as u32).with(kv.head_dim as u32).with(kv.positions as u32);
            let grid = [k.width.div_ceil(128), positions.len()];
            self.shared.launch(rows("kv_write"), grid, 128, args.with(kv.padded as u32))
        })());
    }

    fn attention(&self, q: &Rows, kv: &Kv, layer: usize, visible: Visibility, out: &mut Operand) {
        let len = visible.len();
        assert!(len <= kv.positions, "{len} visible positions of {}", kv.positions);
        assert!(q.width == out.width && q.width.is_multiple_of(kv.head_dim), "queries are whole heads");
        let heads = q.width / kv.head_dim;
        out.resize(q.rows);
        self.done((|| {
            let offset = kv.offset(layer);
            let args = Args::default().with(at(&q.values)?).with(at(&kv.keys)? + offset);
            let args = args.with(at(&kv.values)? + offset).with(at(&out.values)?).with(q.rows as u32);
            let args = args.with(heads as u32).with(kv.kv_heads as u32).with(kv.head_dim as u32);
            let hidden = visible.hidden(0).map_or(NOWHERE, |position| position as u32);
            // The kernel takes powers of two.
            let scale = std::f32::consts::LOG2_E / (kv.head_dim as f32).sqrt();
            let args = args.with(kv.positions as u32).with(len as u32).with(hidden).with(scale);
            let kernel = Kernel { module: ATTENTION, function: kv.kernel };
            self.shared.launch(kernel, [heads, q.rows.div_ceil(QUERY_ROWS)], 128, args)?;
            let args = Args::default().with(at(&out.values)?);
            self.make_operand("quantize", args, q.rows, out)
        })());
    }

    fn silu_mul(&self, gate: &Rows, up: &Rows, out: &mut Operand) {
        assert!(gate.width == out.width && (gate.rows, gate.width) == (up.rows, up.width), "one shape");
        out.resize(gate.rows);
        self.done((|| {
            let args = Args::default().with(at(&gate.values)?).with(at(&up.values)?);
            self.make_operand("silu_mul", args, gate.rows, out)
        })());
    }

    fn select(&self, x: &mut Rows, indices: &[u32]) {
        let ascending = indices.iter().enumerate().all(|(to, &from)| from as usize >= to && (from as usize) < x.rows);
        assert!(ascending && indices.is_sorted(), "indices ascend and exist");
        let all = indices.len() == x.rows;
        x.rows = indices.len();
        if all || indices.is_empty() {
            return;
        }
        self.done((|| {
            let args = Args::default().with(at(&x.values)?).with(self.shared.input(indices)?);
            let args = args.with(indices.len() as u32).with(x.width as u32);
            self.shared.launch(rows("select"), [x.width.div_ceil(32), 1], 1024, args)
        })());
    }

    fn row_statistics(&self, x: &Operand, head: &Matrix, excluded: &[u32], out: &mut Vec<RowStatistics>) {
        let result = crate::head::row_statistics(self, x, head, excluded, out);
        if result.is_err() {
            // As many as were asked for, none of them good.
            out.clear();
            out.resize(x.rows, crate::head::NOTHING);
        }
        self.done(result);
    }

    fn sample(&self, x: &Operand, head: &Matrix, sampling: &Sampling<'_>, out: &mut Vec<Sample>) -> bool {
        let result = crate::head::sample(self, x, head, sampling, out);
        if result.is_err() {
            out.clear();
            out.resize(sampling.places.len(), crate::head::NOTHING_DRAWN);
        }
        self.done(result);
        true
    }

    fn logits(&self, x: &Operand, head: &Matrix, out: &mut Vec<f32>) {
        out.clear();
        out.resize(x.rows * head.rows, f32::NAN);
        self.done(crate::head::logits(self, x, head, out));
    }

    fn read(&self, x: &Rows) -> Vec<f32> {
        let mut out = vec![0.0; x.rows * x.width];
        self.done(at(&x.values).and_then(|from| self.shared.download(from, bytemuck::cast_slice_mut(&mut out))));
        out
    }

    fn write(&self, values: &[f32], out: &mut Rows) {
        out.resize(values.len() / out.width);
        self.done(at(&out.values).and_then(|to| self.shared.upload(to, bytemuck::cast_slice(values))));
    }

    fn quantize(&self, x: &Rows, out: &mut Operand) {
        assert_eq!(x.width, out.width, "one width");
        out.resize(x.rows);
        self.done((|| {
            let args = Args::default().with(at(&x.values)?);
            self.make_operand("quantize", args, x.rows, out)
        })());
    }
}

impl Kv {
    /// Bytes before a layer.
    fn offset(&self, layer: usize) -> u64 {
        (layer * self.kv_heads * self.positions * self.padded * 2) as u64
    }
}
