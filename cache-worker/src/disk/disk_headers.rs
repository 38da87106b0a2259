//! The headers on disk: of a slot, of a segment, of a folder. All encoding and decoding of headers
//! is here; no I/O.
//!
//! All numbers are little-endian. Each header ends with the CRC64NVME of its preceding bytes, and
//! names the folder, segment and slot that it was written for. A header that was torn, lost, or
//! written elsewhere is therefore rejected as a whole.

use crc_fast::{CrcAlgorithm, checksum};
use verbs3_protocol::BlockIndex;

use crate::digest::{DigestSecret, PageKey, VersionDigest};

/// Bytes of a slot's header.
pub(super) const HEADER_BYTES: usize = 128;

/// Increased whenever a header or the layout changes its meaning.
pub(super) const FORMAT: u16 = 1;

const PAGE_MAGIC: [u8; 6] = *b"v3page";
const SEGMENT_MAGIC: [u8; 6] = *b"v3segm";
const FOLDER_MAGIC: [u8; 6] = *b"v3disk";

/// The random number of one folder. It rejects pages that were copied from another folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FolderId(pub(super) u64);

/// The location that a header belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeaderLocation {
    pub(super) folder: FolderId,
    pub(super) segment: u32,
    /// Increased each time the segment is cut anew. Headers of an earlier cut describe slots that
    /// no longer exist.
    pub(super) era: u32,
    pub(super) slot: u32,
}

/// The content of a slot: a page of one version, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// Keyed hash of volume, key, ETag, length and version id: see `digest`.
    pub(crate) version: u128,
    /// Keyed hash of volume and key.
    pub(crate) object: u64,
    /// Keyed hash of the volume, for its quota.
    pub(crate) volume: u64,
    pub(crate) block: u32,
    pub(crate) page: u16,
    pub(crate) length: u32,
    /// CRC64NVME of the page.
    pub(crate) checksum: u64,
    /// Counts the writes of a folder.
    pub(crate) sequence: u64,
    /// Seconds since 1970.
    pub(crate) written_s: u32,
    /// Seconds since 1970; 0: not pinned.
    pub(crate) pinned_until_s: u32,
    /// Hash of the tenant's name that it was written for; 0: nobody's.
    pub(crate) tenant: u64,
}

impl PageHeader {
    pub(super) fn page_key(&self) -> PageKey {
        VersionDigest::from_stored(self.version).page_key(BlockIndex(self.block), self.page)
    }
}

/// The slots that a segment is cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) folder: FolderId,
    pub(super) segment: u32,
    pub(super) era: u32,
    pub(super) width: u32,
}

/// The identity of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FolderHeader {
    pub(super) id: FolderId,
    /// Keys of the hashes in the pages' headers. They are a secret: anyone who knows them can make
    /// names that collide.
    pub(super) secret: DigestSecret,
}

/// The reason why a folder's header is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOurs {
    Foreign,
    Newer(u16),
    Damaged,
}

/// An encoder that puts fields one after the other, at fixed places.
struct HeaderWriter {
    bytes: [u8; HEADER_BYTES],
    at: usize,
}

impl HeaderWriter {
    fn new(magic: [u8; 6]) -> Self {
        let mut writer = Self { bytes: [0; HEADER_BYTES], at: 0 };
        writer.put_field(magic);
        writer.put_field(FORMAT.to_le_bytes());
        writer
    }

    fn put_field<const N: usize>(&mut self, field: [u8; N]) -> &mut Self {
        self.bytes[self.at..self.at + N].copy_from_slice(&field);
        self.at += N;
        self
    }

    fn seal_header(mut self) -> [u8; HEADER_BYTES] {
        let (body, seal) = self.bytes.split_at_mut(HEADER_BYTES - 8);
        seal.copy_from_slice(&checksum(CrcAlgorithm::Crc64Nvme, body).to_le_bytes());
        self.bytes
    }
}

struct HeaderReader<'a> {
    bytes: &'a [u8; HEADER_BYTES],
    at: usize,
}

impl<'a> HeaderReader<'a> {
    /// Returns a reader of the fields, if magic and seal are right and the format is ours.
    fn new(bytes: &'a [u8; HEADER_BYTES], magic: [u8; 6]) -> Option<Self> {
        let mut reader = Self { bytes, at: 0 };
        // Most slots of a new segment are empty. The magic shows that, before a checksum is
        // computed.
        let ours = reader.take::<6>() == magic && reader.take_u16() == FORMAT;
        (ours && is_sealed(bytes)).then_some(reader)
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        field
    }

    fn take_u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn take_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn take_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

fn is_sealed(bytes: &[u8; HEADER_BYTES]) -> bool {
    let (body, seal) = bytes.split_at(HEADER_BYTES - 8);
    checksum(CrcAlgorithm::Crc64Nvme, body).to_le_bytes() == *seal
}

impl PageHeader {
    pub(super) fn encode(&self, spot: HeaderLocation) -> [u8; HEADER_BYTES] {
        let mut writer = HeaderWriter::new(PAGE_MAGIC);
        writer.put_field(spot.folder.0.to_le_bytes()).put_field(spot.segment.to_le_bytes());
        writer.put_field(spot.era.to_le_bytes()).put_field(spot.slot.to_le_bytes());
        writer
            .put_field(self.version.to_le_bytes())
            .put_field(self.object.to_le_bytes())
            .put_field(self.volume.to_le_bytes());
        writer
            .put_field(self.block.to_le_bytes())
            .put_field(self.page.to_le_bytes())
            .put_field(self.length.to_le_bytes());
        writer.put_field(self.checksum.to_le_bytes()).put_field(self.sequence.to_le_bytes());
        writer.put_field(self.written_s.to_le_bytes()).put_field(self.pinned_until_s.to_le_bytes());
        writer.put_field(self.tenant.to_le_bytes());
        writer.seal_header()
    }

    /// Decodes the header of a slot of `width` bytes. Returns `None` if the slot is empty or the
    /// header is invalid.
    pub(super) fn decode(
        bytes: &[u8; HEADER_BYTES],
        spot: HeaderLocation,
        width: u32,
    ) -> Option<Self> {
        let mut reader = HeaderReader::new(bytes, PAGE_MAGIC)?;
        let found = HeaderLocation {
            folder: FolderId(reader.take_u64()),
            segment: reader.take_u32(),
            era: reader.take_u32(),
            slot: reader.take_u32(),
        };
        let header = Self {
            version: u128::from_le_bytes(reader.take()),
            object: reader.take_u64(),
            volume: reader.take_u64(),
            block: reader.take_u32(),
            page: reader.take_u16(),
            length: reader.take_u32(),
            checksum: reader.take_u64(),
            sequence: reader.take_u64(),
            written_s: reader.take_u32(),
            pinned_until_s: reader.take_u32(),
            tenant: reader.take_u64(),
        };
        (found == spot && (1..=width).contains(&header.length)).then_some(header)
    }

    /// Returns whether the slot holds neither a valid header nor an empty one. Such slots are
    /// counted.
    pub(super) fn is_damaged(bytes: &[u8; HEADER_BYTES]) -> bool {
        bytes[..6] == PAGE_MAGIC && !is_sealed(bytes)
    }
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut writer = HeaderWriter::new(SEGMENT_MAGIC);
        writer.put_field(self.folder.0.to_le_bytes()).put_field(self.segment.to_le_bytes());
        writer.put_field(self.era.to_le_bytes()).put_field(self.width.to_le_bytes());
        writer.seal_header()
    }

    pub(super) fn decode(
        bytes: &[u8; HEADER_BYTES],
        folder: FolderId,
        segment: u32,
    ) -> Option<Self> {
        let mut reader = HeaderReader::new(bytes, SEGMENT_MAGIC)?;
        let found = Self {
            folder: FolderId(reader.take_u64()),
            segment: reader.take_u32(),
            era: reader.take_u32(),
            width: reader.take_u32(),
        };
        (found.folder == folder && found.segment == segment).then_some(found)
    }
}

impl FolderHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut writer = HeaderWriter::new(FOLDER_MAGIC);
        writer
            .put_field(self.id.0.to_le_bytes())
            .put_field(self.secret.0.to_le_bytes())
            .put_field(self.secret.1.to_le_bytes());
        writer.seal_header()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NotOurs> {
        if bytes.len() < 8 || bytes[..6] != FOLDER_MAGIC {
            return Err(NotOurs::Foreign);
        }
        // This comes before the seal: another format may have another seal.
        let format = u16::from_le_bytes([bytes[6], bytes[7]]);
        if format > FORMAT {
            return Err(NotOurs::Newer(format));
        }
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| NotOurs::Damaged)?;
        let mut reader = HeaderReader::new(bytes, FOLDER_MAGIC).ok_or(NotOurs::Damaged)?;
        Ok(Self {
            id: FolderId(reader.take_u64()),
            secret: DigestSecret(reader.take_u64(), reader.take_u64()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const SPOT: HeaderLocation =
        HeaderLocation { folder: FolderId(7), segment: 3, era: 2, slot: 9 };

    fn page() -> PageHeader {
        PageHeader {
            version: 1 << 100 | 5,
            object: 6,
            volume: 7,
            block: 8,
            page: 9,
            length: 4000,
            checksum: 11,
            sequence: 12,
            written_s: 13,
            pinned_until_s: 14,
            tenant: 0,
        }
    }

    #[test]
    fn a_header_is_believed_at_its_own_spot_only() {
        let bytes = page().encode(SPOT);
        assert_eq!(PageHeader::decode(&bytes, SPOT, 4096), Some(page()));
        let elsewhere = [
            HeaderLocation { folder: FolderId(8), ..SPOT },
            HeaderLocation { segment: 4, ..SPOT },
            HeaderLocation { era: 3, ..SPOT },
            HeaderLocation { slot: 8, ..SPOT },
        ];
        for spot in elsewhere {
            assert_eq!(PageHeader::decode(&bytes, spot, 4096), None, "{spot:?}");
        }
        assert_eq!(PageHeader::decode(&bytes, SPOT, 3999), None, "longer than its slot");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (bytes, segment) = (
            page().encode(SPOT),
            SegmentHeader { folder: FolderId(7), segment: 3, era: 1, width: 4096 },
        );
        for bit in 0..HEADER_BYTES * 8 {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PageHeader::decode(&torn, SPOT, 4096), None, "bit {bit}");
            let mut torn = segment.encode();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&torn, FolderId(7), 3), None, "bit {bit}");
        }
    }

    #[test]
    fn foreign_and_newer_folders_are_told_apart_from_damaged_ones() {
        let folder = FolderHeader { id: FolderId(1), secret: DigestSecret(2, 3) };
        let bytes = folder.encode();
        assert_eq!(FolderHeader::decode(&bytes), Ok(folder));
        assert_eq!(FolderHeader::decode(b"something else altogether"), Err(NotOurs::Foreign));
        assert_eq!(FolderHeader::decode(&[]), Err(NotOurs::Foreign));
        let mut newer = bytes;
        newer[6] = 9;
        assert_eq!(FolderHeader::decode(&newer), Err(NotOurs::Newer(9)));
        let mut damaged = bytes;
        damaged[20] ^= 1;
        assert_eq!(FolderHeader::decode(&damaged), Err(NotOurs::Damaged));
        assert_eq!(FolderHeader::decode(&bytes[..50]), Err(NotOurs::Damaged));
    }

    proptest! {
        #[test]
        fn garbage_is_no_header_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), HEADER_BYTES), ours in any::<bool>()) {
            let mut bytes: [u8; HEADER_BYTES] = bytes.try_into().unwrap();
            if ours {
                bytes[..6].copy_from_slice(&PAGE_MAGIC);
                bytes[6..8].copy_from_slice(&FORMAT.to_le_bytes());
            }
            prop_assert_eq!(PageHeader::decode(&bytes, SPOT, u32::MAX), None);
            prop_assert_eq!(SegmentHeader::decode(&bytes, FolderId(7), 3), None);
            prop_assert!(FolderHeader::decode(&bytes).is_err());
        }

        #[test]
        fn what_was_written_is_read(version in any::<u128>(), checksum in any::<u64>(), length in 1u32..=4096, block in any::<u32>(), page in any::<u16>()) {
            let header = PageHeader { version, checksum, length, block, page, ..self::page() };
            prop_assert_eq!(PageHeader::decode(&header.encode(SPOT), SPOT, 4096), Some(header));
        }
    }
}
