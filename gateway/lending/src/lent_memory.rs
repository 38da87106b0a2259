//! Judges memory that a client passes, maps it, and seals it. What is no memfd, could shrink under a
//! touch, or has holes is refused: a touch of it could be a SIGBUS, or be charged to the gateway.
//!
//! A client could make holes later. `F_SEAL_FUTURE_WRITE` forbids that, and keeps mappings that are
//! there. So the gateway maps first, seals then, and looks for holes last: what it has seen stays.
//!
//! `SEEK_HOLE` finds holes. It waits for calls that change the file, and calls a page that was only
//! allocated a hole: the kernel takes such pages back when the call that allocates them fails. So a
//! client has to touch its memory before it lends it. The number of allocated pages tells less: pages
//! come and go beyond the end, whatever the seals.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{
    FallocateFlags, FsWord, SealFlags, SeekFrom, fallocate, fcntl_add_seals, fcntl_get_seals,
    fstat, fstatfs, seek,
};
use rustix::io::Errno;
use verbs3_lending_protocol::{LendingRefusal, LentMapping};

/// The file system of memfds (`TMPFS_MAGIC`, linux/magic.h). Those of huge pages have another one:
/// their pages may be missing even so.
const MEMFD_FILE_SYSTEM: FsWord = 0x0102_1994;

/// Where a file ends for the kernel (`loff_t`).
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Returns the length of memory that may be mapped, as the kernel tells it.
pub(crate) fn judge_memory(file: &OwnedFd, bytes_max: u64) -> Result<u64, LendingRefusal> {
    // Only files in memory have seals.
    let seals = fcntl_get_seals(file).map_err(|_| LendingRefusal::Seals)?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) || seals.contains(SealFlags::SEAL) {
        return Err(LendingRefusal::Seals);
    }
    let system = fstatfs(file).map_err(|_| LendingRefusal::Seals)?;
    if system.f_type != MEMFD_FILE_SYSTEM {
        return Err(LendingRefusal::Seals);
    }
    let facts = fstat(file).map_err(|_| LendingRefusal::Seals)?;
    let bytes = u64::try_from(facts.st_size).map_err(|_| LendingRefusal::Seals)?;
    if bytes == 0 || bytes > bytes_max {
        return Err(LendingRefusal::MemoryBytes);
    }
    Ok(bytes)
}

/// Maps memory that was judged, and seals it. Touches all its pages, so not on a thread that others
/// wait for.
pub(crate) fn map_memory(file: &OwnedFd, bytes: u64) -> Result<LentMapping, LendingRefusal> {
    let memory = LentMapping::map_untouched(file.as_fd(), bytes);
    let memory = memory.map_err(|_| LendingRefusal::Pages)?;
    let seals = SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(file, seals).map_err(|_| LendingRefusal::Seals)?;
    // Nothing is promised but what this kernel does: it has to refuse even the gateway's own try.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if fallocate(file, flags, bytes, FILE_BYTES_MAX - bytes) != Err(Errno::PERM) {
        return Err(LendingRefusal::Seals);
    }
    if seek(file, SeekFrom::Hole(0)) != Ok(bytes) {
        return Err(LendingRefusal::Pages);
    }
    memory.populate_range(0, bytes).map_err(|_| LendingRefusal::Pages)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const BYTES: u64 = 1 << 20;

    const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
    const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

    /// Memory whose pages were touched.
    fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).unwrap();
        ftruncate(&file, bytes).unwrap();
        drop(LentMapping::map_file(file.as_fd(), bytes).unwrap());
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    /// Memory with as many pages beyond its end.
    fn long_memfd() -> OwnedFd {
        let file = memfd(BYTES, SealFlags::empty());
        fallocate(&file, FallocateFlags::KEEP_SIZE, BYTES, BYTES).unwrap();
        fcntl_add_seals(&file, FIXED).unwrap();
        file
    }

    fn allocated_bytes(file: &OwnedFd) -> u64 {
        u64::try_from(fstat(file).unwrap().st_blocks).unwrap() * 512
    }

    #[test]
    fn sealed_memory_is_mapped_at_its_own_length() {
        let file = memfd(BYTES, FIXED);
        assert_eq!(judge_memory(&file, BYTES), Ok(BYTES));
        assert_eq!(judge_memory(&file, BYTES - 1), Err(LendingRefusal::MemoryBytes));
        assert_eq!(map_memory(&file, BYTES).unwrap().mapped_bytes(), BYTES);
    }

    #[test]
    fn memory_that_could_change_its_length_is_refused() {
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            assert_eq!(judge_memory(&memfd(BYTES, seals), BYTES), Err(LendingRefusal::Seals));
        }
    }

    #[test]
    fn files_pipes_and_read_only_memory_are_refused() {
        let (pipe, _end) = std::io::pipe().unwrap();
        let pipe = OwnedFd::from(pipe);
        assert_eq!(judge_memory(&pipe, BYTES), Err(LendingRefusal::Seals));
        let folder = tempfile::tempdir().unwrap();
        let file: OwnedFd = File::create(folder.path().join("f")).unwrap().into();
        ftruncate(&file, BYTES).unwrap();
        assert_eq!(judge_memory(&file, BYTES), Err(LendingRefusal::Seals));
        if let Ok(shared) = File::create(format!("/dev/shm/v3-{}", std::process::id())) {
            let shared: OwnedFd = shared.into();
            ftruncate(&shared, BYTES).unwrap();
            assert_eq!(judge_memory(&shared, BYTES), Err(LendingRefusal::Seals));
            std::fs::remove_file(format!("/dev/shm/v3-{}", std::process::id())).unwrap();
        }
        let fixed = memfd(BYTES, FIXED | SealFlags::WRITE);
        assert_eq!(judge_memory(&fixed, BYTES), Ok(BYTES));
        assert_eq!(map_memory(&fixed, BYTES).unwrap_err(), LendingRefusal::Pages);
    }

    #[test]
    fn holes_after_the_judgement_are_found_and_not_filled() {
        let file = memfd(BYTES, FIXED);
        assert_eq!(judge_memory(&file, BYTES), Ok(BYTES));
        fallocate(&file, PUNCH, 0, BYTES / 2).unwrap();
        assert_eq!(map_memory(&file, BYTES).unwrap_err(), LendingRefusal::Pages);
        assert_eq!(allocated_bytes(&file), BYTES / 2, "no page was added");
    }

    #[test]
    fn pages_beyond_the_end_hide_no_holes() {
        let file = long_memfd();
        map_memory(&file, BYTES).unwrap();
        let file = long_memfd();
        fallocate(&file, PUNCH, BYTES / 2, BYTES / 2).unwrap();
        assert_eq!(judge_memory(&file, BYTES), Ok(BYTES), "as many pages as an honest client's");
        assert_eq!(map_memory(&file, BYTES).unwrap_err(), LendingRefusal::Pages);
        assert_eq!(allocated_bytes(&file), BYTES / 2 + BYTES, "no page was added");
    }

    /// Pages that a call has allocated are taken back when it fails, also after the seal.
    #[test]
    fn pages_that_were_never_touched_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).unwrap();
        ftruncate(&file, BYTES).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, BYTES).unwrap();
        fcntl_add_seals(&file, FIXED).unwrap();
        assert_eq!(judge_memory(&file, BYTES), Ok(BYTES));
        assert_eq!(map_memory(&file, BYTES).unwrap_err(), LendingRefusal::Pages);
    }

    #[test]
    fn memory_that_ends_within_a_page_is_whole() {
        let bytes = BYTES - 100;
        let file = memfd(bytes, FIXED);
        assert_eq!(judge_memory(&file, BYTES), Ok(bytes));
        map_memory(&file, bytes).unwrap();
    }

    /// A page that the client gives back would be the gateway's at its next touch.
    #[test]
    fn nobody_makes_holes_in_mapped_memory() {
        let file = memfd(BYTES, FIXED);
        let of_client = LentMapping::map_file(file.as_fd(), BYTES).unwrap();
        assert_eq!(judge_memory(&file, BYTES), Ok(BYTES));
        let memory = map_memory(&file, BYTES).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again: OwnedFd = File::options().read(true).write(true).open(path).unwrap().into();
        for file in [&file, &again] {
            for flags in [PUNCH, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE] {
                assert!(fallocate(file, flags, 0, BYTES).is_err(), "{flags:?}");
            }
            assert_eq!(ftruncate(file, 0).unwrap_err(), Errno::PERM);
        }
        assert_eq!(allocated_bytes(&file), BYTES);
        // Both go on with it, nobody maps it again, and no seal is added.
        memory.write_bytes(7, b"landed").unwrap();
        assert_eq!(of_client.take_bytes(7, 6).unwrap(), b"landed");
        of_client.write_bytes(0, b"asked").unwrap();
        assert_eq!(memory.take_bytes(0, 5).unwrap(), b"asked");
        assert!(LentMapping::map_untouched(file.as_fd(), BYTES).is_err());
        assert_eq!(judge_memory(&file, BYTES), Err(LendingRefusal::Seals));
    }

    /// The gateway's own seal has to be possible.
    #[test]
    fn memory_that_takes_no_seal_any_more_is_refused() {
        for seals in [FIXED | SealFlags::SEAL, FIXED | SealFlags::FUTURE_WRITE | SealFlags::SEAL] {
            assert_eq!(judge_memory(&memfd(BYTES, seals), BYTES), Err(LendingRefusal::Seals));
        }
        let early = memfd(BYTES, FIXED | SealFlags::FUTURE_WRITE);
        assert_eq!(judge_memory(&early, BYTES), Ok(BYTES));
        assert_eq!(map_memory(&early, BYTES).unwrap_err(), LendingRefusal::Pages);
        let late = memfd(BYTES, FIXED);
        assert_eq!(judge_memory(&late, BYTES), Ok(BYTES));
        fcntl_add_seals(&late, SealFlags::SEAL).unwrap();
        assert_eq!(map_memory(&late, BYTES).unwrap_err(), LendingRefusal::Seals);
    }

    #[test]
    fn memory_with_holes_and_empty_memory_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let sparse = memfd_create("test", flags).unwrap();
        ftruncate(&sparse, BYTES).unwrap();
        fcntl_add_seals(&sparse, FIXED).unwrap();
        assert_eq!(judge_memory(&sparse, BYTES), Ok(BYTES));
        assert_eq!(map_memory(&sparse, BYTES).unwrap_err(), LendingRefusal::Pages);
        assert_eq!(allocated_bytes(&sparse), 0, "no page was added");
        let empty = memfd_create("test", flags).unwrap();
        fcntl_add_seals(&empty, FIXED).unwrap();
        assert_eq!(judge_memory(&empty, BYTES), Err(LendingRefusal::MemoryBytes));
    }
}
