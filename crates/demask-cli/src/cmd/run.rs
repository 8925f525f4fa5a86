//! `demask run`: answer a prompt.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use demask::diffusion::Settings;
use demask::diffusion::trace::TraceLine;
use demask::{Canvas, Device, Generation, Model, Request, StepReport};
use demask_gguf::escape;

use super::{load_model, name_file, read_model};
use crate::args::RunArgs;
use crate::failure::Ended;
use crate::output::{self, Out};
use crate::report::{RunReport, Timings};
use crate::signals;
use crate::view::live::{self, Live};
use crate::view::plain::Stream;

/// Runs the command. Everything that can be refused is refused before the weights are loaded.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let request = args.settings.request();
    request.check()?;
    args.prompt.check()?;
    if let Some(path) = &args.trace {
        check_writable(path)?;
    }
    let started = Instant::now();
    let file = read_model(args.model.reference().open()?)?;
    let opened = started.elapsed();
    request.settings(file.spec(), Vec::new(), request.max_tokens)?;

    let name = file.gguf().name().to_owned();
    let prompt = args.prompt.tokens(file.gguf(), file.tokenizer(), false).map_err(|error| name_file(error, &name))?;
    let canvas = file.canvas(&prompt, request.max_tokens)?;
    let settings = file.settings(&canvas, &request)?;
    let device = args.device.open()?;

    let started = Instant::now();
    let model = load_model(file, &device)?;
    let load = opened + started.elapsed();
    signals::watch().context("cannot watch for Ctrl-C")?;
    let timings = Timings { load, ..Timings::default() };
    let trace = args.trace.as_deref().map(|path| Trace::create(path, &model, &canvas, &request)).transpose()?;
    let mut out = Out::stdout();
    Run { args, model: &model, device: &device, request: &request, settings: &settings, timings, trace }
        .go(&canvas, &mut out)
}

/// A run that is under way.
struct Run<'a> {
    args: &'a RunArgs,
    model: &'a Model,
    device: &'a Device,
    request: &'a Request,
    settings: &'a Settings,
    timings: Timings,
    trace: Option<Trace>,
}

impl Run<'_> {
    fn go(mut self, canvas: &Canvas, out: &mut Out) -> Result<()> {
        let tokenizer = self.model.tokenizer();
        let draws = live::is_wanted(self.args.live, self.args.json);
        let shares = draws && live::streams_share_a_terminal();
        let mut live = draws.then(|| Live::start(tokenizer, canvas, self.settings)).transpose()?;
        let mut stream = (!self.args.json && !shares).then(|| Stream::new(tokenizer));

        let generation = self.generate(canvas, &mut live, &mut stream, out);
        drop(live);
        let generation = generation?;
        let interrupted = generation.finish == demask::Finish::Interrupted;
        let report = RunReport::new(self.model, self.device, self.request, self.settings, &generation, &self.timings);
        if let Some(trace) = &mut self.trace {
            trace.finish(&generation)?;
        }
        if self.args.json {
            out.json(&report)?;
            out.flush()?;
        } else {
            let mut stream = stream.unwrap_or_else(|| Stream::new(tokenizer));
            stream.advance(self.model.answer_tokens(&generation.canvas), out)?;
            stream.finish(out)?;
            if draws && !shares {
                // The drawing is gone; the text stays where it was.
                say_text(report.text());
            }
        }
        if interrupted {
            let open = generation.canvas.open_in(canvas.asked_range()).count();
            let (decided, all) = (report.max_tokens() - open, report.max_tokens());
            output::line("note", &format!("stopped: {decided} of {all} positions were decided"));
        } else if report.is_empty() {
            output::line("note", "the answer is empty: the model ended it at its first token");
        }
        if self.args.verbose {
            report.print();
        }
        if interrupted { Err(Ended::Interrupted.into()) } else { Ok(()) }
    }

    /// The denoising loop, watched.
    fn generate(
        &mut self,
        canvas: &Canvas,
        live: &mut Option<Live>,
        stream: &mut Option<Stream<'_>>,
        out: &mut Out,
    ) -> Result<Generation> {
        let (run, mut predictor) = self.model.start(canvas.clone(), self.request)?;
        let mut failure = None;
        let started = Instant::now();
        let mut begun = started;
        let mut step = |report: &StepReport, canvas: &Canvas| -> Result<()> {
            let elapsed = begun.elapsed();
            self.timings.steps.push(elapsed);
            if let Some(trace) = &mut self.trace {
                trace.write(&TraceLine::from(report))?;
            }
            if self.args.dump_step_stats {
                say_step(report, elapsed);
            }
            if let Some(live) = live {
                live.update(self.model.tokenizer(), report, canvas);
            }
            if let Some(stream) = stream {
                stream.advance(self.model.answer_tokens(canvas), out)?;
            }
            begun = Instant::now();
            Ok(())
        };
        let generation =
            demask::diffusion::generate(&mut *predictor, run, &mut |report, canvas| match step(report, canvas) {
                Ok(()) if signals::interrupted() => ControlFlow::Break(()),
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            })?;
        self.timings.generate = started.elapsed();
        failure.map_or(Ok(generation), Err)
    }
}

fn say_step(report: &StepReport, elapsed: Duration) {
    let confidences = report.transfer.edits.iter().map(|edit| edit.confidence);
    let least = confidences.clone().fold(f64::INFINITY, f64::min);
    let most = confidences.fold(f64::NEG_INFINITY, f64::max);
    output::say(&format!(
        "step {:>4}  block {:>3}  edits {:>3}  confidence {least:.4} to {most:.4}  nfe {}  rows {:>5}  {:>9.3} ms",
        report.step,
        report.block.index,
        report.transfer.edits.len(),
        report.nfe,
        report.rows,
        elapsed.as_secs_f64() * 1e3
    ));
}

/// The answer on stderr, where the canvas was drawn.
fn say_text(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", output::for_terminal(text));
}

/// A file of JSON lines that grows with the run.
struct Trace {
    file: BufWriter<File>,
    name: String,
}

impl Trace {
    fn create(path: &Path, model: &Model, canvas: &Canvas, request: &Request) -> Result<Trace> {
        let name = escape(path.as_os_str().as_encoded_bytes());
        let file = File::create(path).with_context(|| format!("cannot write the trace `{name}`"))?;
        let mut trace = Trace { file: BufWriter::new(file), name };
        let open = canvas.open_in(0..canvas.len()).collect();
        trace.write(&TraceLine::Start { model: &model.spec().name, canvas: canvas.tokens(), open, request })?;
        Ok(trace)
    }

    /// Writes a line at once, so that a run that is cut short leaves what it did.
    fn write(&mut self, line: &TraceLine<'_>) -> Result<()> {
        serde_json::to_writer(&mut self.file, line)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .and_then(|()| self.file.flush())
            .with_context(|| format!("cannot write the trace `{}`", self.name))
    }

    fn finish(&mut self, generation: &Generation) -> Result<()> {
        self.write(&TraceLine::End { finish: generation.finish, statistics: generation.statistics })
    }
}

/// Refuses a path that can't become a file, without making one.
pub(super) fn check_writable(path: &Path) -> Result<()> {
    let name = escape(path.as_os_str().as_encoded_bytes());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        bail!("cannot write `{name}`: it is a directory");
    }
    if !folder.is_dir() {
        bail!("cannot write `{name}`: there is no such folder");
    }
    Ok(())
}
