//! The driver's library, loaded when a GPU is asked for, and the functions of it that are used.
//!
//! Every function is looked up at once: a driver that lacks one is too old, and that is said before anything runs.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::device::DeviceError;

/// A handle of the driver's: context, module, function, stream or graph.
pub(super) type Handle = *mut c_void;
/// An address on the device.
pub(super) type Address = u64;

/// Results that are told apart (`CUresult`).
pub(super) mod code {
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const INSUFFICIENT_DRIVER: u32 = 35;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    /// Unavailable, no such device, bad memory, illegal address, timeout, broken contexts, failed launches, unknown: after
    /// these the context is of no use.
    pub(crate) const LOST: &[u32] = &[46, 100, 101, 214, 700, 702, 709, 714, 715, 716, 717, 718, 719, 999];
}

/// What `cuDeviceGetAttribute` is asked (`CUdevice_attribute`).
pub(super) const CAPABILITY_MAJOR: c_int = 75;
pub(super) const CAPABILITY_MINOR: c_int = 76;
/// Options of `cuModuleLoadDataEx` (`CUjit_option`).
pub(super) const JIT_ERROR_LOG: c_uint = 5;
pub(super) const JIT_ERROR_LOG_BYTES: c_uint = 6;
/// Only this thread's calls are kept from a capture (`CUstreamCaptureMode`).
pub(super) const CAPTURE_THREAD_LOCAL: c_uint = 1;
/// A stream that doesn't wait for the default one.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;

/// The driver that CUDA 12.0 came with reads PTX 8.0.
const OLDEST: c_int = 12_000;

#[cfg(windows)]
const LIBRARIES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const LIBRARIES: &[&str] = &["libcuda.so.1", "libcuda.so"];

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ty),*);)*) => {
        /// The functions, as the library gave them.
        pub(super) struct Driver {
            $($(#[$doc])* pub(super) $name: unsafe extern "system" fn($($arg),*) -> u32,)*
            /// What they are in.
            _library: libloading::Library,
        }

        impl Driver {
            fn from_library(library: libloading::Library) -> Result<Driver, String> {
                $(
                    // SAFETY: the signature is that of CUDA's headers, and the library outlives the pointer: both
                    // are kept in one structure.
                    let $name = unsafe {
                        *library
                            .get::<unsafe extern "system" fn($($arg),*) -> u32>($symbol)
                            .map_err(|_| String::from_utf8_lossy($symbol).into_owned())?
                    };
                )*
                Ok(Driver { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    init = b"cuInit" (c_uint);
    driver_version = b"cuDriverGetVersion" (*mut c_int);
    error_string = b"cuGetErrorString" (u32, *mut *const c_char);
    device_count = b"cuDeviceGetCount" (*mut c_int);
    device_get = b"cuDeviceGet" (*mut c_int, c_int);
    device_name = b"cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = b"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    context_retain = b"cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    context_release = b"cuDevicePrimaryCtxRelease_v2" (c_int);
    context_set = b"cuCtxSetCurrent" (Handle);
    memory_info = b"cuMemGetInfo_v2" (*mut usize, *mut usize);
    memory_alloc = b"cuMemAlloc_v2" (*mut Address, usize);
    memory_free = b"cuMemFree_v2" (Address);
    memory_set = b"cuMemsetD8Async" (Address, u8, usize, Handle);
    copy_to_device = b"cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    copy_to_host = b"cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
    stream_create = b"cuStreamCreate" (*mut Handle, c_uint);
    stream_destroy = b"cuStreamDestroy_v2" (Handle);
    stream_wait = b"cuStreamSynchronize" (Handle);
    stream_begin_capture = b"cuStreamBeginCapture_v2" (Handle, c_uint);
    stream_end_capture = b"cuStreamEndCapture" (Handle, *mut Handle);
    graph_instantiate = b"cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_destroy = b"cuGraphDestroy" (Handle);
    graph_run = b"cuGraphLaunch" (Handle, Handle);
    graph_free = b"cuGraphExecDestroy" (Handle);
    module_load = b"cuModuleLoadDataEx" (*mut Handle, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
    module_unload = b"cuModuleUnload" (Handle);
    module_function = b"cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    launch = b"cuLaunchKernel" (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
}

impl Driver {
    /// Loads the library and starts the driver.
    pub(super) fn load() -> Result<Driver, DeviceError> {
        let mut reasons = Vec::new();
        let library = LIBRARIES.iter().find_map(|name| {
            // SAFETY: NVIDIA's library has no initialisers that anything here depends on; a library of another make under
            // this name is as trusted as the rest of the system's search path.
            match unsafe { libloading::Library::new(*name) } {
                Ok(library) => Some(library),
                Err(error) => {
                    reasons.push(one_line(&error.to_string()));
                    None
                }
            }
        });
        let Some(library) = library else {
            let reason = reasons.into_iter().next().unwrap_or_default();
            return Err(DeviceError::NoDriver(format!("NVIDIA's driver isn't installed ({reason})")));
        };
        let driver = Driver::from_library(library)
            .map_err(|symbol| DeviceError::OldDriver(format!("it has no function `{symbol}`")))?;
        // SAFETY: takes a flag that must be 0.
        let result = unsafe { (driver.init)(0) };
        match result {
            0 => {}
            code::NO_DEVICE => return Err(DeviceError::NoDevice),
            code::STUB_LIBRARY => {
                return Err(DeviceError::NoDriver("the driver's library is only a stub to link with".to_owned()));
            }
            code::INSUFFICIENT_DRIVER | code::SYSTEM_DRIVER_MISMATCH => {
                return Err(DeviceError::OldDriver(driver.explain(result)));
            }
            other => return Err(DeviceError::NoDriver(format!("the driver doesn't start: {}", driver.explain(other)))),
        }
        let mut version = 0;
        // SAFETY: writes one integer.
        let result = unsafe { (driver.driver_version)(&mut version) };
        if result != 0 || version < OLDEST {
            let has = format!("it is made for CUDA {}.{}", version / 1000, version % 1000 / 10);
            return Err(DeviceError::OldDriver(format!("{has}, and the kernels need 12.0")));
        }
        Ok(driver)
    }

    /// A result in words.
    pub(super) fn explain(&self, result: u32) -> String {
        let mut text = std::ptr::null();
        // SAFETY: writes a pointer to a static string, or null.
        let known = unsafe { (self.error_string)(result, &mut text) } == 0 && !text.is_null();
        if !known {
            return format!("error {result}");
        }
        // SAFETY: the driver's strings end in 0 and live as long as the library.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        format!("{} (error {result})", one_line(&text))
    }

    /// An error unless `result` is success.
    pub(super) fn check(&self, result: u32, doing: &'static str) -> Result<(), DeviceError> {
        match result {
            0 => Ok(()),
            code::UNSUPPORTED_PTX_VERSION => Err(DeviceError::OldDriver(self.explain(result))),
            code if code::LOST.contains(&code) => Err(DeviceError::Lost { doing, what: self.explain(code) }),
            code => Err(DeviceError::Failed { doing, what: self.explain(code) }),
        }
    }
}

/// Text from outside on one line, without control characters.
pub(super) fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}
