//! What a million small objects cost.

use super::super::disk_headers::{FolderId, HeaderLocation, PageHeader, SegmentHeader};
use super::super::folder_index::FolderIndex;
use super::super::folder_store::FolderPageStore;
use super::super::metrics::DiskMetrics;
use super::super::segment_layout::SegmentLayout;
use super::super::segment_medium::SegmentMedium;
use super::super::volume_quota::VolumeQuotaRule;

/// Tables of headers without the pages: as a start reads them, and nothing else.
struct Tables {
    layout: SegmentLayout,
    pages: u64,
    /// Of all segments, as they lie on disk.
    tables: Vec<Vec<[u8; 128]>>,
}

const SEGMENT: u64 = 64 << 20;
const FOLDER: FolderId = FolderId(5);

impl Tables {
    fn new(pages: u64) -> Self {
        let layout = SegmentLayout::new(SEGMENT, 4096).unwrap();
        let mut made = Self { layout, pages, tables: Vec::new() };
        for segment in 0..made.segments() {
            let header = |slot| made.header(segment, slot).unwrap_or([0; 128]);
            made.tables.push((0..layout.slots).map(header).collect());
        }
        made
    }

    fn segments(&self) -> u32 {
        self.pages.div_ceil(u64::from(self.layout.slots)) as u32
    }

    fn header(&self, segment: u32, slot: u32) -> Option<[u8; 128]> {
        let number = u64::from(segment) * u64::from(self.layout.slots) + u64::from(slot);
        let header = PageHeader {
            version: u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
            object: (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            volume: 1,
            block: 0,
            page: 0,
            length: 4096,
            checksum: number,
            sequence: number + 1,
            written_s: 1,
            pinned_until_s: 0,
            tenant: 0,
        };
        (number < self.pages)
            .then(|| header.encode(HeaderLocation { folder: FOLDER, segment, era: 1, slot }))
    }
}

impl SegmentMedium for Tables {
    fn list_segments(&self) -> std::io::Result<Vec<(u32, u64)>> {
        Ok((0..self.segments()).map(|segment| (segment, SEGMENT)).collect())
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        if at == 0 {
            let header = SegmentHeader { folder: FOLDER, segment, era: 1, width: 4096 };
            into.copy_from_slice(&header.encode());
            return Ok(());
        }
        let first = ((at - self.layout.header_at(0)) / 128) as usize;
        let wanted = &self.tables[segment as usize][first..first + into.len() / 128];
        into.copy_from_slice(wanted.as_flattened());
        Ok(())
    }

    fn create_segment(&self, _: u32, _: u64) -> std::io::Result<()> {
        unreachable!("nothing is written")
    }

    fn remove_segment(&self, _: u32) -> std::io::Result<()> {
        unreachable!("nothing is written")
    }

    fn write(&self, _: u32, _: u64, _: &[u8]) -> std::io::Result<()> {
        unreachable!("nothing is written")
    }
}

#[test]
fn a_small_object_costs_the_index_less_than_200_bytes() {
    // The worst for tables that double is just above a power of two times their load.
    for pages in [100_000, 460_000, 1_000_000] {
        let medium = Tables::new(pages);
        let metrics = DiskMetrics::default();
        let path = std::path::Path::new("/tables");
        let index =
            FolderIndex::new(1 << 40, SEGMENT, VolumeQuotaRule::default(), Default::default());
        let began = std::time::Instant::now();
        let folder =
            FolderPageStore::open_medium(path, FOLDER, Box::new(medium), index, &metrics).unwrap();
        let (held, index_bytes) = folder.held();
        println!(
            "{pages} objects: {} bytes of index each, found in {:?}",
            index_bytes / pages,
            began.elapsed()
        );
        assert_eq!(held.pages, pages);
        assert!(index_bytes / pages < 200, "{} bytes a page of {pages}", index_bytes / pages);
    }
}
