//! What a PTX text says, before anything is made of it: variables, functions, instructions.

/// A fundamental type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Pred,
}

impl Type {
    /// By its name without the dot.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "pred" => Type::Pred,
            _ => return None,
        })
    }

    /// Width in bits; 1 for a predicate.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::B8 | Type::U8 | Type::S8 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 16,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 => 32,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32 | Type::F64)
    }
}

/// Where a variable lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// A variable in memory.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'a> {
    pub(crate) space: Space,
    pub(crate) name: &'a str,
    pub(crate) align: usize,
    pub(crate) bytes: usize,
    /// Its contents, for global and constant variables.
    pub(crate) content: Vec<u8>,
    /// An array without length: its size is that of the launch's dynamic shared memory.
    pub(crate) is_dynamic: bool,
    pub(crate) line: usize,
}

/// An operand of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, variable, label or function.
    Name(&'a str),
    /// `!p`.
    Not(&'a str),
    /// `p|q`.
    Pair(&'a str, &'a str),
    /// A number, as 64-bit two's complement.
    Number(u64),
    /// `[base + offset]`; without a base, the offset is the address.
    Address(Option<&'a str>, i64),
    /// `{a, b, ...}`.
    Vector(Vec<Operand<'a>>),
    /// `(a, b, ...)`.
    List(Vec<&'a str>),
}

/// An instruction.
#[derive(Debug, Clone)]
pub(crate) struct Instruction<'a> {
    /// Predicate before it, and whether it is negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    pub(crate) opcode: &'a str,
    pub(crate) operands: Vec<Operand<'a>>,
    pub(crate) line: usize,
    /// File number and line of the source.
    pub(crate) source: Option<(u32, u32)>,
}

/// A line of a function's body.
#[derive(Debug, Clone)]
pub(crate) enum Statement<'a> {
    Open,
    Close,
    /// A register, or `count` of them numbered from 0 after the name.
    Registers {
        name: &'a str,
        count: Option<usize>,
        kind: Type,
        line: usize,
    },
    Variable(Variable<'a>),
    Label(&'a str, usize),
    /// Targets of an indexed branch, under a label.
    Targets(&'a str, Vec<&'a str>),
    Instruction(Instruction<'a>),
}

/// A kernel or a device function.
#[derive(Debug, Clone)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_kernel: bool,
    pub(crate) returns: Vec<Variable<'a>>,
    pub(crate) params: Vec<Variable<'a>>,
    /// Threads of a block at most, or exactly, where the text limits them.
    pub(crate) max_threads: Option<u64>,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) body: Vec<Statement<'a>>,
    pub(crate) line: usize,
}

/// A whole text.
#[derive(Debug, Default)]
pub(crate) struct Unit<'a> {
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) files: Vec<(u32, String)>,
}
