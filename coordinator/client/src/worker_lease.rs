//! A worker's side of its lease: a pure state machine over what it sends, what it is granted, and
//! its clock.
//!
//! Every lease is counted from the moment at which its question was *sent*, and ends a tenth early:
//! whatever the network and the drift of clocks do, the worker stops before the coordinator
//! believes that it has.

use std::time::Duration;

use verbs3_protocol::{Epoch, MemberRoster};

use crate::api::{
    HeardWord, MembershipActivation, OpenWriteReport, RelayedWord, RelinquishedEpoch,
    WorkerDeparture, WorkerIncarnation, WorkerLeaseGrant, WorkerLeaseRenewal,
};
use crate::lease_clock::LeaseInstant;

/// Part of a lease by which this host's clock may be slow against the coordinator's.
const DRIFT: u32 = 10;
/// Questions in one lease, so that some may be lost. A lease is as old as its question, which waits
/// for news: when a leader dies, the last one that was granted may be two such waits old, and what
/// is left has to last until another leads (`coordinator/SIMULATION.md`).
pub const RENEWALS: u32 = 8;

/// What a worker has to do after an answer, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerLeaseDuty {
    /// Answer under the present epoch no more: another is in force.
    GiveUp,
    /// Answer under the present epoch no more; then ask again at once, and say so.
    Prepare(Epoch),
    /// Answer under this map.
    Activate(Box<MembershipActivation>),
    /// It answers from what it knows until the first moment, and takes part in writes of an outage
    /// until the second. After those above: nothing old is answered under a new lease.
    Lease { until: LeaseInstant, outage_until: LeaseInstant },
    /// Hear these words of writers that can't reach this worker; then ask again at once, with the
    /// answers. After the lease, by which they are judged.
    Hear(Vec<RelayedWord>),
}

/// What a worker holds.
#[derive(Debug, Clone)]
pub struct WorkerLease {
    incarnation: WorkerIncarnation,
    active: Epoch,
    prepared: Epoch,
    open_writes: Option<Vec<OpenWriteReport>>,
    /// Together with `confirm_prepare`.
    given_up: RelinquishedEpoch,
    /// The last map under which the worker answered.
    last: Epoch,
    lease: Duration,
    /// The newest that was told: the next one is told as what differs.
    known: Option<MemberRoster>,
    /// To words of the last answer; said until an answer comes. Who waits for one that is lost has
    /// the word said again.
    heard: Vec<HeardWord>,
}

impl WorkerLease {
    /// A worker without a lease, a map or open writes.
    pub fn new(incarnation: WorkerIncarnation) -> Self {
        let none = Epoch(0);
        Self {
            incarnation,
            active: none,
            prepared: none,
            open_writes: None,
            given_up: RelinquishedEpoch::default(),
            last: none,
            lease: Duration::ZERO,
            known: None,
            heard: Vec::new(),
        }
    }

    /// The life of the worker process that holds this lease.
    pub fn worker_incarnation(&self) -> &WorkerIncarnation {
        &self.incarnation
    }

    /// The newest map that was told; 0: none.
    pub fn known_epoch(&self) -> Epoch {
        self.known.as_ref().map_or(Epoch(0), |known| known.epoch)
    }

    /// The next question. The answer may wait for news also of who has given up a map: that is when
    /// news is wanted most, and nobody has use for a lease.
    pub fn next_renewal(&self) -> WorkerLeaseRenewal {
        let wait = self.lease / RENEWALS;
        WorkerLeaseRenewal {
            incarnation: self.incarnation.clone(),
            active: self.active,
            prepared: self.prepared,
            open_writes: self.open_writes.clone(),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            knows: self.known_epoch(),
            handing_over: None,
            heard: self.heard.clone(),
            hot: None,
            given_up: self.given_up,
            rails: None,
        }
    }

    /// How long to pause before the next question, where the coordinator did not wait.
    pub fn renewal_pause(&self) -> Duration {
        self.lease / RENEWALS / 8
    }

    /// `uncertain`: for so long there may be writes that the worker was not told of.
    pub fn make_departure(
        &self,
        open_writes: Option<Vec<OpenWriteReport>>,
        uncertain: Duration,
    ) -> WorkerDeparture {
        WorkerDeparture {
            incarnation: self.incarnation.clone(),
            open_writes,
            given_up: self.given_up(uncertain),
        }
    }

    fn given_up(&self, uncertain: Duration) -> RelinquishedEpoch {
        RelinquishedEpoch { epoch: self.last, uncertain_ms: ceil_millis(uncertain) }
    }

    /// The answer to a question that was sent at `sent`. Answers to older questions must not be
    /// given.
    pub fn apply_grant(
        &mut self,
        sent: LeaseInstant,
        granted: WorkerLeaseGrant,
    ) -> Vec<WorkerLeaseDuty> {
        self.lease = Duration::from_millis(granted.lease_ms);
        let outage = Duration::from_millis(granted.outage_ms);
        let until = sent.saturating_add(self.lease - self.lease / DRIFT);
        let mut duties = Vec::new();
        self.heard.clear();
        if self.active.0 != 0 && self.active != granted.active {
            self.active = Epoch(0);
            duties.push(WorkerLeaseDuty::GiveUp);
        }
        if let Some(epoch) = granted.prepare {
            duties.push(WorkerLeaseDuty::Prepare(epoch));
        } else if let Some(news) = granted.activation {
            let activation = news.resolve_activation(self.known.as_ref());
            // What does not follow from the map that is known: then all of it is asked for.
            self.known = activation.as_ref().map(|activation| activation.membership.clone());
            duties.extend(
                activation.map(|activation| WorkerLeaseDuty::Activate(Box::new(activation))),
            );
        }
        duties.push(WorkerLeaseDuty::Lease {
            until,
            outage_until: until.saturating_add(outage - outage / DRIFT),
        });
        if !granted.words.is_empty() {
            duties.push(WorkerLeaseDuty::Hear(granted.words));
        }
        duties
    }

    /// The worker has done so; its answers.
    pub fn record_heard_words(&mut self, heard: Vec<HeardWord>) {
        self.heard = heard;
    }

    /// The worker has done so: it answers under no epoch, and hands over its open writes (`None`:
    /// too many). `uncertain`: for so long there may be others, of which it was not told.
    pub fn confirm_prepare(
        &mut self,
        epoch: Epoch,
        open_writes: Option<Vec<OpenWriteReport>>,
        uncertain: Duration,
    ) {
        (self.active, self.prepared, self.open_writes) = (Epoch(0), epoch, open_writes);
        self.given_up = self.given_up(uncertain);
    }

    /// Another process has this worker's name: it answers under no epoch, and hands over nothing.
    pub fn mark_replaced(&mut self) {
        (self.active, self.prepared, self.open_writes) = (Epoch(0), Epoch(0), None);
    }

    /// The worker has done so.
    pub fn confirm_activation(&mut self, epoch: Epoch) {
        (self.active, self.prepared, self.open_writes) = (epoch, Epoch(0), None);
        (self.last, self.given_up) = (epoch, RelinquishedEpoch::default());
    }
}

/// Never a shorter time.
pub(crate) fn ceil_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
