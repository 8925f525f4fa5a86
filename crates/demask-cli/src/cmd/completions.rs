//! `demask completions`: what shells need to complete our commands and options.

use anyhow::Result;
use clap::CommandFactory as _;

use crate::args::{Cli, CompletionsArgs};
use crate::output::Out;

/// Runs the command.
pub(crate) fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "demask", &mut script);
    let mut out = Out::stdout();
    out.bytes(&script)?;
    out.flush()
}
