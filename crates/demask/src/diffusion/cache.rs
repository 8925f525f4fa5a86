//! Cache policies: which rows run in a step.
//!
//! There is one store of keys and values, by canvas position. Rows that run overwrite theirs and attend over all; the
//! others keep those of the last time they ran. A policy is nothing but a choice of rows, so all of them share the loop and
//! the forward pass. Whatever the policy, a position is only scored by a row that runs in the same step, and a row that has
//! never run runs before anyone attends to it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::canvas::{Block, Canvas, EditKind, Transfer, spans};
use super::drift::Drift;
use super::request::EndPolicy;
use super::settings::Settings;
use crate::error::Error;
use crate::model::MaskPredictor;

/// The cache policies, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachePolicy {
    /// Every row runs in every step.
    #[default]
    None,
    /// A block's first step runs all rows, its later ones those from the block's start on (Fast-dLLM, Wu et al. 2025,
    /// block-wise cache).
    Prefix,
    /// The same, and the later steps run only the block's rows (Fast-dLLM, DualCache).
    Dual,
    /// Finished blocks are frozen after a delay; the rows behind them run (d3LLM, Qian et al. 2026, delayed KV cache).
    Delayed,
}

impl CachePolicy {
    /// Every policy.
    pub const ALL: [CachePolicy; 4] = [CachePolicy::None, CachePolicy::Prefix, CachePolicy::Dual, CachePolicy::Delayed];

    /// The policy's name.
    pub fn name(self) -> &'static str {
        match self {
            CachePolicy::None => "none",
            CachePolicy::Prefix => "prefix",
            CachePolicy::Dual => "dual",
            CachePolicy::Delayed => "delayed",
        }
    }

    /// The policy called `name`, whatever its case.
    pub fn from_name(name: &str) -> Option<CachePolicy> {
        CachePolicy::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }
}

/// A policy and what it is composed with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheSettings {
    /// Which rows run.
    pub policy: CachePolicy,
    /// A step runs all rows when this many have passed since the last that did.
    pub refresh: Option<usize>,
    /// A step runs all rows when those that ran in the one before have drifted by more than this, see [`Request`].
    ///
    /// [`Request`]: super::Request::refresh_drift
    pub refresh_drift: Option<f64>,
    /// Open positions behind the block that are on the canvas at all; the rest is left out (DPad, Chen et al. 2025).
    pub window: Option<usize>,
    /// The rows left of the answer run only once.
    pub freeze_prompt: bool,
    /// Between refreshes only open rows run, and those decided in the last so many steps; 0 = off (after dKV-Cache, Ma et
    /// al. 2025: a token is cached a step after it was decided).
    pub dirty_rows: usize,
    /// `delayed`: more steps that a finished block runs before it is frozen.
    pub delay: usize,
}

impl CacheSettings {
    /// Whether keys and values are never stale, so that a run is bit for bit that of [`CachePolicy::None`].
    pub fn is_exact(&self) -> bool {
        let always_fresh = self.policy == CachePolicy::None || self.refresh == Some(1);
        always_fresh && self.window.is_none() && !self.freeze_prompt
    }
}

/// The rows of one step.
pub(super) struct RowPlan {
    /// Rows to run, ascending.
    pub(super) rows: Vec<u32>,
    /// Positions of the canvas that are attended to, from 0.
    pub(super) visible: usize,
    /// Whether nothing of the policy's making is stale.
    pub(super) refreshed: bool,
}

/// A policy at work on a canvas.
pub(super) struct Cache {
    settings: CacheSettings,
    end_tokens: Vec<u32>,
    /// Whether the canvas shrinks to its first end token.
    shrinks: bool,
    spans: Vec<Range<usize>>,
    /// Steps run.
    steps: usize,
    /// Steps since all rows ran; none before the first.
    since_refresh: Option<usize>,
    drift: Drift,
    /// The last step committed nothing because its keys and values were stale.
    held_back: bool,
    /// The block of the last step.
    block: Option<usize>,
    /// Which rows have ever run.
    ran: Vec<bool>,
    /// The step after which each position last changed.
    changed: Vec<Option<usize>>,
    /// The step that finished each span.
    finished: Vec<Option<usize>>,
    /// Spans that are frozen, from the left.
    frozen: usize,
}

impl Cache {
    pub(super) fn new(canvas: &Canvas, settings: &Settings) -> Cache {
        let spans = spans(canvas, settings.block_length);
        Cache {
            settings: settings.cache,
            end_tokens: settings.end_tokens.clone(),
            shrinks: !settings.cache.is_exact()
                && !settings.unmask.revises()
                && settings.eos == EndPolicy::Stop
                && canvas.asked_range().end == canvas.len(),
            steps: 0,
            since_refresh: None,
            drift: Drift::new(settings.cache.refresh_drift, canvas.len()),
            held_back: false,
            block: None,
            ran: vec![false; canvas.len()],
            changed: vec![None; canvas.len()],
            finished: vec![None; spans.len()],
            frozen: 0,
            spans,
        }
    }

    /// Where the canvas ends: behind the first end token that a refreshed step has committed, if the run is approximate
    /// anyway and nothing that was given stands behind it.
    pub(super) fn horizon(&self, canvas: &Canvas) -> usize {
        let end =
            |&p: &usize| canvas.is_asked(p) && !canvas.is_open(p) && self.end_tokens.contains(&canvas.tokens()[p]);
        let end = if self.shrinks { canvas.asked_range().find(end) } else { None };
        match end {
            Some(end) if canvas.asked_in(end..canvas.len()) == canvas.len() - end => end + 1,
            _ => canvas.len(),
        }
    }

    /// The rows that run in the next step: the policy's, those that score a candidate, and any that never ran.
    pub(super) fn plan(
        &mut self,
        canvas: &Canvas,
        block: &Block,
        candidates: &[usize],
        wanted: &[u32],
        shift: bool,
    ) -> RowPlan {
        let refreshed = self.refreshes(block);
        let answer = canvas.asked_range().start;
        let visible = self.visible(canvas, block, candidates);
        let chosen = match self.settings.policy {
            _ if refreshed => (if self.settings.freeze_prompt { answer } else { 0 })..visible,
            CachePolicy::None => 0..visible,
            CachePolicy::Prefix => block.range.start..visible,
            CachePolicy::Dual => block.range.start..block.range.end.min(visible),
            CachePolicy::Delayed => self.frozen_end(answer)..visible,
        };
        // With shifted logits the row at the left scores the first position.
        let chosen = chosen.start.saturating_sub(usize::from(shift))..chosen.end;
        let runs = |p: usize| !self.ran[p] || (chosen.contains(&p) && (refreshed || self.is_dirty(canvas, p)));
        let rows: Vec<u32> =
            (0..visible as u32).filter(|&p| runs(p as usize) || wanted.binary_search(&p).is_ok()).collect();
        rows.iter().for_each(|&row| self.ran[row as usize] = true);
        self.since_refresh = if refreshed { Some(0) } else { self.since_refresh.map(|n| n + 1) };
        self.block = Some(block.index);
        RowPlan { rows, visible, refreshed }
    }

    /// Looks at the rows that ran, if drift matters.
    pub(super) fn observe(&mut self, model: &dyn MaskPredictor, canvas: &Canvas, plan: &RowPlan) -> Result<(), Error> {
        self.drift.observe(model, canvas, plan)
    }

    /// Takes end tokens out of the transfer of a step with stale keys and values: drift shows first as a flood of end
    /// tokens, so only a refreshed step may end an answer. If nothing is left, the next step is refreshed.
    pub(super) fn hold_back(&mut self, transfer: &mut Transfer, refreshed: bool) {
        if !refreshed {
            transfer.edits.retain(|edit| !self.end_tokens.contains(&edit.to));
        }
        self.held_back = transfer.edits.is_empty();
    }

    /// Takes note of what a step changed.
    pub(super) fn applied(&mut self, canvas: &Canvas, transfer: &Transfer) {
        for edit in &transfer.edits {
            self.changed[edit.position] = Some(self.steps);
        }
        for (span, finished) in self.spans.iter().zip(&mut self.finished) {
            if transfer.edits.iter().any(|edit| edit.kind != EditKind::Unmask && span.contains(&edit.position)) {
                *finished = None;
            } else if finished.is_none() && canvas.open_in(span.clone()).next().is_none() {
                *finished = Some(self.steps);
            }
        }
        self.steps += 1;
    }

    fn refreshes(&self, block: &Block) -> bool {
        let due = self.since_refresh.is_none_or(|n| n + 1 >= self.settings.refresh.unwrap_or(usize::MAX))
            || self.held_back
            || self.drift.exceeded;
        let new_block = || self.block != Some(block.index);
        match self.settings.policy {
            CachePolicy::None => true,
            CachePolicy::Prefix | CachePolicy::Dual => due || new_block(),
            CachePolicy::Delayed => due,
        }
    }

    /// How much of the canvas is attended to: up to the window behind the block of the last candidate, or to the last
    /// decided position, and no further than the horizon.
    fn visible(&self, canvas: &Canvas, block: &Block, candidates: &[usize]) -> usize {
        let last = candidates.last().copied().unwrap_or(block.range.end - 1);
        let end = self.spans.iter().map(|span| span.end).find(|&end| last < end).unwrap_or(block.range.end);
        let windowed = self.settings.window.map_or(canvas.len(), |window| end.saturating_add(window));
        let decided = (0..canvas.len()).rfind(|&p| !canvas.is_open(p)).map_or(0, |p| p + 1);
        windowed.max(decided).min(self.horizon(canvas)).max(last + 1)
    }

    /// Where the rows begin that aren't frozen, moved on first.
    fn frozen_end(&mut self, answer: usize) -> usize {
        let delay = self.settings.delay.max(1);
        while let Some(Some(finished)) = self.finished.get(self.frozen)
            && self.steps > finished + delay
        {
            self.frozen += 1;
        }
        if self.frozen == 0 { answer } else { self.spans[self.frozen - 1].end }
    }

    fn is_dirty(&self, canvas: &Canvas, position: usize) -> bool {
        let recent = |step: usize| self.steps <= step + self.settings.dirty_rows;
        self.settings.dirty_rows == 0 || canvas.is_open(position) || self.changed[position].is_some_and(recent)
    }
}
