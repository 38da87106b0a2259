//! Entry point for fuzzing, see `crate::decoders`.

use crc_fast::{CrcAlgorithm, checksum};

use super::disk_headers::{
    FolderHeader, FolderId, HEADER_BYTES, HeaderLocation, PageHeader, SegmentHeader,
};

const SPOT: HeaderLocation = HeaderLocation { folder: FolderId(7), segment: 3, era: 2, slot: 9 };
const WIDTH: u32 = 4096;

/// Decodes bytes that a folder of the disk tier may hold where headers are expected. Decodes them
/// as they are, and with a valid seal, since nothing that a crash leaves behind gets beyond a seal.
pub fn decode_headers(bytes: &[u8]) {
    let _ = FolderHeader::decode(bytes);
    let Some(found) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    let mut sealed = *found;
    let (body, seal) = sealed.split_at_mut(HEADER_BYTES - 8);
    seal.copy_from_slice(&checksum(CrcAlgorithm::Crc64Nvme, body).to_le_bytes());
    for bytes in [found, &sealed] {
        let _ = PageHeader::is_damaged(bytes);
        if let Some(page) = PageHeader::decode(bytes, SPOT, WIDTH) {
            assert!((1..=WIDTH).contains(&page.length));
            assert_eq!(PageHeader::decode(&page.encode(SPOT), SPOT, WIDTH), Some(page));
        }
        if let Some(segment) = SegmentHeader::decode(bytes, SPOT.folder, SPOT.segment) {
            assert_eq!(
                SegmentHeader::decode(&segment.encode(), SPOT.folder, SPOT.segment),
                Some(segment)
            );
        }
        if let Ok(folder) = FolderHeader::decode(bytes) {
            assert_eq!(FolderHeader::decode(&folder.encode()), Ok(folder));
        }
    }
}
