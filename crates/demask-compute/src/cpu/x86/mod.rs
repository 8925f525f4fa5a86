//! Kernels for x86-64.

use super::kernels::Kernels;

/// Appends the tables that this processor can run, best first.
pub(super) fn push_available(_tables: &mut Vec<&'static Kernels>) {}
