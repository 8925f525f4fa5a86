//! Plain arrays, zeroed and aligned to pages, so that a register never straddles two cache lines.
//!
//! Huge pages were tried: on the machine of `docs/benchmarks.md` they made no step faster and took twice as long to fill.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use memmap2::MmapMut;

/// `len` values, all zero at first.
pub(crate) struct Buffer<T> {
    map: MmapMut,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// If the system has no memory to map, as other allocations do.
    pub(crate) fn zeroed(len: usize) -> Buffer<T> {
        let bytes = len.checked_mul(size_of::<T>()).expect("an array's bytes can be counted");
        // A map can't be empty.
        let map = MmapMut::map_anon(bytes.max(1)).unwrap_or_else(|error| panic!("no {bytes} bytes of memory: {error}"));
        Buffer { map, len, values: PhantomData }
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[..self.len * size_of::<T>()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_aligned_and_hold_what_is_written() {
        for len in [0, 1, 1000, 1 << 20] {
            let mut buffer = Buffer::<[i32; 2]>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|v| *v == [0, 0]));
            assert_eq!(buffer.as_ptr().addr() % 64, 0);
            buffer.iter_mut().enumerate().for_each(|(i, v)| *v = [i as i32, 7]);
            assert!(buffer.iter().enumerate().all(|(i, v)| *v == [i as i32, 7]));
        }
    }
}
