//! What a launch is given and what it gives back.

use std::collections::BTreeMap;

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z; at most 1024 together.
    pub block: [u32; 3],
    /// Bytes of shared memory beyond those that the kernel declares.
    pub dynamic_shared: u32,
    /// Order of blocks, and of warps between barriers. The same seed gives the same order.
    pub seed: u64,
}

/// An argument of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Param {
    /// An 8-bit integer.
    U8(u8),
    /// A 16-bit integer, or the bits of an f16 or bf16.
    U16(u16),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// An unsigned 64-bit integer, or a device address.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A structure passed by value, in the layout of the device.
    Bytes(Vec<u8>),
}

impl Param {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Param::U8(value) => vec![*value],
            Param::U16(value) => value.to_le_bytes().to_vec(),
            Param::U32(value) => value.to_le_bytes().to_vec(),
            Param::I32(value) => value.to_le_bytes().to_vec(),
            Param::U64(value) => value.to_le_bytes().to_vec(),
            Param::I64(value) => value.to_le_bytes().to_vec(),
            Param::F32(value) => value.to_le_bytes().to_vec(),
            Param::F64(value) => value.to_le_bytes().to_vec(),
            Param::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// What a launch executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Instructions of warps: one for all lanes of a warp that execute it together.
    pub instructions: u64,
    /// The same, by opcode with all its modifiers.
    pub by_opcode: BTreeMap<String, u64>,
    /// Bytes of shared memory of a block, dynamic ones included.
    pub shared_bytes: u32,
}

/// Which rules are checked, and how long a launch may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checks {
    /// Refuse reads of global and shared memory that nothing has written. Otherwise such bytes read as `0xa5`.
    pub uninitialised: bool,
    /// Refuse races on shared memory within a block and on global memory between blocks.
    pub races: bool,
    /// Instructions of warps that a launch may execute.
    pub budget: u64,
}

impl Default for Checks {
    fn default() -> Self {
        Self { uninitialised: true, races: true, budget: 1 << 30 }
    }
}
