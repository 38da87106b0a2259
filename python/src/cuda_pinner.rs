//! Pins lent memory for CUDA, by the driver that the process finds. Copies to a GPU then read it
//! without a stop in the driver's own memory, and beside other work.
//!
//! A forked child has no CUDA, once its parent has: its memory is lent as it is.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libloading::Library;
use verbs3_lending_client::{MemoryPin, MemoryPinner};

const LIBRARY: &str = "libcuda.so.1";
/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context of the process.
const REGISTER_PORTABLE: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: this thread may pin while others capture graphs.
const CAPTURE_RELAXED: c_int = 2;
/// `CUDA_ERROR_NOT_INITIALIZED`: the answer to the start in a child of a process that has CUDA.
const NOT_INITIALISED: Status = 3;
/// `CUDA_ERROR_DEINITIALIZED`: the driver has ended, and has let go of all memory.
const DEINITIALISED: Status = 4;

type Status = c_int;
type Context = *mut c_void;

/// What is called of the driver. The library is never unloaded: it has threads of its own.
struct CudaDriver {
    initialise: unsafe extern "C" fn(c_uint) -> Status,
    get_device: unsafe extern "C" fn(*mut c_int, c_int) -> Status,
    exchange_capture_mode: unsafe extern "C" fn(*mut c_int) -> Status,
    get_error_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    retain_context: unsafe extern "C" fn(*mut Context, c_int) -> Status,
    release_context: unsafe extern "C" fn(c_int) -> Status,
    push_context: unsafe extern "C" fn(Context) -> Status,
    pop_context: unsafe extern "C" fn(*mut Context) -> Status,
    register_memory: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Status,
    unregister_memory: unsafe extern "C" fn(*mut c_void) -> Status,
}

/// Pins memory through the primary context of one device.
pub(crate) struct CudaPinner {
    /// `None` in a forked child.
    driver: Option<Arc<CudaDriver>>,
    /// By the driver's name for it.
    device: c_int,
    process: u32,
}

/// No memory of a forked child is pinned.
struct NoPin;

impl MemoryPin for NoPin {
    fn unpin_memory(&mut self) -> bool {
        true
    }
}

/// Memory that CUDA knows.
struct CudaRegistration {
    driver: Arc<CudaDriver>,
    device: c_int,
    context: usize,
    address: usize,
    process: u32,
}

impl CudaPinner {
    /// Loads the driver, and takes the device of this number.
    pub(crate) fn load_driver(ordinal: i32) -> io::Result<Self> {
        let (driver, process) = (CudaDriver::load()?, std::process::id());
        // SAFETY: the flags have to be 0, and any thread may start the driver, again and again.
        let started = unsafe { (driver.initialise)(0) };
        if started == NOT_INITIALISED {
            return Ok(Self { driver: None, device: 0, process });
        }
        driver.check_status(started)?;
        let mut device = 0;
        // SAFETY: the place is written to before the call returns. Devices are numbered from 0 on,
        // and any other number is an error.
        driver.check_status(unsafe { (driver.get_device)(&raw mut device, ordinal) })?;
        Ok(Self { driver: Some(Arc::new(driver)), device, process })
    }
}

impl MemoryPinner for CudaPinner {
    fn pin_memory(&self, address: NonNull<u8>, bytes: u64) -> io::Result<Box<dyn MemoryPin>> {
        let driver = self.driver.as_ref().filter(|_| std::process::id() == self.process);
        let Some(driver) = driver else { return Ok(Box::new(NoPin)) };
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let context = driver.retain_context(self.device)?;
        let pinned = driver.within_context(context, || {
            // SAFETY: the range is mapped to be written, and the caller keeps it mapped until the
            // registration is taken back.
            unsafe { (driver.register_memory)(address.as_ptr().cast(), bytes, REGISTER_PORTABLE) }
        });
        if let Err(status) = pinned {
            driver.release_context(self.device);
            return Err(driver.describe_status(status));
        }
        Ok(Box::new(CudaRegistration {
            driver: driver.clone(),
            device: self.device,
            context: context as usize,
            address: address.as_ptr() as usize,
            process: self.process,
        }))
    }
}

impl MemoryPin for CudaRegistration {
    fn unpin_memory(&mut self) -> bool {
        if std::process::id() != self.process {
            return true;
        }
        let driver = &self.driver;
        let unpinned = driver.within_context(self.context as Context, || {
            // SAFETY: the address was registered in this context, and its one owner takes it back.
            unsafe { (driver.unregister_memory)(self.address as *mut c_void) }
        });
        driver.release_context(self.device);
        matches!(unpinned, Ok(()) | Err(DEINITIALISED))
    }
}

impl CudaDriver {
    fn load() -> io::Result<Self> {
        let missing = |error: libloading::Error| {
            io::Error::new(io::ErrorKind::NotFound, format!("there is no CUDA driver: {error}"))
        };
        // SAFETY: the driver of CUDA may be loaded by any thread, and its start touches nothing here.
        let library = Box::leak(Box::new(unsafe { Library::new(LIBRARY) }.map_err(missing)?));
        // SAFETY: each name has this signature in the driver's interface, version 12 and 13.
        unsafe {
            Ok(Self {
                initialise: *library.get(b"cuInit\0").map_err(missing)?,
                get_device: *library.get(b"cuDeviceGet\0").map_err(missing)?,
                exchange_capture_mode: *library
                    .get(b"cuThreadExchangeStreamCaptureMode\0")
                    .map_err(missing)?,
                get_error_string: *library.get(b"cuGetErrorString\0").map_err(missing)?,
                retain_context: *library.get(b"cuDevicePrimaryCtxRetain\0").map_err(missing)?,
                release_context: *library
                    .get(b"cuDevicePrimaryCtxRelease_v2\0")
                    .map_err(missing)?,
                push_context: *library.get(b"cuCtxPushCurrent_v2\0").map_err(missing)?,
                pop_context: *library.get(b"cuCtxPopCurrent_v2\0").map_err(missing)?,
                register_memory: *library.get(b"cuMemHostRegister_v2\0").map_err(missing)?,
                unregister_memory: *library.get(b"cuMemHostUnregister\0").map_err(missing)?,
            })
        }
    }

    /// Makes the device's primary context, or takes it where torch has made it.
    fn retain_context(&self, device: c_int) -> io::Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the place is written to before the call returns, and the driver has named the device.
        self.check_status(unsafe { (self.retain_context)(&raw mut context, device) })?;
        Ok(context)
    }

    fn release_context(&self, device: c_int) {
        // SAFETY: it was retained once for each release.
        unsafe { (self.release_context)(device) };
    }

    /// Calls something with the context in force for this thread, beside whatever other threads
    /// capture, and puts back what was.
    fn within_context(
        &self,
        context: Context,
        call: impl FnOnce() -> Status,
    ) -> Result<(), Status> {
        // SAFETY: the context was retained, and not yet released.
        match unsafe { (self.push_context)(context) } {
            0 => {}
            status => return Err(status),
        }
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: the place holds a mode, and gets the one that was in force.
        let exchanged = unsafe { (self.exchange_capture_mode)(&raw mut mode) };
        let status = call();
        if exchanged == 0 {
            // SAFETY: as above.
            unsafe { (self.exchange_capture_mode)(&raw mut mode) };
        }
        let mut popped = ptr::null_mut();
        // SAFETY: the context that was just pushed is this thread's topmost one.
        unsafe { (self.pop_context)(&raw mut popped) };
        if status == 0 { Ok(()) } else { Err(status) }
    }

    fn check_status(&self, status: Status) -> io::Result<()> {
        if status == 0 { Ok(()) } else { Err(self.describe_status(status)) }
    }

    fn describe_status(&self, status: Status) -> io::Error {
        let mut text = ptr::null();
        // SAFETY: the place is written to before the call returns.
        unsafe { (self.get_error_string)(status, &raw mut text) };
        if text.is_null() {
            return io::Error::other(format!("CUDA says error {status}"));
        }
        // SAFETY: the driver's texts are constants that end with a zero.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        io::Error::other(format!("CUDA says error {status}, {text}"))
    }
}
