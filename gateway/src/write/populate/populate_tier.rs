//! What populate on write asks of the tier. Its client implements it; tests have others.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;
use verbs3_client::{CacheTierClient, QuestionError, SettleRequest, StageRequest};
use verbs3_protocol::{BlockGeometry, BlockIndex, ObjectKey, WorkerId};

/// The tier, as populate on write sees it. Everything is bounded in time.
#[async_trait]
pub trait PopulateTier: Send + Sync + 'static {
    fn block_geometry(&self) -> BlockGeometry;

    /// Returns who would keep pages of a block. `None`: nobody, now.
    fn stage_owner(&self, object: &ObjectKey, block: BlockIndex) -> Option<WorkerId>;

    /// Pushes pages to a worker. `Ok`: it keeps them, out of everybody's sight.
    async fn stage_pages(
        &self,
        worker: &WorkerId,
        request: StageRequest,
        until: Instant,
    ) -> Result<(), QuestionError>;

    /// Makes staged pages those of a version, or gives them up. Returns how many can be read now.
    async fn settle_pages(
        &self,
        request: &SettleRequest,
        until: Instant,
    ) -> Result<u64, QuestionError>;
}

#[async_trait]
impl PopulateTier for Arc<CacheTierClient> {
    fn block_geometry(&self) -> BlockGeometry {
        self.tier_options().geometry
    }

    fn stage_owner(&self, object: &ObjectKey, block: BlockIndex) -> Option<WorkerId> {
        CacheTierClient::stage_owner(self, object, block)
    }

    async fn stage_pages(
        &self,
        worker: &WorkerId,
        request: StageRequest,
        until: Instant,
    ) -> Result<(), QuestionError> {
        CacheTierClient::stage_pages(self, worker, request, until).await
    }

    async fn settle_pages(
        &self,
        request: &SettleRequest,
        until: Instant,
    ) -> Result<u64, QuestionError> {
        CacheTierClient::settle_pages(self, request, until).await
    }
}
