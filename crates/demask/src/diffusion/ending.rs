//! When a run is over, and what of its text can't change any more.

use super::canvas::{Block, Canvas};
use super::report::{Finish, Generation, Statistics};
use super::request::EndPolicy;
use super::settings::Settings;

/// The position before which everything is decided for good, while `block` is worked on.
pub(super) fn settled(canvas: &Canvas, block: Option<&Block>, settings: &Settings) -> usize {
    let frontier = canvas.frontier();
    let revisable = block.filter(|b| settings.unmask.revises() && frontier < b.range.end);
    revisable.map_or(frontier, |block| frontier.min(block.range.start))
}

/// Whether the text before the first end token can't change any more, so that the run may stop.
pub(super) fn is_final(canvas: &Canvas, block: &Block, settings: &Settings) -> bool {
    let may_change = settings.unmask.revises() && canvas.open_in(block.range.clone()).next().is_some();
    let first = canvas.open_or_end(&settings.end_tokens);
    settings.eos == EndPolicy::Stop && !may_change && first.is_some_and(|p| !canvas.is_open(p))
}

/// Sums up a run that ended because of `finish`, or because nothing was left to decide.
pub(super) fn generation(
    canvas: Canvas,
    settings: &Settings,
    mut statistics: Statistics,
    finish: Option<Finish>,
) -> Generation {
    let open = canvas.frontier() < canvas.len();
    let finish = finish.unwrap_or(if open { Finish::EndToken } else { Finish::Complete });
    let asked = canvas.asked_range();
    let ends = canvas.open_or_end(&settings.end_tokens).unwrap_or(asked.end);
    statistics.visible_tokens = canvas.asked_in(asked.start..ends);
    Generation { canvas, statistics, finish }
}
