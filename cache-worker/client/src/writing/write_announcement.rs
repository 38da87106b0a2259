//! Tells homes of writes: announces a write before it can become visible, renews while it is under
//! way, reports when it is over.
//!
//! If a [`TierWriteGuard`] is dropped without a report (the client hung up), the write is reported
//! as unknown. Its keys stay uncertain, and reads ask the UFS, until their time is over.
//!
//! # Why these messages may be sent twice
//! When a connection breaks, nobody knows whether the home has acted. The message is sent again
//! over the next transport. To a silent home it also goes through
//! [`crate::writing::relay_fallback`]. Both messages name their [`WriteId`], and both are
//! idempotent: a second announcement renews the first; a second report raises the generation once
//! more and finds nothing left to close.
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
//! A home whose lease is over ([`WriteLeaseState::Unleased`]) can't vouch for that. Then every
//! member of the map has to say, after the home did, that it still stands at this epoch. A newer
//! map comes into force only once one of them has given up the old one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use verbs3_protocol::{
    AnnounceMessage, Epoch, ObjectVolume, ReportMessage, StandingQuestion, TenantNotice, TenantTag,
    WorkerId, WriteId, WriteLeaseState, WriteNotice, WriteOutcome,
};

use crate::asking::news_delivery::{RETRY_PAUSE_MAX, RETRY_PAUSES};
use crate::asking::single_answer::{AnswerPatience, EncodedQuestion, ask};
use crate::asking::worker::TierWorker;
use crate::asking::worker_asker::WorkerAsker;
use crate::asking::worker_map::TierWorkerMap;
use crate::reading::lease_table::TierLeaseTable;
use crate::writing::coherence_error::{CoherenceError, HomeSilence, StandingDoubt};
use crate::writing::relay_fallback::NoticeCourier;

/// Most keys in a message to a former home: with keys of 1 KiB, half of a frame.
const KEYS_TO_FORMER: usize = 25;

/// A write that is announced and not reported yet.
struct TierWriteRecord {
    id: WriteId,
    volume: ObjectVolume,
    keys: Vec<String>,
    /// The tenant whose client writes. Homes count the write for it.
    tenant: Option<TenantTag>,
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

/// A write that its homes know of. Report it; dropping it instead reports an unknown outcome.
pub struct TierWriteGuard {
    announcer: Arc<WriteAnnouncer>,
    /// `None` once reported.
    write: Option<Arc<TierWriteRecord>>,
    renewal: Option<AbortHandle>,
}

impl TierWriteGuard {
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
        let announcer = self.announcer.clone();
        // Bounded by `report_deadline`; joined at shutdown.
        self.announcer.asker.tasks.spawn(async move {
            if let Err(error) = announcer.report_to(&write, WriteOutcome::Unknown).await {
                tracing::warn!(
                    %error,
                    "an abandoned write could not be reported; its keys stay uncertain until their \
                    time is over"
                );
            }
        });
    }
}

/// Tells homes of this process's writes.
pub(crate) struct WriteAnnouncer {
    asker: Arc<WorkerAsker>,
    leases: Arc<TierLeaseTable>,
    pub(crate) courier: NoticeCourier,
    /// Number of this process among all writers of the cluster.
    pub(crate) gateway: u64,
    writes: AtomicU64,
}

impl WriteAnnouncer {
    pub(crate) fn new(asker: Arc<WorkerAsker>, leases: Arc<TierLeaseTable>, gateway: u64) -> Self {
        let courier = NoticeCourier::new(asker.clone());
        Self { asker, leases, courier, gateway, writes: AtomicU64::new(0) }
    }

    /// Tells the home of each key that a write is about to become visible. All have to acknowledge.
    pub(crate) async fn announce_write(
        self: &Arc<Self>,
        volume: &ObjectVolume,
        keys: &[String],
        tenant: Option<TenantTag>,
    ) -> Result<TierWriteGuard, CoherenceError> {
        // This process's own reads must see the write no later than others do.
        self.leases.drop_objects(volume, keys);
        let id = WriteId {
            gateway: self.gateway,
            sequence: self.writes.fetch_add(1, Ordering::Relaxed),
        };
        let (told, around) = (Mutex::new(Vec::new()), Arc::default());
        let write = Arc::new(TierWriteRecord {
            id,
            volume: volume.clone(),
            keys: keys.to_vec(),
            tenant,
            told,
            around,
        });
        self.asker.metrics.writes_open.inc();
        // The guard exists from here on, so that every home gets a report even if the caller goes
        // away during the announcement.
        let mut announced =
            TierWriteGuard { announcer: self.clone(), write: Some(write.clone()), renewal: None };
        if let Err(error) = self.announce_to(&write).await {
            // Nothing was written: homes that did acknowledge may go on at once.
            if let Some(write) = announced.take_record() {
                let announcer = self.clone();
                self.asker
                    .tasks
                    .spawn(async move { announcer.report_to(&write, WriteOutcome::Refused).await });
            }
            return Err(error);
        }
        announced.renewal = Some(self.spawn_renewal(write));
        Ok(announced)
    }

    /// Tells the homes that a write is over. Goes on in the background if the caller goes away.
    pub(crate) async fn report_write(
        self: &Arc<Self>,
        mut announced: TierWriteGuard,
        outcome: WriteOutcome,
    ) -> Result<(), CoherenceError> {
        let Some(write) = announced.take_record() else { return Ok(()) };
        let home = write.told.lock().first().map(|worker| worker.id.clone());
        let announcer = self.clone();
        // Bounded by `report_deadline`; must not be cancelled, or the key would stay uncertain for
        // its whole time.
        let task =
            self.asker.tasks.spawn(async move { announcer.report_to(&write, outcome).await });
        task.await.unwrap_or_else(|error| {
            let worker = home.unwrap_or_else(|| WorkerId("none".into()));
            let cause = Box::new(HomeSilence::TaskEnded(Arc::new(error)));
            Err(CoherenceError::HomeUnreachable { worker, cause })
        })
    }

    /// Tells the homes that a batch is over. The outcome of the `unknown` keys is unknown; the
    /// others are done.
    pub(crate) async fn report_batch(
        self: &Arc<Self>,
        mut announced: TierWriteGuard,
        unknown: &[String],
    ) -> Result<(), CoherenceError> {
        let Some(write) = announced.take_record() else { return Ok(()) };
        let (lost, done): (Vec<_>, Vec<_>) =
            write.keys.iter().cloned().partition(|key| unknown.contains(key));
        // The batch was one announced write; its two reports count as two.
        self.asker.metrics.writes_open.inc();
        let part = |keys, outcome| {
            // The lost keys' report gets no former homes. Homes of the other keys would take the
            // lost keys for writes of their own.
            let told = if outcome == WriteOutcome::Unknown {
                Vec::new()
            } else {
                write.told.lock().clone()
            };
            let (id, volume, around) = (write.id, write.volume.clone(), write.around.clone());
            let (tenant, told) = (write.tenant, Mutex::new(told));
            let part = Arc::new(TierWriteRecord { id, volume, keys, tenant, told, around });
            self.report_write(
                TierWriteGuard { announcer: self.clone(), write: Some(part), renewal: None },
                outcome,
            )
        };
        let (done, lost) =
            tokio::join!(part(done, WriteOutcome::Done), part(lost, WriteOutcome::Unknown));
        done.and(lost)
    }

    /// Announces again and again, which restarts the keys' uncertain time, until aborted: by the
    /// report, or by the end of the write.
    fn spawn_renewal(self: &Arc<Self>, write: Arc<TierWriteRecord>) -> AbortHandle {
        let announcer = self.clone();
        let task = self.asker.tasks.spawn(async move {
            loop {
                sleep(announcer.asker.options.settings.write_uncertain_for.0 / 3).await;
                if let Err(error) = announcer.announce_to(&write).await {
                    tracing::warn!(%error, "a long write could not be announced anew");
                }
            }
        });
        task.abort_handle()
    }

    async fn announce_to(&self, write: &TierWriteRecord) -> Result<(), CoherenceError> {
        let until = Instant::now() + self.asker.options.settings.announce_deadline.0;
        let result = self.tell_homes(write, WriteEvent::Announce, until).await;
        if result.is_err() {
            self.asker.metrics.announce_failures.inc();
        }
        result
    }

    async fn report_to(
        &self,
        write: &TierWriteRecord,
        outcome: WriteOutcome,
    ) -> Result<(), CoherenceError> {
        self.asker.metrics.writes_open.dec();
        let until = Instant::now() + self.asker.options.settings.report_deadline.0;
        let result = self.tell_homes(write, WriteEvent::Report(outcome), until).await;
        if result.is_err() {
            self.asker.metrics.report_failures.inc();
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
        let mut epochs = self.asker.placement.watch_epochs();
        let mut pause = RETRY_PAUSES;
        loop {
            let map = self.asker.placement.current_map();
            let failed = match self.tell_homes_of(&map, write, news, until).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let now = Instant::now();
            // A refusal for any other reason would come again under the next map.
            let passes = !matches!(failed, CoherenceError::HomeRefused { .. });
            if !self.asker.options.coordinated || !passes || now + pause.peek_pause() >= until {
                return Err(failed);
            }
            // A new map here ends the wait early. The worker may follow, too, so a pause ends it as
            // well.
            let newer = epochs.wait_for(|epoch| *epoch != map.placement.map_epoch());
            let _ = timeout_at((now + pause.next_pause()).min(until), newer).await;
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
            let told = self.courier.tell_home(&worker, &word, until, &write.around);
            let hold = told.await?;
            Ok::<_, CoherenceError>((worker, hold))
        });
        let told: Vec<(Arc<TierWorker>, WriteLeaseState)> =
            join_all(told).await.into_iter().collect::<Result<_, _>>()?;
        let unleased = told.into_iter().find(|(_, hold)| *hold == WriteLeaseState::Unleased);
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
            let word = self.compose_notice(write, news, epoch, keys.to_vec());
            let word = EncodedQuestion::for_tenant(word.word, word.tenant);
            let worker = worker.clone();
            // May be cancelled at any time: nothing rests on it.
            self.asker.tasks.spawn(async move {
                let until = AnswerPatience::Until(Instant::now() + RETRY_PAUSE_MAX);
                let _ = ask(&worker, &word, until).await;
            });
        }
    }

    fn compose_notice(
        &self,
        write: &TierWriteRecord,
        news: WriteEvent,
        epoch: Epoch,
        keys: Vec<String>,
    ) -> TenantNotice {
        let (volume, tenant, write) = (write.volume.clone(), write.tenant, write.id);
        let uncertain_ms = self.asker.options.settings.write_uncertain_for.0.as_millis() as u64;
        let word = match news {
            WriteEvent::Announce => {
                WriteNotice::Announce(AnnounceMessage { volume, keys, write, epoch, uncertain_ms })
            }
            WriteEvent::Report(outcome) => {
                WriteNotice::Report(ReportMessage { volume, keys, write, epoch, outcome })
            }
        };
        TenantNotice { word, tenant }
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
        let until = until.min(Instant::now() + self.asker.options.settings.first_progress.0);
        let standing = EncodedQuestion::new(StandingQuestion);
        let asked = map.workers.iter().map(|worker| async {
            let cause = match ask(worker, &standing, AnswerPatience::Until(until)).await {
                Ok(theirs) if theirs.epoch == epoch => return Ok(()),
                Ok(theirs) => StandingDoubt::OtherEpoch(theirs.epoch),
                Err(error) => StandingDoubt::Question(error),
            };
            let cause = Box::new(cause);
            Err(CoherenceError::Alone { worker: home.id.clone(), other: worker.id.clone(), cause })
        });
        join_all(asked).await.into_iter().collect()
    }
}
