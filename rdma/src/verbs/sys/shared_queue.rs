//! Owns shared receive queues: any queue pair of a rail takes buffers from them for arriving
//! messages.
//!
//! Does not decide which memory is posted, or how much of it each connection may use.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::memory::ProtectionDomain;
use super::queue::GatherElement;
use super::{check_result, last_error};

/// A shared receive queue. The queue pairs that take from it hold it.
pub(in crate::verbs) struct SharedQueue {
    srq: NonNull<ffi::ibv_srq>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs serialises every call on a shared receive queue.
unsafe impl Send for SharedQueue {}
// SAFETY: as for Send.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    /// Makes a queue with room for `depth` buffers.
    pub(in crate::verbs) fn new(domain: Arc<ProtectionDomain>, depth: u32) -> io::Result<Self> {
        let has = domain.query_capabilities()?.shared_buffers_max;
        if has < depth {
            return Err(io::Error::other(format!(
                "its shared receive queues have {has} places, {depth} are wanted"
            )));
        }
        let attr = ffi::ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 };
        let mut attributes = ffi::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is alive; the attributes live through the call.
        let srq = unsafe { ffi::ibv_create_srq(domain.as_ptr(), &raw mut attributes) };
        let srq =
            NonNull::new(srq).ok_or_else(|| last_error("can't create a shared receive queue"))?;
        Ok(Self { srq, _domain: domain })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_srq {
        self.srq.as_ptr()
    }

    /// Posts one buffer.
    ///
    /// # Safety
    /// The memory stays valid and untouched until a completion with `id`, or until this queue is
    /// dropped.
    pub(in crate::verbs) unsafe fn post_buffer(
        &self,
        id: u64,
        piece: GatherElement,
    ) -> io::Result<()> {
        let mut sge = ffi::ibv_sge { addr: piece.address, length: piece.bytes, lkey: piece.lkey };
        let mut request = ffi::ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is alive, request and piece live through the call; the caller vouches
        // for the rest.
        let posted =
            unsafe { ffi::ibv_post_srq_recv(self.srq.as_ptr(), &raw mut request, &raw mut bad) };
        check_result(posted, "can't post a shared receive buffer")
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold the queue, so none is left.
        let _ = check_result(unsafe { ffi::ibv_destroy_srq(self.srq.as_ptr()) }, "destroy_srq");
    }
}
