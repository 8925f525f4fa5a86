//! Matrix units: multiplication, and moving matrices between shared memory and registers.
//!
//! In every operand, lane `4g + t` holds elements of row `g` (of column `g` for the right operand), `t` telling which
//! of the columns. Integer products are exact. Products of halves are exact too; their sum is formed in f64 and
//! rounded once, where a device rounds in an order of its own.

use crate::code::{Address, Element, Matrix, Reg};
use crate::error::{FaultKind, Outcome, Trouble};
use crate::lanes::{ALL, LANES, Lanes};
use crate::round::{F16, Rounding, half_value, narrow, sign_extend, widen};
use crate::syntax::Type;
use crate::word::Word;

use super::{Block, Run, Warp, register, write};

/// Rows at most.
const MAX_M: usize = 16;

fn per_register(kind: Element) -> usize {
    match kind {
        Element::Tf32 => 1,
        Element::F16 | Element::Bf16 => 2,
        Element::S8 | Element::U8 => 4,
        Element::S4 | Element::U4 => 8,
    }
}

#[inline(always)]
fn integer(word: u64, index: usize, kind: Element) -> i16 {
    match kind {
        Element::S8 => i16::from((word >> (8 * index)) as i8),
        Element::U8 => i16::from((word >> (8 * index)) as u8),
        Element::S4 => sign_extend(word >> (4 * index), 4) as i16,
        _ => (word >> (4 * index) & 15) as i16,
    }
}

#[inline(always)]
fn float(word: u64, index: usize, kind: Element) -> f32 {
    match kind {
        Element::F16 => half_value(word >> (16 * index)),
        Element::Bf16 => f32::from_bits((word >> (16 * index) << 16) as u32),
        // The unit ignores the lowest 13 bits.
        _ => f32::from_bits(word as u32 & !0x1fff),
    }
}

/// A dot product of integers: exact, and in a form that processors have an instruction for.
#[inline(always)]
fn dot<const K: usize>(a: &[i16; K], b: &[i16; K], length: usize) -> i32 {
    let part = |from: usize| -> i32 {
        a[from..from + 16].iter().zip(&b[from..from + 16]).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum()
    };
    // Beyond the length there are zeros.
    (0..length).step_by(16).map(part).sum()
}

/// Rows of an operand: `(row, inner)` of each element that a register of a lane holds.
#[inline(always)]
fn rows<T: Copy + Default, const K: usize>(
    registers: &[Lanes],
    constants: &[Lanes],
    operand: &[Reg],
    kind: Element,
    row_groups: usize,
    element: impl Fn(u64, usize, Element) -> T,
) -> [[T; K]; MAX_M] {
    let mut matrix = [[T::default(); K]; MAX_M];
    let each = per_register(kind);
    for (index, &reg) in operand.iter().enumerate() {
        let values = register(registers, constants, reg);
        let (row, inner) = (8 * (index % row_groups), 4 * each * (index / row_groups));
        for (lane, &value) in values.iter().enumerate() {
            for place in 0..each {
                matrix[row + lane / 4][inner + lane % 4 * each + place] = element(value, place, kind);
            }
        }
    }
    matrix
}

/// `d = a * b + c`.
pub(super) fn multiply(matrix: &Matrix, constants: &[Lanes], warp: &mut Warp) {
    // Most have few inner elements, and room that isn't used costs time.
    match matrix.k {
        ..=16 => multiply_up_to::<16>(matrix, constants, warp),
        17..=32 => multiply_up_to::<32>(matrix, constants, warp),
        _ => multiply_up_to::<64>(matrix, constants, warp),
    }
}

/// The same for at most `K` inner elements.
fn multiply_up_to<const K: usize>(matrix: &Matrix, constants: &[Lanes], warp: &mut Warp) {
    let groups = matrix.m / 8;
    let registers = &warp.registers;
    // Results of lane `4g + t`: columns `2t` and `2t + 1` of row `g`, then of row `g + 8`.
    let place = |lane: usize, index: usize| (lane / 4 + 8 * (index / 2), lane % 4 * 2 + index % 2);
    let mut results = [[0u64; LANES]; 4];
    if matrix.d_kind == Type::S32 {
        let a: [[i16; K]; MAX_M] = rows(registers, constants, &matrix.a, matrix.a_kind, groups, integer);
        let b: [[i16; K]; MAX_M] = rows(registers, constants, &matrix.b, matrix.b_kind, 1, integer);
        for (index, (result, &c)) in results.iter_mut().zip(&matrix.c).enumerate() {
            let c = register(registers, constants, c);
            for (lane, value) in result.iter_mut().enumerate() {
                let (row, column) = place(lane, index);
                let dot = dot(&a[row], &b[column], matrix.k);
                let c = c[lane] as i32;
                *value = if matrix.saturate { c.saturating_add(dot) } else { c.wrapping_add(dot) }.put();
            }
        }
    } else {
        let a: [[f32; K]; MAX_M] = rows(registers, constants, &matrix.a, matrix.a_kind, groups, float);
        let b: [[f32; K]; MAX_M] = rows(registers, constants, &matrix.b, matrix.b_kind, 1, float);
        let halves = matrix.c_kind == Type::F16;
        let c = |lane: usize, index: usize| {
            if halves {
                let pair = register(registers, constants, matrix.c[index / 2])[lane];
                widen(pair >> (16 * (index % 2)) & 0xffff, F16)
            } else {
                f64::from(f32::get(register(registers, constants, matrix.c[index])[lane]))
            }
        };
        // Eight columns at once; each sum is formed in the order of the inner elements.
        let mut columns = [[0f64; 8]; K];
        for (column, elements) in b.iter().enumerate().take(8) {
            for (inner, &element) in elements.iter().enumerate().take(matrix.k) {
                columns[inner][column] = f64::from(element);
            }
        }
        let mut sums = [[0f64; 8]; MAX_M];
        for (sums, row) in sums.iter_mut().zip(&a).take(matrix.m) {
            for (&element, column) in row.iter().zip(&columns).take(matrix.k) {
                let element = f64::from(element);
                for (sum, &other) in sums.iter_mut().zip(column) {
                    *sum += element * other;
                }
            }
        }
        for (index, result) in results.iter_mut().enumerate().take(2 * groups) {
            for (lane, value) in result.iter_mut().enumerate() {
                let (row, column) = place(lane, index);
                let sum = sums[row][column] + c(lane, index);
                *value =
                    if matrix.d_kind == Type::F16 { narrow(sum, F16, Rounding::Nearest) } else { (sum as f32).put() };
            }
        }
    }
    if matrix.d_kind == Type::F16 {
        for (pair, &d) in matrix.d.iter().enumerate() {
            let packed: Lanes = std::array::from_fn(|lane| results[2 * pair][lane] | results[2 * pair + 1][lane] << 16);
            write(&mut warp.registers, d, ALL, &packed);
        }
        return;
    }
    for (result, &d) in results.iter().zip(&matrix.d) {
        write(&mut warp.registers, d, ALL, result);
    }
}

impl Run<'_> {
    /// The address of each row: matrix `i` has those that lanes `8i..8i + 8` name.
    fn row_addresses(&self, address: Address, warp: &Warp, matrices: usize) -> Outcome<Lanes> {
        let base = register(&warp.registers, self.constants, address.base);
        let mut rows = [0; LANES];
        for (lane, base) in base.iter().enumerate().take(8 * matrices) {
            let (_, row) = super::memory::resolve(crate::syntax::Space::Generic, base.wrapping_add(address.offset));
            if row % 16 != 0 {
                let what = "a row of a matrix at an address that is not a multiple of 16".to_owned();
                return Trouble::at(FaultKind::Misaligned, lane, row, what);
            }
            rows[lane] = row;
        }
        Ok(rows)
    }

    pub(super) fn load_matrices(
        &mut self,
        regs: &[Reg],
        address: Address,
        transposed: bool,
        line: u32,
        block: &mut Block,
        warp: &mut Warp,
    ) -> Outcome {
        let rows = self.row_addresses(address, warp, regs.len())?;
        for (matrix, &reg) in regs.iter().enumerate() {
            let mut elements = [[0u16; 8]; 8];
            for (row, elements) in elements.iter_mut().enumerate() {
                let at = rows[8 * matrix + row];
                // Each lane reads its own four bytes of the row; the lane that names it stands for them.
                let who = self.who(block, warp, line, false);
                let bytes = block.shared.load(&who, 8 * matrix + row, at, 16)?;
                for (element, pair) in elements.iter_mut().zip(bytes.chunks_exact(2)) {
                    *element = u16::from_le_bytes([pair[0], pair[1]]);
                }
            }
            let values: Lanes = std::array::from_fn(|lane| {
                let (group, first) = (lane / 4, lane % 4 * 2);
                let (low, high) = if transposed {
                    (elements[first][group], elements[first + 1][group])
                } else {
                    (elements[group][first], elements[group][first + 1])
                };
                u64::from(high) << 16 | u64::from(low)
            });
            write(&mut warp.registers, reg, ALL, &values);
        }
        Ok(())
    }

    pub(super) fn store_matrices(
        &mut self,
        regs: &[Reg],
        address: Address,
        transposed: bool,
        line: u32,
        block: &mut Block,
        warp: &mut Warp,
    ) -> Outcome {
        let rows = self.row_addresses(address, warp, regs.len())?;
        for (matrix, &reg) in regs.iter().enumerate() {
            let values = register(&warp.registers, self.constants, reg);
            let mut elements = [[0u16; 8]; 8];
            for (lane, &value) in values.iter().enumerate() {
                let (group, first) = (lane / 4, lane % 4 * 2);
                for half in 0..2 {
                    let element = (value >> (16 * half)) as u16;
                    if transposed {
                        elements[first + half][group] = element;
                    } else {
                        elements[group][first + half] = element;
                    }
                }
            }
            for (row, elements) in elements.iter().enumerate() {
                let mut bytes = [0; 16];
                for (pair, element) in bytes.chunks_exact_mut(2).zip(elements) {
                    pair.copy_from_slice(&element.to_le_bytes());
                }
                let who = self.who(block, warp, line, false);
                block.shared.store(&who, 8 * matrix + row, rows[8 * matrix + row], &bytes)?;
            }
        }
        Ok(())
    }
}
