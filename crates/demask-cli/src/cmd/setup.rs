//! `demask setup`: look at the machine, fetch a model, try it, remember it.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use demask::{Device, Message, Request, Role};
use demask_compute::cpu::memory;
use demask_gguf::Gguf;

use super::{load_model, read_model};
use crate::args::SetupArgs;
use crate::checks::{self, Check, State};
use crate::chosen::{self, EMBEDDED};
use crate::consent::{self, NeedsYes};
use crate::embedded;
use crate::failure::{Advised, Ended};
use crate::model_ref::{Consent, ModelRef, agree, hub, model_name};
use crate::output::{self, Out, size};
use crate::view::transfer::Transfer;

/// The model that is proposed if nothing else is said.
const PROPOSED: &str = "llada";
/// Open positions of the trial.
const TRIAL: usize = 16;

/// What setup settles on.
struct Choice {
    /// What `-m` would be given.
    name: String,
    gguf: Gguf,
}

/// Runs the command.
pub(crate) fn run(args: &SetupArgs) -> Result<()> {
    let consent = args.consent.consent();
    let mut out = Out::stdout();
    let processor = checks::processor();
    let ready = processor.state != State::Broken;
    for check in [processor, checks::memory()] {
        check.print(&mut out)?;
    }
    out.flush()?;
    if !ready {
        return Err(Ended::Unhealthy.into());
    }
    let given = args.model.clone();
    let choice = match &given {
        Some(model) => choose(model, true, consent, &mut out)?,
        None => match chosen::model() {
            Some(model) => choose(&model, true, consent, &mut out)?,
            None => choose(PROPOSED, false, consent, &mut out)?,
        },
    };
    let name = choice.name.clone();
    Check::ok("model", format!("{name} ({})", size(choice.gguf.file_bytes()))).print(&mut out)?;
    out.flush()?;
    Check::ok("trial", trial(choice)?).print(&mut out)?;
    let path = chosen::write(&name)?;
    Check::ok("default", format!("{name}, remembered in {}", path.display())).print(&mut out)?;
    out.line("ready: demask run \"Name the months.\"")?;
    out.flush()
}

/// The model of a name, here and open. One that nobody asked for gives way to the embedded model if it doesn't fit.
fn choose(model: &str, asked: bool, consent: Consent, out: &mut Out) -> Result<Choice> {
    if model == EMBEDDED {
        return Ok(Choice { name: EMBEDDED.to_owned(), gguf: embedded::open()? });
    }
    if let ModelRef::File(path) = ModelRef::read(OsStr::new(model), consent) {
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let name = path.to_str().map(str::to_owned);
        let name = name.with_context(|| format!("{} is no UTF-8: it can't be remembered", path.display()))?;
        return Ok(Choice { name, gguf: Gguf::open(&path)? });
    }
    let again = if asked { format!("demask setup --model {model} --yes") } else { "demask setup --yes".to_owned() };
    let reference = model_name(model)?;
    let hub = hub(consent)?;
    let found = match hub.find(&reference) {
        Some(found) => found,
        None if hub.settings().offline => return Err(demask_hub::Error::Offline { what: reference.to_string() }.into()),
        None if !consent.yes && !consent::can_ask() => {
            let message = format!("{model} is not on this machine, and nothing is downloaded without a yes");
            return Err(NeedsYes::new(message, again).into());
        }
        None => {
            let disk = checks::disk(hub.settings());
            disk.print(out)?;
            out.flush()?;
            if disk.state == State::Broken {
                return Err(Ended::Unhealthy.into());
            }
            let mut transfer = Transfer::new();
            let plan = hub.plan(&reference, &mut |event| transfer.event(event))?;
            let needed = plan.bytes + plan.bytes / 20;
            if let Some(free) = memory::available().filter(|&free| free < needed) {
                let message = format!("{} needs {} of memory, {} are available", plan.model, size(needed), size(free));
                if asked {
                    let hint = "choose a smaller quantisation, or `demask setup --model embedded`";
                    return Err(Advised::new(message, hint).into());
                }
                output::line("note", &format!("{message}; the embedded model it is"));
                return Ok(Choice { name: EMBEDDED.to_owned(), gguf: embedded::open()? });
            }
            agree(&plan, &hub, consent, &again)?;
            hub.pull(&plan, &mut |event| transfer.event(event))?
        }
    };
    let path: &PathBuf = &found.files[0];
    Ok(Choice { name: found.model.to_string(), gguf: Gguf::open(path)? })
}

/// A short answer, and how long it took.
fn trial(choice: Choice) -> Result<String> {
    let file = read_model(choice.gguf)?;
    let device = Device::cpu(None)?;
    let started = Instant::now();
    let model = load_model(file, &device)?;
    let load = started.elapsed();
    let prompt = model.chat_prompt(&[Message::new(Role::User, "Name the months.")])?;
    let request = Request { max_tokens: TRIAL, ..Request::default() };
    let started = Instant::now();
    let answer = model.generate(&prompt, &request, &mut |_, _| ControlFlow::Continue(()))?;
    let took = started.elapsed().as_secs_f64();
    let steps = answer.statistics.steps.max(1);
    let text = model.answer_text(&answer.canvas);
    let first: String = text.chars().take(40).collect();
    Ok(format!(
        "{TRIAL} positions in {took:.1} s ({:.0} ms per step), loaded in {:.1} s: {first:?}",
        took / steps as f64 * 1e3,
        load.as_secs_f64()
    ))
}
