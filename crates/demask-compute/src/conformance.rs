//! One list of cases that every backend must pass.
