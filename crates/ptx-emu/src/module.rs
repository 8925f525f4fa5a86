//! A module: a text that was understood, and its kernels, to be launched.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::code::{Kernel, Program};
use crate::decode::{self, DYNAMIC_SHARED};
use crate::error::{Fault, ParseError, Report, Trouble};
use crate::exec::{Block, Random, Run, Warp};
use crate::lanes::{LANES, Lanes};
use crate::launch::{Checks, Launch, Param, Statistics};
use crate::memory::{BLOCK_BITS, Memory, User};
use crate::parse;

/// Shared memory that a block can have on any device: 227 KiB.
const MAX_SHARED: usize = 227 << 10;
/// Threads of a block.
const MAX_THREADS: u64 = 1024;
/// Blocks of a grid that can be told apart.
const MAX_BLOCKS: u64 = (1 << BLOCK_BITS) - 3;

/// Numbers modules, so that a memory knows whose variables it holds.
static MODULES: AtomicU64 = AtomicU64::new(0);

/// A PTX text, decoded.
#[derive(Debug)]
pub struct Module {
    name: String,
    number: u64,
    lines: Vec<String>,
    program: Program,
    /// Constants of the program, in every lane.
    constants: Vec<Lanes>,
    checks: Checks,
}

impl Module {
    /// Decodes a text. The name appears in messages.
    ///
    /// # Errors
    /// If anything in it isn't understood: an instruction, a modifier or a directive that this crate doesn't know, a
    /// name that isn't declared, a register of another width than an instruction takes.
    pub fn parse(name: &str, ptx: &str) -> Result<Self, ParseError> {
        let program = decode::program(name, parse::unit(name, ptx)?)?;
        Ok(Self {
            name: name.to_owned(),
            number: MODULES.fetch_add(1, Ordering::Relaxed),
            lines: ptx.lines().map(|line| line.trim().to_owned()).collect(),
            constants: program.constants.iter().map(|&value| [value; LANES]).collect(),
            program,
            checks: Checks::default(),
        })
    }

    /// The same module with other checks.
    #[must_use]
    pub fn with_checks(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// Names of the kernels, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.program.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// Runs a kernel to its end.
    ///
    /// Blocks run one after the other, in an order that the seed decides; so do the turns of the warps of a block.
    ///
    /// # Errors
    /// If the launch doesn't fit the kernel, or the kernel breaks a rule. What it wrote before stays written.
    pub fn launch(
        &self,
        kernel: &str,
        launch: &Launch,
        params: &[Param],
        memory: &mut Memory,
    ) -> Result<Statistics, Fault> {
        let refuse = |what: String| Fault::refused(&self.name, kernel, what);
        let Some(found) = self.program.kernels.iter().find(|candidate| candidate.name == kernel) else {
            let kernels: Vec<&str> = self.kernels().collect();
            return Err(refuse(format!("no such kernel in `{}`, which has {}", self.name, kernels.join(", "))));
        };
        let shape = Shape::of(found, launch).map_err(refuse)?;
        let arguments = arguments(found, params).map_err(refuse)?;
        let addresses =
            memory.variables(self.number, &self.program.variables).map_err(|error| refuse(error.to_string()))?;
        let dynamic = found.shared.next_multiple_of(16) as u64;
        let mut moved;
        let mut constants = &self.constants;
        if !self.program.relocations.is_empty() {
            moved = self.constants.clone();
            for &(constant, variable, offset) in &self.program.relocations {
                let base = if variable == DYNAMIC_SHARED { dynamic } else { addresses[variable] };
                moved[constant] = [base.wrapping_add(offset); LANES];
            }
            constants = &moved;
        }
        memory.begin_launch();
        let mut run = Run {
            program: &self.program,
            kernel: found,
            constants,
            params: &arguments,
            memory,
            user: User::new(&self.checks),
            checks: self.checks,
            counts: vec![0; self.program.code.len()],
            executed: 0,
        };
        let mut random = Random(launch.seed);
        let mut order: Vec<u32> = (0..shape.blocks as u32).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, random.below(place + 1));
        }
        let mut block = Block::new(shape.shared, shape.warps);
        let mut warps: Vec<Warp> = (0..shape.warps).map(|id| Warp::new(id, found, shape.warps)).collect();
        for number in order {
            let [width, height, _] = launch.grid;
            let place = [number % width, number / width % height, number / width / height];
            block.begin();
            run.user.begin_block(number);
            for warp in &mut warps {
                warp.begin(found, launch, place, block.tick);
            }
            run.block(&mut block, &mut warps, &mut random)
                .map_err(|(warp, trouble)| self.fault(found, &warps[warp], place, *trouble))?;
        }
        Ok(self.statistics(&run, &shape))
    }

    fn statistics(&self, run: &Run<'_>, shape: &Shape) -> Statistics {
        let mut counts = vec![0; self.program.opcodes.len()];
        for (code, &count) in self.program.code.iter().zip(&run.counts) {
            counts[code.opcode as usize] += count;
        }
        let opcodes = self.program.opcodes.iter().zip(counts);
        let by_opcode = opcodes.filter(|&(_, count)| count > 0).map(|(name, count)| (name.clone(), count)).collect();
        Statistics { instructions: run.executed, by_opcode, shared_bytes: shape.shared as u32 }
    }

    /// What happened, with all that is known of where.
    fn fault(&self, kernel: &Kernel, warp: &Warp, block: [u32; 3], trouble: Trouble) -> Fault {
        let code = &self.program.code[warp.pc as usize];
        let line = code.line as usize;
        let source = code.source.map(|(file, line)| {
            let name = self.program.files.iter().find(|(number, _)| *number == file).map_or("?", |(_, name)| name);
            format!("{name}:{line}")
        });
        let mut what = trouble.what;
        // Lanes that wait for others may be the cause of what those do meanwhile.
        for group in warp.others.iter().filter(|group| group.needs.is_some() && group.pc != warp.pc) {
            let line = self.program.code[group.pc as usize].line;
            what += &format!(" (meanwhile lanes {:#010x} wait at line {line} for others)", group.mask);
        }
        Fault::new(Report {
            kind: trouble.kind,
            what,
            module: self.name.clone(),
            kernel: kernel.name.clone(),
            line,
            text: line.checked_sub(1).and_then(|index| self.lines.get(index)).cloned().unwrap_or_default(),
            source,
            block,
            warp: Some(warp.id as u32),
            lane: trouble.lane,
            address: trouble.address,
        })
    }
}

/// The shape of a launch, checked.
struct Shape {
    blocks: u64,
    warps: usize,
    shared: usize,
}

impl Shape {
    fn of(kernel: &Kernel, launch: &Launch) -> Result<Self, String> {
        let count = |extents: [u32; 3]| -> u128 { extents.iter().map(|&extent| u128::from(extent)).product() };
        let (blocks, threads) = (count(launch.grid), count(launch.block));
        if blocks == 0 || threads == 0 {
            return Err(format!("a grid of {:?} blocks of {:?} threads is empty", launch.grid, launch.block));
        }
        if blocks > u128::from(MAX_BLOCKS) {
            return Err(format!("{blocks} blocks, at most {MAX_BLOCKS} are supported"));
        }
        let most = kernel.max_threads.unwrap_or(MAX_THREADS).min(MAX_THREADS);
        if threads > u128::from(most) {
            return Err(format!("{threads} threads in a block, at most {most} are allowed"));
        }
        if let Some(required) = kernel.required_threads
            && required != launch.block
        {
            return Err(format!("blocks of {:?} threads, where the kernel requires {required:?}", launch.block));
        }
        let shared = kernel.shared.next_multiple_of(16) + launch.dynamic_shared as usize;
        if shared > MAX_SHARED {
            return Err(format!("{shared} bytes of shared memory, at most {MAX_SHARED} exist"));
        }
        Ok(Self { blocks: blocks as u64, warps: (threads as usize).div_ceil(LANES), shared })
    }
}

/// The bytes of the parameters, checked against what the kernel takes.
fn arguments(kernel: &Kernel, params: &[Param]) -> Result<Vec<u8>, String> {
    if params.len() != kernel.params.len() {
        return Err(format!("{} parameters, where the kernel takes {}", params.len(), kernel.params.len()));
    }
    let mut bytes = vec![0; kernel.param_bytes];
    for (param, formal) in params.iter().zip(&kernel.params) {
        let value = param.bytes();
        if value.len() != formal.bytes {
            let (found, expected) = (value.len(), formal.bytes);
            return Err(format!("parameter `{}` has {expected} bytes, found {found} in {param:?}", formal.name));
        }
        bytes[formal.offset..formal.offset + formal.bytes].copy_from_slice(&value);
    }
    Ok(bytes)
}
