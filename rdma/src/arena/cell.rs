//! Owns loaned ranges of the arena, and the two ways to fill one safely.
//!
//! *Append*: one [`CellWriter`] and many [`CellReader`]s share a cell; bytes below the watermark
//! never change. *Split*: a [`MemorySpan`] owns a range alone. A cell that is handed out again holds
//! old bytes. Neither way shows a byte that was not written since.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::cell_pool::CellLocation;
use super::{ExtentId, MappedArena};
use crate::memory_span::{MemoryKeeper, MemorySpan};

/// A loaned range; it goes back to the arena on drop.
pub(super) struct ArenaLoan {
    arena: Arc<MappedArena>,
    slot: CellLocation,
    asked: usize,
}

impl ArenaLoan {
    pub(super) fn new(arena: Arc<MappedArena>, slot: CellLocation, asked: usize) -> Self {
        Self { arena, slot, asked }
    }

    fn address_at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.asked, "offset {offset} outside the cell");
        // SAFETY: a slot lies within the mapping, and `offset` within the slot: the result stays in
        // one allocation.
        unsafe { self.arena.mapping.base_address().add(self.slot.offset + offset) }
    }
}

impl MemoryKeeper for ArenaLoan {}

impl Drop for ArenaLoan {
    fn drop(&mut self) {
        self.arena.pool.lock().release_slot(self.slot, self.asked);
    }
}

/// An exclusively owned range of the arena. It goes back to the arena on drop.
///
/// Splitting consumes it, so that nobody can fill it in a second way:
///
/// ```compile_fail,E0382
/// fn filled_twice(cell: verbs3_rdma::arena::ArenaCell) {
///     let _appended = cell.split_writer_reader();
///     let _again = cell.split_writer_reader();
/// }
/// ```
pub struct ArenaCell {
    pub(super) loan: ArenaLoan,
}

impl ArenaCell {
    /// Returns the bytes asked for.
    pub fn len(&self) -> usize {
        self.loan.asked
    }

    /// Returns true if zero bytes were asked for. Written bytes do not matter here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Turns the cell into its one writer and the first of its readers.
    pub fn split_writer_reader(self) -> (CellWriter, CellReader) {
        let cell = Arc::new(AppendedCell { loan: self.loan, written: AtomicUsize::new(0) });
        let writer = CellWriter { cell: cell.clone(), written: 0 };
        (writer, CellReader { cell })
    }

    /// Turns the cell into a range that is filled in any order.
    pub(crate) fn into_span(self) -> MemorySpan {
        let bytes = self.len();
        let start = self.loan.address_at(0);
        // SAFETY: the cell is loaned, and owned by nobody else. Memory of the arena is initialised:
        // zeroed by the kernel, or old bytes.
        unsafe { MemorySpan::new(Arc::new(self.loan), start, bytes) }
    }
}

struct AppendedCell {
    loan: ArenaLoan,
    /// Count of written bytes. Bytes below it will not change. Anyone who loaded it with Acquire
    /// may read them.
    written: AtomicUsize,
}

/// The one writer that appends to a cell. Not `Clone`.
///
/// ```compile_fail,E0599
/// fn two_writers(writer: verbs3_rdma::arena::CellWriter) -> [verbs3_rdma::arena::CellWriter; 2] {
///     [writer.clone(), writer]
/// }
/// ```
/// The writer can't reach published bytes: `spare_bytes` is the unwritten rest only, and no slice
/// of it outlives the next step.
///
/// ```compile_fail,E0499
/// fn keeps_a_slice(mut writer: verbs3_rdma::arena::CellWriter) {
///     let before = writer.spare_bytes();
///     writer.publish_bytes(1);
///     before[0] = 7;
/// }
/// ```
pub struct CellWriter {
    cell: Arc<AppendedCell>,
    written: usize,
}

impl CellWriter {
    /// Returns the bytes that this writer has published so far. Readers see exactly these.
    pub fn written_bytes(&self) -> usize {
        self.written
    }

    /// Returns the unwritten rest.
    pub fn spare_bytes(&mut self) -> &mut [u8] {
        let bytes = self.cell.loan.asked - self.written;
        let start = self.cell.loan.address_at(self.written);
        // SAFETY: the range is loaned and initialised (zeroed by the kernel, or old bytes). Readers
        // stay below the watermark, this is the only writer, and `&mut self` is held as long as the
        // slice lives.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) }
    }

    /// Publishes the first `bytes` of the spare range. Readers may see them from now on, and nobody
    /// may change them.
    ///
    /// # Panics
    /// When fewer bytes than that are left.
    pub fn publish_bytes(&mut self, bytes: usize) {
        let left = self.cell.loan.asked - self.written;
        assert!(bytes <= left, "{bytes} bytes published, {left} left");
        self.written += bytes;
        self.cell.written.store(self.written, Ordering::Release);
    }
}

/// A reader of the written bytes. Clones share the cell and keep it loaned.
#[derive(Clone)]
pub struct CellReader {
    cell: Arc<AppendedCell>,
}

impl CellReader {
    /// Returns the bytes below the watermark: readable now, and never changed again. The value only
    /// grows.
    pub fn written_bytes(&self) -> usize {
        self.cell.written.load(Ordering::Acquire)
    }

    /// Returns the extent that the cell lies in, for evacuation; see
    /// [`super::Arena::sparsest_extent`].
    pub fn extent_id(&self) -> ExtentId {
        let loan = &self.cell.loan;
        loan.arena.extent_of(loan.slot.offset)
    }

    /// Returns a zero-copy view that pins the cell, or `None` while `range.end` has not been
    /// written.
    pub fn pinned_bytes(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.written_bytes() {
            return None;
        }
        Some(Bytes::from_owner(WrittenRange { cell: self.cell.clone(), range }))
    }

    /// Returns true if anything but this reader holds the cell. Evicting a pinned page frees
    /// nothing.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.cell) > 1
    }
}

struct WrittenRange {
    cell: Arc<AppendedCell>,
    range: Range<usize>,
}

impl AsRef<[u8]> for WrittenRange {
    fn as_ref(&self) -> &[u8] {
        let start = self.cell.loan.address_at(self.range.start);
        // SAFETY: `CellReader::pinned_bytes` saw the watermark (Acquire) at or above `range.end`,
        // and nobody writes below it. The loan keeps the range from being handed out again.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.range.len()) }
    }
}
