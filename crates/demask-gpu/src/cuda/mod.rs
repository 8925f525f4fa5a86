//! An NVIDIA GPU through its driver.
//!
//! All work goes through one stream, in order. Modules are given to the driver when one of their kernels is first
//! launched. A list of launches that is asked for a second time becomes a CUDA graph, which starts as a whole.

#![allow(unsafe_code)]

mod driver;

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard};

use crate::device::{DeviceError, GpuDevice, Launch};
use crate::kernels::{Kernel, MODULES};
use driver::{
    CAPABILITY_MAJOR, CAPABILITY_MINOR, CAPTURE_THREAD_LOCAL, Driver, Handle, JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES,
    STREAM_NON_BLOCKING, code, one_line,
};

/// Graphs that are kept.
const GRAPHS: usize = 16;
/// Shorter lists aren't worth a graph.
const SHORT: usize = 8;
/// Bytes of what the driver may say about a module.
const LOG_BYTES: usize = 4096;

/// A card.
pub struct CudaDevice {
    driver: Driver,
    index: c_int,
    name: String,
    capability: (i32, i32),
    context: Handle,
    stream: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    modules: HashMap<usize, Handle>,
    functions: HashMap<Kernel, Handle>,
    /// Lists of launches, and their graphs once they were seen twice; the latest last.
    graphs: Vec<(Vec<Launch>, Option<Handle>)>,
}

// SAFETY: the driver may be called from any thread as long as the context is current there, which every method sees to;
// handles are only numbers to us, and those that change lie behind a mutex.
unsafe impl Send for CudaDevice {}
// SAFETY: as above.
unsafe impl Sync for CudaDevice {}

impl CudaDevice {
    /// Loads the driver and takes card `index`.
    pub fn open(index: usize) -> Result<CudaDevice, DeviceError> {
        let driver = Driver::load()?;
        let (mut count, mut device) = (0, 0);
        // SAFETY: writes one integer.
        driver.check(unsafe { (driver.device_count)(&mut count) }, "counting GPUs")?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err(DeviceError::NoDevice);
        }
        if index >= count {
            return Err(DeviceError::NoSuchDevice { index, count });
        }
        // SAFETY: writes one integer; the index exists.
        driver.check(unsafe { (driver.device_get)(&mut device, index as c_int) }, "opening the GPU")?;
        let mut name = [0u8; 256];
        // SAFETY: writes at most 256 bytes.
        driver.check(unsafe { (driver.device_name)(name.as_mut_ptr().cast(), 256, device) }, "naming the GPU")?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let name = one_line(&String::from_utf8_lossy(&name[..end]));
        let mut capability = (0, 0);
        // SAFETY: each writes one integer.
        unsafe {
            let attribute = driver.device_attribute;
            driver.check(attribute(&mut capability.0, CAPABILITY_MAJOR, device), "reading the GPU's capability")?;
            driver.check(attribute(&mut capability.1, CAPABILITY_MINOR, device), "reading the GPU's capability")?;
        }
        if capability < (8, 0) {
            return Err(DeviceError::Capability { index, name, capability });
        }
        let mut context = null_mut();
        // SAFETY: writes one handle.
        let result = unsafe { (driver.context_retain)(&mut context, device) };
        if result == code::OUT_OF_MEMORY {
            return Err(DeviceError::OutOfMemory { wanted: 0, free: 0 });
        }
        driver.check(result, "starting the GPU")?;
        let mut cuda = CudaDevice {
            driver,
            index: device,
            name,
            capability,
            context,
            stream: null_mut(),
            state: Mutex::default(),
        };
        cuda.enter()?;
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        let result = unsafe { (cuda.driver.stream_create)(&mut stream, STREAM_NON_BLOCKING) };
        cuda.driver.check(result, "starting the GPU")?;
        cuda.stream = stream;
        Ok(cuda)
    }

    /// Makes the context this thread's.
    fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained until `drop`.
        self.driver.check(unsafe { (self.driver.context_set)(self.context) }, "entering the GPU's context")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait(&self, doing: &'static str) -> Result<(), DeviceError> {
        // SAFETY: the stream is ours.
        self.driver.check(unsafe { (self.driver.stream_wait)(self.stream) }, doing)
    }

    fn function(&self, state: &mut State, kernel: Kernel) -> Result<Handle, DeviceError> {
        if let Some(&function) = state.functions.get(&kernel) {
            return Ok(function);
        }
        let module = match state.modules.get(&kernel.module) {
            Some(&module) => module,
            None => {
                let module = self.load_module(kernel.module)?;
                state.modules.insert(kernel.module, module);
                module
            }
        };
        let name = CString::new(kernel.function).expect("names of kernels have no zeros");
        let mut function = null_mut();
        // SAFETY: writes one handle; the name ends in 0.
        let result = unsafe { (self.driver.module_function)(&mut function, module, name.as_ptr()) };
        self.driver.check(result, "looking up a kernel")?;
        state.functions.insert(kernel, function);
        Ok(function)
    }

    fn load_module(&self, index: usize) -> Result<Handle, DeviceError> {
        let text = CString::new(MODULES[index].ptx).expect("PTX has no zeros");
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES];
        // The second option's value is a number in the place of a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG_BYTES as *mut c_void];
        let mut module = null_mut();
        // SAFETY: the text ends in 0, the options have one value each, and the log has the length that is given.
        let result = unsafe {
            (self.driver.module_load)(
                &mut module,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        self.driver.check(result, "compiling the kernels").map_err(|error| match error {
            DeviceError::Failed { doing, what } => {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
                let log = one_line(&String::from_utf8_lossy(&log[..end]));
                DeviceError::Failed { doing, what: format!("{what}; module `{}`: {log}", MODULES[index].name) }
            }
            other => other,
        })?;
        Ok(module)
    }

    /// Puts launches on the stream: to run, or into the graph that is being captured.
    fn enqueue(&self, state: &mut State, launches: &[Launch]) -> Result<(), DeviceError> {
        for launch in launches {
            let function = self.function(state, launch.kernel)?;
            let mut args: Vec<*mut c_void> = launch.args.iter().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
            // SAFETY: the arguments are those of the kernel (tests run every kernel with them), and the driver copies
            // them before it returns.
            let result = unsafe {
                (self.driver.launch)(
                    function,
                    launch.grid[0],
                    launch.grid[1],
                    1,
                    launch.threads,
                    1,
                    1,
                    0,
                    self.stream,
                    args.as_mut_ptr(),
                    null_mut(),
                )
            };
            self.driver.check(result, "launching a kernel")?;
        }
        Ok(())
    }

    /// A graph of launches whose kernels are loaded.
    fn capture(&self, state: &mut State, launches: &[Launch]) -> Result<Handle, DeviceError> {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: the stream is ours, and nobody else uses it: the state is locked.
        let result = unsafe { (self.driver.stream_begin_capture)(self.stream, CAPTURE_THREAD_LOCAL) };
        self.driver.check(result, "making a graph")?;
        let enqueued = self.enqueue(state, launches);
        // SAFETY: ends what was begun, whatever happened in between; writes one handle.
        let ended = unsafe { (self.driver.stream_end_capture)(self.stream, &mut graph) };
        enqueued?;
        self.driver.check(ended, "making a graph")?;
        // SAFETY: writes one handle; the graph is whole.
        let result = unsafe { (self.driver.graph_instantiate)(&mut executable, graph, 0) };
        // SAFETY: the executable graph doesn't need it any more.
        unsafe { (self.driver.graph_destroy)(graph) };
        self.driver.check(result, "making a graph")?;
        Ok(executable)
    }

    /// The graph of a list that was seen before; made now if this is the second time.
    fn graph(&self, state: &mut State, launches: &[Launch]) -> Result<Option<Handle>, DeviceError> {
        if launches.len() < SHORT {
            return Ok(None);
        }
        let Some(place) = state.graphs.iter().position(|(known, _)| known == launches) else {
            if state.graphs.len() >= GRAPHS {
                let (_, graph) = state.graphs.remove(0);
                self.free_graph(graph);
            }
            state.graphs.push((launches.to_vec(), None));
            return Ok(None);
        };
        let (known, graph) = state.graphs.remove(place);
        let graph = match graph {
            Some(graph) => graph,
            None => self.capture(state, launches)?,
        };
        state.graphs.push((known, Some(graph)));
        Ok(Some(graph))
    }

    fn free_graph(&self, graph: Option<Handle>) {
        if let Some(graph) = graph {
            // SAFETY: it is ours and named nowhere else; one that still runs is freed afterwards.
            unsafe { (self.driver.graph_free)(graph) };
        }
    }
}

impl GpuDevice for CudaDevice {
    fn describe(&self) -> String {
        format!("{}, compute capability {}.{}", self.name, self.capability.0, self.capability.1)
    }

    fn memory(&self) -> Result<(u64, u64), DeviceError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        self.driver.check(unsafe { (self.driver.memory_info)(&mut free, &mut total) }, "asking for free memory")?;
        Ok((free as u64, total as u64))
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: writes one address.
        let result = unsafe { (self.driver.memory_alloc)(&mut address, bytes) };
        if result == code::OUT_OF_MEMORY {
            let free = self.memory().map_or(0, |(free, _)| free);
            return Err(DeviceError::OutOfMemory { wanted: bytes as u64, free });
        }
        self.driver.check(result, "reserving memory")?;
        Ok(address)
    }

    fn free(&self, address: u64) {
        if self.enter().is_ok() {
            // SAFETY: the address is one that `alloc` gave, freed once; the driver waits for what still uses it. On a lost
            // device this fails, and there is nothing left to free.
            unsafe { (self.driver.memory_free)(address) };
        }
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the memory is the caller's, `bytes` long.
        self.driver.check(unsafe { (self.driver.memory_set)(address, 0, bytes, self.stream) }, "clearing memory")
    }

    fn upload(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: reads `bytes`, which the driver has copied when the call returns, as they aren't pinned; the memory
        // is the caller's and as long.
        let result = unsafe { (self.driver.copy_to_device)(address, bytes.as_ptr().cast(), bytes.len(), self.stream) };
        self.driver.check(result, "copying to the GPU")
    }

    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: writes `bytes`, which are borrowed until the stream was waited for.
        let result =
            unsafe { (self.driver.copy_to_host)(bytes.as_mut_ptr().cast(), address, bytes.len(), self.stream) };
        let waited = self.wait("waiting for the GPU");
        self.driver.check(result, "copying from the GPU").and(waited)
    }

    fn run(&self, launches: &[Launch]) -> Result<(), DeviceError> {
        self.enter()?;
        let mut state = self.state();
        match self.graph(&mut state, launches)? {
            Some(graph) => {
                // SAFETY: both handles are ours.
                let result = unsafe { (self.driver.graph_run)(graph, self.stream) };
                self.driver.check(result, "running the model")
            }
            None => self.enqueue(&mut state, launches),
        }
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        let state = std::mem::take(&mut *self.state());
        for (_, graph) in state.graphs {
            self.free_graph(graph);
        }
        // SAFETY: all handles are ours, and nothing uses them any more: the stream is waited for. On a lost device the
        // calls fail, and there is nothing left to free.
        unsafe {
            if !self.stream.is_null() {
                (self.driver.stream_wait)(self.stream);
                (self.driver.stream_destroy)(self.stream);
            }
            state.modules.values().for_each(|&module| {
                (self.driver.module_unload)(module);
            });
            (self.driver.context_release)(self.index);
        }
    }
}
