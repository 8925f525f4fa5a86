//! One run: what was asked, what is told while it goes on, and its text.

use std::time::{Duration, Instant};

use demask::diffusion::{Denoising, Statistics, Tuning};
use demask::text::StreamDecoder;
use demask::{Canvas, MaskPredictor, ModelFile, Request, StepReport};
use tokio::sync::mpsc::UnboundedSender;

use crate::failure::ApiError;
use crate::runner::Runner;
use crate::stop::Stops;
use crate::tuner::Tuner;

/// A run that was asked for. It is given up when nobody listens to its events any more.
pub(crate) struct Job {
    pub(crate) listener: Listener,
    pub(crate) canvas: Canvas,
    pub(crate) request: Request,
    pub(crate) subject: Subject,
    pub(crate) stop: Vec<String>,
    pub(crate) deadline: Instant,
}

/// Who asked for a run.
#[derive(Clone)]
pub(crate) struct Listener {
    /// Number of the HTTP request.
    pub(crate) number: u64,
    /// Which of that request's runs it is.
    pub(crate) index: usize,
    /// As many as a run has steps, and a few: that bounds the channel.
    pub(crate) events: UnboundedSender<(usize, Event)>,
}

impl Listener {
    /// Whether nobody listens any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.events.is_closed()
    }

    pub(crate) fn tell(&self, event: Event) {
        // Whoever listened may have left; the engine sees that before the next step.
        let _ = self.events.send((self.index, event));
    }

    /// Tells that the run can't go on.
    pub(crate) fn fail(&self, error: ApiError) {
        self.tell(Event::Failed(error));
    }
}

/// What of a canvas is the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// What stands behind the prompt, before its end token.
    Answer,
    /// What was open, without special tokens.
    Blanks,
    /// Everything.
    Whole,
}

/// What is told of a run.
pub(crate) enum Event {
    /// It left the queue.
    Begun,
    /// A step was done.
    Step(Box<StepDone>),
    /// It has ended.
    Done(Box<Outcome>),
    /// It can't go on.
    Failed(ApiError),
}

/// A step and the text that it made final.
pub(crate) struct StepDone {
    pub(crate) report: StepReport,
    pub(crate) text: String,
}

/// How a run ended.
pub(crate) struct Outcome {
    /// The text that the last step left.
    pub(crate) text: String,
    pub(crate) finish: FinishReason,
    /// Its visible tokens are those of the text.
    pub(crate) statistics: Statistics,
    /// The canvas as it was left.
    pub(crate) canvas: Canvas,
    /// Time between its first and its last step, other runs' turns included.
    pub(crate) elapsed: Duration,
    /// What the recipe `auto` chose.
    pub(crate) tuning: Option<Tuning>,
}

/// Why a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FinishReason {
    /// The model ended it, or a stop string did.
    Stop,
    /// All open positions were used.
    Length,
}

/// A run at work.
pub(crate) struct Run<'a> {
    pub(crate) listener: Listener,
    pub(crate) deadline: Instant,
    denoising: Denoising,
    predictor: Box<dyn MaskPredictor>,
    text: Text<'a>,
    begun: Instant,
    tuning: Option<Tuning>,
}

/// What became of a run in a step.
pub(crate) enum Turn<'a> {
    /// It goes on.
    Goes(Box<Run<'a>>),
    /// It has ended.
    Done { statistics: Statistics, elapsed: Duration },
    /// It failed.
    Failed,
}

impl<'a> Run<'a> {
    /// Starts a run; a failure is told to whoever asked.
    pub(crate) fn start(runner: &'a dyn Runner, tuner: &mut Tuner<'_>, job: Job) -> Option<Run<'a>> {
        let started = tuner.tune(&job.canvas, job.request).and_then(|(request, tuning)| {
            let (denoising, predictor) = runner.start(job.canvas, &request)?;
            Ok((denoising, predictor, tuning))
        });
        let (denoising, predictor, tuning) = match started {
            Ok(started) => started,
            Err(error) => {
                job.listener.fail(error.into());
                return None;
            }
        };
        if let Some(Tuning { window, refresh, .. }) = tuning {
            tracing::info!(request = job.listener.number, window, refresh, "tuned");
        }
        job.listener.tell(Event::Begun);
        Some(Run {
            listener: job.listener,
            deadline: job.deadline,
            denoising,
            predictor,
            text: Text::new(runner.file(), job.subject, job.stop),
            begun: Instant::now(),
            tuning,
        })
    }

    /// The next step.
    pub(crate) fn step(mut self: Box<Self>) -> Turn<'a> {
        match self.denoising.step(&mut *self.predictor) {
            Err(error) => {
                self.listener.fail(error.into());
                Turn::Failed
            }
            Ok(None) => self.finish(),
            Ok(Some(report)) => {
                let text = self.text.advance(self.denoising.canvas(), report.settled);
                self.listener.tell(Event::Step(Box::new(StepDone { report, text })));
                if self.text.stopped { self.finish() } else { Turn::Goes(self) }
            }
        }
    }

    fn finish(self: Box<Self>) -> Turn<'a> {
        let Run { listener, denoising, mut text, begun, tuning, .. } = *self;
        let elapsed = begun.elapsed();
        let generation = denoising.finish(None);
        let canvas = generation.canvas;
        let last = text.finish(&canvas);
        let tokens = text.tokens(&canvas);
        let finish = text.reason(&canvas);
        let statistics = Statistics { visible_tokens: tokens, ..generation.statistics };
        let outcome = Outcome { text: last, finish, statistics, canvas, elapsed, tuning };
        listener.tell(Event::Done(Box::new(outcome)));
        Turn::Done { statistics, elapsed }
    }
}

/// The text of a run, which only grows.
struct Text<'a> {
    file: &'a ModelFile,
    subject: Subject,
    decoder: StreamDecoder<'a>,
    stops: Stops,
    /// Length of the decoded text before each token that was taken.
    starts: Vec<usize>,
    decoded: usize,
    given_out: usize,
    /// A stop string was found.
    stopped: bool,
}

impl<'a> Text<'a> {
    fn new(file: &'a ModelFile, subject: Subject, stop: Vec<String>) -> Text<'a> {
        let (decoder, stops) = (StreamDecoder::new(file.tokenizer()), Stops::new(stop));
        Text { file, subject, decoder, stops, starts: Vec::new(), decoded: 0, given_out: 0, stopped: false }
    }

    /// The tokens of the text that can't change any more.
    fn shown<'c>(&self, canvas: &'c Canvas, settled: usize) -> &'c [u32] {
        let asked = canvas.asked_range();
        match self.subject {
            Subject::Answer => {
                let answer = self.file.answer_tokens(canvas);
                &answer[..answer.len().min(settled.saturating_sub(asked.start))]
            }
            Subject::Blanks => &canvas.tokens()[asked.start..settled.clamp(asked.start, asked.end)],
            Subject::Whole => &canvas.tokens()[..settled.min(canvas.len())],
        }
    }

    /// Text that is new and final.
    fn advance(&mut self, canvas: &Canvas, settled: usize) -> String {
        let mut out = String::new();
        for &token in &self.shown(canvas, settled)[self.starts.len()..] {
            self.starts.push(self.decoded);
            let piece = self.decoder.push(token);
            self.decoded += piece.len();
            self.give_out(&piece, &mut out);
            if self.stopped {
                break;
            }
        }
        out
    }

    fn give_out(&mut self, piece: &str, out: &mut String) {
        let (text, stopped) = self.stops.push(piece);
        self.stopped = stopped;
        self.given_out += text.len();
        out.push_str(&text);
    }

    /// The rest, once nothing can change any more.
    fn finish(&mut self, canvas: &Canvas) -> String {
        if self.stopped {
            return String::new();
        }
        let mut out = self.advance(canvas, canvas.len());
        if !self.stopped {
            let decoder = std::mem::replace(&mut self.decoder, StreamDecoder::new(self.file.tokenizer()));
            self.give_out(&decoder.finish(), &mut out);
        }
        if !self.stopped {
            let held = self.stops.finish();
            self.given_out += held.len();
            out.push_str(&held);
        }
        out
    }

    /// How many tokens the text has that the model wrote.
    fn tokens(&self, canvas: &Canvas) -> usize {
        let asked = canvas.asked_range();
        let first = if self.subject == Subject::Whole { 0 } else { asked.start };
        let written = (first..).zip(&self.starts).filter(|(position, _)| canvas.is_asked(*position));
        let written = written.filter(|(_, start)| !self.stopped || **start < self.given_out);
        let is_text = |position| !self.file.tokenizer().is_special(canvas.tokens()[position]);
        written.filter(|(position, _)| self.subject == Subject::Answer || is_text(*position)).count()
    }

    fn reason(&self, canvas: &Canvas) -> FinishReason {
        let ends = |position| self.file.tokenizer().is_end(canvas.tokens()[position]);
        let asked = canvas.asked_range();
        let ended = match self.subject {
            Subject::Answer => canvas.len() > asked.start + self.starts.len() && ends(asked.start + self.starts.len()),
            Subject::Blanks | Subject::Whole => {
                asked.clone().any(|position| canvas.is_asked(position) && ends(position))
            }
        };
        if self.stopped || ended { FinishReason::Stop } else { FinishReason::Length }
    }
}
