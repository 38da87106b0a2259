//! Rebuilds a folder's index at startup. Reads the tables of headers, and none of the pages.
//!
//! Trusts nothing: a header that does not decode at its own place is no page, and its slot is free.

use std::io;

use super::disk_headers::{FolderId, HEADER_BYTES, HeaderLocation, PageHeader, SegmentHeader};
use super::folder_index::FolderIndex;
use super::segment_layout::SegmentLayout;
use super::segment_medium::SegmentMedium;

/// Bytes of one read. Large enough for a drive's full speed, small beside everything else in
/// memory.
const READ_BYTES: usize = 1 << 20;

/// The result of a rebuild.
#[derive(Debug, Default)]
pub(super) struct IndexRebuildReport {
    /// Headers that were begun and are incomplete.
    pub(super) damaged: u64,
    /// The highest sequence number in use.
    pub(super) sequence: u64,
    /// Segments beyond the capacity, which was larger once.
    pub(super) removed: u64,
    /// Errors of segments that can't be read.
    pub(super) errors: Vec<io::Error>,
}

/// Fills the index from the medium. A segment that fails is left out.
pub(super) fn rebuild_index(
    medium: &dyn SegmentMedium,
    folder: FolderId,
    index: &mut FolderIndex,
) -> io::Result<IndexRebuildReport> {
    let mut rebuild = IndexRebuild {
        medium,
        folder,
        index,
        rebuilt: IndexRebuildReport::default(),
        buffer: vec![0; READ_BYTES],
    };
    for (segment, bytes) in medium.list_segments()? {
        if let Err(error) = rebuild.take_segment(segment, bytes) {
            rebuild.rebuilt.errors.push(error);
        }
    }
    Ok(rebuild.rebuilt)
}

/// A rebuild under way.
struct IndexRebuild<'a> {
    medium: &'a dyn SegmentMedium,
    folder: FolderId,
    index: &'a mut FolderIndex,
    rebuilt: IndexRebuildReport,
    buffer: Vec<u8>,
}

impl IndexRebuild<'_> {
    /// Reads a segment, or removes it if it lies beyond the capacity.
    fn take_segment(&mut self, segment: u32, bytes: u64) -> io::Result<()> {
        if self.index.held.file_bytes.saturating_add(bytes) > self.index.capacity_bytes {
            self.medium.remove_segment(segment)?;
            self.rebuilt.removed += 1;
            return Ok(());
        }
        self.read_segment(segment, bytes)
    }

    fn read_segment(&mut self, segment: u32, bytes: u64) -> io::Result<()> {
        let Self { medium, folder, index, rebuilt, buffer } = self;
        let folder = *folder;
        let mut head = [0; HEADER_BYTES];
        medium.read(segment, 0, &mut head)?;
        index.add_segment(segment, bytes);
        let Some(header) = SegmentHeader::decode(&head, folder, segment) else {
            // The segment was never cut, or its head was lost. It is cut anew, under another era,
            // when it is needed.
            rebuilt.damaged += u64::from(head != [0; HEADER_BYTES]);
            return Ok(());
        };
        let Some(layout) = SegmentLayout::new(bytes, header.width) else {
            rebuilt.damaged += 1;
            return Ok(());
        };
        index.cut_segment(segment, layout, header.era, 0);
        let slots_per_read = buffer.len() / HEADER_BYTES;
        for first in (0..layout.slots as usize).step_by(slots_per_read) {
            let slots = slots_per_read.min(layout.slots as usize - first);
            let table = &mut buffer[..slots * HEADER_BYTES];
            medium.read(segment, layout.header_at(first as u32), table)?;
            for (at, bytes) in table.as_chunks::<HEADER_BYTES>().0.iter().enumerate() {
                let slot = (first + at) as u32;
                match PageHeader::decode(
                    bytes,
                    HeaderLocation { folder, segment, era: header.era, slot },
                    layout.width,
                ) {
                    Some(page) => {
                        rebuilt.sequence = rebuilt.sequence.max(page.sequence);
                        index.restore_page(segment, slot, &page);
                    }
                    None => rebuilt.damaged += u64::from(PageHeader::is_damaged(bytes)),
                }
            }
        }
        Ok(())
    }
}
