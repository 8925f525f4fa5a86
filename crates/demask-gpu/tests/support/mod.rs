//! A device that runs the PTX on an interpreter, instruction by instruction, and checks every access on the way.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use demask_gpu::{DeviceError, GpuDevice, Launch, MODULES};
use ptx_emu::{Memory, Module, Param};

/// The emulator.
pub(crate) struct Emulator {
    memory: Mutex<Memory>,
    held: Mutex<std::collections::HashMap<u64, usize>>,
    /// Bytes that it says it has.
    room: u64,
    used: AtomicU64,
    /// Launches after which the device is lost.
    life: AtomicU64,
    seed: AtomicU64,
}

/// Modules are parsed once for all tests of a process.
fn module(index: usize) -> &'static Module {
    static PARSED: [OnceLock<Module>; 32] = [const { OnceLock::new() }; 32];
    PARSED[index].get_or_init(|| {
        let module = &MODULES[index];
        Module::parse(module.name, module.ptx).unwrap_or_else(|error| panic!("{}: {error}", module.name))
    })
}

impl Emulator {
    pub(crate) fn new() -> Emulator {
        Emulator::with_room(1 << 40)
    }

    /// A device with so many bytes of memory.
    pub(crate) fn with_room(room: u64) -> Emulator {
        Emulator {
            memory: Mutex::new(Memory::new()),
            held: Mutex::default(),
            room,
            used: AtomicU64::new(0),
            life: AtomicU64::new(u64::MAX),
            seed: AtomicU64::new(1),
        }
    }

    /// A device that is lost after so many launches.
    pub(crate) fn with_life(life: u64) -> Emulator {
        let emulator = Emulator::new();
        emulator.life.store(life, Ordering::Relaxed);
        emulator
    }
}

impl GpuDevice for Emulator {
    fn describe(&self) -> String {
        "PTX interpreter".to_owned()
    }

    fn memory(&self) -> Result<(u64, u64), DeviceError> {
        Ok((self.room - self.used.load(Ordering::Relaxed), self.room))
    }

    fn alloc(&self, bytes: usize) -> Result<u64, DeviceError> {
        let free = self.room - self.used.load(Ordering::Relaxed);
        if bytes as u64 > free {
            return Err(DeviceError::OutOfMemory { wanted: bytes as u64, free });
        }
        let address = self.memory.lock().unwrap().alloc(bytes).unwrap();
        self.used.fetch_add(bytes as u64, Ordering::Relaxed);
        self.held.lock().unwrap().insert(address, bytes);
        Ok(address)
    }

    fn free(&self, address: u64) {
        let bytes = self.held.lock().unwrap().remove(&address).expect("freed once");
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.memory.lock().unwrap().free(address).unwrap();
    }

    fn zero(&self, address: u64, bytes: usize) -> Result<(), DeviceError> {
        self.memory.lock().unwrap().write(address, &vec![0; bytes]).unwrap();
        Ok(())
    }

    fn upload(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.lock().unwrap().write(address, bytes).unwrap();
        Ok(())
    }

    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.lock().unwrap().read(address, bytes).unwrap();
        Ok(())
    }

    fn run(&self, launches: &[Launch]) -> Result<(), DeviceError> {
        for launch in launches {
            if self.life.load(Ordering::Relaxed) == 0 {
                return Err(DeviceError::Lost { doing: "running the model", what: "fell off the bus".to_owned() });
            }
            self.life.fetch_sub(1, Ordering::Relaxed);
            let params: Vec<Param> = launch.args.iter().map(|bytes| Param::Bytes(bytes.to_vec())).collect();
            let shape = ptx_emu::Launch {
                grid: [launch.grid[0], launch.grid[1], 1],
                block: [launch.threads, 1, 1],
                dynamic_shared: 0,
                seed: self.seed.fetch_add(1, Ordering::Relaxed),
            };
            let mut memory = self.memory.lock().unwrap();
            let result = module(launch.kernel.module).launch(launch.kernel.function, &shape, &params, &mut memory);
            if let Err(fault) = result {
                panic!("{}: {fault}", launch.kernel.function);
            }
        }
        Ok(())
    }
}
