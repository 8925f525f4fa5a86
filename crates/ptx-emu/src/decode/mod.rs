//! Makes executable code of a parsed text: lays out functions and variables, numbers registers, resolves labels.

mod control;
mod convert;
mod float;
mod half;
mod integer;
mod memory;
mod opcode;
mod operands;
mod warp;

use std::collections::HashMap;

use crate::code::{Code, Formal, Guard, Kernel, Op, Program, Reg, SPECIAL};
use crate::error::ParseError;
use crate::syntax::{Function, Instruction, Space, Statement, Type, Unit, Variable};

use self::opcode::Opcode;

/// Index in relocations of the beginning of dynamic shared memory, which a launch decides.
pub(crate) const DYNAMIC_SHARED: usize = usize::MAX;

/// What cannot be decoded, in words; the line is added by the caller.
type Decoded<T> = Result<T, String>;

/// What a name stands for.
#[derive(Debug, Clone)]
enum Symbol {
    Register {
        kind: Type,
        index: u32,
    },
    /// Registers that are numbered after a common name; `u32::MAX` until one is used.
    Registers {
        kind: Type,
        indices: Vec<u32>,
    },
    /// A variable at a fixed place of shared memory, of a lane's local memory, or of a kernel's parameters.
    Fixed {
        space: Space,
        offset: u64,
    },
    /// A variable in global or constant memory, or dynamic shared memory.
    Placed {
        space: Space,
        variable: usize,
    },
    /// A parameter of a function or of a call, in a lane's local memory.
    Passed {
        offset: u64,
        bytes: usize,
    },
}

/// A device function that can be called.
#[derive(Debug, Clone)]
struct Callee {
    start: u32,
    link: Reg,
    returns: Vec<(u64, usize)>,
    params: Vec<(u64, usize)>,
}

/// A label that isn't known yet, seen from a scope.
struct Patch<'a> {
    at: usize,
    scope: usize,
    label: &'a str,
    line: usize,
}

struct Lowering<'a, 'm> {
    module: &'m str,
    program: Program,
    constants: HashMap<u64, u32>,
    placed: HashMap<(usize, u64), u32>,
    opcodes: HashMap<&'a str, u32>,
    /// Names of the module, then of each open scope of the function.
    scopes: Vec<HashMap<&'a str, Symbol>>,
    /// Numbers of the open scopes, and the enclosing scope of each.
    open: Vec<usize>,
    parents: Vec<usize>,
    labels: HashMap<(usize, &'a str), u32>,
    targets: HashMap<&'a str, Vec<&'a str>>,
    patches: Vec<Patch<'a>>,
    callees: HashMap<&'a str, Callee>,
    registers: usize,
    predicates: usize,
    shared: usize,
    local: usize,
    /// Return addresses of the function that is being lowered; none in a kernel.
    link: Option<Reg>,
}

/// Decodes a unit.
pub(crate) fn program(module: &str, unit: Unit<'_>) -> Result<Program, ParseError> {
    let fail = |line: usize, what: String| ParseError { module: module.to_owned(), line, what };
    let mut lowering = Lowering {
        module,
        program: Program { files: unit.files, ..Program::default() },
        constants: HashMap::new(),
        placed: HashMap::new(),
        opcodes: HashMap::new(),
        scopes: vec![HashMap::new()],
        open: Vec::new(),
        parents: Vec::new(),
        labels: HashMap::new(),
        targets: HashMap::new(),
        patches: Vec::new(),
        callees: HashMap::new(),
        registers: SPECIAL.len(),
        predicates: 1,
        shared: 0,
        local: 0,
        link: None,
    };
    for variable in &unit.variables {
        lowering.variable(variable)?;
    }
    for function in &unit.functions {
        if unit.functions.iter().filter(|other| other.name == function.name).count() > 1 {
            return Err(fail(function.line, format!("`{}` is defined twice", function.name)));
        }
    }
    // Functions before their callers, kernels last: a warp runs its lowest instruction first, so that lanes which
    // are in a function return before the others go on.
    let order = callees_first(&unit.functions).map_err(|(line, what)| fail(line, what))?;
    for &index in &order {
        lowering.function(&unit.functions[index])?;
    }
    let shared = lowering.shared;
    let (registers, predicates, local) = (lowering.registers, lowering.predicates, lowering.local);
    for kernel in unit.functions.iter().filter(|function| function.is_kernel) {
        lowering.registers = registers;
        lowering.predicates = predicates;
        lowering.local = local;
        lowering.shared = shared;
        lowering.kernel(kernel)?;
    }
    Ok(lowering.program)
}

/// Device functions, each after those that it calls.
fn callees_first(functions: &[Function<'_>]) -> Result<Vec<usize>, (usize, String)> {
    let index_of: HashMap<&str, usize> =
        functions.iter().enumerate().filter(|(_, function)| !function.is_kernel).map(|(i, f)| (f.name, i)).collect();
    let calls = |function: &Function<'_>| -> Vec<usize> {
        let mut called = Vec::new();
        for statement in &function.body {
            if let Statement::Instruction(instruction) = statement
                && instruction.opcode.starts_with("call")
            {
                for operand in &instruction.operands {
                    if let crate::syntax::Operand::Name(name) = operand {
                        called.extend(index_of.get(name).copied());
                    }
                }
            }
        }
        called
    };
    let mut order = Vec::new();
    let mut done = vec![false; functions.len()];
    // Depth first without recursion: the text decides how deep it goes.
    for root in index_of.values().copied().collect::<std::collections::BTreeSet<_>>() {
        if done[root] {
            continue;
        }
        let mut path = vec![(root, calls(&functions[root]))];
        while let Some((function, pending)) = path.last_mut() {
            let function = *function;
            match pending.pop() {
                Some(next) if done[next] => {}
                Some(next) => {
                    if path.iter().any(|(on_path, _)| *on_path == next) {
                        let name = functions[next].name;
                        return Err((functions[next].line, format!("`{name}` is recursive, which is not supported")));
                    }
                    path.push((next, calls(&functions[next])));
                }
                None => {
                    path.pop();
                    done[function] = true;
                    order.push(function);
                }
            }
        }
    }
    Ok(order)
}

/// Rounds a size up to an alignment.
fn align(size: usize, to: usize) -> usize {
    size.next_multiple_of(to.max(1))
}

impl<'a> Lowering<'a, '_> {
    fn fail(&self, line: usize, what: String) -> ParseError {
        ParseError { module: self.module.to_owned(), line, what }
    }

    fn declare(&mut self, name: &'a str, symbol: Symbol, line: usize) -> Result<(), ParseError> {
        if self.scopes.last_mut().is_some_and(|scope| scope.insert(name, symbol).is_some()) {
            return Err(self.fail(line, format!("`{name}` is declared twice")));
        }
        Ok(())
    }

    /// Gives a variable its place.
    fn variable(&mut self, variable: &Variable<'a>) -> Result<(), ParseError> {
        let symbol = match variable.space {
            Space::Shared if variable.is_dynamic => Symbol::Placed { space: Space::Shared, variable: DYNAMIC_SHARED },
            _ if variable.is_dynamic => {
                return Err(self.fail(variable.line, format!("`{}` has no size", variable.name)));
            }
            Space::Shared => {
                let offset = align(self.shared, variable.align);
                self.shared = offset + variable.bytes;
                Symbol::Fixed { space: Space::Shared, offset: offset as u64 }
            }
            Space::Local => {
                Symbol::Fixed { space: Space::Local, offset: self.local_bytes(variable.bytes, variable.align) }
            }
            Space::Param => {
                Symbol::Passed { offset: self.local_bytes(variable.bytes, variable.align), bytes: variable.bytes }
            }
            Space::Global | Space::Const => {
                let mut content = variable.content.clone();
                content.resize(variable.bytes, 0);
                self.program.variables.push(content);
                Symbol::Placed { space: variable.space, variable: self.program.variables.len() - 1 }
            }
            Space::Generic => return Err(self.fail(variable.line, "a variable without a state space".to_owned())),
        };
        let limit = 1 << 23;
        if self.shared > limit || self.local > limit {
            return Err(self.fail(variable.line, format!("`{}` makes for more than {limit} bytes", variable.name)));
        }
        self.declare(variable.name, symbol, variable.line)
    }

    fn local_bytes(&mut self, bytes: usize, alignment: usize) -> u64 {
        let offset = align(self.local, alignment);
        self.local = offset + bytes;
        offset as u64
    }

    fn function(&mut self, function: &Function<'a>) -> Result<(), ParseError> {
        let link = self.new_register();
        self.begin();
        let mut formals = |variables: &[Variable<'a>]| -> Result<Vec<(u64, usize)>, ParseError> {
            let mut places = Vec::new();
            for variable in variables {
                let offset = self.local_bytes(variable.bytes, variable.align);
                self.declare(variable.name, Symbol::Passed { offset, bytes: variable.bytes }, variable.line)?;
                places.push((offset, variable.bytes));
            }
            Ok(places)
        };
        let (returns, params) = (formals(&function.returns)?, formals(&function.params)?);
        let start = self.program.code.len() as u32;
        self.link = Some(link);
        self.body(function)?;
        self.callees.insert(function.name, Callee { start, link, returns, params });
        Ok(())
    }

    fn kernel(&mut self, kernel: &Function<'a>) -> Result<(), ParseError> {
        self.begin();
        let (mut params, mut offset) = (Vec::new(), 0);
        for param in &kernel.params {
            offset = align(offset, param.align);
            params.push(Formal { name: param.name.to_owned(), offset, bytes: param.bytes });
            self.declare(param.name, Symbol::Fixed { space: Space::Param, offset: offset as u64 }, param.line)?;
            offset += param.bytes;
        }
        let start = self.program.code.len() as u32;
        self.link = None;
        self.body(kernel)?;
        self.program.kernels.push(Kernel {
            name: kernel.name.to_owned(),
            code: start..self.program.code.len() as u32,
            params,
            param_bytes: offset,
            registers: self.registers,
            predicates: self.predicates,
            shared: self.shared,
            local: align(self.local, 16),
            max_threads: kernel.max_threads,
            required_threads: kernel.required_threads,
        });
        Ok(())
    }

    /// A new function: no names but those of the module.
    fn begin(&mut self) {
        self.scopes.truncate(1);
        self.scopes.push(HashMap::new());
        self.parents = vec![0];
        self.open = vec![0];
        self.labels.clear();
        self.targets.clear();
        self.patches.clear();
    }

    fn body(&mut self, function: &Function<'a>) -> Result<(), ParseError> {
        for statement in &function.body {
            match statement {
                Statement::Open => {
                    self.scopes.push(HashMap::new());
                    self.parents.push(self.scope());
                    self.open.push(self.parents.len() - 1);
                }
                Statement::Close => {
                    self.scopes.pop();
                    self.open.pop();
                }
                Statement::Registers { name, count, kind, line } => {
                    let symbol = match count {
                        Some(count) => Symbol::Registers { kind: *kind, indices: vec![u32::MAX; *count] },
                        None => Symbol::Register { kind: *kind, index: self.new_index(*kind) },
                    };
                    self.declare(name, symbol, *line)?;
                }
                Statement::Variable(variable) => self.variable(variable)?,
                Statement::Label(name, line) => {
                    let here = self.program.code.len() as u32;
                    if self.labels.insert((self.scope(), name), here).is_some() {
                        return Err(self.fail(*line, format!("label `{name}` stands twice")));
                    }
                }
                Statement::Targets(name, targets) => {
                    self.targets.insert(name, targets.clone());
                }
                Statement::Instruction(instruction) => {
                    self.instruction(instruction).map_err(|what| {
                        self.fail(instruction.line, format!("`{}`: {what}", instruction.opcode.escape_debug()))
                    })?;
                }
            }
        }
        // Falling off the end is returning.
        let line = self.program.code.last().map_or(function.line, |code| code.line as usize);
        let op = self.link.map_or(Op::Exit, |link| Op::Return { link });
        self.emit("ret", op, Guard::ALWAYS, line, None);
        for patch in std::mem::take(&mut self.patches) {
            let target = self
                .resolve(patch.scope, patch.label)
                .ok_or_else(|| self.fail(patch.line, format!("there is no label `{}`", patch.label)))?;
            match &mut self.program.code[patch.at].op {
                Op::Branch(to) => *to = target,
                Op::BranchIndexed { targets, .. } => targets.push(target),
                _ => {}
            }
        }
        Ok(())
    }

    fn scope(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    fn resolve(&self, mut scope: usize, label: &str) -> Option<u32> {
        loop {
            if let Some(&target) = self.labels.get(&(scope, label)) {
                return Some(target);
            }
            if scope == 0 {
                return None;
            }
            scope = self.parents[scope];
        }
    }

    fn new_register(&mut self) -> Reg {
        self.registers += 1;
        self.registers as u32 - 1
    }

    fn new_index(&mut self, kind: Type) -> u32 {
        if kind == Type::Pred {
            self.predicates += 1;
            return self.predicates as u32 - 1;
        }
        self.new_register()
    }

    fn emit(&mut self, opcode: &'a str, op: Op, guard: Guard, line: usize, source: Option<(u32, u32)>) {
        let next = self.program.opcodes.len() as u32;
        let opcode = *self.opcodes.entry(opcode).or_insert_with(|| {
            self.program.opcodes.push(opcode.to_owned());
            next
        });
        let class = op.class();
        self.program.code.push(Code { op, class, guard, line: line as u32, opcode, source });
    }

    fn instruction(&mut self, instruction: &Instruction<'a>) -> Decoded<()> {
        let guard = match instruction.guard {
            Some((name, negated)) => Guard { pred: self.predicate(name)?, negated },
            None => Guard::ALWAYS,
        };
        let mut opcode = Opcode::new(instruction.opcode);
        let operands = &instruction.operands;
        let op = match opcode.name {
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" => {
                return self.control(&mut opcode, instruction, guard);
            }
            "mov" => self.mov(&mut opcode, operands)?,
            "cvt" => self.cvt(&mut opcode, operands)?,
            "ld" | "ldu" | "st" | "atom" | "red" | "cp" | "cvta" | "isspacep" | "membar" | "fence" | "prefetch"
            | "prefetchu" | "discard" | "applypriority" => self.memory(&mut opcode, operands)?,
            "mma" | "ldmatrix" | "stmatrix" | "movmatrix" | "shfl" | "vote" | "match" | "redux" | "activemask"
            | "bar" | "barrier" | "nanosleep" | "griddepcontrol" => self.warp(&mut opcode, operands)?,
            _ => self.arithmetic(&mut opcode, operands)?,
        };
        opcode.finish()?;
        self.emit(instruction.opcode, op, guard, instruction.line, instruction.source);
        Ok(())
    }
}
