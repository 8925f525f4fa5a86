//! `POST /api/denoise`: a run as server-sent events, edit by edit.
//!
//! `start` shows the canvas, each `step` its edits and the text that became final, `end` the sums; `error` ends a run that
//! can't go on. Whoever applies the edits to the canvas in order has the canvas.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event as SseEvent;
use demask::blanks::Marked;
use demask::diffusion::{EditKind, Settings, Tuning, spans};
use demask::{Canvas, Request, Tokenizer};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::failure::{ApiError, ErrorBody};
use crate::fields::Fields;
use crate::guard::{self, Number};
use crate::job::{Event, FinishReason, Outcome, StepDone, Subject};
use crate::openai::Stop;
use crate::openai::chat::{ChatMessage, messages};
use crate::openai::completions::fill;
use crate::openai::stream::{answer, to_json};
use crate::runs::{Asked, Running};

/// One of `messages`, `prompt` and `text`, and settings.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DenoiseRequest {
    /// A conversation that is to be answered.
    messages: Option<Vec<ChatMessage>>,
    /// Raw text that is to go on.
    prompt: Option<String>,
    /// A text with blanks: `[[]]`, or `[[N]]` for N open positions. The rest is fixed.
    text: Option<String>,
    /// The served model, or nothing.
    model: Option<String>,
    /// Where the answer ends: nothing of these is given out.
    stop: Option<Stop>,
}

/// What is told of a run.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Told {
    /// Event `start`.
    Start(Start),
    /// Event `step`.
    Step(Step),
    /// Event `end`.
    End(End),
    /// Event `error`.
    Error(ErrorBody),
}

impl Told {
    fn event(&self) -> SseEvent {
        let name = match self {
            Told::Start(_) => "start",
            Told::Step(_) => "step",
            Told::End(_) => "end",
            Told::Error(_) => "error",
        };
        SseEvent::default().event(name).data(to_json(self))
    }
}

/// The canvas before the first step.
#[derive(Serialize, ToSchema)]
pub(crate) struct Start {
    /// The run's number, as in `x-request-id`.
    id: String,
    model: String,
    seed: u64,
    /// Tokens that are given.
    prompt_tokens: usize,
    /// Runs that were there before.
    ahead: usize,
    /// All positions.
    canvas: Vec<Cell>,
    /// The spans that are decided one after the other.
    blocks: Vec<Span>,
    settings: Resolved,
}

/// A position.
#[derive(Serialize, ToSchema)]
pub(crate) struct Cell {
    /// Its token.
    token: u32,
    /// What a reader sees of it; nothing if it is open.
    text: String,
    /// A token that is no text.
    special: bool,
    /// Whether it is to be decided.
    open: bool,
}

/// Positions from `start` to before `end`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Span {
    start: usize,
    end: usize,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Span {
        Span { start: range.start, end: range.end }
    }
}

/// The settings that the run goes by.
#[derive(Serialize, ToSchema)]
pub(crate) struct Resolved {
    recipe: &'static str,
    /// Planned steps; none if the unmasker takes as many as it needs.
    steps: Option<usize>,
    block_length: usize,
    unmask: &'static str,
    cache: &'static str,
    /// Whether it is the model's reference sampler without stale keys and values.
    exact: bool,
}

/// A denoising step.
#[derive(Serialize, ToSchema)]
pub(crate) struct Step {
    step: usize,
    block: usize,
    /// Forward passes.
    nfe: usize,
    /// Rows pushed through the layers.
    rows: usize,
    /// Whether no stale keys and values were involved.
    refreshed: bool,
    /// Positions before this one can't change any more.
    settled: usize,
    edits: Vec<EditOf>,
    /// Text that became final.
    text: String,
    /// Milliseconds since the run began.
    ms: u64,
}

/// A change of one position.
#[derive(Serialize, ToSchema)]
pub(crate) struct EditOf {
    position: usize,
    /// Token before.
    from: u32,
    /// Token after.
    to: u32,
    /// `unmask`, `revise`, `remask` or `renoise`.
    #[schema(value_type = String)]
    kind: EditKind,
    /// How sure the unmasker was, on its own scale; null for minus infinity.
    confidence: Option<f64>,
    /// What a reader sees of the token.
    text: String,
    /// A token that is no text.
    special: bool,
}

/// The end of a run.
#[derive(Serialize, ToSchema)]
pub(crate) struct End {
    finish_reason: FinishReason,
    /// The whole text: for blanks with what stands around them.
    text: String,
    /// For blanks: what each became.
    #[serde(skip_serializing_if = "Option::is_none")]
    blanks: Option<Vec<String>>,
    steps: usize,
    nfe: usize,
    rows: usize,
    visible_tokens: usize,
    /// `rows / visible_tokens`; null for an empty answer.
    rows_per_visible_token: Option<f64>,
    /// Seconds between the first and the last step, other runs' turns included.
    seconds: f64,
    visible_tokens_per_s: Option<f64>,
    /// With the recipe `auto`: what was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuned: Option<Tuned>,
}

/// What the recipe `auto` chose by this machine's times. A request that gives these gets the same text anywhere.
#[derive(Serialize, ToSchema)]
pub(crate) struct Tuned {
    /// Open positions behind the block that the model sees.
    window: usize,
    /// Steps between refreshes; null: when a block begins.
    refresh: Option<usize>,
}

impl From<Tuning> for Tuned {
    fn from(Tuning { window, refresh, .. }: Tuning) -> Tuned {
        Tuned { window, refresh }
    }
}

/// A run, edit by edit
#[utoipa::path(post, path = "/api/denoise", tag = "demask", request_body = DenoiseRequest,
    responses((status = 200, description = "Events `start`, `step`, `end` and `error`", body = Told,
        content_type = "text/event-stream"),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)))]
pub(crate) async fn denoise(
    State(app): State<Arc<App>>,
    Extension(number): Extension<Number>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (asked, blanks) = guard::read(&app, &headers, body, prepare).await?;
    let (running, ahead) = asked.submit(&app, number)?;
    let canvas = &asked.canvases[0];
    let settings = app.runner.file().settings(canvas, &asked.request.before_tuning())?;
    let start = start(&app, &asked, &settings, number, ahead);
    let ready = VecDeque::from([Told::Start(start).event()]);
    let state = Stream { app, running, blanks, ready, text: String::new(), begun: Instant::now(), over: false };
    Ok(answer(stream::unfold(state, |mut state| async move {
        loop {
            if let Some(event) = state.ready.pop_front() {
                return Some((Ok::<_, Infallible>(event), state));
            }
            if state.over {
                return None;
            }
            let (_, event) = state.running.next().await;
            state.take(event);
        }
    })))
}

/// Where the blanks of a text are.
type Blanks = Vec<Range<usize>>;

fn prepare(app: &App, body: &[u8]) -> Result<(Asked, Option<Blanks>), ApiError> {
    let mut fields = Fields::read(body)?;
    let (given_eos, given_length) = (fields.has("eos"), fields.has("max_tokens"));
    let request = fields.settings(app.options.limits.max_tokens)?;
    let given: DenoiseRequest = fields.rest()?;
    app.check_model(given.model.as_deref())?;
    let stop = Stop::strings(given.stop)?;
    let file = app.runner.file();
    let (canvas, request, blanks) = match (given.messages, given.prompt, given.text) {
        (Some(given), None, None) => {
            (file.canvas(&app.chat_prompt(&messages(given)?)?, request.max_tokens)?, request, None)
        }
        (None, Some(text), None) => {
            (file.canvas(&file.tokenizer().encode_prompt_raw(&text), request.max_tokens)?, request, None)
        }
        (None, None, Some(text)) => {
            if given_length {
                let message = "`max_tokens` can't be used: the blanks of `text` say how many positions are open";
                return Err(ApiError::field("max_tokens", message));
            }
            if !stop.is_empty() {
                let message = "`stop` can't be used: what stands around the blanks of `text` is fixed";
                return Err(ApiError::field("stop", message));
            }
            let (canvas, request, blanks) = with_blanks(app, &text, request, given_eos)?;
            (canvas, request, Some(blanks))
        }
        _ => return Err(ApiError::field("messages", "one of `messages`, `prompt` and `text` is needed")),
    };
    let subject = if blanks.is_some() { Subject::Whole } else { Subject::Answer };
    let asked = Asked { canvases: vec![canvas], subject, request, n: 1, stop };
    asked.check(app)?;
    Ok((asked, blanks))
}

fn with_blanks(
    app: &App,
    text: &str,
    request: Request,
    given_eos: bool,
) -> Result<(Canvas, Request, Blanks), ApiError> {
    let file = app.runner.file();
    let marked = Marked::new(text)?;
    let most = app.options.limits.max_tokens.min(file.spec().context);
    if marked.open() > most {
        let message = format!("the blanks of `text` have {} positions, at most {most} can be open", marked.open());
        return Err(ApiError::field("text", message));
    }
    let (tokens, blanks) = marked.tokens(file.tokenizer());
    let request = marked.request(fill(request, given_eos)?);
    Ok((file.canvas_with_blanks(&tokens)?, request, blanks))
}

fn start(app: &App, asked: &Asked, settings: &Settings, number: Number, ahead: usize) -> Start {
    let (canvas, tokenizer) = (&asked.canvases[0], app.runner.file().tokenizer());
    let cell = |position: usize| {
        let (token, open) = (canvas.tokens()[position], canvas.is_open(position));
        let (text, special) = if open { (String::new(), false) } else { shown(tokenizer, token) };
        Cell { token, text, special, open }
    };
    Start {
        id: format!("req-{}", number.0),
        model: app.model.clone(),
        seed: asked.request.seed,
        prompt_tokens: asked.given(),
        ahead,
        canvas: (0..canvas.len()).map(cell).collect(),
        blocks: spans(canvas, settings.block_length).into_iter().map(Span::from).collect(),
        settings: Resolved {
            recipe: asked.request.recipe.name(),
            steps: settings.unmask.is_scheduled().then_some(settings.steps),
            block_length: settings.block_length,
            unmask: settings.unmask.name(),
            cache: settings.cache.policy.name(),
            exact: settings.is_reference(),
        },
    }
}

/// What a reader sees of a token, and whether it is no text. Half a character is shown as a replacement character here;
/// the `text` of steps never holds half of one.
fn shown(tokenizer: &Tokenizer, token: u32) -> (String, bool) {
    if tokenizer.is_special(token) { (tokenizer.token_text(token), true) } else { (tokenizer.decode(&[token]), false) }
}

/// A stream that is under way.
struct Stream {
    app: Arc<App>,
    running: Running,
    blanks: Option<Blanks>,
    ready: VecDeque<SseEvent>,
    text: String,
    begun: Instant,
    over: bool,
}

impl Stream {
    fn take(&mut self, event: Event) {
        let told = match event {
            Event::Begun => {
                self.begun = Instant::now();
                return;
            }
            Event::Step(step) => Told::Step(self.step(*step)),
            Event::Done(outcome) => {
                self.over = true;
                Told::End(self.end(*outcome))
            }
            Event::Failed(error) => {
                self.over = true;
                Told::Error(error.body())
            }
        };
        self.ready.push_back(told.event());
    }

    fn step(&mut self, StepDone { report, text }: StepDone) -> Step {
        self.text.push_str(&text);
        let tokenizer = self.app.runner.file().tokenizer();
        let edit = |edit: &demask::Edit| {
            let opens = matches!(edit.kind, EditKind::Remask | EditKind::Renoise);
            let (text, special) = if opens { (String::new(), false) } else { shown(tokenizer, edit.to) };
            let confidence = edit.confidence.is_finite().then_some(edit.confidence);
            EditOf { position: edit.position, from: edit.from, to: edit.to, kind: edit.kind, confidence, text, special }
        };
        Step {
            step: report.step,
            block: report.block.index,
            nfe: report.nfe,
            rows: report.rows,
            refreshed: report.refreshed,
            settled: report.settled,
            edits: report.transfer.edits.iter().map(edit).collect(),
            text,
            ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn end(&mut self, outcome: Outcome) -> End {
        self.text.push_str(&outcome.text);
        let (statistics, canvas) = (outcome.statistics, &outcome.canvas);
        let seconds = outcome.elapsed.as_secs_f64();
        let tokenizer = self.app.runner.file().tokenizer();
        let blank = |blank: &Range<usize>| tokenizer.decode(&canvas.tokens()[blank.clone()]);
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        End {
            finish_reason: outcome.finish,
            text: std::mem::take(&mut self.text),
            blanks: self.blanks.as_ref().map(|blanks| blanks.iter().map(blank).collect()),
            steps: statistics.steps,
            nfe: statistics.nfe,
            rows: statistics.rows,
            visible_tokens: statistics.visible_tokens,
            rows_per_visible_token: statistics.rows_per_visible_token().map(rounded),
            seconds,
            visible_tokens_per_s: (statistics.visible_tokens > 0 && seconds > 0.0)
                .then(|| rounded(statistics.visible_tokens as f64 / seconds)),
            tuned: outcome.tuning.map(Tuned::from),
        }
    }
}
