//! Owns protection domains and registered memory, and the order of their ends. A region goes before
//! its domain, and a domain before the device's context.
//!
//! Does not decide who may use which bytes of a region.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::cm::CmId;
use super::port::PortAttributes;
use super::siw_first_queue::{SIW_VENDOR, SiwFirstQueue};
use super::{check_result, last_error};

/// Capabilities that some devices lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct DeviceCapabilities {
    /// Places of a shared receive queue; 0 where there is none.
    pub(in crate::verbs) shared_buffers_max: u32,
    /// Memory windows of type 2.
    pub(in crate::verbs) windows: bool,
    /// Longest region.
    pub(in crate::verbs) region_bytes_max: u64,
    /// RDMA READs of one queue pair that are on their way at once.
    pub(in crate::verbs) reads_max: u8,
}

/// A protection domain on the device of one rail.
pub(in crate::verbs) struct ProtectionDomain {
    pd: NonNull<ffi::ibv_pd>,
    /// Goes before the anchor, whose context it needs.
    first_queue: Option<Arc<SiwFirstQueue>>,
    /// Keeps the device's context open.
    anchor: CmId,
}

// SAFETY: libibverbs serialises every call on a domain.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as for Send.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Makes a domain on the device that `anchor` is bound to.
    pub(in crate::verbs) fn new(anchor: CmId) -> io::Result<Self> {
        let context = anchor
            .device_context()
            .ok_or_else(|| io::Error::other("the address belongs to no RDMA device"))?;
        // SAFETY: the context stays open as long as `anchor`, which this domain keeps.
        let pd = unsafe { ffi::ibv_alloc_pd(context.as_ptr()) };
        let pd =
            NonNull::new(pd).ok_or_else(|| last_error("can't allocate a protection domain"))?;
        let mut domain = Self { pd, first_queue: None, anchor };
        if domain.query_device()?.vendor_id == SIW_VENDOR {
            // SAFETY: the anchor keeps the context open, and is dropped after the queue.
            domain.first_queue = Some(unsafe { SiwFirstQueue::of_context(context)? });
        }
        Ok(domain)
    }

    pub(in crate::verbs) fn device_context(&self) -> NonNull<ffi::ibv_context> {
        self.anchor.device_context().expect("a domain's anchor is bound to a device")
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_pd {
        self.pd.as_ptr()
    }

    /// Returns the result, as the library gives it, and what the device told.
    fn ask_device(&self) -> (libc::c_int, ffi::ibv_device_attr) {
        // SAFETY: plain data, for which zeroes are valid.
        let mut told: ffi::ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open as long as the anchor; `told` is a valid place.
        let asked = unsafe { ffi::ibv_query_device(self.device_context().as_ptr(), &raw mut told) };
        (asked, told)
    }

    fn query_device(&self) -> io::Result<ffi::ibv_device_attr> {
        let (asked, told) = self.ask_device();
        check_result(asked, "can't ask the device")?;
        Ok(told)
    }

    /// Returns whether the kernel has taken the device away from this process: it was removed, or its
    /// driver loads anew. It has then ended all that the process had there, and every call fails.
    pub(in crate::verbs) fn is_disassociated(&self) -> bool {
        match self.ask_device().0 {
            -1 => io::Error::last_os_error().raw_os_error() == Some(libc::EIO),
            code => code.abs() == libc::EIO,
        }
    }

    /// Queries the capabilities that not every device has.
    pub(in crate::verbs) fn query_capabilities(&self) -> io::Result<DeviceCapabilities> {
        let told = self.query_device()?;
        let shared = if told.max_srq > 0 { told.max_srq_wr } else { 0 };
        let type_2 = ffi::ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0
            | ffi::ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
        Ok(DeviceCapabilities {
            shared_buffers_max: u32::try_from(shared).unwrap_or(0),
            windows: told.device_cap_flags & type_2 != 0 && told.max_mw > 0,
            // Some drivers say nothing.
            region_bytes_max: if told.max_mr_size == 0 { u64::MAX } else { told.max_mr_size },
            reads_max: u8::try_from(told.max_qp_init_rd_atom.clamp(1, 255)).unwrap_or(1),
        })
    }

    /// Returns how many completion vectors the device has; 0 where it does not say.
    pub(in crate::verbs) fn vector_count(&self) -> u32 {
        // SAFETY: the context is open as long as the anchor; the field never changes.
        let vectors = unsafe { (*self.device_context().as_ptr()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(0)
    }

    /// Returns true for Linux's soft-iWARP.
    pub(in crate::verbs) fn is_soft_iwarp(&self) -> bool {
        self.first_queue.is_some()
    }

    /// Queries the rail's port.
    pub(in crate::verbs) fn query_port(&self) -> io::Result<PortAttributes> {
        let (_, port) = self.device_port();
        // SAFETY: the context is open as long as the anchor.
        unsafe { PortAttributes::query_port(self.device_context(), port) }
    }

    /// Returns the name of the device and the port of the rail.
    pub(in crate::verbs) fn device_port(&self) -> (String, u8) {
        self.anchor.device_port().expect("a domain's anchor is bound to a device")
    }

    /// Returns the folder in which the kernel describes the device.
    pub(in crate::verbs) fn device_folder(&self) -> PathBuf {
        // SAFETY: an open context has its device, whose path is a NUL-terminated string in it.
        let path = unsafe {
            CStr::from_ptr((*(*self.device_context().as_ptr()).device).ibdev_path.as_ptr())
        };
        PathBuf::from(OsStr::from_bytes(path.to_bytes()))
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: regions and queues hold the domain, so none of them is left.
        let _ = check_result(unsafe { ffi::ibv_dealloc_pd(self.pd.as_ptr()) }, "dealloc_pd");
    }
}

/// The access that a region grants, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) enum RegionAccess {
    /// This host's NIC reads from it. No remote right at all.
    Source,
    /// This host's NIC writes messages into it, and what it has read. No remote right at all.
    Receive,
    /// A peer that is told the key writes into it.
    RemoteWrite,
    /// Windows over it can be given that right. It has no remote right itself.
    Windows,
    /// A peer that is told the key reads from it: a client of a test.
    #[cfg(test)]
    RemoteRead,
}

/// The rights to a region, and the order of the device's transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) struct RegionTerms {
    pub(in crate::verbs) access: RegionAccess,
    /// Lets PCIe reorder transfers. The completion of a request still shows all of them
    /// (ibv_reg_mr(3)), and nothing here looks at memory before that.
    pub(in crate::verbs) relaxed: bool,
}

/// Registered memory: pinned, and known to the NIC.
pub(in crate::verbs) struct MemoryRegion {
    mr: NonNull<ffi::ibv_mr>,
    pub(in crate::verbs) lkey: u32,
    pub(in crate::verbs) rkey: u32,
    base: usize,
    bytes: usize,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: a registration is only ended, by its one owner; the keys are plain numbers.
unsafe impl Send for MemoryRegion {}
// SAFETY: as for Send.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `bytes` from `base`.
    ///
    /// # Safety
    /// The memory stays mapped until the region is dropped.
    pub(in crate::verbs) unsafe fn register_memory(
        domain: Arc<ProtectionDomain>,
        base: NonNull<u8>,
        bytes: usize,
        terms: RegionTerms,
    ) -> io::Result<Self> {
        let access = match terms.access {
            RegionAccess::Source => ffi::ibv_access_flags(0),
            RegionAccess::Receive => ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE,
            RegionAccess::RemoteWrite => {
                ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
                    | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            }
            #[cfg(test)]
            RegionAccess::RemoteRead => ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ,
            RegionAccess::Windows => {
                ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
                    | ffi::ibv_access_flags::IBV_ACCESS_MW_BIND
            }
        };
        let mut mr = ptr::null_mut();
        if terms.relaxed {
            let access = access | ffi::ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING;
            let (pd, place, iova) =
                (domain.as_ptr(), base.as_ptr().cast(), base.as_ptr().addr() as u64);
            // Drops the wish where the kernel does not know it.
            // SAFETY: the domain is alive, and the caller vouches for the memory.
            mr = unsafe { ffi::ibv_reg_mr_iova2(pd, place, bytes, iova, access.0) };
        }
        // libibverbs before version 28 lacks that call.
        let is_unknown = || io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP);
        if mr.is_null() && (!terms.relaxed || is_unknown()) {
            let (pd, place) = (domain.as_ptr(), base.as_ptr().cast());
            // SAFETY: as above.
            mr = unsafe { ffi::ibv_reg_mr(pd, place, bytes, access.0 as libc::c_int) };
        }
        let mr = NonNull::new(mr).ok_or_else(|| {
            last_error(&format!(
                "can't register {bytes} bytes of memory; raise the limit of locked memory (ulimit \
                -l) or grant IPC_LOCK"
            ))
        })?;
        // SAFETY: a registration that succeeded has its keys.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        Ok(Self { mr, lkey, rkey, base: base.as_ptr() as usize, bytes, _domain: domain })
    }

    /// Returns true if the region covers all of `bytes` from `address`.
    pub(in crate::verbs) fn covers_range(&self, address: usize, bytes: usize) -> bool {
        address >= self.base && bytes <= self.bytes && address - self.base <= self.bytes - bytes
    }

    pub(in crate::verbs) fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the handle that names this region in a bind request.
    pub(super) fn raw_handle(&self) -> usize {
        self.mr.as_ptr() as usize
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: the registration is this region's own, and ends once.
        let _ = check_result(unsafe { ffi::ibv_dereg_mr(self.mr.as_ptr()) }, "dereg_mr");
    }
}

/// Memory registered for the messages of one connection. They come in and go out through equal
/// pieces of it.
pub(in crate::verbs) struct RegisteredBuffer {
    region: Option<MemoryRegion>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory at a fixed place; the wire's lock and the NIC's completions say who may
// touch which piece.
unsafe impl Send for RegisteredBuffer {}
// SAFETY: as for Send.
unsafe impl Sync for RegisteredBuffer {}

impl RegisteredBuffer {
    pub(in crate::verbs) fn new(domain: Arc<ProtectionDomain>, bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing object.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(last_error("can't map memory for messages"));
        }
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("memory at address 0"))?;
        // A forked child would share the NIC's memory. Its first write would then move the page.
        // SAFETY: the range is exactly this mapping.
        let _ = unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
        let mut buffer = Self { region: None, base, bytes };
        let terms = RegionTerms { access: RegionAccess::Receive, relaxed: false };
        // SAFETY: `drop` ends the registration before the mapping.
        buffer.region = Some(unsafe { MemoryRegion::register_memory(domain, base, bytes, terms) }?);
        Ok(buffer)
    }

    pub(in crate::verbs) fn local_key(&self) -> u32 {
        self.region.as_ref().map_or(0, |region| region.lkey)
    }

    pub(in crate::verbs) fn address_at(&self, offset: usize) -> u64 {
        self.base.as_ptr() as u64 + offset as u64
    }

    /// Copies `from` to `offset`.
    pub(in crate::verbs) fn write(&self, offset: usize, from: &[u8]) {
        assert!(
            from.len() <= self.bytes && offset <= self.bytes - from.len(),
            "outside the buffer"
        );
        // SAFETY: inside the mapping; the caller owns the piece: its slot is free, so the NIC is
        // done with it.
        unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr().add(offset), from.len())
        };
    }

    /// Shows `bytes` bytes from `offset` to `reader`.
    pub(in crate::verbs) fn with_bytes<T>(
        &self,
        offset: usize,
        bytes: usize,
        reader: impl FnOnce(&[u8]) -> T,
    ) -> T {
        assert!(bytes <= self.bytes && offset <= self.bytes - bytes, "outside the buffer");
        // SAFETY: inside the mapping, which the kernel has zeroed; nobody writes the piece, as
        // `write` and `read` say.
        reader(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), bytes) })
    }

    /// Copies to `to` from `offset`.
    pub(in crate::verbs) fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(to.len() <= self.bytes && offset <= self.bytes - to.len(), "outside the buffer");
        // SAFETY: inside the mapping; the piece was completed and not posted again, so the NIC is
        // done with it.
        unsafe {
            ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), to.as_mut_ptr(), to.len())
        };
    }
}

impl Drop for RegisteredBuffer {
    fn drop(&mut self) {
        drop(self.region.take());
        // SAFETY: mapped by `new`, deregistered above; whoever posted from it destroyed its queue
        // pair before.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
