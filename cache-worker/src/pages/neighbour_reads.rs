//! Answers another worker, which asks for pages that this one holds: a slot's new owner, or a
//! replica of a hot block. Serves from memory or disk only: it fills nothing, asks no other worker,
//! and does not keep a page longer for this. Reads of gateways go by `span_reader`.

use bytes::Bytes;
use verbs3_protocol::{
    BlockIndex, BlockPiece, CacheVerdict, PageIndex, ReadMessage, WorkerReply as Message,
};
use verbs3_rdma::transport::{ReplySender, TransportError};

use super::PageServer;
use crate::digest::VersionDigest;
use crate::memory::CachedPage;
use crate::metrics::PageDirection;
use crate::serve_refusal::ServeRefusal;

/// Pages of one part: as many as fit in a message with their checksums, and more than a block of
/// default size has.
const PAGES_PER_PART_MAX: usize = 256;

/// A sender that collects pages as they are found.
struct CachedPageSender {
    reply: ReplySender,
    block: BlockIndex,
    /// The first requested byte.
    start: u32,
    block_bytes: u32,
    page_bytes: u32,
    /// Adjacent pages that were not sent yet, the number of the first one, and their bytes.
    pages: Vec<CachedPage>,
    first_page: u16,
}

impl PageServer {
    /// Sends what is here of the pages that a checked question names.
    pub(crate) async fn send_cached_pages(&self, read: ReadMessage, reply: ReplySender) {
        let digest = self.digests.digest_version(&read.object, &read.version);
        let (block, start, page_bytes) = (read.block, read.start, self.checks.geometry.page_bytes);
        let block_bytes = self.checks.geometry.block_len(read.version.bytes, block);
        let pages = Vec::new();
        let mut sending =
            CachedPageSender { reply, block, start, block_bytes, page_bytes, pages, first_page: 0 };
        for page in self.checks.geometry.touched_pages(&(read.start..read.end)) {
            if let Err(error) = self.send_cached_page(&mut sending, digest, page).await {
                return tracing::debug!(%error, "a worker has given up its question");
            }
        }
        if let Err(error) = self.flush_pages(&mut sending).await {
            return tracing::debug!(%error, "a worker has given up its question");
        }
        let nothing_more = Message::empty_piece(block, CacheVerdict::Hit).encode();
        if let Err(error) = sending.reply.send_last(nothing_more, 0, Vec::new()).await {
            tracing::debug!(%error, "a reader has gone");
        }
    }

    pub(crate) fn check_held(
        &self,
        read: &ReadMessage,
        landing_bytes: u64,
    ) -> Result<(), ServeRefusal> {
        self.checks.check_geometry(read.geometry)?;
        let block_len = self.checks.geometry.block_len(read.version.bytes, read.block);
        let (start, end) = (read.start, read.end);
        let is_border =
            |at: u32| at == block_len || at.is_multiple_of(self.checks.geometry.page_bytes);
        if start >= end || end > block_len || !is_border(start) || !is_border(end) {
            return Err(ServeRefusal::NotWholePages { range: start..end, block_bytes: block_len });
        }
        if u64::from(end - start) > landing_bytes {
            return Err(ServeRefusal::ShortLanding { range: start..end, landing_bytes });
        }
        Ok(())
    }

    /// Sends the page, or collects it to be sent with those that follow. Does nothing if the page
    /// is not held.
    async fn send_cached_page(
        &self,
        sending: &mut CachedPageSender,
        digest: VersionDigest,
        page: u16,
    ) -> Result<(), TransportError> {
        let key = digest.page_key(sending.block, page);
        let found = match self.filler.memory_tier().peek_page(key) {
            Some(found) => Some(found),
            None if self.filler.is_on_disk(key) => {
                // No page is held during the wait for the disk.
                self.flush_pages(sending).await?;
                let bytes = self.checks.geometry.page_len(sending.block_bytes, PageIndex(page));
                self.filler.read_from_disk(key, bytes).await
            }
            None => None,
        };
        let adjoins = usize::from(page - sending.first_page) == sending.pages.len();
        if found.is_none() || !adjoins || sending.pages.len() == PAGES_PER_PART_MAX {
            self.flush_pages(sending).await?;
        }
        if let Some(found) = found {
            if sending.pages.is_empty() {
                sending.first_page = page;
            }
            sending.pages.push(found);
        }
        Ok(())
    }

    async fn flush_pages(&self, sending: &mut CachedPageSender) -> Result<(), TransportError> {
        if sending.pages.is_empty() {
            return Ok(());
        }
        let pages = std::mem::take(&mut sending.pages);
        let start = u32::from(sending.first_page) * sending.page_bytes;
        let length = pages.iter().map(|page| page.bytes).sum();
        let checksums = pages.iter().map(|page| page.checksum).collect();
        let data: Vec<Bytes> = pages
            .iter()
            .filter_map(|page| page.cell.pinned_bytes(0..page.bytes as usize))
            .collect();
        let piece = BlockPiece {
            block: sending.block,
            start,
            length,
            checksums,
            verdict: CacheVerdict::Hit,
        };
        let offset = u64::from(start - sending.start);
        sending.reply.send_part(Message::Data(piece).encode(), offset, data).await?;
        self.metrics.former_bytes[PageDirection::Given].inc_by(u64::from(length));
        Ok(())
    }
}
