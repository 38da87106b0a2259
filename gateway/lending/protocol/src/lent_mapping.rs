//! Owns a mapping of lent memory. Every access is checked against its length, and nothing here makes
//! a reference into it: the other process may write at any time. A gateway receives bodies into it,
//! too (`rdma/src/foreign_memory.rs`), and a lender may have copies made over them.
//!
//! The memory is a memfd that can't shrink. Without that seal a touch of it could be a SIGBUS.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Lent memory, mapped to be read and written.
#[derive(Debug)]
pub struct LentMapping {
    base: NonNull<u8>,
    bytes: usize,
    /// The one process that has it, where its children don't.
    process: Option<u32>,
    /// It outlives this value.
    is_kept: AtomicBool,
}

// SAFETY: the mapping is plain memory that stays in place until drop, and is reached by copies and
// atomics alone.
unsafe impl Send for LentMapping {}
// SAFETY: as for Send. Two threads that write to one range harm its lender's bytes, nothing else.
unsafe impl Sync for LentMapping {}

/// A range does not lie in the lent memory, or is not aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at {offset} are not in the lent memory")]
pub struct OutsideMemory {
    pub offset: u64,
    pub bytes: u64,
}

impl LentMapping {
    /// Maps the first `bytes` of a memfd, with its pages. The caller has seen that it is sealed
    /// against shrinking and that it is as long.
    pub fn map_file(file: BorrowedFd<'_>, bytes: u64) -> io::Result<Self> {
        Self::map_with(file, bytes, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// Maps like `map_file`, and touches no page.
    pub fn map_untouched(file: BorrowedFd<'_>, bytes: u64) -> io::Result<Self> {
        Self::map_with(file, bytes, MapFlags::SHARED)
    }

    fn map_with(file: BorrowedFd<'_>, bytes: u64, flags: MapFlags) -> io::Result<Self> {
        let bytes = usize::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes > 0 && isize::try_from(bytes).is_ok())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice touches no existing
        // object.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) }?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped lent memory at address 0"))?;
        Ok(Self { base, bytes, process: None, is_kept: AtomicBool::new(false) })
    }

    /// Keeps the mapping out of processes that this one forks: a touch of it there is a fault, never
    /// bytes of another read. They may call nothing of it but drop.
    pub fn keep_from_children(mut self) -> io::Result<Self> {
        // SAFETY: the range was mapped by `map_file`. The advice changes nothing in this process.
        unsafe {
            rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxDontFork)
        }?;
        self.process = Some(std::process::id());
        Ok(self)
    }

    /// Has the mapping stay until the process ends: a device may still read it.
    pub fn keep_mapped(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Returns the length of the memory.
    pub fn mapped_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the address of a range, for a reader that knows that nobody writes there now.
    pub fn locate_range(&self, offset: u64, bytes: u64) -> Result<NonNull<u8>, OutsideMemory> {
        let outside = OutsideMemory { offset, bytes };
        let end = offset.checked_add(bytes).ok_or(outside)?;
        let at = usize::try_from(offset).map_err(|_| outside)?;
        if end > self.mapped_bytes() {
            return Err(outside);
        }
        // SAFETY: `at` is at most the mapping's length, as was just checked.
        Ok(unsafe { self.base.add(at) })
    }

    /// Maps the pages of a range now, and not at their first touch. A range of whole pages.
    pub fn populate_range(&self, offset: u64, bytes: u64) -> Result<(), OutsideMemory> {
        let place = self.locate_range(offset, bytes)?;
        // SAFETY: the range lies in the mapping. Populating changes no byte of it.
        let populated = unsafe {
            rustix::mm::madvise(place.as_ptr().cast(), bytes as usize, Advice::LinuxPopulateWrite)
        };
        // A kernel before 5.14 doesn't know it. Pages are mapped at their first touch then.
        let _ = populated;
        Ok(())
    }

    /// Copies bytes into the memory.
    pub fn write_bytes(&self, offset: u64, source: &[u8]) -> Result<(), OutsideMemory> {
        let place = self.locate_range(offset, source.len() as u64)?;
        // SAFETY: the range lies in the mapping. `source` is a slice of this process's own memory, so
        // they don't overlap. A body that is received there is its lender's, who had it laid so.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), place.as_ptr(), source.len()) };
        Ok(())
    }

    /// Copies bytes out of the memory. They are checked after the copy, never before: their lender
    /// may change them meanwhile.
    pub fn copy_bytes(&self, offset: u64, target: &mut [u8]) -> Result<(), OutsideMemory> {
        let place = self.locate_range(offset, target.len() as u64)?;
        // SAFETY: the range lies in the mapping, and a `&mut` slice of this process overlaps with
        // nothing that is mapped here.
        unsafe { ptr::copy_nonoverlapping(place.as_ptr(), target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    /// Copies bytes out of the memory into one vector.
    pub fn take_bytes(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, OutsideMemory> {
        self.locate_range(offset, bytes as u64)?;
        let mut target = vec![0; bytes];
        self.copy_bytes(offset, &mut target)?;
        Ok(target)
    }

    /// Loads a number that both sides see; everything that was written before it is visible then.
    pub fn load_cursor(&self, offset: u64) -> Result<u32, OutsideMemory> {
        Ok(self.cursor_at(offset)?.load(Ordering::Acquire))
    }

    /// Stores a number that both sides see, after everything that was written before it.
    pub fn store_cursor(&self, offset: u64, value: u32) -> Result<(), OutsideMemory> {
        self.cursor_at(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Replaces a flag and returns what it was. Cursors that were stored before are visible before
    /// it, and cursors that are loaded after it are newer: of two sides that store one thing and
    /// then look at the other's, one sees the other.
    pub fn swap_flag(&self, offset: u64, value: u32) -> Result<u32, OutsideMemory> {
        let flag = self.cursor_at(offset)?;
        fence(Ordering::SeqCst);
        let before = flag.swap(value, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ok(before)
    }

    fn cursor_at(&self, offset: u64) -> Result<&AtomicU32, OutsideMemory> {
        let place = self.locate_range(offset, 4)?.cast::<u32>();
        if !place.is_aligned() {
            return Err(OutsideMemory { offset, bytes: 4 });
        }
        // SAFETY: four aligned bytes of the mapping, which lives as long as `self`. This process
        // reaches cursors by atomics alone, but for a lender that lays its bytes over them.
        Ok(unsafe { AtomicU32::from_ptr(place.as_ptr()) })
    }
}

impl Drop for LentMapping {
    fn drop(&mut self) {
        if self.process.is_some_and(|process| process != std::process::id()) {
            // A forked child does not have it. Something else may be at its address.
            return;
        }
        if *self.is_kept.get_mut() {
            return;
        }
        // SAFETY: the range was mapped by `map_file`, and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn mapping(bytes: u64) -> LentMapping {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        LentMapping::map_file(file.as_fd(), bytes).unwrap()
    }

    #[test]
    fn ranges_outside_the_memory_are_refused() {
        let memory = mapping(8192);
        for (offset, bytes) in [(8192, 1), (8191, 2), (u64::MAX, 1), (u64::MAX, 2), (0, 8193)] {
            assert!(memory.locate_range(offset, bytes).is_err(), "{offset} {bytes}");
        }
        assert!(memory.write_bytes(8190, b"abc").is_err());
        assert!(memory.take_bytes(1, usize::MAX).is_err(), "no allocation of what isn't there");
        assert!(memory.load_cursor(8190).is_err(), "its end is outside");
        assert!(memory.load_cursor(2).is_err(), "it is not aligned");
        assert!(memory.locate_range(8192, 0).is_ok());
    }

    #[test]
    fn bytes_come_back_as_they_were_written() {
        let memory = mapping(4096);
        memory.write_bytes(4093, b"end").unwrap();
        assert_eq!(memory.take_bytes(4093, 3).unwrap(), b"end");
        memory.store_cursor(64, 7).unwrap();
        assert_eq!(memory.swap_flag(64, 9).unwrap(), 7);
        assert_eq!(memory.load_cursor(64).unwrap(), 9);
    }

    /// Memory that is sealed after it was mapped keeps its pages, whoever wants to give them back.
    #[test]
    fn sealed_memory_has_no_holes_made_by_advice() {
        const BYTES: u64 = 1 << 20;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).unwrap();
        ftruncate(&file, BYTES).unwrap();
        let memory = LentMapping::map_file(file.as_fd(), BYTES).unwrap();
        memory.write_bytes(0, b"kept").unwrap();
        let place = memory.locate_range(0, BYTES).unwrap();
        // SAFETY: the range is the whole mapping, and nobody reads it meanwhile.
        let remove = || unsafe {
            rustix::mm::madvise(place.as_ptr().cast(), BYTES as usize, Advice::LinuxRemove)
        };
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).unwrap();
        assert_eq!(remove(), Err(rustix::io::Errno::PERM));
        assert_eq!(memory.take_bytes(0, 4).unwrap(), b"kept");
    }
}
