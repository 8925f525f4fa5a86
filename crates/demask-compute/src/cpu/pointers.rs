//! What a kernel reads and writes, as pointers whose lengths were checked once, and the kernel for a tile's row count.
#![allow(unsafe_code)]

use super::form::CodesForm;
use super::kernels::{GROUP_CODES, K_GROUP, PANEL_ROWS, Panel, WideTile};
use super::operand::OperandTile;

/// Pointers of a panel and a tile whose lengths were checked, for kernels with `HALVES` scales per k-group.
#[derive(Clone, Copy)]
pub(super) struct Pointers {
    pub(super) groups: usize,
    pub(super) stride: usize,
    pub(super) codes: *const u8,
    pub(super) scales: *const f32,
    pub(super) mins: *const f32,
    pub(super) quantised: *const u8,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AVX2 reads them"))]
    pub(super) words: *const i16,
    pub(super) activation_scales: *const f32,
    pub(super) totals: *const f32,
    pub(super) sums: *const [i32; 2],
    /// What integer sums start from; not to be read for types with minima.
    pub(super) starts: *const i32,
    pub(super) out: *mut f32,
}

impl Pointers {
    /// Checks that everything a kernel reads and writes lies inside its slices. With two planes a k-group of the
    /// panel takes twice the bytes, and 16-bit activations are read.
    pub(super) fn new(
        form: &CodesForm,
        panel: &Panel,
        tile: &OperandTile<'_>,
        planes: usize,
        out: &mut [f32],
    ) -> Pointers {
        let (groups, cells) = (panel.groups, panel.groups * tile.stride);
        let scales = groups * form.halves * PANEL_ROWS;
        assert!(
            panel.codes.len() >= planes * groups * GROUP_CODES
                && panel.scales.len() >= scales
                && panel.mins.len() >= scales
                && tile.rows <= tile.stride
                && (form.has_mins || tile.starts.len() >= cells * form.halves)
                && tile.codes.len() >= cells * K_GROUP
                && (planes == 1 || tile.words.len() >= cells * K_GROUP)
                && tile.scales.len() >= cells
                && tile.totals.len() >= cells
                && tile.sums.len() >= cells
                && out.len() >= tile.rows * PANEL_ROWS,
            "panel, tile and output fit together"
        );
        Pointers {
            groups,
            stride: tile.stride,
            codes: panel.codes.as_ptr(),
            scales: panel.scales.as_ptr(),
            mins: panel.mins.as_ptr(),
            quantised: tile.codes.as_ptr(),
            words: tile.words.as_ptr(),
            activation_scales: tile.scales.as_ptr(),
            totals: tile.totals.as_ptr(),
            sums: tile.sums.as_ptr(),
            starts: tile.starts.as_ptr(),
            out: out.as_mut_ptr(),
        }
    }

    /// The same, but from weight row `row` of the panel on.
    ///
    /// # Safety
    /// `row` must be below 32.
    pub(super) unsafe fn starting_at(self, row: usize) -> Pointers {
        // SAFETY: a row of the first quad, which every panel has.
        unsafe {
            Pointers {
                codes: self.codes.add(4 * row),
                scales: self.scales.add(row),
                mins: self.mins.add(row),
                out: self.out.add(row),
                ..self
            }
        }
    }

    /// The activation scale of a cell times the sum of its codes over a half (or all, with one scale per k-group).
    ///
    /// # Safety
    /// `cell` must be below `groups * stride`, `half` below `HALVES`.
    #[inline(always)]
    pub(super) unsafe fn half_total<const HALVES: usize>(&self, cell: usize, half: usize) -> f32 {
        // SAFETY: by this function's contract and the checks in `new`.
        unsafe {
            match HALVES {
                1 => *self.totals.add(cell),
                _ => *self.activation_scales.add(cell) * (*self.sums.add(cell))[half] as f32,
            }
        }
    }
}

/// Calls `$kernel::<ROWS, HALVES, MINS>($pointers)` for the tile's row count and the form.
macro_rules! dispatch {
    ($kernel:ident, $rows:expr, $form:expr, $pointers:expr, [$($count:literal),*]) => {
        match ($rows, $form.halves, $form.has_mins) {
            $(
                ($count, 1, false) => $kernel::<$count, 1, false>($pointers),
                ($count, 1, true) => $kernel::<$count, 1, true>($pointers),
                ($count, _, false) => $kernel::<$count, 2, false>($pointers),
                ($count, _, true) => $kernel::<$count, 2, true>($pointers),
            )*
            (rows, ..) => unreachable!("a tile of {rows} rows"),
        }
    };
}
pub(super) use dispatch;

/// The same of a wide kernel.
#[derive(Clone, Copy)]
pub(super) struct WidePointers {
    pub(super) w: *const f32,
    pub(super) w_stride: usize,
    pub(super) a: *const f32,
    pub(super) a_stride: usize,
    pub(super) depth: usize,
    pub(super) out: *mut f32,
    pub(super) out_stride: usize,
}

impl WidePointers {
    /// Checks that what the kernel reads and writes lies inside its slices: it reads its output whatever the depth is.
    pub(super) fn new(tile: WideTile<'_>) -> WidePointers {
        let WideTile { w, w_stride, a, a_stride, rows, depth, out, out_stride } = tile;
        if rows > 0 {
            assert!(
                depth > 0
                    && w.len() >= (depth - 1) * w_stride + PANEL_ROWS
                    && a.len() >= (rows - 1) * a_stride + depth
                    && out.len() >= (rows - 1) * out_stride + PANEL_ROWS,
                "weights, activations and output fit together"
            );
        }
        WidePointers { w: w.as_ptr(), w_stride, a: a.as_ptr(), a_stride, depth, out: out.as_mut_ptr(), out_stride }
    }

    /// The same from column `column` on.
    ///
    /// # Safety
    /// `column` must be below 32, and the kernel must stay below 32.
    pub(super) unsafe fn at_column(self, column: usize) -> WidePointers {
        // SAFETY: inside the slices that were checked, by this function's contract.
        unsafe { WidePointers { w: self.w.add(column), out: self.out.add(column), ..self } }
    }
}

/// Calls `$kernel::<ROWS>` for `$rows` rows.
macro_rules! dispatch_rows {
    ($rows:expr, $kernel:ident $args:tt, [$($count:literal),*]) => {
        match $rows {
            0 => {}
            $($count => $kernel::<$count> $args,)*
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}
pub(super) use dispatch_rows;
