//! An opcode and its modifiers, each of which must be understood by somebody.

use crate::round::Rounding;
use crate::syntax::Type;

use super::Decoded;

/// An opcode whose modifiers are taken one by one.
pub(super) struct Opcode<'a> {
    pub(super) name: &'a str,
    modifiers: Vec<&'a str>,
    types: Vec<Type>,
}

impl<'a> Opcode<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut parts = text.split('.');
        let name = parts.next().unwrap_or_default();
        let (mut modifiers, mut types) = (Vec::new(), Vec::new());
        for part in parts {
            match Type::named(part) {
                Some(kind) => types.push(kind),
                None => modifiers.push(part),
            }
        }
        Self { name, modifiers, types }
    }

    /// Takes a modifier; false if it isn't there.
    pub(super) fn take(&mut self, modifier: &str) -> bool {
        let place = self.modifiers.iter().position(|found| *found == modifier);
        place.map(|place| self.modifiers.remove(place)).is_some()
    }

    /// Takes the first of these that is there, and tells which.
    pub(super) fn take_any(&mut self, modifiers: &[&'static str]) -> Option<&'static str> {
        modifiers.iter().copied().find(|modifier| self.take(modifier))
    }

    /// Takes the first modifier that a function understands.
    pub(super) fn take_with<T>(&mut self, understand: impl Fn(&str) -> Option<T>) -> Option<T> {
        let place = self.modifiers.iter().position(|found| understand(found).is_some())?;
        understand(self.modifiers.remove(place))
    }

    /// Takes the next type.
    pub(super) fn kind(&mut self) -> Decoded<Type> {
        if self.types.is_empty() { Err("expected a type".to_owned()) } else { Ok(self.types.remove(0)) }
    }

    /// The next type, left where it is.
    pub(super) fn peek_kind(&self) -> Option<Type> {
        self.types.first().copied()
    }

    /// All remaining types.
    pub(super) fn kinds(&mut self) -> Vec<Type> {
        std::mem::take(&mut self.types)
    }

    /// Arithmetic rounds to the nearest here, and to nothing else.
    pub(super) fn rounds_to_nearest(&mut self) -> Decoded<()> {
        self.take("rn");
        match self.take_any(&["rz", "rm", "rp"]) {
            Some(other) => Err(format!("rounding `.{other}` of arithmetic is not supported")),
            None => Ok(()),
        }
    }

    /// Takes a rounding, and whether it is one to an integral value.
    pub(super) fn rounding(&mut self) -> Option<(Rounding, bool)> {
        self.take_with(|modifier| {
            Some(match modifier {
                "rn" => (Rounding::Nearest, false),
                "rna" => (Rounding::NearestAway, false),
                "rz" => (Rounding::Zero, false),
                "rm" => (Rounding::Down, false),
                "rp" => (Rounding::Up, false),
                "rni" => (Rounding::Nearest, true),
                "rzi" => (Rounding::Zero, true),
                "rmi" => (Rounding::Down, true),
                "rpi" => (Rounding::Up, true),
                _ => return None,
            })
        })
    }

    /// Fails if something is left that nobody understood.
    pub(super) fn finish(&self) -> Decoded<()> {
        if let Some(modifier) = self.modifiers.first() {
            return Err(format!("modifier `.{modifier}` is not supported"));
        }
        match self.types.first() {
            Some(kind) => Err(format!("unexpected type {kind:?}")),
            None => Ok(()),
        }
    }
}
