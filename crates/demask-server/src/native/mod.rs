//! demask's own endpoints: the edits of a run, tokens, and what the served model can do.

pub(crate) mod denoise;
pub(crate) mod models;
pub(crate) mod tokenize;
