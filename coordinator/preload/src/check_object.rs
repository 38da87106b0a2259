//! Checks whether an object is in the tier: looks for its pages, and reads them back if the job
//! asks for that.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use verbs3_client::{
    BypassReason, OpenOutcome, OpenRequest, OpenedObject, SpanItem, SpanRead, SpanRequest,
    WarmRequest,
};
use verbs3_pacing::GrowingPause;
use verbs3_protocol::{
    BlockIndex, BlockSpan, CacheVerdict, ContentVersion, ObjectKey, WarmPagesReply,
};

use crate::checksum_comparison::ChecksumComparison;
use crate::load_object::{PreloadItemError, PreloadPiece};
use crate::object_list::PreloadListItem;
use crate::preload_run::PreloadRun;

/// Bytes of an object that are in the tier, and that are not.
struct PreloadCoverage {
    version: Arc<ContentVersion>,
    held: u64,
    missing: u64,
}

impl PreloadRun<'_> {
    /// Counts what is in the tier. Fails if something is missing.
    pub(crate) async fn check_object(
        &self,
        item: &PreloadListItem,
    ) -> Result<(), PreloadItemError> {
        let PreloadCoverage { version, held, missing } = self.measure_coverage(item).await?;
        self.job.update_counters(|page| {
            page.bytes_checked += held;
            page.bytes_missing += missing;
        });
        if missing > 0 {
            let reason =
                format!("{missing} of {} bytes are not in the tier any more", held + missing);
            return Err(PreloadItemError::Failed(reason));
        }
        match self.plan.verify {
            true => self.read_back(item, &version).await,
            false => Ok(()),
        }
    }

    /// Returns how many bytes of readers' present version are there, and how many are not.
    async fn measure_coverage(
        &self,
        item: &PreloadListItem,
    ) -> Result<PreloadCoverage, PreloadItemError> {
        let (mount, object) = (&item.mount, item.mount.object_key(&item.key));
        let geometry = self.environment.tier.tier_options().geometry;
        let piece = |version: Option<Arc<ContentVersion>>, block, pages, replica| {
            let object = object.clone();
            PreloadPiece { object, version, block, pages, replica }
        };
        // For most objects these are all the pages.
        let first = self.plan.first_pages(geometry, item.listed_bytes());
        let request =
            self.build_warm_request(mount, piece(None, BlockIndex(0), first.clone(), 0), true);
        let WarmPagesReply { version, held_bytes, missing_bytes, .. } =
            self.probe_current_version(item, request).await?;
        let (version, mut held, mut missing) =
            (Arc::new(version), u64::from(held_bytes), u64::from(missing_bytes));
        let replicas =
            self.plan.replicas.min(self.environment.tier.owners_count(&object, BlockIndex(0)));
        for (block, pages, replica) in
            self.plan.other_pieces(geometry, version.bytes, first, replicas)
        {
            let request = self.build_warm_request(
                mount,
                piece(Some(version.clone()), block, pages, replica),
                true,
            );
            let looked = self.warm_with_retries(mount, &request, 0).await?;
            held += u64::from(looked.held_bytes);
            missing += u64::from(looked.missing_bytes);
        }
        Ok(PreloadCoverage { version, held, missing })
    }

    /// Finds the version that readers get now. What was loaded may have been replaced since, behind
    /// the tier. A listing shows that. The home knows a named object for as long as gateways would
    /// believe it.
    async fn probe_current_version(
        &self,
        item: &PreloadListItem,
        first: WarmRequest,
    ) -> Result<WarmPagesReply, PreloadItemError> {
        let first = WarmRequest { attributes_age_ms_max: item.believed_ms(), ..first };
        let looked = self.warm_with_retries(&item.mount, &first, 0).await?;
        if !item.shows_another(&looked.version) {
            return Ok(looked);
        }
        // The home has not learnt what the list shows, or knows a newer version.
        let now = WarmRequest { attributes_age_ms_max: 0, ..first };
        self.warm_with_retries(&item.mount, &now, 0).await
    }

    /// Reads the wanted bytes through the tier's client, which checks each page against its
    /// checksum. Whole objects are also checked against the UFS's checksum.
    async fn read_back(
        &self,
        item: &PreloadListItem,
        looked: &ContentVersion,
    ) -> Result<(), PreloadItemError> {
        let object = item.mount.object_key(&item.key);
        let found = self.open_object(&object).await?;
        let attributes = &found.reply.attributes;
        let version = Arc::new(attributes.version.clone());
        if *version != *looked {
            return Err(changed_error());
        }
        let mut compare = ChecksumComparison::new(attributes).filter(|_| self.plan.is_whole());
        let geometry = self.environment.tier.tier_options().geometry;
        for (block, pages) in self.plan.wanted_pieces(geometry, version.bytes) {
            let length = geometry.block_len(version.bytes, block);
            let byte = |page: u16| (u32::from(page) * geometry.page_bytes).min(length);
            let span = BlockSpan { block, range: byte(pages.start)..byte(pages.end) };
            self.read_span(&object, &version, span, compare.as_mut()).await?;
        }
        let Some(compare) = compare else { return Ok(()) };
        self.job.update_counters(|page| page.objects_compared += 1);
        match compare.matches_checksum() {
            true => Ok(()),
            false => Err(PreloadItemError::Failed(
                "read back: its bytes are not those of the ufs's checksum".to_owned(),
            )),
        }
    }

    async fn open_object(
        &self,
        object: &Arc<ObjectKey>,
    ) -> Result<Box<OpenedObject>, PreloadItemError> {
        let open = OpenRequest {
            object: object.clone(),
            version_id: None,
            attributes_age_ms_max: u64::MAX,
            absence_age_ms_max: 0,
            checksums: true,
            want: None,
            silence: None,
            trace: None,
            tenant: None,
            place: None,
        };
        let mut tries = self.begin_retries();
        loop {
            match self.environment.tier.open_object(&open).await {
                OpenOutcome::Found(found) => return Ok(found),
                OpenOutcome::Absent(_) => return Err(PreloadItemError::Absent),
                OpenOutcome::Ufs(answer) => {
                    return Err(PreloadItemError::Failed(format!(
                        "read back: the ufs answered {}",
                        answer.status
                    )));
                }
                OpenOutcome::Bypass(reason) => self.before_another(&mut tries, reason).await?,
            }
        }
    }

    fn begin_retries(&self) -> ReadBackRetries {
        ReadBackRetries { began: Instant::now(), pause: self.environment.options.pauses }
    }

    /// Waits before another try. Fails if no tries are left.
    async fn before_another(
        &self,
        tries: &mut ReadBackRetries,
        reason: BypassReason,
    ) -> Result<(), PreloadItemError> {
        let options = &self.environment.options;
        let is_final = matches!(reason, BypassReason::Uncacheable | BypassReason::Misconfigured);
        if is_final || tries.began.elapsed() >= options.settings.patience.0 {
            return Err(PreloadItemError::Failed(format!(
                "read back: the tier does not give it ({})",
                reason.as_str()
            )));
        }
        self.job.update_counters(|page| page.retries += 1);
        self.environment.metrics.retries.inc();
        sleep(tries.pause.next_jittered(rand::random())).await;
        Ok(())
    }

    async fn read_span(
        &self,
        object: &Arc<ObjectKey>,
        version: &Arc<ContentVersion>,
        span: BlockSpan,
        mut compare: Option<&mut ChecksumComparison>,
    ) -> Result<(), PreloadItemError> {
        // Held during pauses, too: a reader that has begun should finish first.
        let _turn = self.environment.reads.acquire().await;
        let (mut span, mut tries) = (span, self.begin_retries());
        loop {
            // Of what this process keeps, workers may have lost their own.
            let mut read = self.environment.tier.ask_span(SpanRequest {
                object: object.clone(),
                version: version.clone(),
                span: span.clone(),
                ahead_bytes: 0,
                request_range: 0..0,
                trace: None,
                tenant: None,
                place: None,
            });
            let reason = loop {
                match read.next().await {
                    SpanItem::Bytes(data) => {
                        if let Some(compare) = compare.as_deref_mut() {
                            data.iter().for_each(|bytes| compare.update_digest(bytes));
                        }
                    }
                    SpanItem::End => return came_from_tier(&read),
                    SpanItem::VersionGone => return Err(changed_error()),
                    SpanItem::Bypass(reason) => break reason,
                }
            };
            came_from_tier(&read)?;
            if read.next_byte() > span.range.start {
                span.range.start = read.next_byte();
                tries = self.begin_retries();
            }
            self.before_another(&mut tries, reason).await?;
        }
    }
}

/// Fails unless the bytes that were read were in the tier already.
fn came_from_tier(read: &SpanRead) -> Result<(), PreloadItemError> {
    match read.bytes_origin() {
        None | Some((CacheVerdict::Hit, _)) => Ok(()),
        Some((CacheVerdict::Partial | CacheVerdict::Miss, _)) => {
            let block = read.span_request().span.block.0;
            Err(PreloadItemError::Failed(format!("read back: block {block} was not in the tier")))
        }
    }
}

fn changed_error() -> PreloadItemError {
    PreloadItemError::Failed("read back: it has changed".to_owned())
}

/// Retries of one question or one span.
struct ReadBackRetries {
    began: Instant,
    pause: GrowingPause,
}
