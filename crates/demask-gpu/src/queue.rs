//! Memory and launches of one device.
//!
//! Launches are collected and run when somebody wants a result: a whole step goes to the device at once, and the device
//! can recognise that it is the step that it ran before. Small inputs of a step (tokens, positions) are collected
//! likewise, in one area that is uploaded ahead of the launches; equal inputs share their place.
//!
//! Operations of a backend can't fail. A fault is noted for the thread that met it, and what depends on it isn't run;
//! [`Shared::take_fault`] tells. A lost device stays a fault for everybody.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use crate::args::Args;
use crate::device::{DeviceError, GpuDevice, Launch};
use crate::kernels::Kernel;

/// Launches that are collected at most.
const MOST_LAUNCHES: usize = 1 << 14;

/// A device and what is waiting for it.
pub(crate) struct Shared {
    pub(crate) device: Box<dyn GpuDevice>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    launches: Vec<Launch>,
    inputs: Inputs,
    /// Memory that nobody holds any more but that launches may name.
    retired: Vec<u64>,
    faults: Vec<(ThreadId, DeviceError)>,
    /// Set when the device is gone.
    dead: Option<DeviceError>,
    scratch: Vec<(u64, usize)>,
    used: u64,
    peak: u64,
}

/// The step's small inputs.
#[derive(Default)]
struct Inputs {
    address: u64,
    room: usize,
    words: Vec<u32>,
    /// First word and length of each.
    parts: Vec<(usize, usize)>,
}

/// Device memory; or the reason why there is none.
pub(crate) struct Buffer {
    shared: Arc<Shared>,
    address: Result<u64, DeviceError>,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn address(&self) -> Result<u64, &DeviceError> {
        self.address.as_ref().copied()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(address) = self.address {
            let mut queue = self.shared.lock();
            queue.used -= self.bytes as u64;
            queue.retired.push(address);
            if queue.launches.is_empty() {
                self.shared.free_retired(&mut queue);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let scratch = queue.scratch.drain(..).filter(|&(_, room)| room > 0).map(|(address, _)| address);
        let left = queue.retired.drain(..).chain(scratch);
        for address in left.chain((queue.inputs.room > 0).then_some(queue.inputs.address)) {
            self.device.free(address);
        }
    }
}

impl Shared {
    pub(crate) fn new(device: Box<dyn GpuDevice>) -> Arc<Shared> {
        Arc::new(Shared { device, queue: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Bytes that are held now, and were at most.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let queue = self.lock();
        (queue.used, queue.peak)
    }

    /// Memory of `bytes` bytes, full of zeros.
    pub(crate) fn alloc(self: &Arc<Self>, bytes: usize) -> Buffer {
        let mut queue = self.lock();
        let address = self.alloc_raw(&mut queue, bytes).and_then(|address| {
            self.device.zero(address, bytes)?;
            Ok(address)
        });
        Buffer { shared: Arc::clone(self), address, bytes }
    }

    /// Memory that holds `bytes`.
    pub(crate) fn hold(self: &Arc<Self>, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        let mut queue = self.lock();
        let address = self.alloc_raw(&mut queue, bytes.len())?;
        self.device.upload(address, bytes)?;
        drop(queue);
        Ok(Buffer { shared: Arc::clone(self), address: Ok(address), bytes: bytes.len() })
    }

    /// A buffer that isn't there, for a reason.
    pub(crate) fn absent(self: &Arc<Self>, reason: DeviceError) -> Buffer {
        Buffer { shared: Arc::clone(self), address: Err(reason), bytes: 0 }
    }

    fn alloc_raw(&self, queue: &mut Queue, bytes: usize) -> Result<u64, DeviceError> {
        if let Some(dead) = &queue.dead {
            return Err(dead.clone());
        }
        let address = self.device.alloc(bytes.max(16))?;
        queue.used += bytes as u64;
        queue.peak = queue.peak.max(queue.used);
        Ok(address)
    }

    /// Memory number `which` for the results of a step, grown to `bytes`.
    pub(crate) fn scratch(&self, which: usize, bytes: usize) -> Result<u64, DeviceError> {
        let mut queue = self.lock();
        while queue.scratch.len() <= which {
            queue.scratch.push((0, 0));
        }
        let (old, room) = queue.scratch[which];
        if room >= bytes {
            return Ok(old);
        }
        self.flush_queue(&mut queue)?;
        if room > 0 {
            queue.scratch[which] = (0, 0);
            queue.used -= room as u64;
            self.device.free(old);
        }
        let address = self.alloc_raw(&mut queue, bytes)?;
        queue.scratch[which] = (address, bytes);
        Ok(address)
    }

    /// Where `words` will stand when the launches that follow are run.
    pub(crate) fn input(&self, words: &[u32]) -> Result<u64, DeviceError> {
        let mut queue = self.lock();
        let found = queue.inputs.parts.iter().find(|&&(at, len)| queue.inputs.words[at..at + len] == *words);
        if let Some(&(at, _)) = found {
            return Ok(queue.inputs.address + 4 * at as u64);
        }
        let needed = queue.inputs.words.len() + words.len();
        if needed > queue.inputs.room {
            self.flush_queue(&mut queue)?;
            let (address, room) = (queue.inputs.address, queue.inputs.room);
            if room > 0 {
                queue.inputs.room = 0;
                queue.used -= 4 * room as u64;
                self.device.free(address);
            }
            let room = (2 * needed).max(1 << 14);
            queue.inputs.address = self.alloc_raw(&mut queue, 4 * room)?;
            queue.inputs.room = room;
        }
        let at = queue.inputs.words.len();
        queue.inputs.words.extend_from_slice(words);
        // Every part starts at a multiple of 16 bytes.
        let padded = queue.inputs.words.len().next_multiple_of(4).min(queue.inputs.room);
        queue.inputs.words.resize(padded, 0);
        queue.inputs.parts.push((at, words.len()));
        Ok(queue.inputs.address + 4 * at as u64)
    }

    /// Puts a launch behind those that wait.
    pub(crate) fn launch(&self, kernel: Kernel, grid: [usize; 2], threads: u32, args: Args) -> Result<(), DeviceError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let grid = grid.map(|blocks| u32::try_from(blocks).expect("grids are checked where rows are allocated"));
        let mut queue = self.lock();
        if let Some(dead) = &queue.dead {
            return Err(dead.clone());
        }
        queue.launches.push(Launch { kernel, grid, threads, args });
        if queue.launches.len() >= MOST_LAUNCHES { self.flush_queue(&mut queue) } else { Ok(()) }
    }

    /// Runs what waits, then copies from the device.
    pub(crate) fn download(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let mut queue = self.lock();
        self.flush_queue(&mut queue)?;
        let result = self.device.download(address, bytes);
        note_dead(&mut queue, &result);
        result
    }

    /// Runs what waits, then copies to the device.
    pub(crate) fn upload(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut queue = self.lock();
        self.flush_queue(&mut queue)?;
        let result = self.device.upload(address, bytes);
        note_dead(&mut queue, &result);
        result
    }

    fn flush_queue(&self, queue: &mut Queue) -> Result<(), DeviceError> {
        if let Some(dead) = &queue.dead {
            return Err(dead.clone());
        }
        let launches = std::mem::take(&mut queue.launches);
        let mut result = Ok(());
        if !launches.is_empty() {
            if !queue.inputs.words.is_empty() {
                result = self.device.upload(queue.inputs.address, bytemuck::cast_slice(&queue.inputs.words));
            }
            result = result.and_then(|()| self.device.run(&launches));
        }
        queue.inputs.words.clear();
        queue.inputs.parts.clear();
        // Keeps its room.
        queue.launches = launches;
        queue.launches.clear();
        note_dead(queue, &result);
        self.free_retired(queue);
        result
    }

    fn free_retired(&self, queue: &mut Queue) {
        queue.retired.drain(..).for_each(|address| self.device.free(address));
    }

    /// Remembers that an operation of this thread couldn't be done.
    pub(crate) fn note(&self, error: DeviceError) {
        let mut queue = self.lock();
        let thread = std::thread::current().id();
        // The first fault is the cause of the others.
        if queue.faults.iter().all(|(id, _)| *id != thread) {
            queue.faults.push((thread, error));
        }
    }

    /// The first fault of this thread since it last asked.
    pub(crate) fn take_fault(&self) -> Result<(), DeviceError> {
        let mut queue = self.lock();
        let thread = std::thread::current().id();
        match queue.faults.iter().position(|(id, _)| *id == thread) {
            Some(index) => Err(queue.faults.swap_remove(index).1),
            None => Ok(()),
        }
    }
}

fn note_dead(queue: &mut Queue, result: &Result<(), DeviceError>) {
    if let Err(error) = result
        && error.is_fatal()
        && queue.dead.is_none()
    {
        queue.dead = Some(error.clone());
    }
}
