//! Brings pages of one block here before anybody reads them, and counts what was here already.

use std::ops::Range;
use std::sync::Arc;

use verbs3_protocol::{
    BlockIndex, ContentVersion, PageIndex, WarmMessage, WarmPagesReply, WarmTier,
};

use super::PageServer;
use crate::digest::PageKey;
use crate::fill::{
    FillTarget, PageClaim, PageClaimRequest, PageFillError, PageSource, RunInterest,
};

/// How often one warm-up reclaims pages whose fill was abandoned.
const RECLAIMS_MAX: usize = 8;

/// Bytes of pages by outcome.
#[derive(Default)]
pub(crate) struct WarmupByteCounts {
    held: u32,
    loaded: u32,
    missing: u32,
}

impl WarmupByteCounts {
    /// Returns the counter for a page that is here now, or is not. A page that the caller's own
    /// check has brought was not here before.
    fn of_page(&mut self, page: PageKey, is_here: bool, brought: Option<&RunInterest>) -> &mut u32 {
        match is_here && !brought.is_some_and(|brought| brought.fills_page(page)) {
            true => &mut self.held,
            false => &mut self.loaded,
        }
    }

    pub(crate) fn into_warmed(self, version: ContentVersion, life: u64) -> WarmPagesReply {
        let Self { held, loaded, missing } = self;
        WarmPagesReply {
            version,
            held_bytes: held,
            loaded_bytes: loaded,
            missing_bytes: missing,
            life,
        }
    }
}

impl PageServer {
    /// Waits until every page is here. Pages that the caller's own check has `brought` count as
    /// loaded.
    pub(crate) async fn warm_pages(
        &self,
        target: Arc<FillTarget>,
        warm: &WarmMessage,
        brought: Option<&RunInterest>,
    ) -> Result<WarmupByteCounts, PageFillError> {
        let block_len = self.checks.geometry.block_len(target.version.bytes, warm.block);
        let end = self
            .checks
            .geometry
            .touched_pages(&(0..block_len))
            .end
            .min(warm.first_page.saturating_add(warm.pages));
        let pages = warm.first_page..end;
        if pages.is_empty() {
            return Ok(WarmupByteCounts::default());
        }
        let length = |page: u16| self.checks.geometry.page_len(block_len, PageIndex(page));
        if warm.look_only {
            return Ok(self.count_held_bytes(&target, warm, pages, length));
        }
        let mut bytes = WarmupByteCounts::default();
        if warm.tier == WarmTier::Disk
            && pages
                .clone()
                .all(|page| self.filler.is_on_disk(target.digest.page_key(warm.block, page)))
        {
            self.settle_on_disk(&target, warm, pages.clone()).await?;
            let key = |page| target.digest.page_key(warm.block, page);
            pages.for_each(|page| *bytes.of_page(key(page), true, brought) += length(page));
            return Ok(bytes);
        }
        self.copy_from_owner(&target, warm.block, pages.clone()).await?;
        let mut claim = self.warm_claim(&target, warm.block, pages.clone(), false)?;
        for claimed in &claim.units {
            let is_here = match &claimed.source {
                PageSource::Held(_) | PageSource::Released => true,
                PageSource::Filling { run, .. } => run.origin.is_disk(),
            };
            *bytes.of_page(claimed.unit.key, is_here, brought) += claimed.unit.bytes;
        }
        claim.release_pages();
        let mut reclaims = 0;
        for page in pages.clone() {
            let key = target.digest.page_key(warm.block, page);
            while let Some(PageSource::Filling { run, index }) = claim.source_of(key) {
                match run.clone().wait_for_page(*index, length(page)).await {
                    Ok(_) => break,
                    Err(
                        PageFillError::Abandoned
                        | PageFillError::NotHeld
                        | PageFillError::OwnerSilent,
                    ) if reclaims < RECLAIMS_MAX => {
                        reclaims += 1;
                        claim = self.warm_claim(&target, warm.block, page..pages.end, false)?;
                        claim.release_pages();
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        self.settle_on_disk(&target, warm, pages).await?;
        Ok(bytes)
    }

    /// Lets a next owner copy the pages that the block's owner holds; the rest is filled. If the
    /// owner does not say what it holds, nothing is filled, because its bytes would leave the UFS
    /// twice. The caller has time, and retries.
    async fn copy_from_owner(
        &self,
        target: &Arc<FillTarget>,
        block: BlockIndex,
        pages: Range<u16>,
    ) -> Result<(), PageFillError> {
        if self.former.other_owner(target.object.block_slot(block)).is_none() {
            return Ok(());
        }
        let mut claim = self.warm_claim(target, block, pages, true)?;
        claim.release_pages();
        for claimed in &claim.units {
            if let PageSource::Filling { run, index } = &claimed.source {
                let bytes = claimed.unit.bytes;
                // Pages that fail in another way are claimed again.
                if let Err(PageFillError::OwnerSilent) =
                    run.clone().wait_for_page(*index, bytes).await
                {
                    return Err(PageFillError::Busy(
                        "the owner of the block does not give its pages now",
                    ));
                }
            }
        }
        Ok(())
    }

    fn warm_claim(
        &self,
        target: &Arc<FillTarget>,
        block: BlockIndex,
        pages: Range<u16>,
        replica: bool,
    ) -> Result<PageClaim, PageFillError> {
        let wanted = PageClaimRequest {
            block,
            pages,
            bytes: None,
            ahead_bytes: 0,
            request_range: 0..0,
            replica,
        };
        self.filler.claim_pages(target, &wanted)
    }

    fn count_held_bytes(
        &self,
        target: &FillTarget,
        warm: &WarmMessage,
        pages: Range<u16>,
        length: impl Fn(u16) -> u32,
    ) -> WarmupByteCounts {
        let mut bytes = WarmupByteCounts::default();
        for page in pages {
            let is_here = self.is_page_here(target.digest, warm.block, page, warm.tier);
            *(if is_here { &mut bytes.held } else { &mut bytes.missing }) += length(page);
        }
        bytes
    }
}
