//! Where the numbers of a prediction stop being finite: a run that fails tells the layer and the row.

use std::fmt;

/// The first place where something isn't a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Canvas position of the row; of several, the first.
    pub row: u32,
    /// What made it so.
    pub place: FaultPlace,
}

/// A part of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPlace {
    /// The embedding table.
    Embedding,
    /// A layer, from 0.
    Layer(usize),
    /// The output norm or the head.
    Head,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row;
        match self.place {
            FaultPlace::Embedding => write!(f, "row {row} goes wrong in the embedding"),
            FaultPlace::Layer(layer) => write!(f, "row {row} goes wrong in layer {layer}"),
            FaultPlace::Head => write!(f, "row {row} goes wrong in the head"),
        }
    }
}

/// Looks at the residual stream between layers, once it is asked to. Until then it costs nothing.
#[derive(Debug, Default)]
pub struct FaultWatch {
    on: bool,
    found: Option<Fault>,
}

impl FaultWatch {
    /// Watches the next prediction.
    pub fn start(&mut self) {
        *self = FaultWatch { on: true, found: None };
    }

    /// Stops watching. What was found; none if everything before the head was finite.
    pub fn finish(&mut self) -> Option<Fault> {
        std::mem::take(self).found
    }

    /// Whether something is still to be found.
    pub(super) fn is_looking(&self) -> bool {
        self.on && self.found.is_none()
    }

    /// Looks at the residual stream `[rows, D]` after so many layers.
    pub(super) fn look(&mut self, values: &[f32], rows: &[u32], layers: usize) {
        let width = (values.len() / rows.len().max(1)).max(1);
        let bad = values.chunks_exact(width).position(|row| row.iter().any(|value| !value.is_finite()));
        let place = layers.checked_sub(1).map_or(FaultPlace::Embedding, FaultPlace::Layer);
        self.found = bad.and_then(|index| rows.get(index)).map(|&row| Fault { row, place });
    }
}
