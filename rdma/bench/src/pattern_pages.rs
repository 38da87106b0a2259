//! Owns the moved bytes: pages that each side makes by itself. Every byte tells its page and its
//! place.

use bytes::Bytes;

use verbs3_rdma::arena::Arena;
use verbs3_rdma::landing::Landing;

/// Pages of a source. A prime, so that no power of two of calls meets the same page in the same
/// memory again and again.
const PAGES: usize = 31;

/// Bytes at both ends of a run that are always compared.
const ENDS_BYTES: usize = 8;

/// Some pages in registered memory. Any number of bytes is a walk over them.
pub(super) struct PatternPages {
    pages: Vec<Bytes>,
    page_bytes: usize,
}

impl PatternPages {
    /// Returns the bytes that a source takes of an arena.
    pub(super) fn memory_bytes(page_bytes: usize) -> usize {
        PAGES * page_bytes
    }

    /// Makes the pages. Returns `None` where the arena has no room.
    pub(super) fn new(arena: &Arena, page_bytes: usize) -> Option<Self> {
        let page = |number: usize| {
            let (mut writer, reader) = arena.allocate_cell(page_bytes)?.split_writer_reader();
            for (word, bytes) in writer.spare_bytes().chunks_mut(8).enumerate() {
                let place =
                    ((number as u64 + 1) << 40 | word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                bytes.copy_from_slice(&place.to_le_bytes()[..bytes.len()]);
            }
            writer.publish_bytes(page_bytes);
            reader.pinned_bytes(0..page_bytes)
        };
        let pages = (0..PAGES).map(page).collect::<Option<_>>()?;
        Some(Self { pages, page_bytes })
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns `bytes` of the walk that begins with page `from`.
    pub(super) fn slice_pages(&self, from: u32, bytes: u64) -> Vec<Bytes> {
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut pieces = Vec::with_capacity(left.div_ceil(self.page_bytes));
        for page in self.pages.iter().cycle().skip(from as usize % PAGES) {
            if left == 0 {
                break;
            }
            let taken = left.min(page.len());
            pieces.push(page.slice(..taken));
            left -= taken;
        }
        pieces
    }

    /// Compares `data` with the walk that begins with page `from`: the ends of each run within a
    /// page, or all of it. Returns the offset of a wrong or missing byte.
    pub(super) fn check_data(
        &self,
        data: &[Bytes],
        from: u32,
        bytes: u64,
        whole: bool,
    ) -> Result<(), u64> {
        let mut at = 0;
        for piece in data {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let page = &self.pages[(from as usize % PAGES + at / self.page_bytes) % PAGES];
                let expected = &page[at % self.page_bytes..];
                let (run, later) = rest.split_at(rest.len().min(expected.len()));
                let ends = ENDS_BYTES.min(run.len());
                let same = |range: std::ops::Range<usize>| run[range.clone()] == expected[range];
                let fine = if whole {
                    same(0..run.len())
                } else {
                    same(0..ends) && same(run.len() - ends..run.len())
                };
                if !fine {
                    return Err(at as u64);
                }
                at += run.len();
                rest = later;
            }
        }
        if at as u64 == bytes { Ok(()) } else { Err(at as u64) }
    }
}

/// Loans a landing of `bytes`, in pages and a rest.
pub(super) fn borrow_landing(arena: &Arena, page_bytes: usize, bytes: u64) -> Option<Landing> {
    let bytes = usize::try_from(bytes).ok()?;
    let mut segments = vec![page_bytes; bytes / page_bytes];
    segments.push(bytes % page_bytes);
    Landing::allocate_segments(arena, &segments)
}
