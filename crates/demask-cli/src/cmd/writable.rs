//! What a command may write to.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Result, bail};
use demask_gguf::escape;

/// Refuses a path that can't become a file, that is one of `inputs`, or that is a model, without making a file.
pub(super) fn check_writable<'a>(path: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    check_place(path, inputs)?;
    let mut magic = [0; 4];
    let is_model = path.is_file() && File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok());
    if is_model && &magic == b"GGUF" {
        let name = escape(path.as_os_str().as_encoded_bytes());
        bail!("cannot write `{name}`: it is a GGUF file, which only `demask quantize` writes over");
    }
    Ok(())
}

/// Refuses a path that can't become a file, or that is one of `inputs`, without making one.
pub(super) fn check_place<'a>(path: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let name = escape(path.as_os_str().as_encoded_bytes());
    if inputs.into_iter().any(|input| is_same(path, input)) {
        bail!("cannot write `{name}`: this command reads from it");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        bail!("cannot write `{name}`: it is a directory");
    }
    if !folder.is_dir() {
        bail!("cannot write `{name}`: there is no such folder");
    }
    Ok(())
}

/// Whether both names lead to the same file, there already or not.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    // Asking opens them, which a pipe would notice.
    let are_files = one.is_file() && other.is_file();
    one == other || (are_files && same_file::is_same_file(one, other).unwrap_or(false))
}
