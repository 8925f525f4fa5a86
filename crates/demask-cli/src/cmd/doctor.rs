//! `demask doctor`: what is right and wrong on this machine. It changes nothing.

use anyhow::Result;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::checks::{self, Check, State};
use crate::failure::Ended;
use crate::output::Out;
use crate::view::transfer::Transfer;

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let mut out = Out::stdout();
    let checks = look(args.quick);
    let broken = checks.iter().any(|check| check.state == State::Broken);
    if args.json {
        out.json(&Report { version: env!("CARGO_PKG_VERSION"), healthy: !broken, checks })?;
    } else {
        for check in &checks {
            check.print(&mut out)?;
        }
    }
    out.flush()?;
    if broken { Err(Ended::Unhealthy.into()) } else { Ok(()) }
}

fn look(quick: bool) -> Vec<Check> {
    let mut checks = vec![checks::program(), checks::processor(), checks::memory(), checks::gpu()];
    let (settings, environment) = checks::environment();
    checks.extend(environment);
    if let Some(settings) = settings {
        let mut transfer = Transfer::new();
        checks.push(checks::disk(&settings));
        checks.extend(checks::cache(&settings, !quick, &mut |name, done, all| transfer.hashing(name, done, all)));
        checks.push(checks::default_model(&settings));
    }
    checks
}

/// The object of `--json`.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// Whether nothing is broken; warnings don't count.
    healthy: bool,
    checks: Vec<Check>,
}
