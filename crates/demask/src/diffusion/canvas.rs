//! The canvas and the edits that change it.

use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What an edit does to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EditKind {
    /// An open position is decided.
    Unmask,
    /// A decided position gets another token.
    Revise,
    /// A decided position is opened again.
    Remask,
    /// A position gets a random token and stays open.
    Renoise,
}

/// One change of one position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    /// Canvas position.
    pub position: usize,
    /// Token that stands there.
    pub from: u32,
    /// Token that will.
    pub to: u32,
    /// Kind of change.
    pub kind: EditKind,
    /// How sure the unmasker was; its scale is the unmasker's: probabilities, negative entropies in nats.
    #[serde(serialize_with = "finite_or_null", deserialize_with = "null_or_finite")]
    pub confidence: f64,
}

/// JSON has no infinities: a confidence of -inf (end tokens that come last) is written as null.
fn finite_or_null<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { to.serialize_f64(*value) } else { to.serialize_none() }
}

/// The way back.
fn null_or_finite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NEG_INFINITY))
}

/// The edits of one denoising step, by ascending position.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Transfer {
    /// The edits.
    pub edits: Vec<Edit>,
}

impl Transfer {
    /// How many open positions it decides.
    pub fn decided(&self) -> usize {
        self.edits.iter().filter(|edit| edit.kind == EditKind::Unmask).count()
    }
}

/// Prompt and open positions: what the model sees and the denoising loop fills.
///
/// Whether a position is open is stored, never inferred from its token: a prompt may hold the mask token.
#[derive(Clone, Debug, PartialEq)]
pub struct Canvas {
    tokens: Vec<u32>,
    open: Vec<bool>,
    /// Which positions were open at the start: those that belong to the answer.
    asked: Vec<bool>,
}

impl Canvas {
    /// A prompt followed by `max_tokens` open positions.
    pub fn continuing(prompt: &[u32], max_tokens: usize, mask_token: u32) -> Canvas {
        let mut tokens = prompt.to_vec();
        tokens.resize(prompt.len() + max_tokens, mask_token);
        let open: Vec<bool> = (0..tokens.len()).map(|p| p >= prompt.len()).collect();
        Canvas { tokens, asked: open.clone(), open }
    }

    /// A canvas with open positions anywhere: `None` is open.
    pub fn with_blanks(tokens: &[Option<u32>], mask_token: u32) -> Canvas {
        let open: Vec<bool> = tokens.iter().map(Option::is_none).collect();
        let tokens = tokens.iter().map(|t| t.unwrap_or(mask_token)).collect();
        Canvas { tokens, asked: open.clone(), open }
    }

    /// All tokens; open positions hold the mask token (or noise).
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions (L).
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the canvas has no position.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether `position` is still undecided.
    ///
    /// # Panics
    /// If the canvas has no such position; so do the methods below that take one, or a range.
    pub fn is_open(&self, position: usize) -> bool {
        self.open[position]
    }

    /// Whether `position` was open at the start.
    pub fn is_asked(&self, position: usize) -> bool {
        self.asked[position]
    }

    /// Open positions within `range`, ascending.
    pub fn open_in(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        range.filter(|&p| self.open[p])
    }

    /// How many positions within `range` were open at the start.
    pub fn asked_in(&self, range: Range<usize>) -> usize {
        self.asked[range].iter().filter(|&&asked| asked).count()
    }

    /// From the first to behind the last position that was open at the start.
    pub fn asked_range(&self) -> Range<usize> {
        match (self.asked.iter().position(|&a| a), self.asked.iter().rposition(|&a| a)) {
            (Some(first), Some(last)) => first..last + 1,
            _ => self.len()..self.len(),
        }
    }

    /// The leftmost open position, or the canvas's end.
    pub fn frontier(&self) -> usize {
        self.open.iter().position(|&open| open).unwrap_or(self.len())
    }

    /// The first position of the answer that is open or holds one of `end_tokens`.
    pub fn open_or_end(&self, end_tokens: &[u32]) -> Option<usize> {
        self.asked_range().find(|&p| self.open[p] || (self.asked[p] && end_tokens.contains(&self.tokens[p])))
    }

    /// Why an edit can't be applied to the canvas as it is; `None` if it can.
    pub fn misfit(&self, edit: &Edit) -> Option<String> {
        let position = edit.position;
        let changes_open = matches!(edit.kind, EditKind::Unmask | EditKind::Renoise);
        if !self.asked.get(position).is_some_and(|&asked| asked) {
            Some(format!("edit of position {position}, which is not the answer's"))
        } else if self.tokens[position] != edit.from {
            Some(format!("edit of position {position} from another token"))
        } else if self.open[position] != changes_open {
            let state = if self.open[position] { "open" } else { "decided" };
            Some(format!("{:?} of position {position}, which is {state}", edit.kind))
        } else {
            None
        }
    }

    /// Applies a transfer: the only way in which a canvas changes.
    ///
    /// # Panics
    /// If an edit doesn't fit the canvas (see [`Canvas::misfit`]): an unmasker that does this is broken.
    pub fn apply(&mut self, transfer: &Transfer) {
        for edit in &transfer.edits {
            if let Some(misfit) = self.misfit(edit) {
                panic!("{misfit}");
            }
            self.tokens[edit.position] = edit.to;
            self.open[edit.position] = matches!(edit.kind, EditKind::Remask | EditKind::Renoise);
        }
    }
}

/// A span of the canvas that is decided before the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number, from 0.
    pub index: usize,
    /// Positions.
    pub range: Range<usize>,
    /// Number of its first denoising step.
    pub first_step: usize,
    /// Denoising steps it is given.
    pub steps: usize,
}

/// Cuts the canvas into spans of `block_length` positions that were asked for; the last may have fewer. What was given
/// between them belongs to the span around it.
pub fn spans(canvas: &Canvas, block_length: usize) -> Vec<Range<usize>> {
    let asked: Vec<usize> = (0..canvas.len()).filter(|&p| canvas.is_asked(p)).collect();
    asked.chunks(block_length).map(|span| span[0]..span[span.len() - 1] + 1).collect()
}

/// Cuts the canvas into blocks (see [`spans`]) and shares `steps` among them (see [`schedule::block_steps`]). The caller
/// sees to `steps` being at least the number of blocks.
///
/// [`schedule::block_steps`]: super::schedule::block_steps
pub(super) fn blocks(canvas: &Canvas, block_length: usize, steps: usize) -> Vec<Block> {
    let spans = spans(canvas, block_length);
    let sizes: Vec<usize> = spans.iter().map(|span| canvas.asked_in(span.clone())).collect();
    let mut first_step = 0;
    (spans.into_iter().zip(super::schedule::block_steps(steps, &sizes)).enumerate())
        .map(|(index, (range, steps))| {
            let block = Block { index, range, first_step, steps };
            first_step += steps;
            block
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmask(position: usize, to: u32) -> Transfer {
        Transfer { edits: vec![Edit { position, from: 9, to, kind: EditKind::Unmask, confidence: 1.0 }] }
    }

    #[test]
    fn a_canvas_fills_up() {
        let mut canvas = Canvas::continuing(&[1, 9], 3, 9);
        assert_eq!((canvas.len(), canvas.frontier(), canvas.asked_range()), (5, 2, 2..5));
        assert!(!canvas.is_open(1), "a mask token in the prompt is not open");
        canvas.apply(&unmask(3, 7));
        assert_eq!(canvas.open_in(0..5).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(canvas.tokens(), [1, 9, 9, 7, 9]);
        assert_eq!(canvas.frontier(), 2);
    }

    #[test]
    #[should_panic(expected = "not the answer's")]
    fn the_prompt_is_never_edited() {
        Canvas::continuing(&[1, 9], 3, 9).apply(&unmask(1, 7));
    }

    #[test]
    #[should_panic(expected = "Unmask of position 2")]
    fn a_decided_position_is_not_unmasked_again() {
        let mut canvas = Canvas::continuing(&[1, 9], 3, 9);
        canvas.apply(&unmask(2, 9));
        canvas.apply(&unmask(2, 5));
    }

    #[test]
    fn blocks_share_positions_and_steps() {
        let cut = blocks(&Canvas::continuing(&[0; 10], 20, 9), 8, 10);
        assert_eq!(cut.iter().map(|b| b.range.clone()).collect::<Vec<_>>(), [10..18, 18..26, 26..30]);
        assert_eq!(cut.iter().map(|b| (b.first_step, b.steps)).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(blocks(&Canvas::continuing(&[], 4, 9), 32, 4).len(), 1);
        let blanks = Canvas::with_blanks(&[Some(1), None, Some(2), None, Some(3), Some(4), None], 9);
        let cut = blocks(&blanks, 2, 3);
        assert_eq!(cut.iter().map(|b| (b.range.clone(), b.steps)).collect::<Vec<_>>(), [(1..4, 2), (6..7, 1)]);
    }
}
