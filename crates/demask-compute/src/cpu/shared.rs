//! Slices that several threads of a pool write at once, each its own part.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A mutable slice whose disjoint parts can be handed to different threads.
///
/// The pool gives every chunk to exactly one thread, and every use in this crate derives the part from the chunk
/// (or from the thread's number), which is what makes the parts disjoint.
#[derive(Clone, Copy)]
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: only disjoint parts are handed out (see `slice`), so sharing is sending the parts.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares `slice` until `'a` ends.
    pub(crate) fn new(slice: &'a mut [T]) -> SharedMut<'a, T> {
        SharedMut { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// The `len` elements from `from` on, which no other live part may overlap.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn slice(&self, from: usize, len: usize) -> &'a mut [T] {
        assert!(from <= self.len && len <= self.len - from, "part {from}+{len} of {}", self.len);
        // SAFETY: in bounds by the assertion; disjoint by this type's contract with the crate.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}
