//! Owns the queue that each process keeps first on a soft-iWARP device, for a defect of its user
//! library.
//!
//! The kernel numbers the pages of all queues of a device's context from 0, and tells the library
//! where a queue begins. The library takes one such place, `SIW_INVAL_UOBJ_KEY` of its headers, for
//! "none": the queue that happens to begin there can't be made, nor can any other until an earlier
//! one is gone. A queue that is made first and lies over that page keeps others from beginning
//! there.

use std::collections::HashMap;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rdma_mummy_sys as ffi;

use super::{check_result, last_error};

/// What soft-iWARP says of its vendor: "bmt".
pub(super) const SIW_VENDOR: u32 = 0x62_6d74;

/// The place that is taken for "none" is page 144. An entry takes 32 bytes, so this many take 256
/// pages: 1 MiB of the kernel's memory.
const FIRST_QUEUE_ENTRIES: libc::c_int = 32_768;

/// The first queues that live, by the address of their context.
static FIRST_QUEUES: LazyLock<Mutex<HashMap<usize, Weak<SiwFirstQueue>>>> =
    LazyLock::new(Mutex::default);

/// A completion queue that nobody uses. All protection domains of a context share it.
pub(super) struct SiwFirstQueue {
    cq: NonNull<ffi::ibv_cq>,
    context: usize,
}

// SAFETY: the queue is only destroyed, once, by whoever drops the last reference.
unsafe impl Send for SiwFirstQueue {}
// SAFETY: as for Send.
unsafe impl Sync for SiwFirstQueue {}

impl SiwFirstQueue {
    /// Returns the first queue of `context`, and makes it where none lives.
    ///
    /// # Safety
    /// `context` is open, and stays so until what is returned is dropped.
    pub(super) unsafe fn of_context(context: NonNull<ffi::ibv_context>) -> io::Result<Arc<Self>> {
        let address = context.as_ptr() as usize;
        let mut queues = FIRST_QUEUES.lock();
        if let Some(queue) = queues.get(&address).and_then(Weak::upgrade) {
            return Ok(queue);
        }
        // SAFETY: the caller vouches for the context; a queue without a channel sends no events.
        let cq = unsafe {
            ffi::ibv_create_cq(
                context.as_ptr(),
                FIRST_QUEUE_ENTRIES,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            )
        };
        let cq = NonNull::new(cq).ok_or_else(|| last_error("can't create the first queue"))?;
        let queue = Arc::new(Self { cq, context: address });
        queues.insert(address, Arc::downgrade(&queue));
        Ok(queue)
    }
}

impl Drop for SiwFirstQueue {
    fn drop(&mut self) {
        let mut queues = FIRST_QUEUES.lock();
        // Another may have been made since the last reference to this one went.
        if queues.get(&self.context).is_some_and(|queue| queue.strong_count() == 0) {
            queues.remove(&self.context);
        }
        // SAFETY: the context is still open, and nothing uses the queue.
        let _ = check_result(unsafe { ffi::ibv_destroy_cq(self.cq.as_ptr()) }, "destroy_cq");
    }
}
