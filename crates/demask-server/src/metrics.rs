//! What `/metrics` counts.

use demask::diffusion::Statistics;
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Where a request went and how it was answered.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Answered {
    /// The route, never what a client made up.
    pub(crate) route: String,
    pub(crate) status: u16,
}

/// Counters and gauges.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) requests: Family<Answered, Counter>,
    pub(crate) waiting: Gauge,
    pub(crate) running: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) cancelled: Counter,
    pub(crate) failed: Counter,
    pub(crate) step_seconds: Histogram,
    steps: Counter,
    nfe: Counter,
    rows: Counter,
    visible_tokens: Counter,
    runs: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("demask"),
            requests: Family::default(),
            waiting: Gauge::default(),
            running: Gauge::default(),
            connections: Gauge::default(),
            cancelled: Counter::default(),
            failed: Counter::default(),
            step_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            steps: Counter::default(),
            nfe: Counter::default(),
            rows: Counter::default(),
            visible_tokens: Counter::default(),
            runs: Counter::default(),
        };
        let to = &mut metrics.registry;
        to.register("http_requests", "Answered requests", metrics.requests.clone());
        to.register("connections", "Open connections", metrics.connections.clone());
        to.register("runs_waiting", "Runs in the queue", metrics.waiting.clone());
        to.register("runs_running", "Runs that take turns on the model", metrics.running.clone());
        to.register("runs_finished", "Runs that came to their end", metrics.runs.clone());
        to.register("runs_cancelled", "Runs whose client left", metrics.cancelled.clone());
        to.register("runs_failed", "Runs that failed", metrics.failed.clone());
        to.register("steps", "Denoising steps of finished runs", metrics.steps.clone());
        to.register("forward_passes", "Forward passes (NFE) of finished runs", metrics.nfe.clone());
        to.register("rows", "Rows pushed through the layers by finished runs", metrics.rows.clone());
        to.register("visible_tokens", "Visible tokens of finished runs", metrics.visible_tokens.clone());
        to.register("step_seconds", "Time of a denoising step", metrics.step_seconds.clone());
        metrics
    }

    /// Adds a finished run.
    pub(crate) fn add(&self, statistics: &Statistics) {
        self.runs.inc();
        self.steps.inc_by(statistics.steps as u64);
        self.nfe.inc_by(statistics.nfe as u64);
        self.rows.inc_by(statistics.rows as u64);
        self.visible_tokens.inc_by(statistics.visible_tokens as u64);
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
