//! Operands: names to registers, numbers and variables to constants.

use crate::code::{Address, CONSTANT, Guard, LOCAL_WINDOW, NO_PRED, Pred, Reg, SINK, SPECIAL};
use crate::syntax::{Operand, Space, Type};

use super::{Decoded, Lowering, Symbol};

/// How a bad operand is called in messages.
fn show(operand: &Operand<'_>) -> String {
    match operand {
        Operand::Name(name) => format!("`{}`", name.escape_debug()),
        Operand::Not(name) => format!("`!{}`", name.escape_debug()),
        Operand::Pair(a, b) => format!("`{}|{}`", a.escape_debug(), b.escape_debug()),
        Operand::Number(value) => format!("`{value}`"),
        Operand::Address(..) => "an address".to_owned(),
        Operand::Vector(_) => "a vector".to_owned(),
        Operand::List(_) => "a list".to_owned(),
    }
}

impl<'a> Lowering<'a, '_> {
    /// Exactly so many operands.
    pub(super) fn exactly<'o, const N: usize>(operands: &'o [Operand<'a>]) -> Decoded<&'o [Operand<'a>; N]> {
        operands.try_into().map_err(|_| format!("expected {N} operands, found {}", operands.len()))
    }

    /// The register or predicate that a name stands for, numbered when it is first used.
    fn register(&mut self, name: &str) -> Option<(Type, u32)> {
        let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = (&name[..digits], name[digits..].parse::<usize>().ok());
        // A number without leading zeros: `%r01` isn't `%r1`.
        let number = number.filter(|number| number.to_string().len() == name.len() - digits);
        for depth in (0..self.scopes.len()).rev() {
            if let Some(Symbol::Register { kind, index }) = self.scopes[depth].get(name) {
                return Some((*kind, *index));
            }
            let Some(number) = number else { continue };
            if let Some(Symbol::Registers { kind, indices }) = self.scopes[depth].get(stem)
                && let Some(&index) = indices.get(number)
            {
                let kind = *kind;
                if index != u32::MAX {
                    return Some((kind, index));
                }
                let index = self.new_index(kind);
                if let Some(Symbol::Registers { indices, .. }) = self.scopes[depth].get_mut(stem) {
                    indices[number] = index;
                }
                return Some((kind, index));
            }
        }
        None
    }

    /// The variable that a name stands for.
    pub(super) fn variable_named(&self, name: &str) -> Option<&Symbol> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name))?;
        (!matches!(found, Symbol::Register { .. } | Symbol::Registers { .. })).then_some(found)
    }

    /// A constant.
    pub(super) fn constant(&mut self, value: u64) -> Reg {
        let constants = &mut self.program.constants;
        let index = *self.constants.entry(value).or_insert_with(|| {
            constants.push(value);
            constants.len() as u32 - 1
        });
        CONSTANT | index
    }

    /// The address of a variable as a constant, in its own state space.
    pub(super) fn address_of(&mut self, name: &str, offset: u64) -> Decoded<(Space, Reg)> {
        let Some(symbol) = self.variable_named(name).cloned() else {
            return Err(format!("`{}` is not declared", name.escape_debug()));
        };
        Ok(match symbol {
            Symbol::Fixed { space, offset: base } => (space, self.constant(base.wrapping_add(offset))),
            Symbol::Passed { offset: base, .. } => {
                (Space::Param, self.constant(LOCAL_WINDOW.wrapping_add(base).wrapping_add(offset)))
            }
            Symbol::Placed { space, variable } => {
                let program = &mut self.program;
                let index = *self.placed.entry((variable, offset)).or_insert_with(|| {
                    program.constants.push(0);
                    program.relocations.push((program.constants.len() - 1, variable, offset));
                    program.constants.len() as u32 - 1
                });
                (space, CONSTANT | index)
            }
            Symbol::Register { .. } | Symbol::Registers { .. } => return Err(format!("`{name}` is a register")),
        })
    }

    /// A register that is read, of the width of a type: a register, a number or the address of a variable.
    pub(super) fn source(&mut self, operand: &Operand<'a>, kind: Type) -> Decoded<Reg> {
        self.source_bits(operand, kind.bits(), kind.bits())
    }

    /// A register that is read, of any of these widths.
    pub(super) fn source_bits(&mut self, operand: &Operand<'a>, least: u32, most: u32) -> Decoded<Reg> {
        match operand {
            Operand::Number(value) => Ok(self.constant(crate::round::truncate(*value, most))),
            Operand::Name(name) => {
                if let Some((found, index)) = self.register(name) {
                    if found == Type::Pred || found.bits() < least || found.bits() > most {
                        return Err(format!("`{name}` is a register of type {found:?}, expected {most} bits"));
                    }
                    return Ok(index);
                }
                if let Some(index) = SPECIAL.iter().position(|special| special == name) {
                    return Ok(index as u32);
                }
                self.address_of(name, 0).map(|(_, constant)| constant)
            }
            other => Err(format!("expected a register or a number, found {}", show(other))),
        }
    }

    /// A register that is written, with its width in bits.
    pub(super) fn target_bits(&mut self, operand: &Operand<'a>, least: u32, most: u32) -> Decoded<(Reg, u32)> {
        let Operand::Name(name) = operand else {
            return Err(format!("expected a register, found {}", show(operand)));
        };
        if *name == "_" {
            return Ok((SINK, most));
        }
        match self.register(name) {
            Some((found, index)) if found != Type::Pred && (least..=most).contains(&found.bits()) => {
                Ok((index, found.bits()))
            }
            Some((found, _)) => Err(format!("`{name}` is a register of type {found:?}, expected {most} bits")),
            None => Err(format!("`{}` is not declared", name.escape_debug())),
        }
    }

    /// A register that is written, of the width of a type.
    pub(super) fn target(&mut self, operand: &Operand<'a>, kind: Type) -> Decoded<Reg> {
        self.target_bits(operand, kind.bits(), kind.bits()).map(|(register, _)| register)
    }

    /// A predicate by its name.
    pub(super) fn predicate(&mut self, name: &str) -> Decoded<Pred> {
        match self.register(name) {
            Some((Type::Pred, index)) => Ok(index),
            _ if name == "_" => Ok(NO_PRED),
            _ => Err(format!("`{}` is not a predicate", name.escape_debug())),
        }
    }

    /// A predicate that is read.
    pub(super) fn condition(&mut self, operand: &Operand<'a>) -> Decoded<Guard> {
        match operand {
            Operand::Name(name) if *name != "_" => Ok(Guard { pred: self.predicate(name)?, negated: false }),
            Operand::Not(name) if *name != "_" => Ok(Guard { pred: self.predicate(name)?, negated: true }),
            Operand::Number(0) => Ok(Guard::NEVER),
            Operand::Number(_) => Ok(Guard::ALWAYS),
            other => Err(format!("expected a predicate, found {}", show(other))),
        }
    }

    /// One or two predicates that are written.
    pub(super) fn conditions_out(&mut self, operand: &Operand<'a>) -> Decoded<(Pred, Pred)> {
        match operand {
            Operand::Name(name) => Ok((self.predicate(name)?, NO_PRED)),
            Operand::Pair(p, q) => Ok((self.predicate(p)?, self.predicate(q)?)),
            other => Err(format!("expected a predicate, found {}", show(other))),
        }
    }

    /// A register that is written and perhaps a predicate: `d|p`.
    pub(super) fn target_and_condition(&mut self, operand: &Operand<'a>, kind: Type) -> Decoded<(Reg, Pred)> {
        match operand {
            Operand::Pair(d, p) => Ok((self.target(&Operand::Name(d), kind)?, self.predicate(p)?)),
            other => Ok((self.target(other, kind)?, NO_PRED)),
        }
    }

    /// An address in brackets, and the state space of the variable that it names.
    pub(super) fn address(&mut self, operand: &Operand<'a>) -> Decoded<(Address, Option<Space>)> {
        let Operand::Address(base, offset) = operand else {
            return Err(format!("expected an address in brackets, found {}", show(operand)));
        };
        let offset = *offset as u64;
        let Some(name) = base else {
            return Ok((Address { base: self.constant(offset), offset: 0 }, None));
        };
        match self.register(name) {
            Some((kind, base)) if matches!(kind.bits(), 32 | 64) && kind != Type::Pred => {
                Ok((Address { base, offset }, None))
            }
            Some((kind, _)) => Err(format!("`{name}` is a register of type {kind:?}, expected 32 or 64 bits")),
            None => {
                let (space, base) = self.address_of(name, offset)?;
                Ok((Address { base, offset: 0 }, Some(space)))
            }
        }
    }

    /// Registers in braces, or a single one, for matrices.
    pub(super) fn vector<'o>(operand: &'o Operand<'a>) -> &'o [Operand<'a>] {
        match operand {
            Operand::Vector(parts) => parts,
            single => std::slice::from_ref(single),
        }
    }

    pub(super) fn sources(&mut self, operand: &Operand<'a>, count: usize, kind: Type) -> Decoded<Vec<Reg>> {
        let parts = Self::vector(operand);
        if parts.len() != count {
            return Err(format!("expected {count} registers in a vector, found {}", parts.len()));
        }
        parts.iter().map(|part| self.source(part, kind)).collect()
    }

    pub(super) fn targets(&mut self, operand: &Operand<'a>, count: usize, kind: Type) -> Decoded<Vec<Reg>> {
        let parts = Self::vector(operand);
        if parts.len() != count {
            return Err(format!("expected {count} registers in a vector, found {}", parts.len()));
        }
        parts.iter().map(|part| self.target(part, kind)).collect()
    }
}
