//! Telling homes of writes: announce before one can become visible, renew while it is under way, report when it is over.
//!
//! A write whose [`Announced`] is dropped without a report (the client hung up) is reported as unknown: its keys stay
//! uncertain, and reads ask the UFS, until their time is over.
//!
//! # Why these messages may be sent twice
//! When a connection breaks, nobody knows whether the home has acted, and the message is sent again over the next way. Both
//! messages name their [`WriteId`], and doing either twice is doing it once: a second announcement renews the first, a
//! second report raises the generation once more and finds nothing left to close. What can come *late* is the copy on the
//! broken connection, which the home may still be working on. A late report only invalidates. A late announcement, after
//! its own report, opens the write again until its time is over: reads of the key ask the UFS for that long, which is slow
//! and never stale. What would be stale, a write that is visible before its home knows, can't come of it: the write is
//! sent only after an acknowledgement, and no copy of an announcement undoes the one that was acknowledged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use verbs3_protocol::{Announce, Epoch, Refusal, Reply, Report, Request, Volume, WorkerId, WriteId, WriteOutcome};
use verbs3_rdma::transport::{Event, TransportError};

use crate::homes::Group;
use crate::place::{REPEATS_MAX, Worker};
use crate::tier::Tier;

/// Why a home does not know of a write.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CoherenceError {
    #[error(
        "worker {worker}, the home of the key, can't be told of the write: {reason}; bring the worker back, or set coherence = \"ttl\" on the mount"
    )]
    HomeUnreachable { worker: WorkerId, reason: String },
    #[error("worker {worker}, the home of the key, refused the write's {what}: {reason}")]
    HomeRefused { worker: WorkerId, what: &'static str, reason: String },
}

/// First pause between two tries of the same message; doubles up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(25);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What is known of one write.
struct Write {
    id: WriteId,
    volume: Volume,
    epoch: Epoch,
    groups: Vec<Group<String>>,
}

/// A write that its homes know of. Report it; dropping it instead reports an unknown outcome.
pub struct Announced {
    tier: Arc<Tier>,
    /// `None` once reported.
    write: Option<Arc<Write>>,
    renewal: Option<AbortHandle>,
}

impl Announced {
    /// Announces again, which starts the keys' uncertain time anew. Happens by itself every third of that time.
    pub async fn renew(&self) -> Result<(), CoherenceError> {
        match &self.write {
            Some(write) => self.tier.announce_to(write).await,
            None => Ok(()),
        }
    }

    fn take(&mut self) -> Option<Arc<Write>> {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
        self.write.take()
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let Some(write) = self.take() else { return };
        let tier = self.tier.clone();
        // Bounded by `report_deadline`; joined at shutdown.
        self.tier.tasks.spawn(async move {
            if let Err(error) = tier.report_to(&write, WriteOutcome::Unknown).await {
                tracing::warn!(%error, "an abandoned write could not be reported; its keys stay uncertain until their time is over");
            }
        });
    }
}

impl Tier {
    /// Tells the home of each key that a write is about to become visible. All have to acknowledge.
    pub async fn announce(self: &Arc<Self>, volume: &Volume, keys: &[String]) -> Result<Announced, CoherenceError> {
        let id = WriteId { gateway: self.gateway, sequence: self.writes.fetch_add(1, Ordering::Relaxed) };
        let epoch = self.map.load().placement.epoch();
        let write = Arc::new(Write { id, volume: volume.clone(), epoch, groups: self.by_home(volume, keys.to_vec()) });
        self.metrics.writes_open.inc();
        // From here on, so that a caller who goes away during the announcement leaves no home without a report.
        let mut announced = Announced { tier: self.clone(), write: Some(write.clone()), renewal: None };
        if let Err(error) = self.announce_to(&write).await {
            // Nothing was written: homes that did acknowledge may go on at once.
            if let Some(write) = announced.take() {
                let tier = self.clone();
                self.tasks.spawn(async move { tier.report_to(&write, WriteOutcome::Refused).await });
            }
            return Err(error);
        }
        announced.renewal = Some(self.renewal(write));
        Ok(announced)
    }

    /// Tells the homes that a write is over. Goes on in the background if the caller goes away.
    pub async fn report(
        self: &Arc<Self>,
        mut announced: Announced,
        outcome: WriteOutcome,
    ) -> Result<(), CoherenceError> {
        let Some(write) = announced.take() else { return Ok(()) };
        let homes = write.groups.first().map(|(worker, _)| worker.id.clone());
        let tier = self.clone();
        // Bounded by `report_deadline`; must not be cancelled, or the key would stay uncertain for its whole time.
        let task = self.tasks.spawn(async move { tier.report_to(&write, outcome).await });
        task.await.unwrap_or_else(|error| {
            let worker = homes.unwrap_or_else(|| WorkerId("none".into()));
            Err(CoherenceError::HomeUnreachable { worker, reason: error.to_string() })
        })
    }

    /// Renews until aborted: by the report, or by the end of the write.
    fn renewal(self: &Arc<Self>, write: Arc<Write>) -> AbortHandle {
        let tier = self.clone();
        let task = self.tasks.spawn(async move {
            loop {
                sleep(tier.options.uncertain / 3).await;
                if let Err(error) = tier.announce_to(&write).await {
                    tracing::warn!(%error, "a long write could not be announced anew");
                }
            }
        });
        task.abort_handle()
    }

    async fn announce_to(self: &Arc<Self>, write: &Arc<Write>) -> Result<(), CoherenceError> {
        let until = Instant::now() + self.options.announce_deadline;
        let uncertain_ms = self.options.uncertain.as_millis() as u64;
        let told = write.groups.iter().map(|(worker, keys)| {
            let message = Request::Announce(Announce {
                volume: write.volume.clone(),
                keys: keys.clone(),
                write: write.id,
                epoch: write.epoch,
                uncertain_ms,
            });
            self.tell("announce", worker, message.encode(), until)
        });
        let result: Result<(), _> = join_all(told).await.into_iter().collect();
        if result.is_err() {
            self.metrics.announce_failures.inc();
        }
        result
    }

    async fn report_to(self: &Arc<Self>, write: &Write, outcome: WriteOutcome) -> Result<(), CoherenceError> {
        self.metrics.writes_open.dec();
        let until = Instant::now() + self.options.report_deadline;
        let mut groups = write.groups.clone();
        if self.map.load().placement.epoch() != write.epoch {
            // The map has changed: the new homes have to hear of it, too.
            let keys: Vec<String> = write.groups.iter().flat_map(|(_, keys)| keys.iter().cloned()).collect();
            groups.extend(self.by_home(&write.volume, keys));
        }
        let told = groups.into_iter().map(|(worker, keys)| {
            let message = Request::Report(Report {
                volume: write.volume.clone(),
                keys,
                write: write.id,
                epoch: write.epoch,
                outcome,
            })
            .encode();
            async move { self.tell("report", &worker, message, until).await }
        });
        let result: Result<(), _> = join_all(told).await.into_iter().collect();
        if result.is_err() {
            self.metrics.report_failures.inc();
        }
        result
    }

    /// Sends one message until it is acknowledged; the message may arrive more than once. A resting worker is asked, too:
    /// whether a write may go on is worth a try.
    pub(crate) async fn tell(
        &self,
        kind: &'static str,
        worker: &Arc<Worker>,
        message: Bytes,
        until: Instant,
    ) -> Result<(), CoherenceError> {
        let mut pause = RETRY_PAUSE_MIN;
        let mut repeats = 0;
        loop {
            let reason = match timeout_at(until, ask(worker, message.clone())).await {
                Ok(Ok(Reply::Done { .. })) => {
                    worker.health.succeeded();
                    self.metrics.call(kind, "ok");
                    return Ok(());
                }
                Ok(Ok(Reply::Refused(Refusal { kind: refused, reason }))) => {
                    worker.health.succeeded();
                    self.metrics.call(kind, "refused");
                    let reason = format!("{refused:?}: {reason}");
                    return Err(CoherenceError::HomeRefused { worker: worker.id.clone(), what: kind, reason });
                }
                Ok(Ok(_)) => "its answer makes no sense".to_owned(),
                Ok(Err(error)) if repeats < REPEATS_MAX && worker.may_be_asked_again(&error) => {
                    repeats += 1;
                    self.repeated(kind, worker, &error);
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it was silent".to_owned(),
            };
            self.metrics.call(kind, "failed");
            self.note_failure(worker);
            if Instant::now() + pause >= until {
                return Err(CoherenceError::HomeUnreachable { worker: worker.id.clone(), reason });
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }
}

/// One call without bytes.
pub(crate) async fn ask(worker: &Worker, message: Bytes) -> Result<Reply, TransportError> {
    let protocol = |reason: String| TransportError::Protocol { peer: worker.id.0.clone(), reason };
    match worker.peer.call(message, None).next().await? {
        Event::Part(part) => Reply::decode(&part.message).map_err(|error| protocol(error.to_string())),
        Event::Wanted { .. } => Err(protocol("it wants bytes pushed for an announcement".into())),
    }
}
