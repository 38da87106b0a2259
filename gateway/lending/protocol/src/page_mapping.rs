//! Owns a mapping of memory whose pages a gateway lets its clients read where they lie. It is mapped
//! to be read, and nothing here makes a reference into it.
//!
//! The memory is a memfd that can't shrink, so a touch of it is no SIGBUS, however its worker ends.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::lent_mapping::OutsideMemory;

/// `f_type` of tmpfs, which memfds belong to (`linux/magic.h`).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Memory of a worker, mapped to be read in the process that mapped it. Its children don't have it.
#[derive(Debug)]
pub struct PageMapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Device and inode. They keep their meaning while the mapping lives.
    identity: (u64, u64),
    process: u32,
}

// SAFETY: the mapping stays in place until drop and is only ever read.
unsafe impl Send for PageMapping {}
// SAFETY: as for Send.
unsafe impl Sync for PageMapping {}

impl PageMapping {
    /// Maps a memfd to be read. Fails where it could shrink.
    pub fn map_pages(file: &OwnedFd) -> io::Result<Self> {
        let refused = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        // A descriptor of anything else has no seals.
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(refused("the memory is not sealed against shrinking"));
        }
        // A hole in huge pages of hugetlbfs, which has seals as well, is a SIGBUS when none is free.
        if fstatfs(file)?.f_type as i64 != TMPFS_MAGIC {
            return Err(refused("the memory is no memfd of ordinary pages"));
        }
        let identity = Self::identity_of(file)?;
        let bytes = usize::try_from(fstat(file)?.st_size).unwrap_or(0);
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(refused("the memory has no length that can be mapped"));
        }
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a fresh shared mapping at an address of the kernel's choice touches no existing
        // object.
        let base = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, file.as_fd(), 0)
        }?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped pages at address 0"))?;
        let mapping = Self { base, bytes, identity, process: std::process::id() };
        // A forked child would not hold what it reads there.
        // SAFETY: the range was just mapped. The advice changes nothing in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        // SAFETY: as before. A kernel that does not know it writes larger core dumps.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontDump) };
        Ok(mapping)
    }

    /// Returns what tells a file from all others while somebody has it open or mapped.
    pub fn identity_of(file: &OwnedFd) -> io::Result<(u64, u64)> {
        let found = fstat(file)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Returns which file is mapped.
    pub fn file_identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the address of a range, for a reader that knows that nobody writes there now.
    pub fn locate_range(&self, offset: u64, bytes: u64) -> Result<NonNull<u8>, OutsideMemory> {
        let outside = OutsideMemory { offset, bytes };
        let end = offset.checked_add(bytes).ok_or(outside)?;
        if end > self.bytes as u64 {
            return Err(outside);
        }
        // SAFETY: the offset is at most the mapping's length, as was just checked.
        Ok(unsafe { self.base.add(offset as usize) })
    }

    /// Copies bytes out of the pages.
    pub fn copy_bytes(&self, offset: u64, target: &mut [u8]) -> Result<(), OutsideMemory> {
        let place = self.locate_range(offset, target.len() as u64)?;
        // SAFETY: the range lies in the mapping, and a `&mut` slice of this process overlaps with
        // nothing that is mapped here.
        unsafe { ptr::copy_nonoverlapping(place.as_ptr(), target.as_mut_ptr(), target.len()) };
        Ok(())
    }
}

impl Drop for PageMapping {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A forked child does not have it. Something else may be at its address.
            return;
        }
        // SAFETY: the range was mapped by `map_pages`, and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn only_memory_that_cannot_shrink_is_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).unwrap();
        assert!(PageMapping::map_pages(&file).is_err());
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(PageMapping::map_pages(&file).is_err(), "it is empty");
        ftruncate(&file, 8192).unwrap();
        rustix::io::pwrite(&file, b"pages", 4096).unwrap();
        let pages = PageMapping::map_pages(&file).unwrap();
        let mut found = [0; 5];
        pages.copy_bytes(4096, &mut found).unwrap();
        assert_eq!(&found, b"pages");
        for (offset, bytes) in [(8192, 1), (8191, 2), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(pages.locate_range(offset, bytes).is_err(), "{offset} {bytes}");
        }
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(PageMapping::map_pages(&null.into()).is_err());
    }
}
