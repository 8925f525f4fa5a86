//! The runs of one HTTP request: started together, told of on one channel.

use std::sync::Arc;

use demask::{Canvas, Request};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::app::App;
use crate::failure::ApiError;
use crate::guard::{self, Number};
use crate::job::{Event, Job, Listener, Outcome, Subject};

/// What is asked for, checked and ready to be queued.
pub(crate) struct Asked {
    /// One canvas per prompt.
    pub(crate) canvases: Vec<Canvas>,
    pub(crate) subject: Subject,
    pub(crate) request: Request,
    /// Runs per prompt; each has the next seed.
    pub(crate) n: usize,
    pub(crate) stop: Vec<String>,
}

impl Asked {
    /// How many runs it is.
    pub(crate) fn runs(&self) -> usize {
        self.canvases.len() * self.n
    }

    /// Refuses what the model can't do.
    pub(crate) fn check(&self, app: &App) -> Result<(), ApiError> {
        let most = app.options.limits.choices;
        if self.runs() > most {
            let message = format!("`n` times prompts is {}; this server makes at most {most} answers", self.runs());
            return Err(ApiError::field("n", message));
        }
        for canvas in &self.canvases {
            app.runner.file().settings(canvas, &self.request.before_tuning())?;
        }
        Ok(())
    }

    /// Tokens that were given, over all prompts.
    pub(crate) fn given(&self) -> usize {
        self.canvases.iter().map(|canvas| canvas.len() - canvas.asked_in(0..canvas.len())).sum()
    }

    /// The seed of a run.
    pub(crate) fn seed(&self, index: usize) -> u64 {
        self.request.seed.wrapping_add((index % self.n) as u64)
    }

    /// Queues the runs.
    pub(crate) fn submit(&self, app: &Arc<App>, number: Number) -> Result<(Running, usize), ApiError> {
        let (events, receiver) = mpsc::unbounded_channel();
        let deadline = guard::deadline(app.options.limits.time);
        let jobs = (0..self.runs())
            .map(|index| Job {
                listener: Listener { number: number.0, index, events: events.clone() },
                canvas: self.canvases[index / self.n].clone(),
                request: Request { seed: self.seed(index), ..self.request.clone() },
                subject: self.subject,
                stop: self.stop.clone(),
                deadline,
            })
            .collect();
        let ahead = app.queue.submit(jobs)?;
        Ok((Running { receiver, first: None }, ahead))
    }
}

/// Runs under way. Dropping it gives them up.
pub(crate) struct Running {
    receiver: UnboundedReceiver<(usize, Event)>,
    /// An event that was looked at already.
    first: Option<(usize, Event)>,
}

impl Running {
    /// The next event.
    pub(crate) async fn next(&mut self) -> (usize, Event) {
        if let Some(event) = self.first.take() {
            return event;
        }
        let lost = || (0, Event::Failed(ApiError::internal("the engine has ended")));
        self.receiver.recv().await.unwrap_or_else(lost)
    }

    /// Waits until one of the runs has got somewhere; a failure before that is the answer to the request.
    pub(crate) async fn under_way(&mut self) -> Result<(), ApiError> {
        loop {
            match self.next().await {
                (_, Event::Begun) => {}
                (_, Event::Failed(error)) => return Err(error),
                event => {
                    self.first = Some(event);
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the end of all: each one's text and outcome.
    pub(crate) async fn finished(mut self, runs: usize) -> Result<Vec<(String, Outcome)>, ApiError> {
        let mut texts = vec![String::new(); runs];
        let mut outcomes: Vec<Option<Outcome>> = (0..runs).map(|_| None).collect();
        let mut left = runs;
        while left > 0 {
            match self.next().await {
                (_, Event::Begun) => {}
                (index, Event::Step(step)) => texts[index].push_str(&step.text),
                (index, Event::Done(outcome)) => {
                    texts[index].push_str(&outcome.text);
                    outcomes[index] = Some(*outcome);
                    left -= 1;
                }
                (_, Event::Failed(error)) => return Err(error),
            }
        }
        Ok(texts.into_iter().zip(outcomes.into_iter().flatten()).collect())
    }
}
