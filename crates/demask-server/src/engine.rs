//! One model, many runs: a bounded queue, and one thread on which the runs take turns, a step each.
//!
//! A run's text depends on nothing but its own request: each has its own seed, its own keys and values, and the model is
//! only read. So turns change when a text arrives, never what it says. (The recipe `auto` also goes by the machine's curve,
//! which stays the same while a server runs.)

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::failure::ApiError;
use crate::job::{Job, Listener, Run, Turn};
use crate::metrics::Metrics;
use crate::runner::Runner;
use crate::tuner::Tuner;

/// The queue's state.
#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Runs at work.
    running: usize,
    /// Nothing new is taken.
    closing: bool,
    /// The thread has ended.
    ended: bool,
}

/// Where runs are handed in.
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// Told once, when the thread has ended.
    gone: Notify,
    parallel: usize,
    capacity: usize,
    metrics: Arc<Metrics>,
}

impl Queue {
    /// Starts the thread that runs `runner`.
    pub(crate) fn start(
        runner: Arc<dyn Runner>,
        parallel: usize,
        capacity: usize,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Arc<Queue>> {
        let (state, wake, gone) = (Mutex::default(), Condvar::new(), Notify::new());
        let queue = Arc::new(Queue { state, wake, gone, parallel: parallel.max(1), capacity, metrics });
        let thread = Ended(Arc::clone(&queue));
        std::thread::Builder::new().name("engine".to_owned()).spawn(move || thread.0.work(&*runner))?;
        Ok(queue)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands in the runs of one request, all or none; tells how many others are ahead of them.
    pub(crate) fn submit(&self, jobs: Vec<Job>) -> Result<usize, ApiError> {
        let mut state = self.lock();
        if state.closing || state.ended {
            return Err(ApiError::closing());
        }
        let most = self.capacity + self.parallel;
        if jobs.len() > most {
            let message =
                format!("the request asks for {} runs; this server takes at most {most} at a time", jobs.len());
            return Err(ApiError::field("n", message));
        }
        self.purge(&mut state);
        let room = self.capacity + self.parallel.saturating_sub(state.running);
        if state.waiting.len() + jobs.len() > room {
            return Err(ApiError::queue_full(state.waiting.len() + state.running));
        }
        let ahead = state.waiting.len() + state.running;
        state.waiting.extend(jobs);
        self.metrics.waiting.set(state.waiting.len() as i64);
        drop(state);
        self.wake.notify_all();
        Ok(ahead)
    }

    /// Whether requests are taken.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.lock();
        !state.closing && !state.ended
    }

    /// Takes nothing new and tells those who wait; what runs goes on to its end.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        for job in state.waiting.drain(..) {
            job.listener.fail(ApiError::closing());
        }
        self.metrics.waiting.set(0);
        drop(state);
        self.wake.notify_all();
    }

    /// Waits, after [`Queue::close`], until the last run has ended and been logged.
    pub(crate) async fn ended(&self) {
        self.gone.notified().await;
    }

    /// Forgets waiting runs whose clients have left, and tells those whose time is over.
    fn purge(&self, state: &mut State) {
        let now = Instant::now();
        state.waiting.retain(|job| {
            if job.listener.is_gone() {
                self.cancelled(job.listener.number, "waiting");
                return false;
            }
            if job.deadline <= now {
                job.listener.fail(ApiError::too_late("it waited for its turn"));
                return false;
            }
            true
        });
    }

    fn cancelled(&self, number: u64, state: &str) {
        self.metrics.cancelled.inc();
        tracing::info!(request = number, state, "cancelled: the client has left");
    }

    /// Waits until there is something to do; takes what may begin. `None`: everything is done and nothing will come.
    fn next(&self, running: usize) -> Option<Vec<Job>> {
        let mut state = self.lock();
        loop {
            self.purge(&mut state);
            let free = self.parallel.saturating_sub(running).min(state.waiting.len());
            let begun: Vec<Job> = state.waiting.drain(..free).collect();
            state.running = running + begun.len();
            self.metrics.waiting.set(state.waiting.len() as i64);
            self.metrics.running.set(state.running as i64);
            if state.running > 0 {
                return Some(begun);
            }
            if state.closing {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, runner: &dyn Runner) {
        let mut tuner = Tuner::new(runner);
        let mut runs: VecDeque<Box<Run<'_>>> = VecDeque::new();
        while let Some(begun) = self.next(runs.len()) {
            for job in begun {
                let listener = job.listener.clone();
                let run = self.guarded(&listener, || Run::start(runner, &mut tuner, job));
                runs.extend(run.flatten().map(Box::new));
            }
            for _ in 0..runs.len() {
                let Some(run) = runs.pop_front() else { break };
                runs.extend(self.turn(run));
            }
        }
    }

    /// Lets a run get on. One that panics ends there and is told of; the others go on: what it leaves half done is its own.
    fn guarded<T>(&self, listener: &Listener, get_on: impl FnOnce() -> T) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(get_on));
        if outcome.is_err() {
            self.metrics.failed.inc();
            tracing::error!(request = listener.number, "failed: a panic, which is a bug");
            listener.fail(ApiError::internal("this run met a bug of the server"));
        }
        outcome.ok()
    }

    /// One run's turn; gives it back if it goes on.
    fn turn<'a>(&self, run: Box<Run<'a>>) -> Option<Box<Run<'a>>> {
        let listener = run.listener.clone();
        let number = listener.number;
        if listener.is_gone() {
            self.cancelled(number, "running");
            return None;
        }
        if run.deadline <= Instant::now() {
            listener.fail(ApiError::too_late("it ran"));
            tracing::warn!(request = number, "stopped: out of time");
            return None;
        }
        let started = Instant::now();
        let turn = self.guarded(&listener, || run.step())?;
        self.metrics.step_seconds.observe(started.elapsed().as_secs_f64());
        match turn {
            Turn::Goes(run) => return Some(run),
            Turn::Failed => {
                self.metrics.failed.inc();
                tracing::error!(request = number, "failed");
            }
            Turn::Done { statistics, elapsed } => {
                self.metrics.add(&statistics);
                tracing::info!(
                    request = number,
                    steps = statistics.steps,
                    nfe = statistics.nfe,
                    rows = statistics.rows,
                    visible_tokens = statistics.visible_tokens,
                    ms = millis(elapsed),
                    "finished"
                );
            }
        }
        None
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Tells the queue that its thread has ended, even if it panicked.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.close();
        self.0.metrics.running.set(0);
        self.0.gone.notify_one();
    }
}
