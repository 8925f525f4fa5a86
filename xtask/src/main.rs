//! Project checks and generated files.
fn main() {}
