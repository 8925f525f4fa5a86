//! What is left to do: blocks from left to right, each with a fresh unmasker, and the numbers of their steps.

use super::canvas::{Block, Canvas, blocks};
use super::ending;
use super::settings::Settings;
use super::unmask::Unmasker;

/// The blocks that aren't finished.
pub(super) struct Agenda {
    /// The current one last.
    blocks: Vec<Block>,
    /// The unmasker of the current block.
    pub(super) unmasker: Box<dyn Unmasker>,
    /// Number of the next step.
    number: usize,
}

impl Agenda {
    /// The open positions of `canvas`; an unmasker that looks at several blocks gets them as one.
    pub(super) fn new(canvas: &Canvas, settings: &Settings) -> Agenda {
        let block_length = if settings.unmask.spans_blocks() { canvas.len() } else { settings.block_length };
        let mut blocks = blocks(canvas, block_length.max(1), settings.steps);
        blocks.reverse();
        Agenda { blocks, unmasker: settings.unmask.unmasker(settings), number: 0 }
    }

    /// The block to work on; none when nothing is left to decide.
    pub(super) fn block(&mut self, canvas: &Canvas, settings: &Settings) -> Option<Block> {
        while let Some(block) = self.current() {
            if ending::is_final(canvas, block, settings) {
                return None;
            }
            if canvas.open_in(block.range.clone()).next().is_some() {
                return Some(block.clone());
            }
            self.next_block(settings);
        }
        None
    }

    /// The block that was worked on last.
    pub(super) fn current(&self) -> Option<&Block> {
        self.blocks.last()
    }

    /// The number of the step that begins now.
    pub(super) fn next_number(&mut self) -> usize {
        self.number += 1;
        self.number - 1
    }

    fn next_block(&mut self, settings: &Settings) {
        let Some(done) = self.blocks.pop() else { return };
        if settings.unmask.is_scheduled() {
            self.number = self.number.max(done.first_step + done.steps);
        }
        if let Some(next) = self.blocks.last_mut() {
            next.first_step = self.number;
            self.unmasker = settings.unmask.unmasker(settings);
        }
    }
}
