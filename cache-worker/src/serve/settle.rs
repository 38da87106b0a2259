//! Answers `SettleMessage`: makes staged pages those of the version that the store has answered
//! with, or gives them up.
//!
//! Touches no attributes: readers learn of the version from the store, as after any write.

use std::sync::Arc;

use verbs3_protocol::{PageIndex, SETTLED_TOKENS_MAX, SettleMessage, SettledPages};

use crate::fill::FillTarget;
use crate::memory::{StageOwner, StagedWrite};
use crate::metrics::{CountedRequest, StagedEnd};
use crate::serve_refusal::ServeRefusal;
use crate::tenants::TenantAccount;
use crate::worker::CacheWorker;

/// Pages that are installed without giving others a turn on the thread.
const PAGES_PER_TURN: usize = 64;

impl CacheWorker {
    pub(super) async fn answer_settle(
        &self,
        settle: SettleMessage,
        peer: Box<str>,
    ) -> Result<SettledPages, ServeRefusal> {
        self.metrics.requests[CountedRequest::Settle].inc();
        let SettleMessage { object, tokens, version } = settle;
        if !(1..=SETTLED_TOKENS_MAX).contains(&tokens.len()) {
            return Err(ServeRefusal::TokenCount(tokens.len()));
        }
        // Nobody's account: whom the pages count for was noted when they came.
        let target = version
            .map(|version| self.pages.fill_target(object.clone(), version, TenantAccount::NOBODY))
            .transpose()?;
        let owner = StageOwner { object, peer };
        let staged = self.pages.filler.memory_tier().staged_pages();
        let mut pages = 0;
        for write in tokens.into_iter().filter_map(|token| staged.take_write(token, &owner)) {
            match &target {
                Some(target) => pages += self.install_pages(target, write).await,
                None => staged.count_end(StagedEnd::Discarded, Some(&write)),
            }
        }
        Ok(SettledPages { pages })
    }

    /// Installs the pages that are whole pages of the version. Others are dropped: the gateway has
    /// guessed their place in the object, or its length, wrongly.
    async fn install_pages(&self, target: &Arc<FillTarget>, write: StagedWrite) -> u32 {
        let (geometry, account) = (self.checks.geometry, write.account);
        let target = FillTarget { account, ..FillTarget::clone(target) };
        let (mut installed, mut misplaced) = (0, 0);
        for (at, staged) in write.pages.into_values().enumerate() {
            if at % PAGES_PER_TURN == PAGES_PER_TURN - 1 {
                // Other calls of the connection have their turn.
                tokio::task::yield_now().await;
            }
            let block_len = geometry.block_len(target.version.bytes, staged.block);
            if geometry.page_len(block_len, PageIndex(staged.page)) == staged.kept.bytes {
                self.pages.filler.install_page(&target, staged.block, staged.page, staged.kept);
                installed += 1;
            } else {
                misplaced += 1;
            }
        }
        self.metrics.staged_pages[StagedEnd::Committed].inc_by(installed.into());
        self.metrics.staged_pages[StagedEnd::Misplaced].inc_by(misplaced);
        installed
    }
}
