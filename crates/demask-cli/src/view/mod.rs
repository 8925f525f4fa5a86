//! What a person sees of an answer while it comes: plain text in a pipe, a canvas that fills on a terminal.

pub(crate) mod bar;
pub(crate) mod frame;
pub(crate) mod live;
pub(crate) mod mode;
pub(crate) mod plain;
pub(crate) mod progress;
pub(crate) mod svg;
pub(crate) mod transfer;

#[cfg(unix)]
pub(crate) use live::restore;
pub(crate) use live::restore_on_panic;
