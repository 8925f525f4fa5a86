//! One run: what was asked, what is told while it goes on, and its text.

use std::time::{Duration, Instant};

use demask::diffusion::{Denoising, Statistics};
use demask::text::StreamDecoder;
use demask::{Canvas, MaskPredictor, ModelFile, Request, StepReport};
use tokio::sync::mpsc::UnboundedSender;

use crate::failure::ApiError;
use crate::runner::Runner;
use crate::stop::Stops;

/// A run that was asked for. It is given up when nobody listens to its events any more.
pub(crate) struct Job {
    /// Number of the HTTP request that it belongs to.
    pub(crate) number: u64,
    /// Which of that request's runs it is.
    pub(crate) index: usize,
    pub(crate) canvas: Canvas,
    pub(crate) request: Request,
    pub(crate) subject: Subject,
    pub(crate) stop: Vec<String>,
    pub(crate) deadline: Instant,
    /// As many as a run has steps, and a few: that bounds the channel.
    pub(crate) events: UnboundedSender<(usize, Event)>,
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
    pub(crate) number: u64,
    pub(crate) deadline: Instant,
    index: usize,
    events: UnboundedSender<(usize, Event)>,
    denoising: Denoising,
    predictor: Box<dyn MaskPredictor>,
    text: Text<'a>,
    begun: Instant,
}

/// What became of a run in a step.
pub(crate) enum Turn<'a> {
    /// It goes on.
    Goes(Box<Run<'a>>),
    /// It has ended.
    Done { number: u64, statistics: Statistics, elapsed: Duration },
    /// It failed.
    Failed(u64),
}

impl<'a> Run<'a> {
    /// Starts a run; a failure is told to whoever asked.
    pub(crate) fn start(runner: &'a dyn Runner, job: Job) -> Option<Run<'a>> {
        let (denoising, predictor) = match runner.start(job.canvas, &job.request) {
            Ok(started) => started,
            Err(error) => {
                let _ = job.events.send((job.index, Event::Failed(error.into())));
                return None;
            }
        };
        let _ = job.events.send((job.index, Event::Begun));
        Some(Run {
            number: job.number,
            deadline: job.deadline,
            index: job.index,
            events: job.events,
            denoising,
            predictor,
            text: Text::new(runner.file(), job.subject, job.stop),
            begun: Instant::now(),
        })
    }

    /// Whether nobody listens any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    /// Tells that it can't go on.
    pub(crate) fn fail(&self, error: ApiError) {
        self.tell(Event::Failed(error));
    }

    /// The next step.
    pub(crate) fn step(mut self: Box<Self>) -> Turn<'a> {
        match self.denoising.step(&mut *self.predictor) {
            Err(error) => {
                self.fail(error.into());
                Turn::Failed(self.number)
            }
            Ok(None) => self.finish(),
            Ok(Some(report)) => {
                let text = self.text.advance(self.denoising.canvas(), report.settled);
                self.tell(Event::Step(Box::new(StepDone { report, text })));
                if self.text.stopped { self.finish() } else { Turn::Goes(self) }
            }
        }
    }

    fn finish(self: Box<Self>) -> Turn<'a> {
        let Run { number, index, events, denoising, mut text, begun, .. } = *self;
        let elapsed = begun.elapsed();
        let generation = denoising.finish(None);
        let canvas = generation.canvas;
        let last = text.finish(&canvas);
        let tokens = text.tokens(&canvas);
        let finish = text.reason(&canvas);
        let statistics = Statistics { visible_tokens: tokens, ..generation.statistics };
        let outcome = Outcome { text: last, finish, statistics, canvas, elapsed };
        let _ = events.send((index, Event::Done(Box::new(outcome))));
        Turn::Done { number, statistics, elapsed }
    }

    fn tell(&self, event: Event) {
        // Whoever listened may have left; the engine sees that before the next step.
        let _ = self.events.send((self.index, event));
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
