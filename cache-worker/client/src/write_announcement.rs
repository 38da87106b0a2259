//! Tells homes of writes: announces a write before it can become visible, renews while it is under
//! way, reports when it is over.
//!
//! If a [`TierWriteGuard`] is dropped without a report (the client hung up), the write is reported
//! as unknown. Its keys stay uncertain, and reads ask the UFS, until their time is over.
//!
//! # Why these messages may be sent twice
//! When a connection breaks, nobody knows whether the home has acted. The message is sent again
//! over the next transport. To a silent home it also goes through [`crate::relay_fallback`]. Both
//! messages name their [`WriteId`], and both are idempotent: a second announcement renews the
//! first; a second report raises the generation once more and finds nothing left to close.
//!
//! A copy on the broken connection, or on the relay, may arrive *late*. A late report only
//! invalidates. A late announcement, after its own report, opens the write again until its time is
//! over: until then reads of the key ask the UFS, which is slow but never stale. Stale would be a
//! write that is visible before its home knows. That can't happen: the write is sent only after an
//! acknowledgement, and no copy of an announcement undoes the acknowledged one.
//!
//! # While the map changes
//! A home acknowledges under its own epoch alone. A gateway refused for another epoch waits for the
//! next map, or for the worker to follow. It then announces again to the homes of its current map.
//! The client's answer means that all homes of one map, which was in force, have acknowledged the
//! report.
//!
//! A home whose lease is over ([`WorkerReply::Unleased`]) can't vouch for that. Then every member
//! of the map has to say, after the home did, that it still stands at this epoch. A newer map comes
//! into force only once one of them has given up the old one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use verbs3_metrics::MetricLabel;
use verbs3_protocol::{
    AnnounceMessage, Epoch, ObjectVolume, RefusalKind, ReportMessage, WorkerId, WorkerRefusal,
    WorkerReply, WorkerRequest, WriteId, WriteNotice, WriteOutcome,
};
use verbs3_rdma::transport::{CallEvent, ReplyDefect, TransportError};

use crate::metrics::{CallKind, CallOutcome};
use crate::tier::CacheTierClient;
use crate::worker_map::{REPEATS_MAX, TierWorker, TierWorkerMap};

/// Reason why a home does not know of a write.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CoherenceError {
    #[error(
        "worker {worker}, the home of the key, can't be told of the write: {reason}; bring the \
        worker back, or set coherence = \"ttl\" on the mount"
    )]
    HomeUnreachable { worker: WorkerId, reason: String },
    #[error("worker {worker}, the home of the key, refused the write's {what}: {reason}")]
    HomeRefused { worker: WorkerId, what: &'static str, reason: String },
    #[error(
        "there is no placement map, and so no home to tell; is a coordinator there, and a worker?"
    )]
    NoMap,
    #[error(
        "the lease of worker {worker} is over, and worker {other} does not stand by the same map: \
        {reason}; bring the coordinators back"
    )]
    Alone { worker: WorkerId, other: WorkerId, reason: String },
    #[error("worker {worker}, the home of the key, has another placement map: {reason}")]
    OtherMap { worker: WorkerId, reason: String },
    #[error("the placement map changed while worker {worker} was told of the write")]
    Moved { worker: WorkerId },
}

/// First pause between two tries of the same message; doubles up to [`RETRY_PAUSE_MAX`].
pub(crate) const RETRY_PAUSE_MIN: Duration = Duration::from_millis(25);
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Most keys in a message to a former home: with keys of 1 KiB, half of a frame.
const KEYS_TO_FORMER: usize = 25;

/// Longest time between two signs of life of a home, which sends one every 500 ms.
const SIGN_EVERY_MAX: Duration = Duration::from_secs(1);

/// A write that is announced and not reported yet.
struct TierWriteRecord {
    id: WriteId,
    volume: ObjectVolume,
    keys: Vec<String>,
    /// Homes that got the announcement. Homes of older maps among them are told of its end, too, by
    /// best effort.
    told: Mutex<Vec<Arc<TierWorker>>>,
    /// True if the coordinators carried a message to a home.
    around: Arc<AtomicBool>,
}

/// An event of a write that its homes are told.
#[derive(Clone, Copy)]
enum WriteEvent {
    Announce,
    Report(WriteOutcome),
}

/// The right by which a home has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HomeAcknowledgement {
    Leased,
    Unleased,
}

/// A write that its homes know of. Report it; dropping it instead reports an unknown outcome.
pub struct TierWriteGuard {
    tier: Arc<CacheTierClient>,
    /// `None` once reported.
    write: Option<Arc<TierWriteRecord>>,
    renewal: Option<AbortHandle>,
}

impl TierWriteGuard {
    /// Announces again, which restarts the keys' uncertain time. Happens by itself every third of
    /// that time.
    pub async fn renew_announcement(&self) -> Result<(), CoherenceError> {
        match &self.write {
            Some(write) => self.tier.announce_to(write).await,
            None => Ok(()),
        }
    }

    /// Returns a flag that says, once the write is reported, whether the coordinators carried a
    /// message.
    pub fn relay_flag(&self) -> Arc<AtomicBool> {
        self.write.as_ref().map(|write| write.around.clone()).unwrap_or_default()
    }

    fn take_record(&mut self) -> Option<Arc<TierWriteRecord>> {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
        self.write.take()
    }
}

impl Drop for TierWriteGuard {
    fn drop(&mut self) {
        let Some(write) = self.take_record() else { return };
        let tier = self.tier.clone();
        // Bounded by `report_deadline`; joined at shutdown.
        self.tier.tasks.spawn(async move {
            if let Err(error) = tier.report_to(&write, WriteOutcome::Unknown).await {
                tracing::warn!(%error, "an abandoned write could not be reported; its keys stay uncertain until their time is over");
            }
        });
    }
}

impl CacheTierClient {
    /// Tells the home of each key that a write is about to become visible. All have to acknowledge.
    pub async fn announce_write(
        self: &Arc<Self>,
        volume: &ObjectVolume,
        keys: &[String],
    ) -> Result<TierWriteGuard, CoherenceError> {
        // This process's own reads must see the write no later than others do.
        self.drop_leases(volume, keys);
        let id = WriteId {
            gateway: self.gateway,
            sequence: self.writes.fetch_add(1, Ordering::Relaxed),
        };
        let (told, around) = (Mutex::new(Vec::new()), Arc::default());
        let write = Arc::new(TierWriteRecord {
            id,
            volume: volume.clone(),
            keys: keys.to_vec(),
            told,
            around,
        });
        self.metrics.writes_open.inc();
        // The guard exists from here on, so that every home gets a report even if the caller goes
        // away during the announcement.
        let mut announced =
            TierWriteGuard { tier: self.clone(), write: Some(write.clone()), renewal: None };
        if let Err(error) = self.announce_to(&write).await {
            // Nothing was written: homes that did acknowledge may go on at once.
            if let Some(write) = announced.take_record() {
                let tier = self.clone();
                self.tasks
                    .spawn(async move { tier.report_to(&write, WriteOutcome::Refused).await });
            }
            return Err(error);
        }
        announced.renewal = Some(self.spawn_renewal(write));
        Ok(announced)
    }

    /// Tells the homes that a write is over. Goes on in the background if the caller goes away.
    pub async fn report_write(
        self: &Arc<Self>,
        mut announced: TierWriteGuard,
        outcome: WriteOutcome,
    ) -> Result<(), CoherenceError> {
        let Some(write) = announced.take_record() else { return Ok(()) };
        let home = write.told.lock().first().map(|worker| worker.id.clone());
        let tier = self.clone();
        // Bounded by `report_deadline`; must not be cancelled, or the key would stay uncertain for
        // its whole time.
        let task = self.tasks.spawn(async move { tier.report_to(&write, outcome).await });
        task.await.unwrap_or_else(|error| {
            let worker = home.unwrap_or_else(|| WorkerId("none".into()));
            Err(CoherenceError::HomeUnreachable { worker, reason: error.to_string() })
        })
    }

    /// Tells the homes that a batch is over. The outcome of the `unknown` keys is unknown; the
    /// others are done.
    pub async fn report_batch(
        self: &Arc<Self>,
        mut announced: TierWriteGuard,
        unknown: &[String],
    ) -> Result<(), CoherenceError> {
        let Some(write) = announced.take_record() else { return Ok(()) };
        let (lost, done): (Vec<_>, Vec<_>) =
            write.keys.iter().cloned().partition(|key| unknown.contains(key));
        // The batch was one announced write; its two reports count as two.
        self.metrics.writes_open.inc();
        let part = |keys, outcome| {
            // The lost keys' report gets no former homes. Homes of the other keys would take the
            // lost keys for writes of their own.
            let told = if outcome == WriteOutcome::Unknown {
                Vec::new()
            } else {
                write.told.lock().clone()
            };
            let (id, volume, around) = (write.id, write.volume.clone(), write.around.clone());
            let part =
                Arc::new(TierWriteRecord { id, volume, keys, told: Mutex::new(told), around });
            self.report_write(
                TierWriteGuard { tier: self.clone(), write: Some(part), renewal: None },
                outcome,
            )
        };
        let (done, lost) =
            tokio::join!(part(done, WriteOutcome::Done), part(lost, WriteOutcome::Unknown));
        done.and(lost)
    }

    /// Renews until aborted: by the report, or by the end of the write.
    fn spawn_renewal(self: &Arc<Self>, write: Arc<TierWriteRecord>) -> AbortHandle {
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

    async fn announce_to(&self, write: &TierWriteRecord) -> Result<(), CoherenceError> {
        let until = Instant::now() + self.options.announce_deadline;
        let result = self.tell_homes(write, WriteEvent::Announce, until).await;
        if result.is_err() {
            self.metrics.announce_failures.inc();
        }
        result
    }

    async fn report_to(
        &self,
        write: &TierWriteRecord,
        outcome: WriteOutcome,
    ) -> Result<(), CoherenceError> {
        self.metrics.writes_open.dec();
        let until = Instant::now() + self.options.report_deadline;
        let result = self.tell_homes(write, WriteEvent::Report(outcome), until).await;
        if result.is_err() {
            self.metrics.report_failures.inc();
        }
        result
    }

    /// Tells until the homes of one map have all acknowledged. Where maps change, a failure under
    /// one map is tried again under the next.
    async fn tell_homes(
        &self,
        write: &TierWriteRecord,
        news: WriteEvent,
        until: Instant,
    ) -> Result<(), CoherenceError> {
        let mut epochs = self.epochs.subscribe();
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let map = self.map.load_full();
            let failed = match self.tell_homes_of(&map, write, news, until).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let now = Instant::now();
            // A refusal for any other reason would come again under the next map.
            let passes = !matches!(failed, CoherenceError::HomeRefused { .. });
            if !self.options.coordinated || !passes || now + pause >= until {
                return Err(failed);
            }
            // A new map here ends the wait early. The worker may follow, too, so a pause ends it as
            // well.
            let newer = epochs.wait_for(|epoch| *epoch != map.placement.map_epoch());
            let _ = timeout_at((now + pause).min(until), newer).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    async fn tell_homes_of(
        &self,
        map: &TierWorkerMap,
        write: &TierWriteRecord,
        news: WriteEvent,
        until: Instant,
    ) -> Result<(), CoherenceError> {
        let epoch = map.placement.map_epoch();
        let groups = map.by_home(&write.volume, write.keys.clone());
        if groups.is_empty() && !write.keys.is_empty() {
            return Err(CoherenceError::NoMap);
        }
        let mut former = Vec::new();
        {
            let mut told = write.told.lock();
            match news {
                WriteEvent::Announce => {
                    for (worker, _) in &groups {
                        if !told.iter().any(|known| Arc::ptr_eq(known, worker)) {
                            told.push(worker.clone());
                        }
                    }
                }
                WriteEvent::Report(_) => {
                    let is_home = |worker: &Arc<TierWorker>| {
                        groups.iter().any(|(home, _)| Arc::ptr_eq(home, worker))
                    };
                    former.extend(told.extract_if(.., |worker| !is_home(worker)));
                }
            }
        }
        for worker in former {
            self.tell_former(&worker, write, news, epoch);
        }
        let words = groups
            .into_iter()
            .map(|(worker, keys)| (worker, self.compose_notice(write, news, epoch, keys)));
        let told = words.map(|(worker, word)| async move {
            let told =
                self.tell_home(news.call_kind(), &worker, &word, until, &write.around).await?;
            Ok::<_, CoherenceError>((worker, told))
        });
        let told: Vec<(Arc<TierWorker>, HomeAcknowledgement)> =
            join_all(told).await.into_iter().collect::<Result<_, _>>()?;
        let unleased = told.into_iter().find(|(_, told)| *told == HomeAcknowledgement::Unleased);
        match (unleased, news) {
            // A failed or unknown write was never confirmed to its client, so the map need not be
            // in force.
            (None, _) | (_, WriteEvent::Report(WriteOutcome::Refused | WriteOutcome::Unknown)) => {
                Ok(())
            }
            (Some((worker, _)), _) => self.all_stand_by(map, &worker, until).await,
        }
    }

    /// Tells a home of an older map that the write is over. It need not know, but would ask the UFS
    /// for these keys until their time is over.
    fn tell_former(
        &self,
        worker: &Arc<TierWorker>,
        write: &TierWriteRecord,
        news: WriteEvent,
        epoch: Epoch,
    ) {
        for keys in write.keys.chunks(KEYS_TO_FORMER) {
            let message =
                self.compose_notice(write, news, epoch, keys.to_vec()).to_request().encode();
            let worker = worker.clone();
            // May be cancelled at any time: nothing rests on it.
            self.tasks.spawn(async move {
                let _ = timeout_at(Instant::now() + RETRY_PAUSE_MAX, ask_worker(&worker, message))
                    .await;
            });
        }
    }

    fn compose_notice(
        &self,
        write: &TierWriteRecord,
        news: WriteEvent,
        epoch: Epoch,
        keys: Vec<String>,
    ) -> WriteNotice {
        let (volume, write) = (write.volume.clone(), write.id);
        let uncertain_ms = self.options.uncertain.as_millis() as u64;
        match news {
            WriteEvent::Announce => {
                WriteNotice::Announce(AnnounceMessage { volume, keys, write, epoch, uncertain_ms })
            }
            WriteEvent::Report(outcome) => {
                WriteNotice::Report(ReportMessage { volume, keys, write, epoch, outcome })
            }
        }
    }

    /// Checks that every member of the map answers under its epoch now. Then no other map is in
    /// force.
    async fn all_stand_by(
        &self,
        map: &TierWorkerMap,
        home: &TierWorker,
        until: Instant,
    ) -> Result<(), CoherenceError> {
        let epoch = map.placement.map_epoch();
        let until = until.min(Instant::now() + self.options.first_progress);
        let asked = map.workers.iter().map(|worker| async move {
            let reason =
                match timeout_at(until, ask_worker(worker, WorkerRequest::Standing.encode())).await
                {
                    Ok(Ok(WorkerReply::Standing { epoch: theirs, .. })) if theirs == epoch => {
                        return Ok(());
                    }
                    Ok(Ok(WorkerReply::Standing { epoch: theirs, .. })) => {
                        format!("it is at epoch {}", theirs.0)
                    }
                    Ok(Ok(_)) => "its answer makes no sense".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "it was silent".to_owned(),
                };
            Err(CoherenceError::Alone { worker: home.id.clone(), other: worker.id.clone(), reason })
        });
        join_all(asked).await.into_iter().collect()
    }

    /// Sends one message until it is acknowledged; the message may arrive more than once. A resting
    /// worker is asked, too: whether a write may go on is worth a try. With an `epoch`, gives up as
    /// soon as there is a map of another one.
    pub(crate) async fn tell_worker(
        &self,
        kind: CallKind,
        worker: &Arc<TierWorker>,
        message: Bytes,
        until: Instant,
        epoch: Option<Epoch>,
    ) -> Result<HomeAcknowledgement, CoherenceError> {
        let signs = HomeLifeSigns::default();
        let Some(epoch) = epoch.filter(|_| self.options.coordinated) else {
            return self.tell_on(kind, worker, message, until, &signs).await;
        };
        let mut epochs = self.epochs.subscribe();
        tokio::select! {
            biased;
            told = self.tell_on(kind, worker, message, until, &signs) => told,
            // A message that was sent may still arrive, and is harmless: see the header.
            _ = epochs.wait_for(|now| *now != epoch) => Err(CoherenceError::Moved { worker: worker.id.clone() }),
        }
    }

    pub(crate) async fn tell_on(
        &self,
        kind: CallKind,
        worker: &Arc<TierWorker>,
        message: Bytes,
        until: Instant,
        signs: &HomeLifeSigns,
    ) -> Result<HomeAcknowledgement, CoherenceError> {
        let mut pause = RETRY_PAUSE_MIN;
        let mut repeats = 0;
        loop {
            let reason = match timeout_at(until, ask_noting(worker, message.clone(), signs)).await {
                Ok(Ok(reply @ (WorkerReply::Done { .. } | WorkerReply::Unleased { .. }))) => {
                    worker.health.note_success();
                    self.metrics.count_call(kind, CallOutcome::Ok);
                    return Ok(if matches!(reply, WorkerReply::Done { .. }) {
                        HomeAcknowledgement::Leased
                    } else {
                        HomeAcknowledgement::Unleased
                    });
                }
                // The home has no room for a write that it did not know of. It may have room in a
                // moment.
                Ok(Ok(WorkerReply::Refused(WorkerRefusal { kind: RefusalKind::Busy, .. })))
                    if kind == CallKind::Report && Instant::now() + pause < until =>
                {
                    worker.health.note_success();
                    self.metrics.count_call(kind, CallOutcome::Refused);
                    sleep(pause).await;
                    pause = (pause * 2).min(RETRY_PAUSE_MAX);
                    continue;
                }
                Ok(Ok(WorkerReply::Refused(refusal))) => {
                    worker.health.note_success();
                    self.metrics.count_call(kind, CallOutcome::Refused);
                    return Err(self.refusal_error(worker, kind, refusal));
                }
                Ok(Ok(_)) => "its answer makes no sense".to_owned(),
                Ok(Err(error)) if repeats < REPEATS_MAX && worker.may_be_asked_again(&error) => {
                    repeats += 1;
                    self.note_repeat(kind, worker, &error);
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it was silent".to_owned(),
            };
            self.metrics.count_call(kind, CallOutcome::Failed);
            self.note_failure(worker);
            if Instant::now() + pause >= until {
                return Err(CoherenceError::HomeUnreachable { worker: worker.id.clone(), reason });
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Translates a refusal. Where maps change, the next map may be worth another try.
    pub(crate) fn refusal_error(
        &self,
        worker: &TierWorker,
        kind: CallKind,
        refusal: WorkerRefusal,
    ) -> CoherenceError {
        let (worker, what) = (worker.id.clone(), kind.label_text());
        let WorkerRefusal { kind, reason } = refusal;
        if self.options.coordinated
            && matches!(kind, RefusalKind::WrongEpoch(_) | RefusalKind::NoLease)
        {
            return CoherenceError::OtherMap { worker, reason };
        }
        CoherenceError::HomeRefused { worker, what, reason: format!("{kind:?}: {reason}") }
    }
}

impl WriteEvent {
    fn call_kind(self) -> CallKind {
        match self {
            Self::Announce => CallKind::Announce,
            Self::Report(_) => CallKind::Report,
        }
    }
}

/// Asks a worker with one call without bytes.
pub(crate) async fn ask_worker(
    worker: &TierWorker,
    message: Bytes,
) -> Result<WorkerReply, TransportError> {
    ask_noting(worker, message, &HomeLifeSigns::default()).await
}

/// Asks like [`ask_worker`], and notes signs of life, which are pieces of no bytes.
async fn ask_noting(
    worker: &TierWorker,
    message: Bytes,
    signs: &HomeLifeSigns,
) -> Result<WorkerReply, TransportError> {
    let protocol = |defect: ReplyDefect| TransportError::unusable_reply(&*worker.id.0, defect);
    let mut call = worker.peer.start_call(message, None);
    loop {
        let CallEvent::Part(part) = call.next().await? else {
            return Err(protocol("it wants bytes pushed for an announcement".into()));
        };
        match WorkerReply::decode(&part.message).map_err(|error| protocol(error.into()))? {
            WorkerReply::Data(piece) if piece.length == 0 && !part.last => signs.note_sign(),
            reply => return Ok(reply),
        }
    }
}

/// The last sign of life of a home that has not answered yet: it is waiting for gateways to drop
/// their leases.
#[derive(Default)]
pub(crate) struct HomeLifeSigns(Mutex<Option<Instant>>);

impl HomeLifeSigns {
    fn note_sign(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Returns when the next sign is due, if there was one.
    pub(crate) fn live_until(&self) -> Option<Instant> {
        self.0.lock().map(|last| last + SIGN_EVERY_MAX)
    }
}
