//! Branches, calls and ends.

use crate::code::{Guard, Op};
use crate::syntax::{Instruction, Operand, Type};

use super::opcode::Opcode;
use super::{Decoded, Lowering, Patch, Symbol};

impl<'a> Lowering<'a, '_> {
    pub(super) fn control(
        &mut self,
        opcode: &mut Opcode<'a>,
        instruction: &Instruction<'a>,
        guard: Guard,
    ) -> Decoded<()> {
        let operands = &instruction.operands;
        opcode.take("uni");
        let op = match opcode.name {
            "bra" => {
                let [target] = Self::exactly(operands)?;
                let Operand::Name(label) = target else { return Err("expected a label".to_owned()) };
                self.patch(label, instruction.line);
                Op::Branch(0)
            }
            "brx" => {
                if !opcode.take("idx") {
                    return Err("expected `.idx`".to_owned());
                }
                let [index, list] = Self::exactly(operands)?;
                let index = self.source(index, Type::U32)?;
                let Operand::Name(list) = list else { return Err("expected a list of targets".to_owned()) };
                let labels = self.targets.get(list).cloned();
                for label in labels.ok_or_else(|| format!("there is no list of targets `{list}`"))? {
                    self.patch(label, instruction.line);
                }
                Op::BranchIndexed { targets: Vec::new(), index }
            }
            "call" => {
                opcode.finish()?;
                return self.call(instruction, guard);
            }
            "ret" => self.link.map_or(Op::Exit, |link| Op::Return { link }),
            "exit" => Op::Exit,
            _ => Op::Trap,
        };
        if !matches!(opcode.name, "bra" | "brx") && !operands.is_empty() {
            return Err("expected no operands".to_owned());
        }
        opcode.finish()?;
        self.emit(instruction.opcode, op, guard, instruction.line, instruction.source);
        Ok(())
    }

    /// The next instruction refers to a label.
    fn patch(&mut self, label: &'a str, line: usize) {
        self.patches.push(Patch { at: self.program.code.len(), scope: self.scope(), label, line });
    }

    /// A call passes its parameters by copying: into those of the function before, and out of them after.
    fn call(&mut self, instruction: &Instruction<'a>, guard: Guard) -> Decoded<()> {
        let (returns, name, params) = match instruction.operands.as_slice() {
            [Operand::List(returns), Operand::Name(name), Operand::List(params)] => {
                (returns.clone(), *name, params.clone())
            }
            [Operand::List(returns), Operand::Name(name)] => (returns.clone(), *name, Vec::new()),
            [Operand::Name(name), Operand::List(params)] => (Vec::new(), *name, params.clone()),
            [Operand::Name(name)] => (Vec::new(), *name, Vec::new()),
            _ => return Err("expected a function that is called by its name".to_owned()),
        };
        let Some(callee) = self.callees.get(name).cloned() else {
            return Err(format!("there is no function `{}` in this module", name.escape_debug()));
        };
        let given = self.passed(&params, &callee.params, name, "parameters")?;
        let taken = self.passed(&returns, &callee.returns, name, "results")?;
        let mut emit = |op| self.emit(instruction.opcode, op, guard, instruction.line, instruction.source);
        for (&(from, _), &(to, bytes)) in given.iter().zip(&callee.params) {
            emit(Op::Pass { from: from as u32, to: to as u32, bytes: bytes as u32 });
        }
        emit(Op::Call { target: callee.start, link: callee.link });
        for (&(to, _), &(from, bytes)) in taken.iter().zip(&callee.returns) {
            emit(Op::Pass { from: from as u32, to: to as u32, bytes: bytes as u32 });
        }
        Ok(())
    }

    /// Where the arguments of a call are, checked against what the function takes.
    fn passed(
        &self,
        names: &[&str],
        formals: &[(u64, usize)],
        function: &str,
        what: &str,
    ) -> Decoded<Vec<(u64, usize)>> {
        if names.len() != formals.len() {
            return Err(format!("`{function}` has {} {what}, found {}", formals.len(), names.len()));
        }
        names
            .iter()
            .zip(formals)
            .map(|(name, &(_, expected))| match self.variable_named(name) {
                Some(&Symbol::Passed { offset, bytes }) if bytes == expected => Ok((offset, bytes)),
                Some(Symbol::Passed { bytes, .. }) => {
                    Err(format!("`{name}` has {bytes} bytes where `{function}` has {expected}"))
                }
                _ => Err(format!("`{}` is not a parameter", name.escape_debug())),
            })
            .collect()
    }
}
