//! A run that is watched: drawn, streamed, traced, timed and told about. `run` and `infill` differ in what of the canvas
//! is their text.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use demask::diffusion::Settings;
use demask::diffusion::trace::TraceLine;
use demask::{Canvas, Device, Finish, Generation, Model, ModelFile, Request, StepReport};
use demask_gguf::escape;

use super::auto::tune;
use super::load_timed_model;
use crate::args::{DeviceArgs, ViewArgs};
use crate::failure::Ended;
use crate::output::{self, Out};
use crate::report::{RunReport, Timings, Written};
use crate::signals;
use crate::view::live::{self, Live};
use crate::view::plain::Stream;

/// What of a canvas is the text.
pub(super) trait Subject {
    /// The text's tokens from the left that can't change any more: what stands before `settled` can't.
    fn shown<'a>(&self, model: &Model, canvas: &'a Canvas, settled: usize) -> &'a [u32];

    /// What a run wrote.
    fn written(&self, model: &Model, generation: &Generation, settled: usize) -> Written;

    /// Prints the object of `--json`.
    fn print(&self, report: RunReport, model: &Model, generation: &Generation, out: &mut Out) -> Result<()>;

    /// Says on stderr what is odd about a text.
    fn remark(&self, report: &RunReport);
}

/// What came of a run.
pub(super) struct Answered {
    /// Its text, as far as it is final.
    pub(super) text: String,
    /// Whether Ctrl-C stopped it.
    pub(super) interrupted: bool,
}

/// A run with everything that it needs.
pub(super) struct Watched<'a> {
    pub(super) view: &'a ViewArgs,
    pub(super) model: &'a Model,
    pub(super) device: &'a Device,
    pub(super) request: &'a Request,
    pub(super) settings: &'a Settings,
    pub(super) timings: Timings,
}

impl Watched<'_> {
    /// Runs it from `canvas` to its end.
    pub(super) fn answer(mut self, subject: &dyn Subject, canvas: &Canvas, out: &mut Out) -> Result<Answered> {
        let (view, tokenizer) = (self.view, self.model.tokenizer());
        let draws = live::is_wanted(view.live, view.json);
        let shares = draws && live::streams_share_a_terminal();
        let mut trace =
            view.trace.as_deref().map(|path| Trace::create(path, self.model, canvas, self.request)).transpose()?;
        let live = draws.then(|| Live::start(tokenizer, canvas, self.settings)).transpose()?;
        let mut stream = (!view.json && !shares).then(|| Stream::new(tokenizer));

        let mut shown = Vec::new();
        let (generation, settled) =
            match self.generate(subject, canvas, live, (&mut stream, &mut shown), &mut trace, out) {
                Ok(done) => done,
                Err(error) => {
                    // What was final stays, on lines of its own.
                    if !view.json && !shown.is_empty() {
                        let mut stream = stream.unwrap_or_else(|| Stream::new(tokenizer));
                        stream.advance(&shown, out)?;
                        stream.finish(out)?;
                    }
                    return Err(error);
                }
            };
        let interrupted = generation.finish == Finish::Interrupted;
        let written = subject.written(self.model, &generation, settled);
        let text = written.text.clone();
        let report =
            RunReport::new(self.model, self.device, self.request, self.settings, &generation, written, &self.timings);
        if let Some(trace) = &mut trace {
            trace.finish(&generation)?;
        }
        if !view.json {
            let mut stream = stream.unwrap_or_else(|| Stream::new(tokenizer));
            stream.advance(subject.shown(self.model, &generation.canvas, settled), out)?;
            stream.finish(out)?;
            if draws && !shares {
                // The drawing is gone; the text stays where it was.
                say_text(&text);
            }
        }
        if interrupted {
            let open = generation.canvas.open_in(canvas.asked_range()).count();
            let all = self.request.max_tokens;
            output::line("note", &format!("stopped: {} of {all} positions were decided", all - open));
        } else {
            subject.remark(&report);
        }
        if view.verbose {
            report.print();
        }
        if view.json {
            subject.print(report, self.model, &generation, out)?;
            out.flush()?;
        }
        Ok(Answered { text, interrupted })
    }

    /// The denoising loop, and the position before which nothing can change any more. `shown` gets the tokens before it,
    /// step by step.
    fn generate(
        &mut self,
        subject: &dyn Subject,
        canvas: &Canvas,
        mut live: Option<Live>,
        (stream, shown): (&mut Option<Stream<'_>>, &mut Vec<u32>),
        trace: &mut Option<Trace>,
        out: &mut Out,
    ) -> Result<(Generation, usize)> {
        let (run, mut predictor) = self.model.start(canvas.clone(), self.request)?;
        let mut failure = None;
        let mut settled = 0;
        let watched = self.timings.stopwatch.clone();
        let before = watched.as_ref().map(|watch| watch.split());
        let started = Instant::now();
        let mut begun = started;
        let mut step = |report: &StepReport, canvas: &Canvas| -> Result<()> {
            let elapsed = begun.elapsed();
            self.timings.steps.push(elapsed);
            self.timings.refreshed += usize::from(report.refreshed);
            settled = report.settled;
            if let Some(trace) = trace {
                trace.write(&TraceLine::from(report))?;
            }
            if self.view.dump_step_stats {
                say_step(report, elapsed);
            }
            if let Some(live) = &mut live {
                live.update(self.model.tokenizer(), report, canvas);
            }
            shown.clear();
            shown.extend_from_slice(subject.shown(self.model, canvas, report.settled));
            if let Some(stream) = stream {
                stream.advance(shown, out)?;
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
        self.timings.split = watched.zip(before).map(|(watch, before)| watch.split().since(&before));
        if generation.finish != Finish::Interrupted {
            settled = generation.canvas.len();
        }
        failure.map_or(Ok((generation, settled)), Err)
    }
}

/// A run as a command: loads what it needs and ends with it. `opened` is the time that the file took to open.
pub(super) fn run_command(
    (file, opened): (ModelFile, Duration),
    canvas: &Canvas,
    request: Request,
    device: &DeviceArgs,
    view: &ViewArgs,
    subject: &dyn Subject,
) -> Result<()> {
    file.settings(canvas, &request.before_tuning())?;
    let device = device.open()?;
    let started = Instant::now();
    let (model, stopwatch) = load_timed_model(file, &device)?;
    let load = opened + started.elapsed();
    let (request, auto) = tune(&model, &device, canvas, request)?;
    let settings = model.settings(canvas, &request)?;
    signals::watch().context("cannot watch for Ctrl-C")?;
    if !view.verbose {
        say_if_approximate(&settings);
    }
    let timings = Timings { load, auto, stopwatch, ..Timings::default() };
    let watched = Watched { view, model: &model, device: &device, request: &request, settings: &settings, timings };
    let answered = watched.answer(subject, canvas, &mut Out::stdout())?;
    if answered.interrupted { Err(Ended::Interrupted.into()) } else { Ok(()) }
}

/// Says that a text may not be the reference's.
pub(super) fn say_if_approximate(settings: &Settings) {
    if !settings.is_reference() {
        output::line("note", "these settings are approximate: the text may differ from that of `--recipe exact`");
    }
}

fn say_step(report: &StepReport, elapsed: Duration) {
    let confidences = report.transfer.edits.iter().map(|edit| edit.confidence);
    let least = confidences.clone().fold(f64::INFINITY, f64::min);
    let most = confidences.fold(f64::NEG_INFINITY, f64::max);
    output::say(&format!(
        "step {:>4}  block {:>3}  edits {:>3}  confidence {least:.4} to {most:.4}  nfe {}  rows {:>5}{}  {:>9.3} ms",
        report.step,
        report.block.index,
        report.transfer.edits.len(),
        report.nfe,
        report.rows,
        if report.refreshed { "" } else { " stale" },
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
