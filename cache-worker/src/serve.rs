//! Answers requests: one file for each message. Errors are answers; nothing here panics on what a
//! peer sends.

mod announce;
mod forget;
mod gone;
mod hear;
mod held;
mod life;
mod listed;
mod look;
mod open;
mod plan;
mod read;
mod reading;
mod recalls;
mod report;
mod take_over;
mod tend;
mod warm;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use verbs3_protocol::{
    Epoch, Generation, Geometry, KeyHash, Lease, ObjectKey, Refusal, RefusalKind, Volume,
};
use verbs3_protocol::{Question, Reply as Message, Request};
use verbs3_rdma::transport::{Incoming, Reply, Service};

use crate::attributes::Concerned;
use crate::fill::{Failure, Source};
use crate::standing::{Denied, Hold};
use crate::trace::{note_refused, note_served};
use crate::worker::Worker;
use life::while_alive;
use reading::{Chunk, Reading};

/// Why a request is not answered.
struct Refused {
    kind: RefusalKind,
    reason: String,
}

impl Refused {
    fn new(kind: RefusalKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    fn malformed(reason: impl Into<String>) -> Self {
        Self::new(RefusalKind::Malformed, reason)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let (kind, reason) = failure.refusal();
        Self { kind, reason }
    }
}

#[async_trait]
impl Service for Worker {
    async fn serve(&self, request: Incoming, reply: Reply) {
        let landing_bytes = request.landing_bytes;
        let noted = match Request::decode(&request.message) {
            Ok(Request::Open(open)) => {
                return self.serve_open(open, None, landing_bytes, reply).await;
            }
            Ok(Request::OpenBy(open, holder)) => {
                return self.serve_open(open, Some(holder), landing_bytes, reply).await;
            }
            Ok(Request::Read(read)) => return self.serve_read(read, landing_bytes, reply).await,
            Ok(Request::ReadReplica(read)) => {
                return self.serve_read_replica(read, landing_bytes, reply).await;
            }
            Ok(Request::Traced(context, Question::ReadReplica(read))) => {
                let serve = self.serve_read_replica(read, landing_bytes, reply);
                return self.tracing.serve(&context, "verbs3.worker.read", serve).await;
            }
            Ok(Request::Traced(context, Question::Open(open))) => {
                let serve = self.serve_open(open, None, landing_bytes, reply);
                return self.tracing.serve(&context, "verbs3.worker.open", serve).await;
            }
            Ok(Request::Traced(context, Question::OpenBy(open, holder))) => {
                let serve = self.serve_open(open, Some(holder), landing_bytes, reply);
                return self.tracing.serve(&context, "verbs3.worker.open", serve).await;
            }
            Ok(Request::Traced(context, Question::Read(read))) => {
                let serve = self.serve_read(read, landing_bytes, reply);
                return self.tracing.serve(&context, "verbs3.worker.read", serve).await;
            }
            Ok(Request::ReadHeld(read)) => {
                return self.serve_held(read, landing_bytes, reply).await;
            }
            Ok(Request::Holds(holds)) => match self.holds(&holds) {
                Ok(answer) => return say(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(Request::TakeOver(asked)) => match self.answer_take_over(asked).await {
                Ok(answer) => return say(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(Request::Announce(announce)) => self.announce(&announce),
            Ok(Request::Report(report)) => self.report(&report),
            Ok(Request::Forget(forget)) => self.forget(&forget),
            Ok(Request::Listed(listed)) => self.listed(listed),
            Ok(Request::GoneVersion(gone)) => self.drop_gone_version(&gone),
            Ok(Request::Recalls(asked)) => match self.recalls(asked).await {
                Ok(answer) => return say(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(Request::Standing) => {
                let (epoch, leased) =
                    (self.standing.epoch(), self.standing.is_leased(self.clock.times()));
                return say(reply, &Message::Standing { epoch, leased }).await;
            }
            Ok(Request::Warm(warm)) => return self.serve_warm(warm, None, reply).await,
            Ok(Request::WarmListed(warm, bytes)) => {
                return self.serve_warm(warm, Some(bytes), reply).await;
            }
            Ok(Request::Look(look)) => match self.looked(look) {
                Ok(answer) => return say(reply, &answer).await,
                Err(refused) => Err(refused),
            },
            Ok(Request::Tend(tend)) => return self.serve_tend(tend, reply).await,
            Ok(Request::ForgetPrefix(forget)) => self.forget_prefix(&forget),
            Err(error) => Err(Refused::malformed(error.to_string())),
        };
        match noted {
            Ok(noted) => self.acknowledge(noted, reply).await,
            Err(refused) => self.refuse(reply, refused).await,
        }
    }
}

impl Worker {
    /// The one place where a word of a writer, or an invalidation, is acknowledged: no gateway
    /// reads on from what it made void.
    async fn acknowledge(&self, noted: News, mut reply: Reply) {
        let News { generation, hold, concerned } = noted;
        let settled = self.grants.settled(&concerned, &*self.clock);
        if while_alive(&mut reply, settled).await.is_none() {
            return;
        }
        match hold {
            Hold::Leased => {
                say(reply, &Message::Done { generation, lease: Lease::default() }).await
            }
            Hold::Unleased => say(reply, &Message::Unleased { generation }).await,
        }
    }

    async fn refuse(&self, reply: Reply, refused: Refused) {
        self.count_refused(&refused);
        note_refused(&refused.reason);
        tracing::debug!(kind = ?refused.kind, reason = %refused.reason, "refused");
        say(reply, &Message::Refused(Refusal { kind: refused.kind, reason: refused.reason })).await;
    }

    fn count_refused(&self, refused: &Refused) {
        let metrics = &self.metrics;
        let counter = match &refused.kind {
            RefusalKind::Uncertain => &metrics.refused_uncertain,
            RefusalKind::Busy => &metrics.refused_busy,
            RefusalKind::Uncacheable => &metrics.refused_uncacheable,
            RefusalKind::VersionGone => &metrics.refused_version_gone,
            RefusalKind::Ufs(_) => &metrics.refused_ufs,
            RefusalKind::UfsUnreachable => &metrics.refused_unreachable,
            RefusalKind::UnknownVolume => &metrics.refused_volume,
            RefusalKind::GeometryMismatch(_) => &metrics.refused_geometry,
            RefusalKind::Malformed => &metrics.refused_malformed,
            RefusalKind::WrongEpoch(_) => &metrics.refused_epoch,
            RefusalKind::NoLease => &metrics.refused_lease,
            RefusalKind::NotHeld => &metrics.refused_not_held,
        };
        counter.inc();
    }

    fn check_geometry(&self, asked: Geometry) -> Result<(), Refused> {
        let own = self.geometry;
        if asked == own {
            return Ok(());
        }
        let reason = format!(
            "asked with {asked:?}, configured with {own:?}; use one block and page size everywhere"
        );
        Err(Refused::new(RefusalKind::GeometryMismatch(own), reason))
    }

    /// A home is one only to those who share its map: two homes for one key would not hear of each
    /// other's writes.
    fn denied(denied: Denied, asked: Epoch) -> Refused {
        match denied {
            Denied::Epoch(own) => {
                let reason = format!(
                    "asked by epoch {:016x}, has {:016x}; where there is no coordinator, give \
                    gateways and workers the same cluster.workers and cluster.replicas",
                    asked.0, own.0
                );
                Refused::new(RefusalKind::WrongEpoch(own), reason)
            }
            Denied::Lease => {
                let reason = "cut off from the coordinators for too long to take part in writes; \
                    bring them back";
                Refused::new(RefusalKind::NoLease, reason)
            }
        }
    }

    fn source(&self, volume: &Volume) -> Result<Arc<Source>, Refused> {
        self.volumes.source(volume).ok_or_else(|| {
            let reason =
                format!("volume {volume} is not in this worker's configuration; add its ufs");
            Refused::new(RefusalKind::UnknownVolume, reason)
        })
    }

    /// A message names some keys, of a known volume, and not too many.
    fn check_keys(&self, volume: &Volume, keys: usize) -> Result<(), Refused> {
        self.source(volume)?;
        self.check_key_count(keys)
    }

    fn check_key_count(&self, keys: usize) -> Result<(), Refused> {
        if keys == 0 || keys > self.keys_per_message_max {
            let reason =
                format!("{keys} keys in one message; name 1 to {}", self.keys_per_message_max);
            return Err(Refused::malformed(reason));
        }
        Ok(())
    }

    /// The hashes of the keys that a message names. The volume need not be known here: a mount that
    /// is not cached may be of a UFS that workers don't have, and of what can't be cached no reader
    /// is answered from here.
    fn hashes(&self, volume: &Volume, keys: &[String]) -> Result<Vec<KeyHash>, Refused> {
        self.check_key_count(keys.len())?;
        Ok(keys
            .iter()
            .map(|key| ObjectKey { volume: volume.clone(), key: key.clone() }.hash())
            .collect())
    }

    fn count_served(&self, chunk: &Chunk) {
        use verbs3_protocol::CacheVerdict::{Hit, Miss, Partial};
        let (counter, verdict) = match chunk.piece.verdict {
            Hit => (&self.metrics.served_hit, "hit"),
            Partial => (&self.metrics.served_partial, "partial"),
            Miss => (&self.metrics.served_miss, "miss"),
        };
        let bytes = u64::from(chunk.piece.length);
        counter.inc_by(bytes);
        note_served(verdict, bytes);
    }

    /// Sends what is left of a reading as `Data` parts. A failure is the last part.
    async fn send_rest(&self, mut reading: Reading<'_>, mut reply: Reply) {
        loop {
            let Some(next) = while_alive(&mut reply, reading.next()).await else { return };
            match next {
                Ok(chunk) => {
                    let last = reading.is_done();
                    self.count_served(&chunk);
                    let Chunk { piece, offset, data } = chunk;
                    let message = Message::Data(piece).encode();
                    if last {
                        return end(reply, message, offset, data).await;
                    }
                    if let Err(error) = reply.part(message, offset, data).await {
                        tracing::debug!(%error, "a reader has gone");
                        return;
                    }
                }
                Err(failure) => return self.refuse(reply, failure.into()).await,
            }
        }
    }
}

/// Largest message, below the 64 KiB that the transports' frames hold by default. A UFS's own error
/// page, or attributes, may be larger: the asker then has them from the UFS itself, whole.
const MESSAGE_BYTES_MAX: usize = 60 << 10;

/// What was noted.
struct News {
    generation: Generation,
    /// By which right.
    hold: Hold,
    /// Whose leases it has made void, if that is to be over before it is acknowledged.
    concerned: Concerned,
}

type Noted = Result<News, Refused>;

async fn say(reply: Reply, message: &Message) {
    let message = bounded(message.encode()).unwrap_or_else(|refusal| refusal);
    end(reply, message, 0, Vec::new()).await;
}

/// The message, or the refusal to be sent in its place.
fn bounded(message: Bytes) -> Result<Bytes, Bytes> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return Ok(message);
    }
    let reason = format!("an answer of {} bytes is too large to pass on", message.len());
    Err(Message::Refused(Refusal { kind: RefusalKind::Uncacheable, reason }).encode())
}

async fn end(reply: Reply, message: Bytes, offset: u64, data: Vec<Bytes>) {
    if let Err(error) = reply.last(message, offset, data).await {
        tracing::debug!(%error, "a reader has gone");
    }
}
