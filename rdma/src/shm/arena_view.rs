//! Owns a requester's view of a worker's arena: mapped read-only, once for all connections to that
//! worker, for as long as a piece of it lives.
//!
//! Owns the mapping, the checks before it is made, and the pieces. All `unsafe` of the requesting
//! side is here.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustix::fs::SealFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::pin_releases::PinReleases;
use crate::metrics::{GaugeGuard, transport_metrics};
use crate::page_source::PageSource;

/// `f_type` of tmpfs, which memfds belong to (`linux/magic.h`).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Reason why memory from a worker is not mapped.
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

/// One connection's view of an arena.
pub(super) struct ShmArenaView {
    mapped: Arc<ReadOnlyMapping>,
    /// Has the lifeline, which closes after this connection's last piece. The worker then learns of
    /// it, unless a process that reads pieces has it as well.
    _source: Arc<PageSource>,
}

struct ReadOnlyMapping {
    base: NonNull<u8>,
    bytes: usize,
    memory: Arc<OwnedFd>,
}

// SAFETY: the mapping stays in place until drop and is only ever read.
unsafe impl Send for ReadOnlyMapping {}
// SAFETY: as for Send.
unsafe impl Sync for ReadOnlyMapping {}

/// Identity of one memfd: device, inode and bytes mapped. A mapping holds its inode, so the number
/// keeps its meaning while a mapping lives.
type MemfdIdentity = (u64, u64, usize);

/// All mappings. A second mapping of an arena would cost page tables again, 2 MiB for a GiB, and
/// count in RSS.
static MAPPED: LazyLock<Mutex<HashMap<MemfdIdentity, Weak<ReadOnlyMapping>>>> =
    LazyLock::new(Mutex::default);

impl ReadOnlyMapping {
    /// Returns the existing mapping of `memory`, or a new one.
    fn map_or_reuse(memory: &OwnedFd, identity: MemfdIdentity) -> io::Result<Arc<Self>> {
        let mut all = MAPPED.lock();
        if let Some(mapped) = all.get(&identity).and_then(Weak::upgrade) {
            return Ok(mapped);
        }
        let bytes = identity.2;
        let kept = Arc::new(memory.try_clone()?);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing object.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                memory,
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("mapped at address 0"))?;
        // Kernels that don't know the hint write larger core dumps, nothing else.
        // SAFETY: the range is exactly the new mapping, and the advice changes no contents.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontDump) };
        let mapped = Arc::new(Self { base, bytes, memory: kept });
        all.retain(|_, other| other.strong_count() > 0);
        all.insert(identity, Arc::downgrade(&mapped));
        Ok(mapped)
    }
}

impl Drop for ReadOnlyMapping {
    fn drop(&mut self) {
        // SAFETY: `map_or_reuse` mapped the range. Every view holds the mapping, and every piece
        // holds a view, so no pointer into it is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl ShmArenaView {
    /// Maps `bytes` of `memory`. The memory must be sealed against shrinking, and of pages that the
    /// kernel can always provide. Then nobody can take it from under this process: reading it
    /// raises no SIGBUS, whatever the worker does or however it ends.
    pub(super) fn map_arena(
        memory: &OwnedFd,
        lifeline: OwnedFd,
        bytes: u64,
    ) -> Result<Self, ViewError> {
        // Huge pages of hugetlbfs have seals too, but a hole in them is a SIGBUS when no huge page
        // is free.
        if rustix::fs::fstatfs(memory).map_err(io::Error::from)?.f_type as i64 != TMPFS_MAGIC {
            return Err(ViewError::OtherMemory);
        }
        let seals = rustix::fs::fcntl_get_seals(memory).map_err(|_| ViewError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(ViewError::Unsealed);
        }
        // After the seals: from here on it never gets shorter.
        let stat = rustix::fs::fstat(memory).map_err(io::Error::from)?;
        let found = u64::try_from(stat.st_size).unwrap_or(0);
        let length = usize::try_from(bytes).unwrap_or(0);
        if length == 0 || bytes > found {
            return Err(ViewError::Length { said: bytes, found });
        }
        let identity = (stat.st_dev, stat.st_ino, length);
        let mapped = ReadOnlyMapping::map_or_reuse(memory, identity)?;
        let range = mapped.base.addr().get()..mapped.base.addr().get() + length;
        let (file, lifeline) = (mapped.memory.clone(), Some(lifeline));
        let source = PageSource::offer_memory(file, range, mapped.clone(), lifeline);
        Ok(Self { mapped, _source: source })
    }

    /// Returns `bytes` from `offset` on as a range of this mapping; `None` when any of it lies
    /// outside.
    pub(super) fn checked_range(&self, offset: u64, bytes: u32) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(bytes as usize)?;
        (end <= self.mapped.bytes).then_some(start..end)
    }
}

/// The right to look at one pin's ranges. It is given back when the last piece is dropped.
pub(super) struct PinnedPartLoan {
    view: Arc<ShmArenaView>,
    releases: Arc<PinReleases>,
    pin: u32,
    bytes: u64,
    _held: GaugeGuard,
}

impl PinnedPartLoan {
    /// Makes the loan of a pin of `bytes`, which [`PinReleases::admit_pin`] has admitted.
    pub(super) fn new(
        view: Arc<ShmArenaView>,
        releases: Arc<PinReleases>,
        pin: u32,
        bytes: u64,
    ) -> Arc<Self> {
        let _held = GaugeGuard::add_to(&transport_metrics().shm_held_bytes, bytes);
        Arc::new(Self { view, releases, pin, bytes, _held })
    }

    /// Borrows a piece. `range` comes from [`ShmArenaView::checked_range`] of the same view.
    pub(super) fn borrow_piece(self: &Arc<Self>, range: Range<usize>) -> bytes::Bytes {
        assert!(
            range.start <= range.end && range.end <= self.view.mapped.bytes,
            "a range of another view"
        );
        bytes::Bytes::from_owner(PinnedPiece { loan: self.clone(), range })
    }
}

impl Drop for PinnedPartLoan {
    fn drop(&mut self) {
        self.releases.queue_release(self.pin, self.bytes);
    }
}

struct PinnedPiece {
    loan: Arc<PinnedPartLoan>,
    range: Range<usize>,
}

impl AsRef<[u8]> for PinnedPiece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `PinnedPartLoan::borrow_piece` checked that the range lies in the mapping, whose
        // length can't change, and the loan keeps it mapped. An honest worker neither writes to the
        // range nor loans it again before the pin ends (`pin_registry`), and the pin ends after
        // this piece. A worker that lies can change the bytes. They are only ever copied and
        // summed, as bytes of any value. So a lie shows wrong bytes, which the worker could have
        // sent as well, and corrupts nothing here.
        unsafe {
            std::slice::from_raw_parts(
                self.loan.view.mapped.base.as_ptr().add(self.range.start),
                self.range.len(),
            )
        }
    }
}
