//! Owns a worker's side of its lease: a pure state machine over what it sends, what it is granted,
//! and its clock.
//!
//! Every lease counts from the moment at which its question was *sent*, and ends a tenth early. So
//! whatever the network and the drift of clocks do, the worker stops before the coordinator
//! believes that it has.

use std::time::Duration;

use verbs3_protocol::{Epoch, MemberRoster};

use crate::api::{
    HeardWord, MembershipActivation, OpenWriteReport, RelayedWord, RelinquishedEpoch,
    WorkerDeparture, WorkerIncarnation, WorkerLeaseGrant, WorkerLeaseRenewal,
};
use crate::lease_clock::{LeaseInstant, ceil_millis};

/// Fraction of a lease (1/DRIFT) that allows for this host's clock being slower than the
/// coordinator's.
const DRIFT: u32 = 10;
/// Questions in one lease, so that some may be lost. A lease is as old as its question, which waits
/// for news. When a leader dies, the last granted lease may be two such waits old. The rest must
/// last until another leads (`coordinator/SIMULATION.md`).
pub const RENEWALS: u32 = 8;

/// What a worker must do after an answer, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerLeaseDuty {
    /// Stop answering under the present epoch: another is in force.
    GiveUp,
    /// Stop answering under the present epoch. Then ask again at once, and report that.
    Prepare(Epoch),
    /// Answer under this map.
    Activate(Box<MembershipActivation>),
    /// Answer from what is known until the first moment. Take part in writes of an outage until the
    /// second. Comes after the duties above: no old answer may be given under a new lease.
    Lease { until: LeaseInstant, outage_until: LeaseInstant },
    /// Hear these notices of writers that can't reach this worker. Then ask again at once, with the
    /// answers. Comes after the lease, which decides about the notices.
    Hear(Vec<RelayedWord>),
}

/// State of a worker's lease.
#[derive(Debug, Clone)]
pub struct WorkerLease {
    incarnation: WorkerIncarnation,
    active: Epoch,
    prepared: Epoch,
    open_writes: Option<Vec<OpenWriteReport>>,
    /// Set together with `confirm_prepare`.
    given_up: RelinquishedEpoch,
    /// Last map under which the worker answered.
    last: Epoch,
    lease: Duration,
    /// Newest map that was received: the next one comes as a difference to it.
    known: Option<MemberRoster>,
    /// Answers to the notices of the last grant; sent until the next grant comes. If a coordinator
    /// loses one, it sends the notice again.
    heard: Vec<HeardWord>,
}

impl WorkerLease {
    /// Creates the state of a worker without a lease, a map or open writes.
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

    /// Returns the life of the worker process that holds this lease.
    pub fn worker_incarnation(&self) -> &WorkerIncarnation {
        &self.incarnation
    }

    /// Returns the epoch of the newest map that was received; 0: none.
    pub fn known_epoch(&self) -> Epoch {
        self.known.as_ref().map_or(Epoch(0), |known| known.epoch)
    }

    /// Returns the next question. Its answer may wait for news even after the worker has given up a
    /// map: it then wants news most, and nobody needs its lease.
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

    /// Returns how long a lease lasts; zero before the first one.
    pub fn lease_length(&self) -> Duration {
        self.lease
    }

    /// Returns how long to pause before the next question if the coordinator did not wait.
    pub fn renewal_pause(&self) -> Duration {
        self.lease / RENEWALS / 8
    }

    /// Builds the departure. For `uncertain` there may be writes that the worker was not told of.
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

    /// Applies the answer to the question that was sent at `sent`, and returns the duties. Callers
    /// must drop answers to older questions.
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
            // If the difference starts from another map, the next question asks for the whole map.
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

    /// Records the worker's answers to the notices that it heard.
    pub fn record_heard_words(&mut self, heard: Vec<HeardWord>) {
        self.heard = heard;
    }

    /// Records that the worker has prepared: it answers under no epoch, and hands over its open
    /// writes (`None`: too many). For `uncertain` there may be others, which it was not told of.
    pub fn confirm_prepare(
        &mut self,
        epoch: Epoch,
        open_writes: Option<Vec<OpenWriteReport>>,
        uncertain: Duration,
    ) {
        (self.active, self.prepared, self.open_writes) = (Epoch(0), epoch, open_writes);
        self.given_up = self.given_up(uncertain);
    }

    /// Records that another process has this worker's name: this one answers under no epoch, and
    /// hands over nothing.
    pub fn mark_replaced(&mut self) {
        (self.active, self.prepared, self.open_writes) = (Epoch(0), Epoch(0), None);
    }

    /// Records that the worker answers under the map of `epoch`.
    pub fn confirm_activation(&mut self, epoch: Epoch) {
        (self.active, self.prepared, self.open_writes) = (epoch, Epoch(0), None);
        (self.last, self.given_up) = (epoch, RelinquishedEpoch::default());
    }
}
