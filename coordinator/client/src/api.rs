//! What the coordinators' HTTP API carries, as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbs3_protocol::{
    Epoch, KeyHash, MemberRoster, MembershipChange, NoticeAnswer, WorkerId, WriteId, WriteNotice,
};

use crate::hot_blocks::{HotBlockRate, HotView, HotWish};
use crate::proof::ProofRecipient;
use crate::worker_lease::ceil_millis;

/// Every path begins with it.
pub const PREFIX: &str = "/v1";
/// Longest body of a request: a word about 1,000 keys of 1,024 bytes, of which each is escaped in
/// JSON.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;
/// Open writes that one worker hands over; one that has more hands over none, and its slots are
/// asked at the UFS for a while.
pub const OPEN_WRITES_MAX: usize = 1000;

/// One life of a worker process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerIncarnation(pub String);

impl WorkerIncarnation {
    /// Draws a random 128-bit id, written as 32 hexadecimal digits.
    pub fn new() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }
}

impl Default for WorkerIncarnation {
    fn default() -> Self {
        Self::new()
    }
}

/// A place where a worker keeps blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerTierCapacity {
    /// `memory` or `disk`.
    pub kind: String,
    pub bytes: u64,
}

/// `POST /v1/workers`: a worker that wants to belong. Answered with [`WorkerLeaseGrant`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRegistration {
    pub id: WorkerId,
    pub incarnation: WorkerIncarnation,
    /// Where gateways reach it by tcp, `host:port`.
    pub address: String,
    /// Share of the slots, relative to the other workers; usually its memory.
    pub weight: f64,
    #[serde(default)]
    pub zone: String,
    #[serde(default)]
    pub tiers: Vec<WorkerTierCapacity>,
    /// Addresses of its rails in their order, `""` where one is down.
    #[serde(default)]
    pub rails: Vec<String>,
    /// The newest map that this process has; 0: none. Only what has changed since is told then.
    #[serde(default)]
    pub knows: Epoch,
    /// Where the process listens, as a number made of host, network and port: two of one place
    /// can't live at once. 0: it does not say.
    #[serde(default)]
    pub place: u64,
}

/// `POST /v1/workers/ID/renew`. Answered with [`WorkerLeaseGrant`], at once if there is news, else after
/// `wait_ms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLeaseRenewal {
    pub incarnation: WorkerIncarnation,
    /// Epoch under which the worker answers; 0: none.
    pub active: Epoch,
    /// Epoch for which it has given up the active one; 0: none. From here on it answers under no
    /// older one.
    pub prepared: Epoch,
    /// Together with `prepared`: writes that are announced and not reported. `None`: too many to
    /// say.
    #[serde(default)]
    pub open_writes: Option<Vec<OpenWriteReport>>,
    #[serde(default)]
    pub wait_ms: u64,
    /// As in [`WorkerRegistration::knows`].
    #[serde(default)]
    pub knows: Epoch,
    /// Of a worker that drains.
    #[serde(default)]
    pub handing_over: Option<DrainProgress>,
    /// To the words that came with the answer before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<HeardWord>,
    /// What it serves most, as the leader wished; `None`: not with this renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<Vec<HotBlockRate>>,
    /// Together with `prepared`.
    #[serde(default, skip_serializing_if = "RelinquishedEpoch::is_none")]
    pub given_up: RelinquishedEpoch,
    /// As in [`WorkerRegistration::rails`]; `None`: as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rails: Option<Vec<String>>,
}

/// What a worker's open writes are all the open writes of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelinquishedEpoch {
    /// The last map that it answered under; 0: none. Of a later one it took over nothing, and can't
    /// say all.
    pub epoch: Epoch,
    /// For so long there may be writes in some of its slots that nobody could tell it of.
    #[serde(default)]
    pub uncertain_ms: u64,
}

impl RelinquishedEpoch {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// How far a worker that drains has come with handing over the blocks that are read most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainProgress {
    pub blocks: u64,
    pub blocks_left: u64,
    /// What their new owners have taken.
    pub bytes: u64,
}

/// `POST /v1/workers/ID/leave`: the worker ends, and has answered its last question already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDeparture {
    pub incarnation: WorkerIncarnation,
    #[serde(default)]
    pub open_writes: Option<Vec<OpenWriteReport>>,
    #[serde(default)]
    pub given_up: RelinquishedEpoch,
}

/// A write that is announced and not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWriteReport {
    pub hash: u64,
    pub gateway: u64,
    pub sequence: u64,
    pub remaining_ms: u64,
}

impl OpenWriteReport {
    /// `remaining`: for how long it may still be under way; told as no shorter.
    pub fn new(hash: KeyHash, write: WriteId, remaining: Duration) -> Self {
        Self {
            hash: hash.0,
            gateway: write.gateway,
            sequence: write.sequence,
            remaining_ms: ceil_millis(remaining),
        }
    }

    /// Key hash, write id, and how long the write may still be under way.
    pub fn into_parts(self) -> (KeyHash, WriteId, Duration) {
        let Self { hash, gateway, sequence, remaining_ms } = self;
        (KeyHash(hash), WriteId { gateway, sequence }, Duration::from_millis(remaining_ms))
    }
}

/// A lease, and what the worker is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerLeaseGrant {
    /// From the moment at which the worker sent its question.
    pub lease_ms: u64,
    /// How long after the lease's end the worker may take part in writes that all members of its
    /// map stand by.
    pub outage_ms: u64,
    /// The map in force; 0: none yet.
    pub active: Epoch,
    /// The map, if the worker said that it has another.
    #[serde(default)]
    pub activation: Option<ActivationNews>,
    /// A map that is to come into force: give up the active one, and say so.
    #[serde(default)]
    pub prepare: Option<Epoch>,
    /// To be heard after all else is done, and answered with the next renewal, at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<RelayedWord>,
    /// What the leader wants to hear of hot blocks; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<HotWish>,
}

/// `POST /v1/workers/ID/relay`: a writer can't reach this worker, which is to hear its word by its
/// renewals. Answered with [`Relayed`](verbs3_protocol::Relayed).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRequest {
    pub word: WriteNotice,
    /// How long the worker's answer is waited for.
    pub wait_ms: u64,
}

/// A word on its way to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedWord {
    /// Of this way: the same word may be on several.
    pub id: u64,
    pub word: WriteNotice,
}

/// A worker's answer to a [`RelayedWord`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardWord {
    pub id: u64,
    pub heard: NoticeAnswer,
}

/// A map that came into force, and what a worker has to know of the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct MembershipActivation {
    pub membership: MemberRoster,
    /// The map before; without members: there was none.
    pub former: MemberRoster,
    /// Members of the former map that gave it up and handed over their open writes.
    pub handed_over: Vec<WorkerId>,
    pub open_writes: Vec<OpenWriteReport>,
    /// The process of this worker before this one ended in order, under this very map, and handed
    /// over these.
    pub resumes: Option<Vec<OpenWriteReport>>,
    /// For so long there may be writes in slots that were handed over, or are resumed, which nobody
    /// could tell of.
    pub uncertain_ms: u64,
    /// Another process of this worker may have answered under this very map.
    pub restarted: bool,
}

/// An [`MembershipActivation`] as it travels: of two maps of a thousand workers, told to each of a thousand
/// workers, only what differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActivationNews {
    /// Whole, or what has changed since the map that the worker knows.
    pub map: MapAnswer,
    /// From this map back to the one before.
    pub former: MembershipChange,
    pub handed_over: HandedOver,
    #[serde(default)]
    pub open_writes: Vec<OpenWriteReport>,
    #[serde(default)]
    pub resumes: Option<Vec<OpenWriteReport>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncertain_ms: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    pub restarted: bool,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Members of the former map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandedOver {
    AllBut(Vec<WorkerId>),
    Only(Vec<WorkerId>),
}

impl ActivationNews {
    /// `known`: the map that the worker said it knows. `None`: this starts from another.
    pub fn resolve_activation(self, known: Option<&MemberRoster>) -> Option<MembershipActivation> {
        let membership = self.map.resolve_membership(known)?;
        let former = membership.apply_change(&self.former)?;
        let handed_over = match self.handed_over {
            HandedOver::Only(ids) => ids,
            HandedOver::AllBut(silent) => {
                let all = former.members.iter().map(|member| &member.id);
                all.filter(|id| !silent.contains(id)).cloned().collect()
            }
        };
        let Self { open_writes, resumes, uncertain_ms, restarted, .. } = self;
        Some(MembershipActivation {
            membership,
            former,
            handed_over,
            open_writes,
            resumes,
            uncertain_ms,
            restarted,
        })
    }
}

/// To `GET /v1/map?epoch=E&wait_ms=W`: 200 with a later map, 204 where there is none within that
/// time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapAnswer {
    Membership(MemberRoster),
    Change(MembershipChange),
}

impl MapAnswer {
    /// `None`: a change from another map than the one that is known.
    pub fn resolve_membership(self, known: Option<&MemberRoster>) -> Option<MemberRoster> {
        match self {
            Self::Membership(membership) => Some(membership),
            Self::Change(change) => known?.apply_change(&change),
        }
    }
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorRefusal {
    pub kind: CoordinatorRefusalKind,
    pub reason: String,
    /// With [`CoordinatorRefusalKind::NotLeader`]: who is.
    #[serde(default)]
    pub leader: Option<String>,
    /// With [`CoordinatorRefusalKind::Clock`], and with [`CoordinatorRefusalKind::ProofRecipient`] where the clocks differ
    /// too: milliseconds since 1970, here.
    #[serde(default)]
    pub now_ms: Option<u64>,
    /// With [`CoordinatorRefusalKind::ProofRecipient`]: whom to address.
    #[serde(default)]
    pub recipient: Option<ProofRecipient>,
    /// With [`CoordinatorRefusalKind::Taken`], where another process has the worker's id: what is left of its
    /// lease, if it is not heard of again.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

/// Reason class of a refusal; each variant names the HTTP status that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinatorRefusalKind {
    /// 421: ask the leader.
    NotLeader,
    /// 401: the proof's time is too far from this host's.
    Clock,
    /// 401: the proof is for another coordinator, or for this one before it was started again.
    Recipient,
    /// 401.
    Unproven,
    /// 404: the worker has to register.
    Unknown,
    /// 409: another worker has this id.
    Taken,
    /// 410: this worker was registered anew by another process.
    Superseded,
    /// 400, 404, 405, 413.
    Malformed,
    /// 503.
    Unavailable,
}

/// One worker as `GET /v1/workers` lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    pub id: WorkerId,
    pub address: String,
    pub weight: f64,
    pub zone: String,
    pub state: WorkerState,
    /// What is left of its lease, as the leader sees it.
    pub lease_ms: u64,
    pub tiers: Vec<WorkerTierCapacity>,
    /// As in [`WorkerRegistration::rails`].
    pub rails: Vec<String>,
    /// Epoch that the worker said last that it answers under.
    pub active: Epoch,
    /// Slots that it owns in the map in force.
    pub slots: u32,
    /// How much of its share of the slots that is: not all while it joins or is drained.
    #[serde(default)]
    pub share_percent: u8,
    /// Of a worker that drains.
    #[serde(default)]
    pub handing_over: Option<DrainProgress>,
    /// It drains, owns nothing, and what is hot has been handed over: it may be stopped.
    #[serde(default)]
    pub drained: bool,
}

/// Where a worker stands, as the leader sees it; `GET /v1/workers` carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Registered, and not in the map yet.
    Joining,
    Serving,
    /// In the map without slots; what it has is asked for by the new owners.
    Draining,
    /// In the map, and its lease is over: the next map is without it.
    Lost,
    /// It was in a map, went without a word, and has not come back.
    Missing,
    /// In the last map, and nobody leads who could say more.
    Unknown,
}

/// `GET /v1/cluster`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    pub name: String,
    pub leader: Option<String>,
    pub epoch: Epoch,
    /// An epoch that is being prepared, and the members that have not given up the present one.
    pub preparing: Option<EpochPreparation>,
    pub replicas: u16,
    pub workers: Vec<WorkerView>,
    /// Blocks that several workers serve because they are read so much.
    #[serde(default)]
    pub hot: HotView,
    /// Of the leader's preload jobs; a job that did not load everything makes no cluster unwell.
    #[serde(default)]
    pub preload: PreloadView,
    /// What is not as it should be, and the remedy.
    pub findings: Vec<String>,
}

/// Preload jobs at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreloadView {
    pub running: u64,
    pub waiting: u64,
    /// The last few of the last day that ended with something missing.
    pub unfinished: Vec<UnfinishedJob>,
}

/// A preload job that ended with something missing, as `GET /v1/cluster` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedJob {
    pub id: String,
    /// `incomplete` or `failed`.
    pub state: String,
    pub reason: String,
    /// Milliseconds since 1970.
    pub ended_ms: u64,
}

/// An epoch that the leader prepares. It comes into force once no member is waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochPreparation {
    pub epoch: Epoch,
    pub waiting_for: Vec<WorkerId>,
}
