//! Instructions as they are executed: decoded once, operands as indices.

use std::ops::Range;

use crate::lanes::{Compare, Map1, Map2, Map3, Map4};
use crate::round::Conversion;
use crate::syntax::{Space, Type};

/// A register of a warp, or a constant if [`CONSTANT`] is set.
pub(crate) type Reg = u32;
pub(crate) const CONSTANT: u32 = 1 << 31;
/// Where results go that nobody wants.
pub(crate) const SINK: Reg = CONSTANT - 1;

/// A predicate register; number 0 is always true.
pub(crate) type Pred = u32;
/// Where predicates go that nobody wants.
pub(crate) const NO_PRED: Pred = u32::MAX;

/// A predicate, perhaps negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) pred: Pred,
    pub(crate) negated: bool,
}

impl Guard {
    pub(crate) const ALWAYS: Guard = Guard { pred: 0, negated: false };
    pub(crate) const NEVER: Guard = Guard { pred: 0, negated: true };
}

/// How predicates are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

impl Logic {
    pub(crate) fn apply(self, a: u32, b: u32) -> u32 {
        match self {
            Logic::And => a & b,
            Logic::Or => a | b,
            Logic::Xor => a ^ b,
        }
    }
}

/// An address: a register plus an offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) base: Reg,
    pub(crate) offset: u64,
}

/// A load or a store of one to eight elements.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) space: Space,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub(crate) width: usize,
    /// Bits of the registers that a signed element is extended to; 0 if it isn't.
    pub(crate) extend: u32,
    pub(crate) regs: Vec<Reg>,
    pub(crate) address: Address,
    /// Volatile, relaxed, acquire or release.
    pub(crate) strong: bool,
    /// Also a fence: acquire (a load) or release (a store).
    pub(crate) ordered: bool,
    /// Through the read-only path.
    pub(crate) read_only: bool,
}

/// What an atomic does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

/// An atomic, or a reduction if nobody wants the old value.
#[derive(Debug)]
pub(crate) struct Atomic {
    pub(crate) op: AtomicOp,
    pub(crate) kind: Type,
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) d: Reg,
    pub(crate) b: Reg,
    pub(crate) c: Reg,
    /// Fences before and after.
    pub(crate) ordered: bool,
}

/// An asynchronous copy to shared memory.
#[derive(Debug)]
pub(crate) struct AsyncCopy {
    pub(crate) target: Address,
    pub(crate) source: Address,
    pub(crate) bytes: usize,
    /// Bytes that are really read; the rest becomes zero.
    pub(crate) source_bytes: Option<Reg>,
    /// Where true, nothing is read at all.
    pub(crate) ignore: Guard,
}

/// Elements of a matrix operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    S8,
    U8,
    S4,
    U4,
}

/// A matrix multiplication of a warp.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) a_kind: Element,
    pub(crate) b_kind: Element,
    /// S32, F32 or F16.
    pub(crate) d_kind: Type,
    pub(crate) c_kind: Type,
    pub(crate) saturate: bool,
    pub(crate) d: Vec<Reg>,
    pub(crate) a: Vec<Reg>,
    pub(crate) b: Vec<Reg>,
    pub(crate) c: Vec<Reg>,
}

/// How lanes are shuffled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What is reduced over a warp or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    Add,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}

/// What is asked of all lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
}

/// What a barrier gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// Number of threads with a predicate.
    Count(Reg),
    /// Whether all threads have a predicate.
    All(Pred),
    /// Whether any thread has a predicate.
    Any(Pred),
}

/// What carries between additions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carry {
    Add,
    Sub,
    MadLow,
    MadHigh,
}

/// What an instruction does.
#[derive(Debug)]
pub(crate) enum Op {
    Map1(Map1, Reg, Reg),
    Map2(Map2, Reg, Reg, Reg),
    Map3(Map3, Reg, Reg, Reg, Reg),
    Map4(Map4, Reg, Reg, Reg, Reg, Reg),
    /// A conversion that has no function of its own.
    Convert(Box<Conversion>, Reg, Reg),
    /// `p = compare(a, b) . c`, `q = !compare(a, b) . c`.
    Compare {
        f: Compare,
        p: Pred,
        q: Pred,
        a: Reg,
        b: Reg,
        combine: Option<(Logic, Guard)>,
    },
    /// The same for both halves of packed numbers: `p` for the low ones and `q` for the high ones.
    ComparePair {
        low: Compare,
        high: Compare,
        p: Pred,
        q: Pred,
        a: Reg,
        b: Reg,
        combine: Option<(Logic, Guard)>,
    },
    /// The comparison as a number: `truth` or zero.
    Set {
        f: Compare,
        d: Reg,
        a: Reg,
        b: Reg,
        truth: u64,
        combine: Option<(Logic, Guard)>,
    },
    Select {
        d: Reg,
        a: Reg,
        b: Reg,
        p: Guard,
    },
    Predicate {
        logic: Logic,
        d: Pred,
        a: Guard,
        b: Guard,
    },
    Carry {
        op: Carry,
        bits: u32,
        signed: bool,
        carry_in: bool,
        carry_out: bool,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// Parts of `bits` each, the lowest first.
    Pack {
        d: Reg,
        parts: Vec<Reg>,
        bits: u32,
    },
    Unpack {
        parts: Vec<Reg>,
        a: Reg,
        bits: u32,
    },
    Clock {
        d: Reg,
        wide: bool,
    },
    ActiveMask {
        d: Reg,
    },
    /// Whether a generic address lies in a space.
    IsSpace {
        p: Pred,
        a: Reg,
        space: Space,
    },

    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atomic>),
    Fence,
    AsyncCopy(Box<AsyncCopy>),
    Commit,
    /// Waits until at most so many groups of copies are pending; all, committed or not, if absent.
    Wait(Option<u32>),
    /// Copies bytes of a lane's local memory: parameters of functions.
    Pass {
        from: u32,
        to: u32,
        bytes: u32,
    },

    Matrix(Box<Matrix>),
    LoadMatrix {
        regs: Vec<Reg>,
        address: Address,
        transposed: bool,
    },
    StoreMatrix {
        regs: Vec<Reg>,
        address: Address,
        transposed: bool,
    },
    TransposeMatrix {
        d: Reg,
        a: Reg,
    },
    Shuffle {
        mode: Shuffle,
        d: Reg,
        p: Pred,
        a: Reg,
        b: Reg,
        c: Reg,
        members: Reg,
    },
    Vote {
        vote: Vote,
        p: Pred,
        a: Guard,
        members: Reg,
    },
    Ballot {
        d: Reg,
        a: Guard,
        members: Reg,
    },
    MatchAny {
        d: Reg,
        a: Reg,
        members: Reg,
    },
    MatchAll {
        d: Reg,
        p: Pred,
        a: Reg,
        members: Reg,
    },
    ReduceWarp {
        op: Reduction,
        d: Reg,
        a: Reg,
        members: Reg,
    },
    SyncWarp {
        members: Reg,
    },
    Barrier {
        kind: BarrierKind,
        id: Reg,
        threads: Option<Reg>,
        a: Guard,
    },

    Branch(u32),
    BranchIndexed {
        targets: Vec<u32>,
        index: Reg,
    },
    /// Calls a function, which keeps its return addresses in a register of its own.
    Call {
        target: u32,
        link: Reg,
    },
    Return {
        link: Reg,
    },
    Exit,
    Trap,
    Nothing,
}

/// Who executes an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Each lane by itself.
    Alone,
    /// Lanes together, for which some may have to wait.
    Together,
    /// It decides where lanes go.
    Control,
}

impl Op {
    pub(crate) fn class(&self) -> Class {
        match self {
            Op::Branch(_) | Op::BranchIndexed { .. } | Op::Call { .. } | Op::Return { .. } | Op::Exit | Op::Trap => {
                Class::Control
            }
            Op::Barrier { .. }
            | Op::Matrix(_)
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. }
            | Op::TransposeMatrix { .. }
            | Op::Shuffle { .. }
            | Op::Vote { .. }
            | Op::Ballot { .. }
            | Op::MatchAny { .. }
            | Op::MatchAll { .. }
            | Op::ReduceWarp { .. }
            | Op::SyncWarp { .. } => Class::Together,
            _ => Class::Alone,
        }
    }
}

/// An instruction and where it comes from.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) op: Op,
    pub(crate) class: Class,
    pub(crate) guard: Guard,
    /// Line of the text.
    pub(crate) line: u32,
    /// Index of its opcode in [`Program::opcodes`].
    pub(crate) opcode: u32,
    pub(crate) source: Option<(u32, u32)>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Formal {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// A kernel, ready to be launched.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) code: Range<u32>,
    pub(crate) params: Vec<Formal>,
    pub(crate) param_bytes: usize,
    pub(crate) registers: usize,
    pub(crate) predicates: usize,
    /// Bytes of static shared memory; dynamic one comes after it.
    pub(crate) shared: usize,
    /// Bytes of local memory of a lane.
    pub(crate) local: usize,
    pub(crate) max_threads: Option<u64>,
    pub(crate) required_threads: Option<[u32; 3]>,
}

/// Everything that a text says, decoded.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) code: Vec<Code>,
    pub(crate) opcodes: Vec<String>,
    pub(crate) constants: Vec<u64>,
    /// Constants that are addresses of variables: index of the constant, index of the variable, offset.
    pub(crate) relocations: Vec<(usize, usize, u64)>,
    /// Contents of the variables in global and constant memory.
    pub(crate) variables: Vec<Vec<u8>>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) files: Vec<(u32, String)>,
}

/// Registers that every warp has, before those of the kernel.
pub(crate) const SPECIAL: &[&str] = &[
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%smid",
    "%nsmid",
    "%gridid",
    "%dynamic_smem_size",
    "%total_smem_size",
    "WARP_SZ",
];

/// Generic addresses of shared memory begin here, 16 MiB of them.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// Generic addresses of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
/// Generic addresses of a kernel's parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x3_0000_0000;
/// Length of each window.
pub(crate) const WINDOW: u64 = 1 << 24;
