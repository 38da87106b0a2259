//! A worker's arena as a requester sees it: mapped read-only, for as long as a piece of it lives.
//!
//! Owns the mapping, the checks before it is made, and the pieces. All `unsafe` of the requesting side is here.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::SealFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::releases::Releases;
use crate::metrics::{GaugeGuard, metrics};

/// `f_type` of tmpfs, which memfds belong to (`linux/magic.h`).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Why memory that a worker passed is not mapped.
#[derive(Debug, thiserror::Error)]
pub(super) enum ViewError {
    #[error("it is not sealed against shrinking")]
    Unsealed,
    #[error("it is no memfd of ordinary pages")]
    OtherMemory,
    #[error("it has {found} bytes where {said} were promised")]
    Length { said: u64, found: u64 },
    #[error("it can't be mapped")]
    Map(#[from] io::Error),
}

pub(super) struct View {
    base: NonNull<u8>,
    bytes: usize,
    /// Closed behind the unmapping: the worker then knows that nobody looks any more.
    _lifeline: OwnedFd,
}

// SAFETY: the mapping stays in place until drop and is only ever read.
unsafe impl Send for View {}
// SAFETY: as for Send.
unsafe impl Sync for View {}

impl View {
    /// Maps `bytes` of `memory`. What is sealed against shrinking, and of pages that the kernel can always bring, can't be
    /// taken from under this process: reading it raises no SIGBUS, whatever the worker does or however it ends.
    pub(super) fn map(memory: &OwnedFd, lifeline: OwnedFd, bytes: u64) -> Result<Self, ViewError> {
        // Huge pages of hugetlbfs have seals too, but a hole in them is a SIGBUS when no huge page is free.
        if rustix::fs::fstatfs(memory).map_err(io::Error::from)?.f_type as i64 != TMPFS_MAGIC {
            return Err(ViewError::OtherMemory);
        }
        let seals = rustix::fs::fcntl_get_seals(memory).map_err(|_| ViewError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(ViewError::Unsealed);
        }
        // After the seals: from here on it never gets shorter.
        let found = u64::try_from(rustix::fs::fstat(memory).map_err(io::Error::from)?.st_size).unwrap_or(0);
        let length = usize::try_from(bytes).unwrap_or(0);
        if length == 0 || bytes > found {
            return Err(ViewError::Length { said: bytes, found });
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing object.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, memory, 0) }
                .map_err(io::Error::from)?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        // Kernels that don't know the hint write larger core dumps, nothing else.
        // SAFETY: the range is exactly the new mapping, and the advice changes no contents.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, Advice::LinuxDontDump) };
        Ok(Self { base, bytes: length, _lifeline: lifeline })
    }

    /// `bytes` from `offset` on as a range of this mapping; `None` when any of it lies outside.
    pub(super) fn range(&self, offset: u64, bytes: u32) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(bytes as usize)?;
        (end <= self.bytes).then_some(start..end)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`; every piece holds the view, so no pointer into it is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The right to look at one pin's ranges: given back when the last piece is dropped.
pub(super) struct Loan {
    view: Arc<View>,
    releases: Arc<Releases>,
    pin: u32,
    bytes: u64,
    _held: GaugeGuard,
}

impl Loan {
    /// Of `bytes` in all, which [`Releases::take`] has admitted.
    pub(super) fn new(view: Arc<View>, releases: Arc<Releases>, pin: u32, bytes: u64) -> Arc<Self> {
        let _held = GaugeGuard::add(&metrics().shm_held_bytes, bytes);
        Arc::new(Self { view, releases, pin, bytes, _held })
    }

    /// A piece; `range` comes from [`View::range`] of the same view.
    pub(super) fn piece(self: &Arc<Self>, range: Range<usize>) -> bytes::Bytes {
        assert!(range.start <= range.end && range.end <= self.view.bytes, "a range of another view");
        bytes::Bytes::from_owner(Piece { loan: self.clone(), range })
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.releases.give(self.pin, self.bytes);
    }
}

struct Piece {
    loan: Arc<Loan>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `Loan::piece` checked that the range lies in the mapping, whose length can't change, and the loan keeps
        // it mapped. An honest worker neither writes to the range nor leases it again before the pin ends (`pins`), and
        // the pin ends after this piece. A worker that lies can change the bytes; they are only ever copied and summed, as
        // bytes of any value, so that shows wrong bytes (which it could have sent as well) and corrupts nothing here.
        unsafe { std::slice::from_raw_parts(self.loan.view.base.as_ptr().add(self.range.start), self.range.len()) }
    }
}
