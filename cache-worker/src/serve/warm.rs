//! Answers `WarmMessage`: loads pages of one block before anybody reads them, and reports the
//! result. Sends no bytes.
//!
//! Warm-ups wait for pages that a reader's fill brings, and readers join the fills of warm-ups: one
//! fill per page.

mod disk;

use std::ops::Range;
use std::sync::Arc;

use verbs3_protocol::{
    AbsentReply, BlockIndex, ByteRange, ContentVersion, OpenMessage, PageIndex, UfsAnswer,
    WarmAnswer, WarmMessage, WarmPagesReply, WarmTier,
};

use super::ServeRefusal;
use super::open::{ATTEMPTS_MAX, OpenAttemptError, OpenOperation};
use super::read::check_version;
use crate::attributes::ObjectPresence;
use crate::fill::{
    FillTarget, PageClaim, PageClaimRequest, PageFillError, PageSource, RunInterest,
};
use crate::metrics::{CountedRequest, WarmedFound};
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

/// How often one warm-up reclaims pages whose fill was abandoned.
const RECLAIMS_MAX: usize = 8;

/// Bytes of pages by outcome.
#[derive(Default)]
struct WarmupByteCounts {
    held: u32,
    loaded: u32,
    missing: u32,
}

impl WarmupByteCounts {
    /// Returns the counter for a page that is here now, or is not. A page that the caller's own
    /// check has brought was not here before.
    fn of_page(&mut self, page: u16, is_here: bool, brought: Option<&RunInterest>) -> &mut u32 {
        match is_here && !brought.is_some_and(|brought| brought.fills_page(page)) {
            true => &mut self.held,
            false => &mut self.loaded,
        }
    }

    fn into_warmed(self, version: ContentVersion, life: u64) -> WarmPagesReply {
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

impl CacheWorker {
    pub(super) async fn answer_warm(
        &self,
        warm: WarmMessage,
        account: TenantAccount,
    ) -> Result<WarmAnswer, ServeRefusal> {
        self.metrics.requests[CountedRequest::Warm].inc();
        let answer = self.warm_block(warm, account).await?;
        if let WarmAnswer::Warmed(warmed) = &answer {
            self.metrics.warmed_bytes[WarmedFound::Held].inc_by(u64::from(warmed.held_bytes));
            self.metrics.warmed_bytes[WarmedFound::Loaded].inc_by(u64::from(warmed.loaded_bytes));
        }
        Ok(answer)
    }

    async fn warm_block(
        &self,
        warm: WarmMessage,
        account: TenantAccount,
    ) -> Result<WarmAnswer, ServeRefusal> {
        self.standing
            .is_at(warm.epoch)
            .map_err(|denied| ServeRefusal::for_denial(denied, warm.epoch))?;
        self.check_geometry(warm.geometry)?;
        let source = self.volume_source(&warm.object.volume)?;
        self.check_tier(&warm)?;
        // A small object takes its own bytes, not those of full pages: many are warmed at once.
        let there = match &warm.version {
            Some(version) => Some(self.geometry.block_len(version.bytes, warm.block).into()),
            None => warm.listed_bytes,
        };
        let bytes = (u64::from(warm.pages) * u64::from(self.geometry.page_bytes))
            .min(there.unwrap_or(u64::MAX));
        let _turn = match warm.look_only {
            true => None,
            false => {
                Some(self.warming.acquire_permit(&self.filler, self.clock.now(), bytes).await?)
            }
        };
        let Some(version) = warm.version.clone() else {
            return self.warm_current(&warm, account).await;
        };
        check_version(&version)?;
        let digest = self.digests.digest_version(&warm.object, &version);
        let (object, version_kept) = (warm.object.clone(), version.clone());
        let target = FillTarget { source, object, version: version_kept, digest, account };
        let bytes = self.warm_pages(Arc::new(target), &warm, None).await?;
        Ok(WarmAnswer::Warmed(bytes.into_warmed(version, self.life)))
    }

    /// Warms the version that the UFS has now. If neither attributes nor pages are here, one
    /// request brings both.
    async fn warm_current(
        &self,
        warm: &WarmMessage,
        account: TenantAccount,
    ) -> Result<WarmAnswer, ServeRefusal> {
        if warm.block != BlockIndex(0) {
            return Err(ServeRefusal::WarmedUnversioned);
        }
        let open = as_open(warm, self.geometry.page_bytes);
        let mut opening = self.begin_open(open, account, u64::MAX)?;
        opening.listed = warm.listed_bytes;
        let mut last = ServeRefusal::Changing;
        for _ in 0..ATTEMPTS_MAX {
            match self.warm_once(warm, &opening).await {
                Ok(answer) => return Ok(answer),
                Err(OpenAttemptError::Refused(refused)) => return Err(refused),
                Err(OpenAttemptError::Again(refused)) => last = refused,
            }
        }
        Err(last)
    }

    async fn warm_once(
        &self,
        warm: &WarmMessage,
        opening: &OpenOperation,
    ) -> Result<WarmAnswer, OpenAttemptError> {
        let learnt = self.learn_attributes(opening).await?;
        let attributes = match &learnt.found {
            ObjectPresence::Present(attributes) => attributes.clone(),
            ObjectPresence::Absent(answer) => {
                let answer = UfsAnswer::clone(answer);
                return Ok(WarmAnswer::Absent(AbsentReply {
                    answer,
                    generation: learnt.generation,
                    cached: learnt.cached,
                }));
            }
        };
        let version = &attributes.version;
        let target = Arc::new(FillTarget {
            source: opening.subject.source.clone(),
            object: warm.object.clone(),
            digest: self.digests.digest_version(&warm.object, version),
            version: version.clone(),
            account: opening.subject.account,
        });
        match self.warm_pages(target, warm, learnt.page_interest()).await {
            Ok(bytes) => Ok(WarmAnswer::Warmed(bytes.into_warmed(version.clone(), self.life))),
            Err(failure @ PageFillError::VersionGone(_)) => {
                self.recall_version(&opening.subject.object, version).await;
                Err(OpenAttemptError::Again(failure.into()))
            }
            Err(failure) => Err(OpenAttemptError::Refused(failure.into())),
        }
    }

    /// Waits until every page is here. Pages that the caller's own check has `brought` count as
    /// loaded.
    async fn warm_pages(
        &self,
        target: Arc<FillTarget>,
        warm: &WarmMessage,
        brought: Option<&RunInterest>,
    ) -> Result<WarmupByteCounts, PageFillError> {
        let block_len = self.geometry.block_len(target.version.bytes, warm.block);
        let end = self
            .geometry
            .touched_pages(&(0..block_len))
            .end
            .min(warm.first_page.saturating_add(warm.pages));
        let pages = warm.first_page..end;
        if pages.is_empty() {
            return Ok(WarmupByteCounts::default());
        }
        let length = |page: u16| self.geometry.page_len(block_len, PageIndex(page));
        if warm.look_only {
            return Ok(self.count_held_bytes(&target, warm, pages, length));
        }
        let mut bytes = WarmupByteCounts::default();
        if warm.tier == WarmTier::Disk
            && pages.clone().all(|page| self.is_on_disk(target.digest.page_key(warm.block, page)))
        {
            self.settle_on_disk(&target, warm, pages.clone()).await?;
            pages.for_each(|page| *bytes.of_page(page, true, brought) += length(page));
            return Ok(bytes);
        }
        self.copy_from_owner(&target, warm.block, pages.clone()).await?;
        let mut claim = self.warm_claim(&target, warm.block, pages.clone())?;
        for (page, source) in pages.clone().zip(&claim.sources) {
            let is_here = match source {
                PageSource::Held(_) | PageSource::Released => true,
                PageSource::Filling { run, .. } => run.origin.is_disk(),
            };
            *bytes.of_page(page, is_here, brought) += length(page);
        }
        claim.release_pages();
        let mut reclaims = 0;
        for page in pages.clone() {
            while let PageSource::Filling { run, index } =
                &claim.sources[usize::from(page - claim.first_page)]
            {
                match run.clone().wait_for_page(*index, length(page)).await {
                    Ok(_) => break,
                    Err(
                        PageFillError::Abandoned
                        | PageFillError::NotHeld
                        | PageFillError::OwnerSilent,
                    ) if reclaims < RECLAIMS_MAX => {
                        reclaims += 1;
                        claim = self.warm_claim(&target, warm.block, page..pages.end)?;
                        claim.release_pages();
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        self.settle_on_disk(&target, warm, pages).await?;
        Ok(bytes)
    }

    /// Lets a replica copy the pages that the block's owner holds; the rest is filled. If the owner
    /// does not say what it holds, nothing is filled, because its bytes would leave the UFS twice.
    /// The caller has time, and retries.
    async fn copy_from_owner(
        &self,
        target: &Arc<FillTarget>,
        block: BlockIndex,
        pages: Range<u16>,
    ) -> Result<(), PageFillError> {
        if self.former.other_owner(target.object.block_slot(block)).is_none() {
            return Ok(());
        }
        let block_len = self.geometry.block_len(target.version.bytes, block);
        let wanted =
            PageClaimRequest { block, pages: pages.clone(), ahead_bytes: 0, replica: true };
        let mut claim = self.filler.claim_pages(target, &wanted)?;
        claim.release_pages();
        for (page, source) in pages.zip(&claim.sources) {
            if let PageSource::Filling { run, index } = source {
                let bytes = self.geometry.page_len(block_len, PageIndex(page));
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
    ) -> Result<PageClaim, PageFillError> {
        self.filler
            .claim_pages(target, &PageClaimRequest { block, pages, ahead_bytes: 0, replica: false })
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

/// Builds the open whose answer a warm-up needs, without its bytes. With checksums: clients request
/// them by default.
fn as_open(warm: &WarmMessage, page_bytes: u32) -> OpenMessage {
    let byte = |page: u32| u64::from(page) * u64::from(page_bytes);
    let (first, end) =
        (byte(warm.first_page.into()), byte(u32::from(warm.first_page) + u32::from(warm.pages)));
    let want = ByteRange::From { first, last: Some(end.saturating_sub(1)) };
    OpenMessage {
        object: warm.object.clone(),
        version_id: None,
        epoch: warm.epoch,
        geometry: warm.geometry,
        attributes_age_ms_max: warm.attributes_age_ms_max,
        absence_age_ms_max: 0,
        checksums: true,
        want: (warm.pages > 0 && !warm.look_only).then_some(want),
        piece_bytes_max: warm.geometry.block_bytes,
        holder: None,
    }
}
