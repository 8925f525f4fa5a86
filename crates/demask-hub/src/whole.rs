//! Small files that are there as a whole or not at all.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use demask_gguf::Destination;

/// Writes a small file, and the folder that it lies in: whoever reads it finds the old bytes or the new ones. See
/// [`Destination`].
///
/// # Errors
/// Those of the system. A file that was there is as before then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let place = Destination::of(path);
    place.create()?.write_all(bytes)?;
    place.keep()
}
