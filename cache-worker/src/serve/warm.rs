//! Answers `WarmMessage`: loads pages of one block before anybody reads them, and reports the
//! result. Sends no bytes.
//!
//! Warm-ups wait for pages that a reader's fill brings, and readers join the fills of warm-ups: one
//! fill per page.

use verbs3_protocol::{
    AbsentReply, AttributeLease, BlockIndex, ByteRange, OpenMessage, UfsAnswer, WarmAnswer,
    WarmMessage,
};

use super::open::ATTEMPTS_MAX;
use crate::attributes::ObjectPresence;
use crate::fill::PageFillError;
use crate::home::{OpenAttemptError, OpenOperation};
use crate::metrics::{CountedRequest, WarmedFound};
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

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
        self.home
            .standing
            .is_at(warm.epoch)
            .map_err(|denied| ServeRefusal::for_denial(denied, warm.epoch))?;
        self.checks.check_geometry(warm.geometry)?;
        self.checks.check_volume(&warm.object.volume)?;
        self.pages.check_tier(&warm)?;
        // A small object takes its own bytes, not those of full pages: many are warmed at once.
        let there = match &warm.version {
            Some(version) => Some(self.checks.geometry.block_len(version.bytes, warm.block).into()),
            None => warm.listed_bytes,
        };
        let bytes = (u64::from(warm.pages) * u64::from(self.checks.geometry.page_bytes))
            .min(there.unwrap_or(u64::MAX));
        let _turn = match warm.look_only {
            true => None,
            false => Some(
                self.pages
                    .warming
                    .acquire_permit(&self.pages.filler, self.clock.now(), bytes)
                    .await?,
            ),
        };
        let Some(version) = warm.version.clone() else {
            return self.warm_current(&warm, account).await;
        };
        let target = self.pages.fill_target(warm.object.clone(), version.clone(), account)?;
        let bytes = self.pages.warm_pages(target, &warm, None).await?;
        Ok(WarmAnswer::Warmed(bytes.into_warmed(version, self.home.life)))
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
        let open = as_open(warm, self.checks.geometry.page_bytes);
        let mut opening = self.home.begin_open(open, account, u64::MAX)?;
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
        let learnt = self.home.learn_attributes(opening).await?;
        let attributes = match &learnt.found {
            ObjectPresence::Present(attributes) => attributes.clone(),
            ObjectPresence::Absent(answer) => {
                let answer = UfsAnswer::clone(answer);
                return Ok(WarmAnswer::Absent(AbsentReply {
                    answer,
                    generation: learnt.generation,
                    lease: AttributeLease::default(),
                    cached: learnt.cached,
                }));
            }
        };
        let version = &attributes.version;
        let target = opening.subject.fill_target(version, &self.pages.digests);
        match self.pages.warm_pages(target, warm, learnt.page_interest()).await {
            Ok(bytes) => Ok(WarmAnswer::Warmed(bytes.into_warmed(version.clone(), self.home.life))),
            Err(failure @ PageFillError::VersionGone(_)) => {
                self.home.recall_version(&opening.subject.object, version).await;
                Err(OpenAttemptError::Again(failure.into()))
            }
            Err(failure) => Err(OpenAttemptError::Refused(failure.into())),
        }
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
