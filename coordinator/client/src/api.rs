//! Types of the coordinators' HTTP API, which travel as JSON.

mod activity;
mod cluster_views;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verbs3_protocol::{
    Epoch, KeyHash, MemberRoster, MembershipChange, NoticeAnswer, TenantNotice, WorkerId, WriteId,
};

use crate::hot_blocks::{HotBlockRate, HotWish};
use crate::lease_clock::ceil_millis;
use crate::proof::ProofRecipient;

pub use activity::{
    ACTIVITY_NAME_BYTES_MAX, ACTIVITY_TENANTS_MAX, ACTIVITY_WAYS_MAX, ActivityCounters,
    ActivityGauges, ActivityRole, ActivityWish, LatencyBucket, NodeActivity, RailActivity,
    TenantActivity, TransportActivity,
};
pub use cluster_views::{
    ClusterView, EpochPreparation, PlacementView, PreloadView, UnfinishedJob, WorkerDrainView,
    WorkerState, WorkerView,
};

/// Prefix of every path.
pub const PREFIX: &str = "/v1";
/// Writes an id as a part of a path.
pub fn escape_path_segment(id: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    id.bytes()
        .map(
            |byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") },
        )
        .collect()
}

/// Longest body of a request in bytes: a write notice about 1,000 keys of 1,024 bytes, each escaped
/// in JSON.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;
/// Most open writes that one worker hands over. A worker with more hands over none; for a while its
/// slots are looked up at the UFS.
pub const OPEN_WRITES_MAX: usize = 1000;

/// Id of one life of a worker process.
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

/// Capacity of a place where a worker keeps blocks.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct WorkerTierCapacity {
    /// `memory` or `disk`.
    pub kind: String,
    pub bytes: u64,
}

/// Body of `POST /v1/workers`, by which a worker joins. The answer is [`WorkerLeaseGrant`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRegistration {
    pub id: WorkerId,
    pub incarnation: WorkerIncarnation,
    /// TCP address at which gateways reach it, `host:port`.
    pub address: String,
    /// Share of the slots, relative to the other workers; usually its memory.
    pub weight: f64,
    #[serde(default)]
    pub zone: String,
    #[serde(default)]
    pub tiers: Vec<WorkerTierCapacity>,
    /// Addresses of its rails in their order, `""` for one that is down.
    #[serde(default)]
    pub rails: Vec<String>,
    /// Newest map that this process has; 0: none. The answer then holds only later changes.
    #[serde(default)]
    pub knows: Epoch,
    /// Place where the process listens: a number made of host, network and port. Two processes of
    /// one place can't live at once. 0: not reported.
    #[serde(default)]
    pub place: u64,
}

/// Body of `POST /v1/workers/ID/renew`. The answer is [`WorkerLeaseGrant`]. It comes at once if
/// there is news, else after `wait_ms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLeaseRenewal {
    pub incarnation: WorkerIncarnation,
    /// Epoch under which the worker answers; 0: none.
    pub active: Epoch,
    /// Epoch for which it has given up the active one; 0: none. From here on it answers under no
    /// older one.
    pub prepared: Epoch,
    /// Writes that are announced and not reported; goes with `prepared`. `None`: too many.
    #[serde(default)]
    pub open_writes: Option<Vec<OpenWriteReport>>,
    #[serde(default)]
    pub wait_ms: u64,
    /// See [`WorkerRegistration::knows`].
    #[serde(default)]
    pub knows: Epoch,
    /// Progress of a worker that drains.
    #[serde(default)]
    pub handing_over: Option<DrainProgress>,
    /// Answers to the notices of the previous answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<HeardWord>,
    /// Blocks that it serves most, as the leader wished; `None`: not with this renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<Vec<HotBlockRate>>,
    /// Goes with `prepared`.
    #[serde(default, skip_serializing_if = "RelinquishedEpoch::is_none")]
    pub given_up: RelinquishedEpoch,
    /// See [`WorkerRegistration::rails`]; `None`: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rails: Option<Vec<String>>,
}

/// Scope of a worker's hand-over: the epoch up to which its open writes are complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelinquishedEpoch {
    /// Last map that it answered under; 0: none. It took over nothing of a later map, so its report
    /// is incomplete for that one.
    pub epoch: Epoch,
    /// For this long some of its slots may have writes that nobody could tell it of.
    #[serde(default)]
    pub uncertain_ms: u64,
}

impl RelinquishedEpoch {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Progress of a draining worker that hands over the blocks that are read most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct DrainProgress {
    pub blocks: u64,
    pub blocks_left: u64,
    /// Bytes that their new owners have taken.
    pub bytes: u64,
}

/// Body of `POST /v1/workers/ID/leave`: the worker ends, and answers nobody any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDeparture {
    pub incarnation: WorkerIncarnation,
    #[serde(default)]
    pub open_writes: Option<Vec<OpenWriteReport>>,
    #[serde(default)]
    pub given_up: RelinquishedEpoch,
}

/// Write that is announced and not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWriteReport {
    pub hash: u64,
    pub gateway: u64,
    pub sequence: u64,
    pub remaining_ms: u64,
    /// Hash of the name of the tenant whose client writes; 0: nobody's.
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub tenant: u64,
}

fn is_nobody(tenant: &u64) -> bool {
    *tenant == 0
}

impl OpenWriteReport {
    /// Creates a report. `remaining` is how long the write may still be under way; it is rounded
    /// up. `tenant` is the hash of its tenant's name.
    pub fn new(hash: KeyHash, write: WriteId, remaining: Duration, tenant: u64) -> Self {
        Self {
            hash: hash.0,
            gateway: write.gateway,
            sequence: write.sequence,
            remaining_ms: ceil_millis(remaining),
            tenant,
        }
    }

    /// Returns key hash, write id, how long the write may still be under way, and its tenant's hash.
    pub fn into_parts(self) -> (KeyHash, WriteId, Duration, u64) {
        let Self { hash, gateway, sequence, remaining_ms, tenant } = self;
        let write = WriteId { gateway, sequence };
        (KeyHash(hash), write, Duration::from_millis(remaining_ms), tenant)
    }
}

/// Lease, and instructions for the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerLeaseGrant {
    /// Counted from the moment at which the worker sent its question.
    pub lease_ms: u64,
    /// How long after the lease's end the worker may take part in writes that all members of its
    /// map support.
    pub outage_ms: u64,
    /// Epoch of the map in force; 0: none yet.
    pub active: Epoch,
    /// The map, if the worker reported another one.
    #[serde(default)]
    pub activation: Option<ActivationNews>,
    /// Epoch of a map that is to come into force: give up the active one, and report that.
    #[serde(default)]
    pub prepare: Option<Epoch>,
    /// Write notices. Hear them after all else is done, and answer at once with the next renewal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<RelayedWord>,
    /// What the leader wants to know of hot blocks; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<HotWish>,
}

/// Body of `POST /v1/workers/ID/relay`: a write notice for a worker that its writer can't reach.
/// The worker receives it through its renewals. The answer is
/// [`NoticeRelayOutcome`](verbs3_protocol::NoticeRelayOutcome).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRequest {
    #[serde(flatten)]
    pub notice: TenantNotice,
    /// How long to wait for the worker's answer.
    pub wait_ms: u64,
}

/// Write notice on its way to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedWord {
    /// Id of this delivery: one notice may be under way several times.
    pub id: u64,
    #[serde(flatten)]
    pub notice: TenantNotice,
}

/// Worker's answer to a [`RelayedWord`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardWord {
    pub id: u64,
    pub heard: NoticeAnswer,
}

/// Map that came into force, and what a worker must know of the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct MembershipActivation {
    pub membership: MemberRoster,
    /// The map before it; without members if there was none.
    pub former: MemberRoster,
    /// Members of the former map that gave it up and handed over their open writes.
    pub handed_over: Vec<WorkerId>,
    pub open_writes: Vec<OpenWriteReport>,
    /// Set if this worker's previous process shut down in order under this very map: the writes
    /// that it handed over.
    pub resumes: Option<Vec<OpenWriteReport>>,
    /// For this long, slots that were handed over or resumed may have writes that nobody could
    /// report.
    pub uncertain_ms: u64,
    /// Another process of this worker may have answered under this very map.
    pub restarted: bool,
}

/// Compact form of [`MembershipActivation`]. A thousand workers each receive two maps of a thousand
/// workers, so only the differences travel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActivationNews {
    /// The whole map, or its changes since the map that the worker knows.
    pub map: MapAnswer,
    /// Change from this map back to the one before.
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

/// Members of the former map that handed over their open writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandedOver {
    AllBut(Vec<WorkerId>),
    Only(Vec<WorkerId>),
}

impl ActivationNews {
    /// Expands the news. `known` is the map that the worker reported. Returns `None` if the news
    /// starts from another map.
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

/// Answer to `GET /v1/map?epoch=E&wait_ms=W`: 200 with a later map, or 204 if none appears in that
/// time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapAnswer {
    Membership(MemberRoster),
    Change(MembershipChange),
}

impl MapAnswer {
    /// Expands the answer. Returns `None` if it is a change from another map than `known`.
    pub fn resolve_membership(self, known: Option<&MemberRoster>) -> Option<MemberRoster> {
        match self {
            Self::Membership(membership) => Some(membership),
            Self::Change(change) => known?.apply_change(&change),
        }
    }
}

/// Refusal of a request, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct CoordinatorRefusal {
    pub kind: CoordinatorRefusalKind,
    pub reason: String,
    /// Leader's URL, with [`CoordinatorRefusalKind::NotLeader`].
    #[serde(default)]
    pub leader: Option<String>,
    /// This host's time in milliseconds since 1970. Sent with [`CoordinatorRefusalKind::Clock`],
    /// and with [`CoordinatorRefusalKind::Recipient`] if the clocks differ too.
    #[serde(default)]
    pub now_ms: Option<u64>,
    /// Recipient to address, with [`CoordinatorRefusalKind::Recipient`].
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub recipient: Option<ProofRecipient>,
    /// With [`CoordinatorRefusalKind::Taken`], if another process has the worker's id: what is left
    /// of that process's lease unless it is renewed.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

impl CoordinatorRefusal {
    /// Creates a refusal that corrects nothing and names no leader.
    pub fn new(kind: CoordinatorRefusalKind, reason: impl Into<String>) -> Self {
        let (leader, now_ms, recipient, left_ms) = (None, None, None, None);
        Self { kind, reason: reason.into(), leader, now_ms, recipient, left_ms }
    }
}

/// Reason class of a refusal; each variant names the HTTP status that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinatorRefusalKind {
    /// 421: ask the leader.
    NotLeader,
    /// 401: the proof's time differs too much from this host's.
    Clock,
    /// 401: the proof is for another coordinator, or for an earlier run of this one.
    Recipient,
    /// 401.
    Unproven,
    /// 403: nodes of this role, or of this name, may not ask that.
    Forbidden,
    /// 403: the identity on whose behalf it was asked lacks a right. Gateways say so.
    Denied,
    /// 404: the worker has to register.
    Unknown,
    /// 409: another worker has this id.
    Taken,
    /// 409: a mount means something else to the coordinator than to the gateway that judged a
    /// preload job.
    OtherMounts,
    /// 429: this owner has as many preload jobs under way as one may have.
    OwnerFull,
    /// 410: this worker was registered anew by another process.
    Superseded,
    /// 400, 404, 405, 413.
    Malformed,
    /// 503.
    Unavailable,
}
