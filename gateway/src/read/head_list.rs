//! Answers many HEADs of one mount out of the tier, where its homes know the objects from memory.

use std::sync::Arc;

use s3s::S3Result;
use verbs3_client::{HeadListRequest, OpenOutcome};
use verbs3_protocol::TenantTag;

use super::client_answer;
use super::tier_answer::{FoundObject, TierAnswer, describe_object};
use super::{ObjectReader, ReadRequestPlan, absence_age_ms_max};
use crate::mount::MountedBucket;
use crate::request_context::RequestContext;

/// What a client is told whose HEAD the tier can't answer after all.
const NO_ANSWER: &str = "the cache could not answer; try again";

impl ObjectReader {
    /// Asks the homes about objects, by the client's keys. Returns outcomes in their order. `None`:
    /// the object has to be asked for by itself.
    pub(crate) async fn open_heads(
        &self,
        mount: &MountedBucket,
        keys: &[&str],
        tenant: Option<TenantTag>,
    ) -> Vec<Option<OpenOutcome>> {
        let (attributes_age_ms_max, absence_age_ms_max) =
            (mount.attributes.age_ms_max(), absence_age_ms_max(mount));
        if keys.is_empty() || (attributes_age_ms_max == 0 && absence_age_ms_max == 0) {
            // Homes have to ask the store for each.
            return keys.iter().map(|_| None).collect();
        }
        let request = HeadListRequest {
            volume: mount.volume.clone(),
            keys: keys.iter().map(|key| mount.ufs_key(key)).collect(),
            attributes_age_ms_max,
            absence_age_ms_max,
            tenant,
        };
        self.shared.tier.open_heads(&request).await
    }

    /// Makes the answer to a HEAD without conditions of what the tier has said of its object.
    pub(crate) async fn judge_head(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        key: &str,
        outcome: OpenOutcome,
    ) -> S3Result<TierAnswer> {
        let found = match outcome {
            OpenOutcome::Found(found) => FoundObject::from_tier(*found),
            OpenOutcome::Absent(absent) => return Err(self.tell_absence(cx, mount, absent)),
            OpenOutcome::Ufs(answer) => return Err(client_answer::of_worker(cx, mount, answer)),
            // A list has no such outcome; its objects are asked for by themselves.
            OpenOutcome::Bypass(_) => return Err(client_answer::slow_down(NO_ANSWER)),
        };
        let plan = ReadRequestPlan::of_plain(key, None, false);
        let judged = self.judge_object(cx, &plan, found)?;
        Ok(describe_object(&plan, self.finish_without_body(cx, judged), None))
    }
}
