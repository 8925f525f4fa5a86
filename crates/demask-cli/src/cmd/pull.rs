//! `demask pull`: fetch a model.

use anyhow::Result;
use demask_gguf::escape;
use serde::Serialize;

use crate::args::PullArgs;
use crate::model_ref::{agree, hub, model_name};
use crate::output::{self, Out, size};
use crate::view::transfer::Transfer;

/// Runs the command.
pub(crate) fn run(args: &PullArgs) -> Result<()> {
    let consent = args.consent.consent();
    let model = model_name(&args.model)?;
    let hub = hub(consent)?;
    let mut transfer = Transfer::new();
    let found = match hub.find(&model).filter(|_| hub.settings().offline) {
        Some(found) => found,
        None => {
            let plan = hub.plan(&model, &mut |event| transfer.event(event))?;
            agree(&plan, &hub, consent, &format!("demask pull {} --yes", args.model))?;
            let found = hub.pull(&plan, &mut |event| transfer.event(event))?;
            let came = if plan.missing == 0 {
                "was here already".to_owned()
            } else {
                format!("is here, {}", size(plan.bytes))
            };
            output::line("note", &format!("{} {came}; `demask run -m {} \"...\"` runs it", plan.model, args.model));
            found
        }
    };
    drop(transfer);
    let paths: Vec<String> = found.files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let mut out = Out::stdout();
    if args.json {
        out.json(&Pulled { model: found.model.to_string(), commit: found.commit, files: paths })?;
    } else {
        out.line(&escape(&paths[0]))?;
    }
    out.flush()
}

/// The object of `--json`.
#[derive(Serialize)]
struct Pulled {
    /// The full name.
    model: String,
    /// The commit on the hub.
    commit: String,
    /// Paths, in the order of the parts.
    files: Vec<String>,
}
