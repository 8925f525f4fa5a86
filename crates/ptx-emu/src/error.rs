//! What goes wrong: text that isn't understood, memory that isn't there, a kernel that breaks a rule.

use std::fmt;

/// PTX that this crate doesn't understand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{module}:{line}: {what}")]
pub struct ParseError {
    /// The name given to [`Module::parse`](crate::Module::parse).
    pub module: String,
    /// Line of the text, from 1.
    pub line: usize,
    /// What was expected and what was found.
    pub what: String,
}

/// A request to [`Memory`](crate::Memory) that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// More than the limit of this memory, or more than the host has.
    #[error("cannot allocate {bytes} bytes of device memory: {in_use} of {limit} are in use")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes already allocated.
        in_use: usize,
        /// The limit.
        limit: usize,
    },
    /// Bytes outside every live allocation.
    #[error("cannot {action} {bytes} bytes at {address:#x}: {why}")]
    BadAddress {
        /// `read`, `write` or `free`.
        action: &'static str,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: usize,
        /// What is there instead.
        why: String,
    },
}

/// Which rule a kernel broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The launch itself is wrong: no such kernel, other arguments than it takes, a shape that no device has.
    Launch,
    /// An access outside every allocation, or after it was freed.
    OutOfBounds,
    /// An address that isn't a multiple of the width of the access.
    Misaligned,
    /// A read of bytes that nothing has written.
    Uninitialised,
    /// A write to constants or parameters.
    ReadOnly,
    /// Two threads of a block use the same bytes of shared memory, one of them writes, and nothing orders them.
    SharedRace,
    /// Two blocks use the same word of global memory, one of them writes, and nothing orders them.
    GlobalRace,
    /// The target of an asynchronous copy is used before the copy was waited for.
    PendingCopy,
    /// An instruction that needs all lanes of a warp isn't reached by all of them.
    Divergence,
    /// Warps wait at a barrier that the others never reach.
    Deadlock,
    /// The launch executed more instructions than its budget.
    Budget,
    /// The kernel executed `trap`.
    Trap,
    /// An operand that the instruction doesn't take, such as a shift of lanes out of an inactive one.
    Operand,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultKind::Launch => "launch refused",
            FaultKind::OutOfBounds => "out of bounds",
            FaultKind::Misaligned => "misaligned access",
            FaultKind::Uninitialised => "uninitialised read",
            FaultKind::ReadOnly => "write to read-only memory",
            FaultKind::SharedRace => "race on shared memory",
            FaultKind::GlobalRace => "race on global memory",
            FaultKind::PendingCopy => "asynchronous copy not waited for",
            FaultKind::Divergence => "divergent warp",
            FaultKind::Deadlock => "deadlock",
            FaultKind::Budget => "budget spent",
            FaultKind::Trap => "trap",
            FaultKind::Operand => "bad operand",
        })
    }
}

/// Why a launch stopped: which rule was broken, and where.
///
/// The text that it displays holds all of it, on one line.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault(Box<Report>);

/// What a [`Fault`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Which rule was broken.
    pub kind: FaultKind,
    /// What happened, in words.
    pub what: String,
    /// Name of the module.
    pub module: String,
    /// Name of the kernel.
    pub kernel: String,
    /// Line of the PTX, from 1; 0 if no instruction is to blame.
    pub line: usize,
    /// Text of that line.
    pub text: String,
    /// `file:line` of the source, where the PTX has `.loc` directives.
    pub source: Option<String>,
    /// Block in the grid.
    pub block: [u32; 3],
    /// Warp in the block.
    pub warp: Option<u32>,
    /// Lane in the warp.
    pub lane: Option<u32>,
    /// Address as the instruction sees it: a device address, or an offset into shared or local memory.
    pub address: Option<u64>,
}

impl Fault {
    pub(crate) fn new(report: Report) -> Self {
        Self(Box::new(report))
    }

    /// A launch that never started.
    pub(crate) fn refused(module: &str, kernel: &str, what: String) -> Self {
        Self::new(Report {
            kind: FaultKind::Launch,
            what,
            module: module.to_owned(),
            kernel: kernel.to_owned(),
            line: 0,
            text: String::new(),
            source: None,
            block: [0; 3],
            warp: None,
            lane: None,
            address: None,
        })
    }

    /// Which rule was broken.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.0.kind
    }

    /// Line of the PTX, from 1; 0 if no instruction is to blame.
    #[must_use]
    pub fn line(&self) -> usize {
        self.0.line
    }

    /// All that is known.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.0
    }
}

impl std::error::Error for Fault {}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &*self.0;
        write!(f, "kernel `{}`: {}: {}", report.kernel, report.kind, report.what)?;
        if report.line == 0 {
            return Ok(());
        }
        let [x, y, z] = report.block;
        write!(f, " (block {x},{y},{z}")?;
        if let Some(warp) = report.warp {
            write!(f, ", warp {warp}")?;
        }
        if let Some(lane) = report.lane {
            write!(f, ", lane {lane}")?;
        }
        if let Some(address) = report.address {
            write!(f, ", address {address:#x}")?;
        }
        write!(f, "; {}:{}: `{}`", report.module, report.line, report.text)?;
        if let Some(source) = &report.source {
            write!(f, ", from {source}")?;
        }
        f.write_str(")")
    }
}

/// A broken rule as the place that notices it knows it; the launch adds the rest.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: FaultKind,
    pub(crate) what: String,
    pub(crate) lane: Option<u32>,
    pub(crate) address: Option<u64>,
}

/// What an instruction returns.
pub(crate) type Outcome<T = ()> = Result<T, Box<Trouble>>;

impl Trouble {
    #[cold]
    pub(crate) fn of<T>(kind: FaultKind, what: String) -> Outcome<T> {
        Err(Box::new(Self { kind, what, lane: None, address: None }))
    }

    #[cold]
    pub(crate) fn at<T>(kind: FaultKind, lane: usize, address: u64, what: String) -> Outcome<T> {
        Err(Box::new(Self { kind, what, lane: Some(lane as u32), address: Some(address) }))
    }
}
