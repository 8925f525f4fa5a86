//! Packed quant blocks: what a weight matrix looks like in memory.
//!
//! A *unit* is one quant block of each of 32 rows. It takes as many bits per weight as the file does (K-quants of 4
//! and 5 bits: 8-bit scales and minima instead of 6-bit ones, 3 % more), so that a model is resident once. In order:
//!
//! * codes, per k-group of 32 weights, as bit planes. A plane is made of chunks of 128 bytes `[32 rows, 4 weights]`,
//!   like the quads that kernels read. 4-bit plane: chunk c holds quad c in the low and quad c + 4 in the high
//!   nibbles. 2-bit plane: chunk c holds quads c, c + 2, c + 4, c + 6 from the lowest bits up. 1-bit plane: one chunk,
//!   quad q in bit q. 8-bit codes are the quads themselves. A 6-bit code is a nibble and two bits above it, and so on;
//! * K-quants: integer scales `[block / group, 32]`, then minima likewise if the type has them;
//! * f16 `d[32]`, then `dmin[32]` if the type has minima.

use super::kernels::{GROUP_CODES, K_GROUP, PANEL_ROWS, Panel};
use crate::quant::{BlockCodes, CodesRow, GROUP, QuantRow, QuantType};

/// Bytes of a chunk or quad: 4 weights of 32 rows.
const QUAD: usize = 4 * PANEL_ROWS;
/// Quads of a k-group.
const QUADS: usize = K_GROUP / 4;

/// A number per row of a panel.
pub(super) type Factors = [f32; PANEL_ROWS];

/// How the units of a type are laid out.
#[derive(Clone, Copy)]
pub struct CodesForm {
    /// The type.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86-64 packs by type"))]
    pub(super) ty: QuantType,
    /// Bits of a stored code.
    pub bits: u8,
    /// Subtracted from every code.
    pub offset: i32,
    /// Scales per k-group: 1 or 2.
    pub halves: usize,
    /// Whether there are minima.
    pub has_mins: bool,
    /// What 4-bit codes stand for, if not themselves: unsigned 8-bit codes.
    pub table: Option<&'static [u8; 16]>,
    /// Whether scales are stored as integers times `d`.
    integer_scales: bool,
    /// Bytes of a quant block in the file.
    block_bytes: usize,
    /// k-groups per unit.
    pub groups: usize,
    /// Bytes per unit.
    pub unit_bytes: usize,
}

impl CodesForm {
    /// The form of a type.
    pub(super) fn new(quant: &QuantRow, codes: &CodesRow) -> CodesForm {
        assert!(!codes.has_mins || codes.offset == 0, "kernels take off an offset or a minimum, not both");
        let groups = quant.block_len / K_GROUP;
        let integer_scales = groups > 1;
        let arrays = 1 + usize::from(codes.has_mins);
        let scale_bytes = if integer_scales { quant.block_len / codes.group * PANEL_ROWS } else { 0 };
        CodesForm {
            ty: quant.ty,
            bits: codes.bits,
            offset: codes.offset,
            halves: K_GROUP / codes.group,
            has_mins: codes.has_mins,
            table: codes.table,
            integer_scales,
            block_bytes: quant.block_bytes,
            groups,
            unit_bytes: groups * group_bytes(codes.bits) + arrays * (scale_bytes + 2 * PANEL_ROWS),
        }
    }

    /// Bits of a code as kernels see it, after the table.
    pub fn kernel_bits(&self) -> u8 {
        if self.table.is_some() { 8 } else { self.bits }
    }

    /// Splits a unit into codes, scales, minima, d and dmin (empty where there are none).
    #[inline(always)]
    fn parts<'a>(&self, unit: &'a [u8]) -> [&'a [u8]; 5] {
        let [codes, scales, mins, d, dmin] = self.part_lens();
        let (codes, rest) = unit.split_at(codes);
        let (scales, rest) = rest.split_at(scales);
        let (mins, rest) = rest.split_at(mins);
        let (d, rest) = rest.split_at(d);
        [codes, scales, mins, d, &rest[..dmin]]
    }

    #[inline(always)]
    pub(super) fn part_lens(&self) -> [usize; 5] {
        let mins = usize::from(self.has_mins);
        let scales = if self.integer_scales { self.groups * self.halves * PANEL_ROWS } else { 0 };
        [self.groups * group_bytes(self.bits), scales, scales * mins, 2 * PANEL_ROWS, 2 * PANEL_ROWS * mins]
    }
}

/// Bytes of a k-group's codes.
#[inline(always)]
fn group_bytes(bits: u8) -> usize {
    GROUP_CODES / 8 * usize::from(bits)
}

/// Room for the integer view of 32 quant blocks.
pub(super) struct PackBuffer {
    view: BlockCodes,
    /// `[quads of a block, 32]`: four codes each.
    quads: Vec<[u8; 4]>,
}

impl PackBuffer {
    pub(super) fn new() -> PackBuffer {
        PackBuffer { view: BlockCodes::ZERO, quads: vec![[0; 4]; crate::quant::MAX_BLOCK_LEN / 4 * PANEL_ROWS] }
    }
}

/// Packs all quant blocks of up to 32 rows.
#[inline(always)]
pub(super) fn pack_units(
    form: &CodesForm,
    codes: &CodesRow,
    rows: &[&[u8]],
    buffer: &mut PackBuffer,
    units: &mut [u8],
) {
    for (index, unit) in units.chunks_exact_mut(form.unit_bytes).enumerate() {
        pack_unit(form, codes, rows, index, buffer, unit);
    }
}

/// Packs quant block `index` of up to 32 rows, given their bytes; missing rows are zero weights.
#[inline(always)]
fn pack_unit(
    form: &CodesForm,
    codes: &CodesRow,
    rows: &[&[u8]],
    index: usize,
    buffer: &mut PackBuffer,
    unit: &mut [u8],
) {
    let lens = form.part_lens();
    let (planes, rest) = unit.split_at_mut(lens[0]);
    let (scales, rest) = rest.split_at_mut(lens[1]);
    let (mins, rest) = rest.split_at_mut(lens[2]);
    let (d, dmin) = rest.split_at_mut(lens[3]);
    let quads = &mut buffer.quads[..form.groups * QUADS * PANEL_ROWS];
    if rows.len() < PANEL_ROWS {
        [&mut *scales, mins, d, dmin].into_iter().for_each(|part| part.fill(0));
        quads.fill([0; 4]);
    }
    for (n, row) in rows.iter().enumerate() {
        let view = &mut buffer.view;
        (codes.read)(&row[index * form.block_bytes..][..form.block_bytes], view);
        for (quad, codes) in quads[n..].iter_mut().step_by(PANEL_ROWS).zip(view.codes.as_chunks::<4>().0) {
            *quad = *codes;
        }
        d[2 * n..2 * n + 2].copy_from_slice(&view.d.to_le_bytes());
        if form.has_mins {
            dmin[2 * n..2 * n + 2].copy_from_slice(&view.dmin.to_le_bytes());
        }
        if form.integer_scales {
            let step = codes.group / GROUP;
            for (i, at) in (n..scales.len()).step_by(PANEL_ROWS).enumerate() {
                scales[at] = view.scales[i * step] as u8;
                if form.has_mins {
                    mins[at] = view.mins[i * step];
                }
            }
        }
    }
    let bytes = quads.as_flattened();
    for (codes, planes) in bytes.chunks_exact(GROUP_CODES).zip(planes.chunks_exact_mut(group_bytes(form.bits))) {
        match form.bits {
            2 => pack_group::<2>(codes, planes),
            3 => pack_group::<3>(codes, planes),
            4 => pack_group::<4>(codes, planes),
            5 => pack_group::<5>(codes, planes),
            6 => pack_group::<6>(codes, planes),
            _ => planes.copy_from_slice(codes),
        }
    }
}

/// Bit planes of a code: (bits of a plane, its lowest bit in the code), in the order of storage.
const fn planes(bits: u8) -> &'static [(u8, u8)] {
    match bits {
        2 => &[(2, 0)],
        3 => &[(2, 0), (1, 2)],
        4 => &[(4, 0)],
        5 => &[(4, 0), (1, 4)],
        _ => &[(4, 0), (2, 4)],
    }
}

#[inline(always)]
fn pack_group<const BITS: u8>(codes: &[u8], mut out: &mut [u8]) {
    for &(bits, low) in planes(BITS) {
        let chunks = usize::from(bits);
        let (plane, rest) = out.split_at_mut(chunks * QUAD);
        out = rest;
        for (c, chunk) in plane.chunks_exact_mut(QUAD).enumerate() {
            chunk.fill(0);
            for q in (c..QUADS).step_by(chunks) {
                let shift = (q / chunks) as u8 * bits;
                for (packed, &code) in chunk.iter_mut().zip(&codes[q * QUAD..(q + 1) * QUAD]) {
                    *packed |= (code >> low & ((1 << bits) - 1)) << shift;
                }
            }
        }
    }
}

/// The codes of one k-group, portably: stored codes, through the table if there is one.
pub(super) fn unpack_group(form: &CodesForm, mut stored: &[u8], out: &mut [u8]) {
    if form.bits == 8 {
        out.copy_from_slice(stored);
        return;
    }
    out.fill(0);
    for &(bits, low) in planes(form.bits) {
        let chunks = usize::from(bits);
        let (plane, rest) = stored.split_at(chunks * QUAD);
        stored = rest;
        for (q, out) in out.chunks_exact_mut(QUAD).enumerate() {
            let shift = (q / chunks) as u8 * bits;
            for (out, &packed) in out.iter_mut().zip(&plane[q % chunks * QUAD..]) {
                *out |= (packed >> shift & ((1 << bits) - 1)) << low;
            }
        }
    }
    if let Some(table) = form.table {
        out.iter_mut().for_each(|code| *code = table[usize::from(*code)]);
    }
}

/// Unpacks units: the codes of each k-group by `unpack_codes(planes, codes)`, to `stride` bytes per k-group, and f32 scales
/// and minima, by `multiply` where the form has integers for them (see [`multiply`]).
#[inline(always)]
pub(super) fn unpack_units(
    form: &CodesForm,
    units: &[u8],
    stride: usize,
    panel: &mut Panel,
    unpack_codes: impl Fn(&[u8], &mut [u8]),
    multiply: impl Fn(&Factors, &[u8; PANEL_ROWS], bool, &mut Factors),
) {
    // Plain loops: what iterators are made of isn't always compiled into a kernel.
    let (count, code_bytes, group_bytes) =
        (units.len() / form.unit_bytes, form.groups * stride, group_bytes(form.bits));
    panel.groups = count * form.groups;
    let scale_rows = form.groups * form.halves;
    for u in 0..count {
        let [planes, integer_scales, integer_mins, d, dmin] = form.parts(&units[u * form.unit_bytes..]);
        let codes = &mut panel.codes[u * code_bytes..(u + 1) * code_bytes];
        for g in 0..form.groups {
            let planes = &planes[g * group_bytes..(g + 1) * group_bytes];
            unpack_codes(planes, &mut codes[g * stride..(g + 1) * stride]);
        }
        let rows = u * scale_rows..(u + 1) * scale_rows;
        let scales = &mut panel.scales.as_chunks_mut().0[rows.clone()];
        unpack_scales(form, d, integer_scales, scales, |d, integers, out| multiply(d, integers, true, out));
        if form.has_mins {
            let mins = &mut panel.mins.as_chunks_mut().0[rows];
            unpack_scales(form, dmin, integer_mins, mins, |dmin, integers, out| multiply(dmin, integers, false, out));
        }
    }
}

/// Scales or minima of one unit: 32 halves, times integers if the form has them.
#[inline(always)]
fn unpack_scales(
    form: &CodesForm,
    halves: &[u8],
    integers: &[u8],
    out: &mut [Factors],
    multiply: impl Fn(&Factors, &[u8; PANEL_ROWS], &mut Factors),
) {
    let factors = halves_to_f32(halves);
    if form.integer_scales {
        let integers = integers.as_chunks::<PANEL_ROWS>().0;
        for (i, out) in out.iter_mut().enumerate() {
            multiply(&factors, &integers[i], out);
        }
    } else {
        out[0] = factors;
    }
}

/// A factor per row times an integer per row, signed or not.
pub(super) fn multiply(factors: &Factors, integers: &[u8; PANEL_ROWS], signed: bool, out: &mut Factors) {
    for n in 0..PANEL_ROWS {
        let integer = if signed { f32::from(integers[n] as i8) } else { f32::from(integers[n]) };
        out[n] = factors[n] * integer;
    }
}

#[inline(always)]
fn halves_to_f32(bytes: &[u8]) -> Factors {
    let bytes = &bytes.as_chunks::<2>().0[..PANEL_ROWS];
    let mut out = [0.0; PANEL_ROWS];
    for n in 0..PANEL_ROWS {
        out[n] = half_to_f32(u16::from_le_bytes(bytes[n]));
    }
    out
}

/// IEEE half precision to f32 in integer and f32 operations that vectorise and never touch an f32 subnormal (the
/// scales of 4-bit weights often are half subnormals, and slow). Infinities become NaN.
#[inline(always)]
pub(super) fn half_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7fff) << 13;
    let sign = u32::from(half & 0x8000) << 16;
    let normal = magnitude + (112 << 23);
    let subnormal = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let bits = if magnitude < 1 << 23 { subnormal } else { normal };
    let bits = if magnitude >= 31 << 23 { 0x7fc0_0000 } else { bits };
    f32::from_bits(bits | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_convert_like_the_half_crate() {
        for bits in 0..=u16::MAX {
            let wanted = half::f16::from_bits(bits).to_f32();
            let found = half_to_f32(bits);
            if wanted.is_finite() {
                assert_eq!(found.to_bits(), wanted.to_bits(), "{bits:#06x}");
            } else {
                assert!(found.is_nan(), "{bits:#06x}");
            }
        }
    }
}
