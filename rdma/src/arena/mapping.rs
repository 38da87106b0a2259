//! Owns the arena's memory: a memfd that is mapped once and never moves.
//!
//! Owns the file descriptor and the mapping. Hands out raw pointers only; `cell` decides who may
//! use which range.

use std::io;
use std::ptr::NonNull;
#[cfg(not(miri))]
use std::thread;

#[cfg(not(miri))]
use parking_lot::Mutex;

#[cfg(not(miri))]
use super::node_placement::NodePlacement;
#[cfg(not(miri))]
use crate::cpu_affinity::pin_thread;

/// Bytes that a thread allocates at once: a whole number of huge pages, and little enough that the
/// threads end together.
#[cfg(not(miri))]
const POPULATE_BYTES: usize = 256 << 20;

/// Most threads that allocate pages. The kernel's zeroing saturates memory with about as many.
#[cfg(not(miri))]
const POPULATE_THREADS: usize = 16;

/// Mapped, zeroed, readable and writable memory.
pub(super) struct ArenaMapping {
    base: NonNull<u8>,
    bytes: usize,
    #[cfg(not(miri))]
    fd: std::os::fd::OwnedFd,
}

// SAFETY: the mapping is plain memory that stays in place until drop; `cell` guards every access to
// its ranges.
unsafe impl Send for ArenaMapping {}
// SAFETY: as for Send: sharing the base address grants no access by itself.
unsafe impl Sync for ArenaMapping {}

impl ArenaMapping {
    pub(super) fn base_address(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn mapped_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(not(miri))]
impl ArenaMapping {
    /// Makes a memfd of `bytes` and seals it. Nobody can shrink it under a reader (which would be a
    /// SIGBUS). Nobody who is passed it can write to it or punch holes in it.
    pub(super) fn new(bytes: usize, populate: bool) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let fd = create_memfd()?;
        let length = libc::off_t::try_from(bytes)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: `memory_fd` is an open descriptor that this function owns.
        check_syscall(unsafe { libc::ftruncate(fd.as_raw_fd(), length) })?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice touches no existing
        // object.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped the arena at address 0"))?;
        let mapping = Self { base, bytes, fd };
        mapping.seal_memfd()?;
        // Hints: a kernel that doesn't know them changes only speed and the size of a core dump.
        // Huge pages are asked for before any page is there: pages that exist stay small, and NICs
        // take a registration of small pages several times as long.
        mapping.advise_kernel(libc::MADV_HUGEPAGE);
        mapping.advise_kernel(libc::MADV_DONTDUMP);
        if populate {
            mapping.populate_pages()?;
        }
        Ok(mapping)
    }

    /// Allocates all pages now, so that a lack of memory is an error. A first touch would be killed
    /// instead. Uses several threads: one zeroes some 10 GB a second. Each runs on one NUMA node,
    /// where its pages then lie.
    fn populate_pages(&self) -> io::Result<()> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(POPULATE_THREADS);
        let (placement, failure) = (NodePlacement::of_this_process(), Mutex::new(None));
        let pieces = self.bytes.div_ceil(POPULATE_BYTES);
        let populate = |nth| {
            while let Some(piece) = placement.next_piece(nth, pieces) {
                if failure.lock().is_some() {
                    return;
                }
                if let Err(error) = self.populate_range(piece * POPULATE_BYTES) {
                    failure.lock().get_or_insert(error);
                }
            }
        };
        thread::scope(|scope| {
            for nth in 0..threads.max(placement.nodes_count()) {
                let (placement, populate) = (&placement, &populate);
                let pinned = move || {
                    // Elsewhere they are allocated as well, and further away from some.
                    let _ = pin_thread(placement.cpus_of_thread(nth));
                    populate(nth);
                };
                // Fewer threads take longer, and do as well.
                let _ = thread::Builder::new().spawn_scoped(scope, pinned);
            }
        });
        // What is left where a thread could not be started.
        (0..placement.nodes_count()).for_each(populate);
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Allocates the pages of the piece that begins at `offset`.
    fn populate_range(&self, offset: usize) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let bytes = POPULATE_BYTES.min(self.bytes - offset);
        // SAFETY: `offset` is below the mapping's length.
        let place = unsafe { self.base.add(offset) }.as_ptr().cast();
        // SAFETY: the piece lies in this mapping; the advice discards nothing.
        let populated =
            check_syscall(unsafe { libc::madvise(place, bytes, libc::MADV_POPULATE_WRITE) });
        match populated {
            // Kernels before 5.14 don't know the advice. Their pages may be small.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let (offset, bytes) = (offset as libc::off_t, bytes as libc::off_t);
                // SAFETY: the descriptor is this mapping's own.
                check_syscall(unsafe { libc::fallocate(self.fd.as_raw_fd(), 0, offset, bytes) })
                    .map(drop)
            }
            populated => populated.map(drop),
        }
    }

    /// Seals the memfd after the mapping. This mapping stays writable, and no other one ever is.
    /// Kernels before 5.1 don't know that seal: a process that is passed the arena could write to
    /// it there.
    fn seal_memfd(&self) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let always = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        for seals in [libc::F_SEAL_FUTURE_WRITE, always | libc::F_SEAL_SEAL] {
            // SAFETY: `memory_fd` is open and this mapping's own; F_ADD_SEALS takes an int.
            let sealed = check_syscall(unsafe {
                libc::fcntl(self.fd.as_raw_fd(), libc::F_ADD_SEALS, seals)
            });
            match sealed {
                Err(error) if seals & always == 0 && error.raw_os_error() == Some(libc::EINVAL) => {
                }
                sealed => drop(sealed?),
            }
        }
        Ok(())
    }

    /// Returns the memfd for a process of the same host that maps the arena read-only (`shm`).
    pub(super) fn memory_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.fd.as_fd()
    }

    fn advise_kernel(&self, advice: libc::c_int) {
        // SAFETY: the range is exactly this mapping, and none of the advices used discards
        // contents.
        let _ = unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) };
    }
}

#[cfg(not(miri))]
impl Drop for ArenaMapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and every cell holds the arena, so no pointer into
        // it is left.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(not(miri))]
fn create_memfd() -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a NUL-terminated constant.
    let fd = check_syscall(unsafe {
        libc::memfd_create(c"verbs3-arena".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    })?;
    // SAFETY: the descriptor was just made and nobody else owns it.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

#[cfg(not(miri))]
fn check_syscall(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

// Miri knows no memfd. Plain zeroed memory lets it check everything above the mapping.
#[cfg(miri)]
impl ArenaMapping {
    pub(super) fn new(bytes: usize, _populate: bool) -> io::Result<Self> {
        // SAFETY: the layout has a size above zero: an arena has one extent at least.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)) };
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, bytes })
    }

    fn layout(bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes, 4096).expect("an arena fits the address space")
    }
}

#[cfg(miri)]
impl Drop for ArenaMapping {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with the same layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.bytes)) };
    }
}
