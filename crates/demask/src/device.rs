//! Devices: the only place that picks a backend.

use std::sync::Arc;

use demask_compute::cpu::{CpuOptions, memory};
use demask_compute::{Clock, Cpu, Stopwatch, Timed};
use demask_gguf::Gguf;

use crate::error::Error;
use crate::model::{self, ModelSpec, NewPredictor};

/// Where a model runs.
#[derive(Clone)]
pub enum Device {
    /// The processor.
    Cpu(Arc<Cpu>),
}

impl Device {
    /// The processor with `threads` threads; `None` = the physical cores that this process may use.
    pub fn cpu(threads: Option<usize>) -> Result<Device, Error> {
        Ok(Device::Cpu(Arc::new(Cpu::new(&CpuOptions { threads, isa: None })?)))
    }

    /// What is used, in words: `cpu, 2 threads, avx2`.
    pub fn describe(&self) -> String {
        match self {
            Device::Cpu(cpu) => {
                let threads = cpu.threads();
                format!("cpu, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, cpu.isa())
            }
        }
    }

    /// Bytes that this device can still hold; `None` where that can't be told.
    pub fn memory_available(&self) -> Option<u64> {
        match self {
            Device::Cpu(_) => memory::available(),
        }
    }

    pub(crate) fn load(
        &self,
        gguf: &Gguf,
        spec: ModelSpec,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<NewPredictor, Error> {
        match self {
            Device::Cpu(cpu) => model::load(gguf, spec, Arc::clone(cpu), progress),
        }
    }

    /// The same, with a stopwatch over its operations; none where they go on after they return.
    pub(crate) fn load_timed(
        &self,
        gguf: &Gguf,
        spec: ModelSpec,
        clock: Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(NewPredictor, Option<Arc<Stopwatch>>), Error> {
        match self {
            Device::Cpu(cpu) => {
                let timed = Timed::new(Arc::clone(cpu), clock);
                let stopwatch = timed.stopwatch();
                Ok((model::load(gguf, spec, Arc::new(timed), progress)?, Some(stopwatch)))
            }
        }
    }
}
