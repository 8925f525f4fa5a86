//! `demask inspect`: what a GGUF file holds.

use anyhow::Result;

use crate::args::InspectArgs;

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let _ = (&args.file, &args.json, args.model.is_given());
    Ok(())
}
