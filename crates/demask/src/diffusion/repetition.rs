//! The repetition guard: the same few tokens in a row don't stand twice in an answer.
//!
//! With a length of n, a token is refused at a position where it would complete n decided tokens in a row that the answer
//! holds already, on either side of it (the rule of `no_repeat_ngram_size`, from Paulus et al. 2018, for text that isn't
//! written from left to right). Guesses that a step decides together are looked at from the surest to the least sure; one
//! that would repeat something then stays open. Only tokens of the answer count, and end tokens never do. Where nothing
//! else would be left to write, the guard gives way.

use std::collections::{BTreeSet, HashSet};

use super::canvas::{Canvas, EditKind, Transfer};
use super::settings::Settings;

/// The guard over a canvas as it is before a step.
pub(super) struct Repetition<'a> {
    length: usize,
    end_tokens: &'a [u32],
    /// By position: what counts of the answer.
    text: Vec<Option<u32>>,
    /// Every run of `length` tokens in it.
    seen: HashSet<Vec<u32>>,
    /// Every token in it.
    tokens: BTreeSet<u32>,
}

impl<'a> Repetition<'a> {
    /// Takes note of what the answer holds, if the guard is on.
    pub(super) fn new(canvas: &Canvas, settings: &'a Settings) -> Repetition<'a> {
        let (length, end_tokens) = (settings.no_repeat, settings.end_tokens.as_slice());
        let mut guard =
            Repetition { length, end_tokens, text: Vec::new(), seen: HashSet::new(), tokens: BTreeSet::new() };
        if length > 0 {
            let counts = |p: usize| canvas.is_asked(p) && !canvas.is_open(p);
            let token = |p: usize| Some(canvas.tokens()[p]).filter(|token| counts(p) && !end_tokens.contains(token));
            guard.text = (0..canvas.len()).map(token).collect();
            guard.tokens = guard.text.iter().flatten().copied().collect();
            guard.seen = (0..canvas.len()).filter_map(|start| guard.run(start)).collect();
        }
        guard
    }

    /// Takes the tokens out of the row that scores `position` that would repeat something there.
    pub(super) fn ban(&mut self, position: usize, mask_token: u32, row: &mut [f64]) {
        if self.length == 0 {
            return;
        }
        let tokens: Vec<u32> = self.tokens.iter().copied().collect();
        let refused: Vec<usize> =
            tokens.into_iter().filter(|&token| self.repeats(position, token)).map(|token| token as usize).collect();
        let is_left = |(token, logit): (usize, &f64)| {
            token != mask_token as usize && logit.is_finite() && !refused.contains(&token)
        };
        if row.iter().enumerate().any(is_left) {
            refused.iter().for_each(|&token| row[token] = f64::NEG_INFINITY);
        }
    }

    /// Takes out of a transfer what its surer edits make a repetition. Something always stays.
    pub(super) fn prune(mut self, transfer: &mut Transfer) {
        if self.length == 0 {
            return;
        }
        let mut order: Vec<usize> = (0..transfer.edits.len()).collect();
        order.sort_by(|&a, &b| transfer.edits[b].confidence.total_cmp(&transfer.edits[a].confidence).then(a.cmp(&b)));
        let mut keeps = vec![true; transfer.edits.len()];
        for (rank, index) in order.into_iter().enumerate() {
            let edit = &transfer.edits[index];
            if edit.kind != EditKind::Unmask || self.end_tokens.contains(&edit.to) {
                continue;
            }
            keeps[index] = rank == 0 || !self.repeats(edit.position, edit.to);
            if keeps[index] {
                self.text[edit.position] = Some(edit.to);
                let runs: Vec<_> = self.around(edit.position).filter_map(|start| self.run(start)).collect();
                self.seen.extend(runs);
            }
        }
        let mut keeps = keeps.into_iter();
        transfer.edits.retain(|_| keeps.next().unwrap_or(true));
    }

    /// Whether `token` at `position` makes a run that is there already, or two that are equal.
    fn repeats(&mut self, position: usize, token: u32) -> bool {
        let before = self.text[position].replace(token);
        let mut fresh = HashSet::new();
        let repeats = self
            .around(position)
            .filter_map(|start| self.run(start))
            .any(|run| self.seen.contains(&run) || !fresh.insert(run));
        self.text[position] = before;
        repeats
    }

    /// Where the runs begin that `position` is part of.
    fn around(&self, position: usize) -> impl Iterator<Item = usize> + use<> {
        (position + 1).saturating_sub(self.length)..=position
    }

    /// The run of tokens that begins at `start`, if it is all there.
    fn run(&self, start: usize) -> Option<Vec<u32>> {
        self.text.get(start..start + self.length)?.iter().copied().collect()
    }
}
