//! The `demask` command line.

mod args;
mod checks;
mod chosen;
mod cmd;
mod consent;
mod curves;
mod embedded;
mod failure;
mod model_ref;
mod output;
mod prompt;
mod report;
mod signals;
mod view;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    view::restore_on_panic();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::report_usage(&error),
    };
    let result = match &cli.command {
        Command::Run(args) => cmd::run::run(args),
        Command::Chat(args) => cmd::chat::run(args),
        Command::Infill(args) => cmd::infill::run(args),
        Command::Eval(args) => cmd::eval::run(args),
        Command::Pull(args) => cmd::pull::run(args),
        Command::List(args) => cmd::list::run(args),
        Command::Setup(args) => cmd::setup::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Quantize(args) => cmd::quantize::run(args),
        Command::Rm(args) => cmd::rm::run(args),
        Command::Serve(args) => cmd::serve::run(args),
        Command::Tokenize(args) => cmd::tokenize::run(args),
        Command::Inspect(args) => cmd::inspect::run(args),
        Command::Logits(args) => cmd::logits::run(args),
        Command::Bench(args) => cmd::bench::run(args),
        Command::Completions(args) => cmd::completions::run(args),
        Command::Man(args) => cmd::man::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
