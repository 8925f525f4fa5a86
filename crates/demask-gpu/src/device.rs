//! What the backend needs of a device.

use crate::args::Args;
use crate::kernels::Kernel;

/// One kernel to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Which.
    pub kernel: Kernel,
    /// Blocks in x and y.
    pub grid: [u32; 2],
    /// Threads of a block.
    pub threads: u32,
    /// Its arguments.
    pub args: Args,
}

/// A device with memory of its own that runs kernels in order.
pub trait GpuDevice: Send + Sync {
    /// What it is, for people.
    fn describe(&self) -> String;
    /// Bytes of memory: free, and in all.
    fn memory(&self) -> Result<(u64, u64), DeviceError>;
    /// Memory of `bytes` bytes, at least 16-byte aligned.
    fn alloc(&self, bytes: usize) -> Result<u64, DeviceError>;
    /// Gives memory back, once everything that was launched is done with it.
    fn free(&self, address: u64);
    /// Fills memory with zeros.
    fn zero(&self, address: u64, bytes: usize) -> Result<(), DeviceError>;
    /// Copies to the device; `bytes` may change once this returns.
    fn upload(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// Copies from the device, after everything that was launched.
    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError>;
    /// Runs kernels one after the other; may return before they are done.
    fn run(&self, launches: &[Launch]) -> Result<(), DeviceError>;
}

/// What a device can fail at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum DeviceError {
    #[error("cannot use a GPU: {0}")]
    NoDriver(String),
    #[error("cannot use a GPU: the NVIDIA driver is too old: {0}")]
    OldDriver(String),
    #[error("cannot use GPU {index}: there {}", if *count == 1 { "is one, number 0".to_owned() } else { format!("are {count}, numbered from 0") })]
    NoSuchDevice { index: usize, count: usize },
    #[error("cannot use a GPU: the driver finds none")]
    NoDevice,
    #[error("cannot use GPU {index} ({name}): its compute capability is {}.{}, and demask's kernels need 8.0 or newer", capability.0, capability.1)]
    Capability { index: usize, name: String, capability: (i32, i32) },
    #[error("the GPU is out of memory: {:.1} MB were asked for and {:.1} MB are free", megabytes(*wanted), megabytes(*free))]
    OutOfMemory { wanted: u64, free: u64 },
    #[error("the GPU was lost while {doing}: {what}")]
    Lost { doing: &'static str, what: String },
    #[error("the GPU failed while {doing}: {what}")]
    Failed { doing: &'static str, what: String },
    #[error("the GPU can't run this model: {0}")]
    Unsupported(String),
}

impl DeviceError {
    /// What would help.
    pub fn hint(&self) -> &'static str {
        match self {
            DeviceError::NoDriver(_) | DeviceError::NoDevice => {
                "install NVIDIA's driver (525 or newer), or use `--device cpu`"
            }
            DeviceError::OldDriver(_) => "update NVIDIA's driver to 525 or newer, or use `--device cpu`",
            DeviceError::NoSuchDevice { .. } => "choose one with `--device gpu:N`, or use `--device cpu`",
            DeviceError::Capability { .. } => "use `--device cpu`",
            DeviceError::OutOfMemory { .. } => {
                "put fewer layers on the GPU with `--gpu-layers N`, ask for fewer tokens, or use `--device cpu`"
            }
            DeviceError::Lost { .. } => "nothing that was printed is wrong; check `nvidia-smi`, or use `--device cpu`",
            DeviceError::Failed { .. } | DeviceError::Unsupported(_) => "use `--device cpu`",
        }
    }

    /// Whether nothing more can be done with the device.
    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(self, DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_))
    }
}

impl From<DeviceError> for demask_compute::ComputeError {
    fn from(error: DeviceError) -> Self {
        demask_compute::ComputeError::Device { what: error.to_string(), hint: error.hint().to_owned() }
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
