//! Answers requests; each message has a file of its own. Errors are answers; no input from a peer
//! causes a panic.

mod announce;
mod forget;
mod gone_version;
mod keep_alive;
mod listing;
mod look;
mod open;
mod open_plan;
mod read;
mod read_held;
mod recalls;
mod relayed_word;
mod report;
mod span_reader;
mod take_over;
mod tend;
mod warm;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_protocol::{
    AttributeLease, BlockGeometry, Epoch, KeyGeneration, KeyHash, ObjectKey, ObjectVolume,
    RefusalKind, WorkerRefusal,
};
use verbs3_protocol::{TracedRequest, WorkerReply as Message, WorkerRequest};
use verbs3_rdma::transport::{CallService, IncomingCall, ReplySender};

use crate::attributes::RecallScope;
use crate::call_trace::{note_refused, note_served};
use crate::fill::{PageFillError, VolumeSource};
use crate::metrics::{CountedRefusal, ServedVerdict};
use crate::standing::{StandingError, WriteLeaseState};
use crate::worker::CacheWorker;
use keep_alive::while_alive;
use span_reader::{BlockSpanReader, SpanReplyChunk};

/// A refusal: the reply to a request that is not served.
struct ServeRefusal {
    kind: RefusalKind,
    reason: String,
}

impl ServeRefusal {
    fn new(kind: RefusalKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    fn new_malformed(reason: impl Into<String>) -> Self {
        Self::new(RefusalKind::Malformed, reason)
    }
}

impl From<PageFillError> for ServeRefusal {
    fn from(failure: PageFillError) -> Self {
        let (kind, reason) = failure.to_refusal();
        Self { kind, reason }
    }
}

#[async_trait]
impl CallService for CacheWorker {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let landing_bytes = request.landing_bytes;
        let noted = match WorkerRequest::decode(&request.message) {
            Ok(WorkerRequest::Open(open)) => {
                return self.serve_open(open, None, landing_bytes, reply).await;
            }
            Ok(WorkerRequest::OpenBy(open, holder)) => {
                return self.serve_open(open, Some(holder), landing_bytes, reply).await;
            }
            Ok(WorkerRequest::Read(read)) => {
                return self.serve_read(read, landing_bytes, reply).await;
            }
            Ok(WorkerRequest::ReadReplica(read)) => {
                return self.serve_read_replica(read, landing_bytes, reply).await;
            }
            Ok(WorkerRequest::Traced(context, TracedRequest::ReadReplica(read))) => {
                let serve = self.serve_read_replica(read, landing_bytes, reply);
                return self.tracing.serve_traced(&context, "verbs3.worker.read", serve).await;
            }
            Ok(WorkerRequest::Traced(context, TracedRequest::Open(open))) => {
                let serve = self.serve_open(open, None, landing_bytes, reply);
                return self.tracing.serve_traced(&context, "verbs3.worker.open", serve).await;
            }
            Ok(WorkerRequest::Traced(context, TracedRequest::OpenBy(open, holder))) => {
                let serve = self.serve_open(open, Some(holder), landing_bytes, reply);
                return self.tracing.serve_traced(&context, "verbs3.worker.open", serve).await;
            }
            Ok(WorkerRequest::Traced(context, TracedRequest::Read(read))) => {
                let serve = self.serve_read(read, landing_bytes, reply);
                return self.tracing.serve_traced(&context, "verbs3.worker.read", serve).await;
            }
            Ok(WorkerRequest::ReadHeld(read)) => {
                return self.serve_held(read, landing_bytes, reply).await;
            }
            Ok(WorkerRequest::Holds(holds)) => match self.answer_holds(&holds) {
                Ok(answer) => return send_message(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(WorkerRequest::TakeOver(asked)) => match self.answer_take_over(asked).await {
                Ok(answer) => return send_message(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(WorkerRequest::Announce(announce)) => self.answer_announce(&announce),
            Ok(WorkerRequest::Report(report)) => self.answer_report(&report),
            Ok(WorkerRequest::Forget(forget)) => self.answer_forget(&forget),
            Ok(WorkerRequest::Listed(listed)) => self.answer_listed(listed),
            Ok(WorkerRequest::GoneVersion(gone)) => self.drop_gone_version(&gone),
            Ok(WorkerRequest::Recalls(asked)) => match self.answer_recalls(asked).await {
                Ok(answer) => return send_message(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(WorkerRequest::Standing) => {
                let (epoch, leased) = (
                    self.standing.current_epoch(),
                    self.standing.is_leased(self.clock.read_times()),
                );
                return send_message(reply, &Message::Standing { epoch, leased }).await;
            }
            Ok(WorkerRequest::Warm(warm)) => return self.serve_warm(warm, None, reply).await,
            Ok(WorkerRequest::WarmListed(warm, bytes)) => {
                return self.serve_warm(warm, Some(bytes), reply).await;
            }
            Ok(WorkerRequest::Look(look)) => match self.answer_look(look) {
                Ok(answer) => return send_message(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(WorkerRequest::Tend(tend)) => return self.serve_tend(tend, reply).await,
            Ok(WorkerRequest::ForgetPrefix(forget)) => self.forget_prefix(&forget),
            Err(error) => Err(ServeRefusal::new_malformed(error.to_string())),
        };
        match noted {
            Ok(noted) => self.acknowledge_change(noted, reply).await,
            Err(refused) => self.refuse_request(reply, refused).await,
        }
    }
}

impl CacheWorker {
    /// Acknowledges a writer's notice or an invalidation. This is the only place that does: no
    /// gateway may still read on from what was invalidated.
    async fn acknowledge_change(&self, noted: ChangeReceipt, mut reply: ReplySender) {
        let ChangeReceipt { generation, hold, concerned } = noted;
        let settled = self.grants.wait_for_recalls(&concerned, &*self.clock);
        if while_alive(&mut reply, settled).await.is_none() {
            return;
        }
        match hold {
            WriteLeaseState::Leased => {
                send_message(reply, &Message::Done { generation, lease: AttributeLease::default() })
                    .await
            }
            WriteLeaseState::Unleased => {
                send_message(reply, &Message::Unleased { generation }).await
            }
        }
    }

    async fn refuse_request(&self, reply: ReplySender, refused: ServeRefusal) {
        self.count_refused(&refused);
        note_refused(&refused.reason);
        tracing::debug!(kind = ?refused.kind, reason = %refused.reason, "refused");
        send_message(
            reply,
            &Message::Refused(WorkerRefusal { kind: refused.kind, reason: refused.reason }),
        )
        .await;
    }

    fn count_refused(&self, refused: &ServeRefusal) {
        let metrics = &self.metrics;
        let counter = match &refused.kind {
            RefusalKind::Uncertain => &metrics.refusals[CountedRefusal::Uncertain],
            RefusalKind::Busy => &metrics.refusals[CountedRefusal::Busy],
            RefusalKind::Uncacheable => &metrics.refusals[CountedRefusal::Uncacheable],
            RefusalKind::VersionGone => &metrics.refusals[CountedRefusal::VersionGone],
            RefusalKind::Ufs(_) => &metrics.refusals[CountedRefusal::Ufs],
            RefusalKind::UfsUnreachable => &metrics.refusals[CountedRefusal::UfsUnreachable],
            RefusalKind::UnknownVolume => &metrics.refusals[CountedRefusal::UnknownVolume],
            RefusalKind::GeometryMismatch(_) => &metrics.refusals[CountedRefusal::Geometry],
            RefusalKind::Malformed => &metrics.refusals[CountedRefusal::Malformed],
            RefusalKind::WrongEpoch(_) => &metrics.refusals[CountedRefusal::Epoch],
            RefusalKind::NoLease => &metrics.refusals[CountedRefusal::NoLease],
            RefusalKind::NotHeld => &metrics.refusals[CountedRefusal::NotHeld],
        };
        counter.inc();
    }

    fn check_geometry(&self, asked: BlockGeometry) -> Result<(), ServeRefusal> {
        let own = self.geometry;
        if asked == own {
            return Ok(());
        }
        let reason = format!(
            "asked with {asked:?}, configured with {own:?}; use one block and page size everywhere"
        );
        Err(ServeRefusal::new(RefusalKind::GeometryMismatch(own), reason))
    }

    /// Converts a refusal by the standing. A worker acts as a home only for callers with the same
    /// map. Two homes of one key would not learn of each other's writes.
    fn refusal_for_denial(denied: StandingError, asked: Epoch) -> ServeRefusal {
        match denied {
            StandingError::Epoch(own) => {
                let reason = format!(
                    "asked by epoch {:016x}, has {:016x}; where there is no coordinator, give \
                    gateways and workers the same cluster.workers and cluster.replicas",
                    asked.0, own.0
                );
                ServeRefusal::new(RefusalKind::WrongEpoch(own), reason)
            }
            StandingError::Lease => {
                let reason = "cut off from the coordinators for too long to take part in writes; \
                    bring them back";
                ServeRefusal::new(RefusalKind::NoLease, reason)
            }
        }
    }

    fn volume_source(&self, volume: &ObjectVolume) -> Result<Arc<VolumeSource>, ServeRefusal> {
        self.volumes.find_source(volume).ok_or_else(|| {
            let reason =
                format!("volume {volume} is not in this worker's configuration; add its ufs");
            ServeRefusal::new(RefusalKind::UnknownVolume, reason)
        })
    }

    /// Checks that a message names keys of a known volume, and not too many.
    fn check_keys(&self, volume: &ObjectVolume, keys: usize) -> Result<(), ServeRefusal> {
        self.volume_source(volume)?;
        self.check_key_count(keys)
    }

    fn check_key_count(&self, keys: usize) -> Result<(), ServeRefusal> {
        if keys == 0 || keys > self.keys_per_message_max {
            let reason =
                format!("{keys} keys in one message; name 1 to {}", self.keys_per_message_max);
            return Err(ServeRefusal::new_malformed(reason));
        }
        Ok(())
    }

    /// Hashes the keys that a message names. The volume may be unknown here. An uncached mount may
    /// belong to a UFS that workers don't have, and this worker never answers readers of
    /// uncacheable objects.
    fn hash_keys(
        &self,
        volume: &ObjectVolume,
        keys: &[String],
    ) -> Result<Vec<KeyHash>, ServeRefusal> {
        self.check_key_count(keys.len())?;
        Ok(keys
            .iter()
            .map(|key| ObjectKey { volume: volume.clone(), key: key.clone() }.hash())
            .collect())
    }

    fn count_served(&self, chunk: &SpanReplyChunk) {
        use verbs3_protocol::CacheVerdict::{Hit, Miss, Partial};
        let (counter, verdict) = match chunk.piece.verdict {
            Hit => (&self.metrics.served_bytes[ServedVerdict::Hit], "hit"),
            Partial => (&self.metrics.served_bytes[ServedVerdict::Partial], "partial"),
            Miss => (&self.metrics.served_bytes[ServedVerdict::Miss], "miss"),
        };
        let bytes = u64::from(chunk.piece.length);
        counter.inc_by(bytes);
        note_served(verdict, bytes);
    }

    /// Sends the remaining bytes as `Data` parts. A failure is the last part.
    async fn send_rest(&self, mut reading: BlockSpanReader<'_>, mut reply: ReplySender) {
        loop {
            let Some(next) = while_alive(&mut reply, reading.next()).await else { return };
            match next {
                Ok(chunk) => {
                    let last = reading.is_done();
                    self.count_served(&chunk);
                    let SpanReplyChunk { piece, offset, data } = chunk;
                    let message = Message::Data(piece).encode();
                    if last {
                        return send_last_part(reply, message, offset, data).await;
                    }
                    if let Err(error) = reply.send_part(message, offset, data).await {
                        tracing::debug!(%error, "a reader has gone");
                        return;
                    }
                }
                Err(failure) => return self.refuse_request(reply, failure.into()).await,
            }
        }
    }
}

/// Largest message, below the 64 KiB that the transports' frames hold by default. A UFS's own error
/// page, or attributes, may be larger. The gateway then gets them whole from the UFS itself.
const MESSAGE_BYTES_MAX: usize = 60 << 10;

/// The record of a notice, which its acknowledgement needs.
struct ChangeReceipt {
    generation: KeyGeneration,
    /// The state of the lease when the notice was recorded.
    hold: WriteLeaseState,
    /// The recalled leases to wait for before the acknowledgement.
    concerned: RecallScope,
}

type ChangeResult = Result<ChangeReceipt, ServeRefusal>;

async fn send_message(reply: ReplySender, message: &Message) {
    let message = bound_message(message.encode()).unwrap_or_else(|refusal| refusal);
    send_last_part(reply, message, 0, Vec::new()).await;
}

/// Returns the message, or the refusal to send in its place.
fn bound_message(message: Bytes) -> Result<Bytes, Bytes> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return Ok(message);
    }
    let reason = format!("an answer of {} bytes is too large to pass on", message.len());
    Err(Message::Refused(WorkerRefusal { kind: RefusalKind::Uncacheable, reason }).encode())
}

async fn send_last_part(reply: ReplySender, message: Bytes, offset: u64, data: Vec<Bytes>) {
    if let Err(error) = reply.send_last(message, offset, data).await {
        tracing::debug!(%error, "a reader has gone");
    }
}
