//! Owns which memory of this process others may map, to read pieces of answers where they lie: the
//! arenas of workers of this host. Moves no bytes, and passes nothing on by itself.
//!
//! A piece that somebody else reads has to be kept here until that one is done with it, and the
//! lifeline has to be kept there: a worker takes its memory back once every lifeline of the
//! connection is closed, whoever has it.

use std::any::Any;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustix::fs::{SealFlags, fcntl_get_seals};

/// Memory that may be mapped, as one connection to its worker has it.
pub struct PageSource {
    number: u64,
    memory: Arc<OwnedFd>,
    /// By address.
    mapped: Range<usize>,
    /// Keeps it mapped here. It goes before the lifeline does.
    _mapping: Box<dyn Any + Send + Sync>,
    lifeline: Option<OwnedFd>,
}

/// Where a piece lies.
pub struct LocatedPiece {
    /// Of the piece's beginning, in each of the sources.
    pub offset: u64,
    /// Who may have brought the piece: all connections to the worker that it is of. Not empty.
    pub sources: Vec<Arc<PageSource>>,
}

static SOURCES: LazyLock<Mutex<Vec<Weak<PageSource>>>> = LazyLock::new(Mutex::default);
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl PageSource {
    /// Makes known that the addresses of `mapped` are those of `memory`, for as long as the source lives, if the kernel keeps everybody from writing there (Linux 5.1). `mapping` keeps
    /// them mapped.
    pub(crate) fn offer_memory(
        memory: Arc<OwnedFd>,
        mapped: Range<usize>,
        mapping: impl Any + Send + Sync,
        lifeline: Option<OwnedFd>,
    ) -> Arc<Self> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let source =
            Arc::new(Self { number, memory, mapped, _mapping: Box::new(mapping), lifeline });
        let seals = fcntl_get_seals(&*source.memory).unwrap_or(SealFlags::empty());
        if seals.contains(SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW) {
            SOURCES.lock().push(Arc::downgrade(&source));
        }
        source
    }

    /// Returns its number in this process, which no other one has or had.
    pub fn source_number(&self) -> u64 {
        self.number
    }

    /// Returns the memory: sealed, so that nobody can write to it, punch holes in it or shrink it.
    pub fn memory_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Returns how many bytes of the memory may be mapped.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped.len() as u64
    }

    /// Returns what has to be kept open while a piece is read. `None`: the memory is this process's
    /// own, and nobody writes to it when it has ended.
    pub fn lifeline_fd(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_ref().map(OwnedFd::as_fd)
    }

    fn covers_range(&self, address: usize, bytes: usize) -> bool {
        let end = address.checked_add(bytes);
        address >= self.mapped.start && end.is_some_and(|end| end <= self.mapped.end)
    }
}

impl Drop for PageSource {
    fn drop(&mut self) {
        // Its own count is 0 by now, so it is among those that go.
        SOURCES.lock().retain(|source| source.strong_count() > 0);
    }
}

/// Returns where a piece lies. `None`: in memory that nobody else may map.
pub fn locate_piece(piece: &[u8]) -> Option<LocatedPiece> {
    // None may be dropped under the lock.
    let mut sources: Vec<_> = SOURCES.lock().iter().filter_map(Weak::upgrade).collect();
    let address = piece.as_ptr().addr();
    sources.retain(|source| source.covers_range(address, piece.len()));
    let offset = address - sources.first()?.mapped.start;
    Some(LocatedPiece { offset: offset as u64, sources })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::arena::{Arena, ArenaOptions};

    const MIB: usize = 1 << 20;

    fn arena() -> Arena {
        let options =
            ArenaOptions { capacity_bytes: 4 * MIB, cell_bytes_max: 256 << 10, populate: false };
        Arena::map_memory(options).unwrap()
    }

    #[test]
    fn a_piece_is_found_while_its_memory_is_offered() {
        let (arena, other) = (arena(), arena());
        let cell = arena.allocate_cell(5000).unwrap();
        let (mut writer, reader) = cell.split_writer_reader();
        writer.spare_bytes().fill(7);
        writer.publish_bytes(5000);
        let bytes = reader.pinned_bytes(0..5000).unwrap();
        assert!(locate_piece(&bytes).is_none());
        let offered = arena.offer_pages().unwrap();
        let _other = other.offer_pages().unwrap();
        let found = locate_piece(&bytes[100..]).unwrap();
        assert_eq!(found.sources.len(), 1);
        assert_eq!(found.sources[0].source_number(), offered.source_number());
        assert_eq!(found.offset, arena.offset_of(&bytes[100..]).unwrap());
        assert!(locate_piece(b"elsewhere").is_none());
        drop((found, offered));
        assert!(locate_piece(&bytes).is_none());
    }
}
