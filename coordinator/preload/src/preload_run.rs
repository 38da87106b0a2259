//! One run of a job: what its phases and objects share.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use verbs3_pacing::TokenBucket;

use crate::job::PreloadJob;
use crate::object_list::ShortListCache;
use crate::plan::PreloadPlan;
use crate::run_environment::RunEnvironment;

pub(crate) struct PreloadRun<'a> {
    pub(crate) environment: &'a RunEnvironment,
    pub(crate) job: &'a PreloadJob,
    pub(crate) plan: PreloadPlan,
    bucket: Option<Mutex<TokenBucket>>,
    began: Instant,
    /// Cancelled when this run has to give its place back.
    pub(crate) giving_way: CancellationToken,
    /// Pages of a short list, kept from the count for the load.
    pub(crate) counted: Mutex<ShortListCache>,
}

impl<'a> PreloadRun<'a> {
    pub(crate) fn new(
        environment: &'a RunEnvironment,
        job: &'a PreloadJob,
        plan: PreloadPlan,
    ) -> Self {
        let new_bucket = |rate: u64| {
            let rate = rate.max(1) as f64;
            // At most one second's bytes are saved up.
            Mutex::new(TokenBucket::new(rate, rate, Duration::ZERO))
        };
        let bucket = plan.bandwidth.map(new_bucket);
        let counted = Mutex::new(ShortListCache::new());
        let (began, giving_way) = (Instant::now(), job.giving_way());
        Self { environment, job, plan, bucket, began, giving_way, counted }
    }

    /// Waits until these bytes may be taken from a UFS.
    pub(crate) async fn spend_bandwidth(&self, bytes: u64) {
        let Some(bucket) = self.bucket.as_ref().filter(|_| bytes > 0) else { return };
        let wait = bucket.lock().take_tokens(bytes, self.began.elapsed());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        if let Some(bucket) = &self.bucket {
            bucket.lock().give_back(bytes);
        }
    }
}
