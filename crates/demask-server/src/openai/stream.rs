//! Server-sent events in the form that OpenAI's clients read: chunks that only append, an optional last one with the
//! usage, then `[DONE]`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use demask::diffusion::Statistics;
use futures_util::stream;
use serde::Serialize;

use super::Usage;
use crate::job::{Event, FinishReason};
use crate::runs::Running;

/// Makes the chunks of an endpoint.
pub(super) trait Chunks: Send + Sync + 'static {
    /// A chunk before any text, if there is one.
    fn opening(&self, index: usize) -> Option<String>;
    /// A chunk with text.
    fn text(&self, index: usize, text: String) -> String;
    /// The last chunk of an answer.
    fn closing(&self, index: usize, finish: FinishReason) -> String;
    /// The last chunk of all.
    fn usage(&self, usage: Usage) -> String;
}

struct State {
    running: Running,
    chunks: Box<dyn Chunks>,
    ready: VecDeque<SseEvent>,
    statistics: Vec<Statistics>,
    runs: usize,
    given: usize,
    include_usage: bool,
    over: bool,
}

/// Answers with a stream.
pub(super) fn respond(
    running: Running,
    chunks: Box<dyn Chunks>,
    runs: usize,
    given: usize,
    include_usage: bool,
) -> Response {
    let opening = (0..runs).filter_map(|index| chunks.opening(index)).map(|data| SseEvent::default().data(data));
    let ready = opening.collect();
    let state = State { running, chunks, ready, statistics: Vec::new(), runs, given, include_usage, over: false };
    let events = stream::unfold(state, |mut state| async move {
        loop {
            if let Some(event) = state.ready.pop_front() {
                return Some((Ok::<_, Infallible>(event), state));
            }
            if state.over {
                return None;
            }
            let (index, event) = state.running.next().await;
            state.take(index, event);
        }
    });
    answer(events)
}

/// A response of server-sent events.
pub(crate) fn answer(
    events: impl futures_util::Stream<Item = Result<SseEvent, Infallible>> + Send + 'static,
) -> Response {
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(10));
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Proxies that gather a response would take its point away.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

impl State {
    fn say(&mut self, data: String) {
        self.ready.push_back(SseEvent::default().data(data));
    }

    fn take(&mut self, index: usize, event: Event) {
        match event {
            Event::Begun => {}
            Event::Step(step) if step.text.is_empty() => {}
            Event::Step(step) => self.say(self.chunks.text(index, step.text)),
            Event::Done(outcome) => {
                if !outcome.text.is_empty() {
                    self.say(self.chunks.text(index, outcome.text));
                }
                self.say(self.chunks.closing(index, outcome.finish));
                self.statistics.push(outcome.statistics);
                if self.statistics.len() == self.runs {
                    if self.include_usage {
                        self.say(self.chunks.usage(Usage::new(self.given, self.statistics.iter())));
                    }
                    self.say("[DONE]".to_owned());
                    self.over = true;
                }
            }
            Event::Failed(error) => {
                self.say(to_json(&error.body()));
                self.over = true;
            }
        }
    }
}

/// Plain data as JSON.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
