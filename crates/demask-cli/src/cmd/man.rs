//! `demask man`: the manual pages.

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use demask_gguf::escape;

use crate::args::{Cli, ManArgs, closest_command};
use crate::failure::Misuse;
use crate::output::Out;

/// Runs the command.
pub(crate) fn run(args: &ManArgs) -> Result<()> {
    let mut program = Cli::command();
    if let Some(folder) = &args.out {
        let name = escape(folder.as_os_str().as_encoded_bytes());
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{name}`"))?;
        return clap_mangen::generate_to(program, folder).with_context(|| format!("cannot write pages to `{name}`"));
    }
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            found.ok_or_else(|| unknown(name))?
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).context("cannot write the page")?;
    let mut out = Out::stdout();
    out.bytes(&page)?;
    out.flush()
}

fn unknown(name: &str) -> Misuse {
    let hint = match closest_command(name) {
        Some(command) => format!("did you mean `{command}`?"),
        None => "`demask --help` lists them".to_owned(),
    };
    Misuse::new(format!("there is no command `{}`", escape(name)), hint)
}
