//! Makes memory that can be lent: a memfd of a fixed length whose pages are there.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::retry_on_intr;
use verbs3_lending_protocol::LentMapping;

/// Makes memory of `bytes`, sealed so that its length stays. The gateway adds the seal that keeps its
/// pages, after which nobody can map it again. Forked children don't have it.
pub(crate) fn make_memory(bytes: u64) -> io::Result<(OwnedFd, LentMapping)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("verbs3-lent", flags)?;
    ftruncate(&file, bytes)?;
    // The pages are this process's, also where the gateway touches them first.
    retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    let memory = LentMapping::map_file(file.as_fd(), bytes)?.keep_from_children()?;
    Ok((file, memory))
}
