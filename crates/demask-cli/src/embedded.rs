//! The model inside the program: small, but it answers without a download.

use demask_gguf::{Error, Gguf};

/// What messages call it.
pub(crate) const NAME: &str = "the embedded model";

static BYTES: &[u8] = include_bytes!("../../../assets/demask-tiny-q8_0.gguf");

/// Opens it.
pub(crate) fn open() -> Result<Gguf, Error> {
    Gguf::from_static(NAME, BYTES)
}
