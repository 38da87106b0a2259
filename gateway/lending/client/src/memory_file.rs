//! Makes memory that can be lent: a memfd of a fixed length whose pages are there.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::retry_on_intr;
use verbs3_lending_protocol::LentMapping;

/// Pages that are made at once: a signal undoes what of a call has been done.
const PIECE_BYTES: u64 = 8 << 20;

/// Makes memory of `bytes`, sealed so that its length stays. The gateway adds the seal that keeps its
/// pages, after which nobody can map it again. Forked children don't have it.
pub(crate) fn make_memory(bytes: u64) -> io::Result<(OwnedFd, LentMapping)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("verbs3-lent", flags)?;
    ftruncate(&file, bytes)?;
    // The pages are this process's, also where the gateway touches them first.
    for start in (0..bytes).step_by(PIECE_BYTES as usize) {
        let piece = PIECE_BYTES.min(bytes - start);
        retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), start, piece))?;
    }
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    let memory = LentMapping::map_file(file.as_fd(), bytes)?.keep_from_children()?;
    Ok((file, memory))
}
