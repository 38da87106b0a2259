//! What the leader knows of one worker. It is lost with the leader, but for what the map holds.

use verbs3_coordinator_client::api::{
    DrainProgress, OpenWriteReport, WorkerIncarnation, WorkerTierCapacity,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{ClusterMember, Epoch};

/// A worker as the leader knows it.
pub(super) struct MemberRecord {
    /// `None`: known only from the persisted map.
    pub(super) incarnation: Option<WorkerIncarnation>,
    pub(super) member: ClusterMember,
    /// 0: not reported.
    pub(super) place: u64,
    pub(super) tiers: Vec<WorkerTierCapacity>,
    pub(super) rails: Vec<String>,
    pub(super) lease_until: LeaseInstant,
    /// It left by itself, or a person declared it dead.
    pub(super) gone: bool,
    /// Epoch under which it last said that it answers.
    pub(super) active: Epoch,
    pub(super) handing_over: Option<DrainProgress>,
    /// Set if the process before this one, under the present map, shut down in order: what it
    /// handed over.
    pub(super) resumes: Option<OpenWriteHandover>,
    /// A process before this one may have answered under the present map.
    pub(super) restarted: bool,
    /// When the lease of the process that the map names ends or ended. Set if this process has come
    /// up elsewhere.
    pub(super) elsewhere_until: LeaseInstant,
    /// When its share last moved by a step.
    pub(super) stepped: Option<LeaseInstant>,
    /// Number of steps that it takes at once when it joins.
    pub(super) returns: u8,
}

impl MemberRecord {
    /// Creates the record of a member of which only the place and the end of its lease are known.
    pub(super) fn new(member: ClusterMember, place: u64, lease_until: LeaseInstant) -> Self {
        Self {
            incarnation: None,
            member,
            place,
            tiers: Vec::new(),
            rails: Vec::new(),
            lease_until,
            gone: false,
            active: Epoch(0),
            handing_over: None,
            resumes: None,
            restarted: true,
            elsewhere_until: LeaseInstant::default(),
            stepped: None,
            returns: 0,
        }
    }

    pub(super) fn is_live(&self, now: LeaseInstant) -> bool {
        !self.gone && self.lease_until > now
    }
}

/// Everything that a member knew of writes when it gave up the map in force.
#[derive(Clone)]
pub(super) struct OpenWriteHandover {
    pub(super) open_writes: Vec<OpenWriteReport>,
    /// For this long there may be other writes, which it was not told of.
    pub(super) uncertain_ms: u64,
}
