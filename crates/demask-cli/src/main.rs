//! The `demask` command line.
fn main() {}
