//! Answers many HEADs of one mount out of the tier, where its homes know the objects from memory.

use std::sync::Arc;

use s3s::S3Result;
use verbs3_client::{HeadListRequest, OpenOutcome};
use verbs3_protocol::TenantTag;

use super::tier_answer::{FoundObject, TierAnswer, describe_object};
use super::{ObjectReader, ReadOpenFailure, ReadOpenOutcome, ReadRequestPlan, absence_age_ms_max};
use crate::mount::MountedBucket;
use crate::request::RequestContext;

impl ObjectReader {
    /// Asks the homes about objects, by the client's keys. Returns outcomes in their order. `None`:
    /// the object has to be asked for by itself.
    pub(crate) async fn open_heads(
        &self,
        mount: &MountedBucket,
        keys: &[&str],
        tenant: Option<TenantTag>,
    ) -> Vec<Option<OpenOutcome>> {
        let request = HeadListRequest {
            volume: mount.volume.clone(),
            keys: keys.iter().map(|key| mount.object_key(key).key).collect(),
            attributes_age_ms_max: mount.attributes.age_ms_max(),
            absence_age_ms_max: absence_age_ms_max(mount),
            tenant,
        };
        self.shared.tier.open_heads(&request).await
    }

    /// Makes the answer to a HEAD of what the tier has said of its object. `None`: the tier can't
    /// help.
    pub(crate) async fn judge_head(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        key: &str,
        outcome: OpenOutcome,
    ) -> Option<S3Result<TierAnswer>> {
        let found = match outcome {
            OpenOutcome::Found(found) => FoundObject::from_tier(*found),
            OpenOutcome::Absent(absent) => return Some(Err(self.tell_absence(cx, mount, absent))),
            OpenOutcome::Ufs(_) | OpenOutcome::Bypass(_) => return None,
        };
        let plan = ReadRequestPlan::of_plain(key, None, false);
        let object = Arc::new(mount.object_key(key));
        match self.judge_opened(cx, mount, &plan, &object, found, false).await {
            Ok(ReadOpenOutcome::Object(opened)) => Some(Ok(describe_object(&plan, opened, None))),
            Ok(ReadOpenOutcome::Bypass) | Err(ReadOpenFailure::VersionGone) => None,
            Err(ReadOpenFailure::Answer(error)) => Some(Err(error)),
        }
    }
}
