//! Devices: the only place that picks a backend.

use std::sync::Arc;

use demask_compute::cpu::{CpuOptions, memory};
use demask_compute::{Clock, ComputeError, Cpu, Stopwatch, Timed};
use demask_gguf::Gguf;
use demask_gpu::{CudaDevice, DeviceError, Gpu, GpuDevice, Placement, Split};

use crate::error::Error;
use crate::model::{self, ModelSpec, NewPredictor};
use crate::placement::{GpuLayers, Sizes};

/// Where a model runs.
#[derive(Clone)]
pub struct Device {
    cpu: Arc<Cpu>,
    gpu: Choice,
}

#[derive(Clone)]
enum Choice {
    /// The processor was asked for.
    None,
    /// Nothing was asked for, and there is no GPU that can be used. The reason, unless there is no driver at all.
    Unusable(Option<String>),
    Use {
        gpu: Arc<Gpu>,
        layers: GpuLayers,
        /// Whether it was asked for; else the processor takes what doesn't fit.
        asked: bool,
    },
}

/// A model on a device.
pub(crate) struct Placed {
    pub(crate) new_predictor: NewPredictor,
    /// Where it runs, in words.
    pub(crate) place: String,
    /// What a user who didn't choose wants to know.
    pub(crate) note: Option<String>,
    /// The GPU, if part of the model is there.
    pub(crate) gpu: Option<Arc<Gpu>>,
    /// Where the time of forward passes goes, if that was asked for and can be told.
    pub(crate) stopwatch: Option<Arc<Stopwatch>>,
}

impl Device {
    /// The processor with `threads` threads; `None` = the physical cores that this process may use.
    ///
    /// # Errors
    /// [`Error::Compute`] for threads that the system won't start, and for an instruction set in `DEMASK_ISA` that this
    /// processor hasn't.
    pub fn cpu(threads: Option<usize>) -> Result<Device, Error> {
        let cpu = Arc::new(Cpu::new(&CpuOptions { threads, isa: None })?);
        Ok(Device { cpu, gpu: Choice::None })
    }

    /// GPU number `index`, and the processor with `threads` threads for layers that it has no room for.
    ///
    /// # Errors
    /// [`Error::Compute`] if there is no driver or no such GPU, or if it can't run the kernels; and as [`Device::cpu`].
    pub fn gpu(index: usize, layers: GpuLayers, threads: Option<usize>) -> Result<Device, Error> {
        Device::on_gpu(Box::new(CudaDevice::open(index).map_err(ComputeError::from)?), layers, threads)
    }

    /// The same on a device of the caller's, such as an emulator.
    ///
    /// # Errors
    /// As [`Device::cpu`].
    pub fn on_gpu(device: Box<dyn GpuDevice>, layers: GpuLayers, threads: Option<usize>) -> Result<Device, Error> {
        let gpu = Choice::Use { gpu: Arc::new(Gpu::new(device)), layers, asked: true };
        Ok(Device { gpu, ..Device::cpu(threads)? })
    }

    /// The first GPU if there is one and a model has room there, whole or in part; else the processor.
    ///
    /// # Errors
    /// As [`Device::cpu`]: a GPU that can't be used is none, unless `layers` asks for one. [`Model::placement_note`](crate::Model::placement_note) says why.
    pub fn auto(layers: GpuLayers, threads: Option<usize>) -> Result<Device, Error> {
        let gpu = match CudaDevice::open(0) {
            // Who names a number of layers wants a GPU.
            Err(error) if layers != GpuLayers::Auto => return Err(ComputeError::from(error).into()),
            Ok(device) => Choice::Use { gpu: Arc::new(Gpu::new(Box::new(device))), layers, asked: false },
            Err(DeviceError::NoDriver(_) | DeviceError::NoDevice) => Choice::Unusable(None),
            Err(error) => Choice::Unusable(Some(error.to_string())),
        };
        Ok(Device { gpu, ..Device::cpu(threads)? })
    }

    /// The processor, set up by the caller.
    pub fn on_cpu(cpu: Cpu) -> Device {
        Device { cpu: Arc::new(cpu), gpu: Choice::None }
    }

    /// The processor, which is there with every device.
    pub fn processor(&self) -> &Cpu {
        &self.cpu
    }

    /// Bytes of the system's memory that can still be used; `None` where that can't be told.
    pub fn memory_available(&self) -> Option<u64> {
        memory::available()
    }

    /// What a model may run on, in words: `cpu, 2 threads, avx2`. [`Model::place`](crate::Model::place) says where one
    /// does.
    pub fn describe(&self) -> String {
        let threads = self.cpu.threads();
        let cpu = format!("cpu, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, self.cpu.isa());
        match &self.gpu {
            Choice::Use { gpu, .. } => format!("{}; {cpu}", gpu.describe()),
            _ => cpu,
        }
    }

    /// Loads a model that needs `needed` bytes on the processor; with a clock, under a stopwatch. There is none on a GPU,
    /// whose operations go on after they return.
    pub(crate) fn load(
        &self,
        gguf: &Gguf,
        spec: ModelSpec,
        needed: u64,
        clock: Option<Clock>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Placed, Error> {
        let file = gguf.name();
        let cpu = |note: Option<String>, progress: &mut dyn FnMut(u64, u64)| -> Result<Placed, Error> {
            check_memory(file, needed)?;
            let (cpu, spec) = (Arc::clone(&self.cpu), spec.clone());
            let (new_predictor, stopwatch) = match clock {
                Some(clock) => {
                    let timed = Timed::new(cpu, clock);
                    let stopwatch = timed.stopwatch();
                    (model::load(gguf, spec, Arc::new(timed), progress)?, Some(stopwatch))
                }
                None => (model::load(gguf, spec, cpu, progress)?, None),
            };
            let place = Device { cpu: Arc::clone(&self.cpu), gpu: Choice::None }.describe();
            Ok(Placed { new_predictor, place, note, gpu: None, stopwatch })
        };
        let (gpu, layers, asked) = match &self.gpu {
            Choice::None => return cpu(None, progress),
            Choice::Unusable(reason) => {
                return cpu(reason.as_ref().map(|reason| format!("running on the CPU: {reason}")), progress);
            }
            Choice::Use { gpu, layers, asked } => (gpu, *layers, *asked),
        };
        let (free, total) = gpu.memory().map_err(ComputeError::from)?;
        let (name, all) = (gpu.describe(), spec.layers);
        let plan = match Sizes::new(gguf, &spec).plan(file, &name, layers, free) {
            Err(error) if !asked => return cpu(Some(format!("running on the CPU: {error}")), progress),
            plan => plan?,
        };
        let budget = format!(
            "{:.1} GB of {:.1} GB free ({:.1} GB in all)",
            gigabytes(plan.bytes),
            gigabytes(free),
            gigabytes(total)
        );
        let (new_predictor, place) = if plan.whole {
            (model::load(gguf, spec, Arc::clone(gpu), progress)?, format!("{name}: all {all} layers, {budget}"))
        } else {
            check_memory(file, needed / all as u64 * (all - plan.layers) as u64)?;
            let placement = Placement { layers: plan.layers };
            let split = Arc::new(Split::new(Arc::clone(gpu), Arc::clone(&self.cpu), placement));
            let place = format!("{name}: the first {} of {all} layers, {budget}; the rest on the cpu", plan.layers);
            (model::load(gguf, spec, split, progress)?, place)
        };
        Ok(Placed { new_predictor, note: Some(place.clone()), place, gpu: Some(Arc::clone(gpu)), stopwatch: None })
    }
}

/// Fails if the system can't hold `needed` more bytes.
fn check_memory(file: &str, needed: u64) -> Result<(), Error> {
    match memory::available().filter(|&available| available < needed) {
        Some(available) => Err(Error::Memory { file: file.to_owned(), needed, available }),
        None => Ok(()),
    }
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}
