//! Owns memory windows of type 2 and their keys. A window opens a range of a registration for the
//! peer of one queue pair.
//!
//! Binding and invalidating are work requests (`queue`). Does not decide who asks for them, and
//! when.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::last_error;
use super::memory::{MemoryRegion, ProtectionDomain};
use super::queue::WorkOperation;

/// A memory window. Dropping it closes it at once, bound or not.
pub(in crate::verbs) struct MemoryWindow {
    mw: NonNull<ffi::ibv_mw>,
    /// The key that opens the range while the window is bound.
    key: u32,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: a window is bound by one queue pair at a time, and freed by its one owner.
unsafe impl Send for MemoryWindow {}

impl MemoryWindow {
    pub(in crate::verbs) fn new(domain: Arc<ProtectionDomain>) -> io::Result<Self> {
        // SAFETY: the domain is alive.
        let mw = unsafe { ffi::ibv_alloc_mw(domain.as_ptr(), ffi::ibv_mw_type::IBV_MW_TYPE_2) };
        let mw = NonNull::new(mw).ok_or_else(|| last_error("can't make a memory window"))?;
        // SAFETY: a fresh window has its key.
        let key = unsafe { (*mw.as_ptr()).rkey };
        Ok(Self { mw, key, _domain: domain })
    }

    /// Returns the request that binds the window to `bytes` from `address`, for writing. Each
    /// binding has another key.
    pub(in crate::verbs) fn bind_operation(
        &mut self,
        region: &MemoryRegion,
        address: u64,
        bytes: u32,
    ) -> WorkOperation {
        // SAFETY: takes and returns plain numbers.
        self.key = unsafe { ffi::ibv_inc_rkey(self.key) };
        WorkOperation::Bind {
            window: self.mw.as_ptr() as usize,
            region: region.raw_handle(),
            address,
            bytes,
            key: self.key,
        }
    }

    pub(in crate::verbs) fn remote_key(&self) -> u32 {
        self.key
    }

    /// Returns the request that ends the binding.
    pub(in crate::verbs) fn invalidate_operation(&self) -> WorkOperation {
        WorkOperation::Invalidate { key: self.key }
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // SAFETY: this window's own, and freed once. One that is bound is closed by that.
        let _ = super::check_result(unsafe { ffi::ibv_dealloc_mw(self.mw.as_ptr()) }, "dealloc_mw");
    }
}
