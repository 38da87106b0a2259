//! Opens objects whose homes can't say what they are: attributes of the store, bytes of whoever has
//! them.
//!
//! A home that is away, or a key whose write is not reported, leaves the attributes unknown. The
//! pages of a version stay what they are. So one HEAD tells the version, and spans are read by it.
//! A home that shows no sign of life is asked on, and the store beside it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use verbs3_client::{BypassReason, OpenOutcome, OpenRequest};
use verbs3_ufs::ReadObject;

use super::ObjectReader;
use super::store_heads::{HeadAnswer, HeadMiss, HeadSubject, read_attributes};
use super::tier_answer::FoundObject;
use crate::mount::MountedBucket;
use crate::request_context::RequestContext;

/// Longest wait for the store's answer. After that the object is read past the tier.
const HEAD_MAX: Duration = Duration::from_secs(5);

/// Who has said first what an object is.
pub(super) enum HedgedOpenOutcome {
    Tier(OpenOutcome),
    Store(Box<FoundObject>),
}

impl ObjectReader {
    /// Opens an object at its home. If the home is silent, the store is asked beside it, and the
    /// first that knows is believed.
    pub(super) async fn open_beside_store(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        request: &OpenRequest,
    ) -> HedgedOpenOutcome {
        let mut opening = pin!(self.shared.tier.open_object(request));
        let silent = async {
            match &request.silence {
                Some(silence) => silence.wait_for_silence().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = &mut opening => return HedgedOpenOutcome::Tier(outcome),
            () = silent => {}
        }
        self.shared.metrics.hedged_opens.inc();
        // In a box: otherwise the future of every read would be as large as that of this one.
        let by_store = Box::pin(self.open_by_store(cx, mount, request, BypassReason::Workers));
        tokio::select! {
            biased;
            outcome = &mut opening => return HedgedOpenOutcome::Tier(outcome),
            found = by_store => if let Some(found) = found {
                return HedgedOpenOutcome::Store(Box::new(found));
            }
        }
        HedgedOpenOutcome::Tier(opening.await)
    }

    /// Opens an object by a HEAD at its store. `None`: read it past the tier. The tier can't help,
    /// or the store's answer names no version, and its own answer is the client's.
    pub(super) async fn open_by_store(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        request: &OpenRequest,
        reason: BypassReason,
    ) -> Option<FoundObject> {
        if !leaves_bytes(reason) || self.shared.tier.workers_up().0 == 0 {
            return None;
        }
        let subject = HeadSubject {
            object: request.object.clone(),
            version_id: request.version_id.clone(),
            checksums: request.checksums,
        };
        let heads = &self.shared.store_heads;
        let ask = || heads.ask_head(subject.clone(), self.call_head(cx, mount, &subject));
        let answered = async {
            match ask().await {
                // Perhaps of another tenant, whose question this one has joined.
                Err(HeadMiss::NoPlace) => ask().await,
                answer => answer,
            }
        };
        let attributes = timeout(HEAD_MAX, answered).await.ok()?.ok()?;
        // Spans of it are read by their ranges.
        mount
            .ufs
            .reads_ranges_of(attributes.version.bytes)
            .then(|| FoundObject::from_store(&attributes))
    }

    /// Returns a question to the store, to be sent when it is first polled.
    fn call_head(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        asked: &HeadSubject,
    ) -> impl Future<Output = HeadAnswer> + Send + use<> {
        let (shared, cx, mount) = (self.shared.clone(), cx.clone(), mount.clone());
        let asked = asked.clone();
        async move {
            let _place = shared.places.take_permit(&cx).await.ok_or(HeadMiss::NoPlace)?;
            shared.metrics.store_heads.inc();
            let wanted = ReadObject {
                bucket: mount.bucket.clone(),
                key: asked.object.key.clone(),
                version_id: asked.version_id.clone(),
                if_match: None,
                range: None,
                checksums: asked.checksums,
            };
            let call = mount.ufs.head_object(wanted);
            let head = cx.ask_ufs(mount.ufs.ufs_name(), "HeadObject", call, |head| {
                head.as_ref().err().map(ToString::to_string)
            });
            let head = head.await.map_err(|_| HeadMiss::NoVersion)?;
            read_attributes(head, &asked).ok_or(HeadMiss::NoVersion)
        }
    }
}

/// Returns whether workers may give bytes, though they could not say what the object is.
fn leaves_bytes(reason: BypassReason) -> bool {
    match reason {
        BypassReason::Workers | BypassReason::Uncertain | BypassReason::Epoch => true,
        BypassReason::Arena
        | BypassReason::Busy
        | BypassReason::Uncacheable
        | BypassReason::Changing
        | BypassReason::UfsUnreachable
        | BypassReason::UfsError
        | BypassReason::Misconfigured => false,
    }
}
