//! Types by which the leader shows the cluster, its workers and its jobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verbs3_protocol::{Epoch, WorkerId};

use super::{DrainProgress, WorkerTierCapacity};
use crate::hot_blocks::HotView;

/// One worker as `GET /v1/workers` lists it.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct WorkerView {
    #[schemars(with = "String")]
    pub id: WorkerId,
    pub address: String,
    pub weight: f64,
    pub zone: String,
    pub state: WorkerState,
    /// What is left of its lease in the leader's view.
    pub lease_ms: u64,
    pub tiers: Vec<WorkerTierCapacity>,
    /// See [`WorkerRegistration::rails`](super::WorkerRegistration::rails).
    pub rails: Vec<String>,
    /// Epoch under which the worker last said that it answers.
    #[schemars(with = "u64")]
    pub active: Epoch,
    /// Slots that it owns in the map in force.
    #[schemars(range(max = 65_536))]
    pub slots: u32,
    /// Percentage of its share that it has; below 100 while it joins or is drained.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub share_percent: u8,
    /// Progress of a worker that drains.
    #[serde(default)]
    pub handing_over: Option<DrainProgress>,
    /// The worker may be stopped: it drains, owns nothing, and has handed over its hot blocks.
    #[serde(default)]
    pub drained: bool,
}

/// How far the drain of one worker is, as `GET /v1/workers/ID/drain` answers.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct WorkerDrainView {
    pub worker: WorkerView,
    /// Some other worker is there to take its slots.
    pub has_takers: bool,
}

impl WorkerDrainView {
    /// Picks the worker `id` out of all. `None`: it is not among them.
    pub fn of_worker(id: &WorkerId, workers: Vec<WorkerView>) -> Option<Self> {
        let (own, others): (Vec<_>, Vec<_>) =
            workers.into_iter().partition(|worker| worker.id == *id);
        let takes =
            |other: &WorkerView| matches!(other.state, WorkerState::Serving | WorkerState::Joining);
        Some(Self { worker: own.into_iter().next()?, has_takers: others.iter().any(takes) })
    }
}

/// State of a worker in the leader's view; `GET /v1/workers` carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Registered, and not in the map yet.
    Joining,
    Serving,
    /// In the map without slots; the new owners fetch what it has.
    Draining,
    /// In the map, but its lease is over: the next map is without it.
    Lost,
    /// It was in a map, went without notice, and has not come back.
    Missing,
    /// In the last map; no leader is known that could say more. No leader says so.
    #[schemars(skip)]
    Unknown,
}

/// Body of `GET /v1/cluster`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ClusterView {
    pub name: String,
    pub leader: Option<String>,
    #[schemars(with = "u64")]
    pub epoch: Epoch,
    /// Epoch that is being prepared, and the members that have not given up the present one.
    pub preparing: Option<EpochPreparation>,
    pub replicas: u16,
    pub workers: Vec<WorkerView>,
    /// Blocks that several workers serve because readers want them so much.
    #[serde(default)]
    pub hot: HotView,
    /// The leader's preload jobs. An incomplete job does not make the cluster unhealthy.
    #[serde(default)]
    pub preload: PreloadView,
    /// What is wrong, each with its remedy.
    pub findings: Vec<String>,
}

/// Preload jobs at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PreloadView {
    pub running: u64,
    pub waiting: u64,
    /// A few of the jobs that ended incomplete in the last day, the latest ones.
    pub unfinished: Vec<UnfinishedJob>,
}

/// Preload job that ended incomplete, as `GET /v1/cluster` lists it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UnfinishedJob {
    pub id: String,
    /// `incomplete` or `failed`.
    pub state: String,
    pub reason: String,
    /// Milliseconds since 1970.
    pub ended_ms: u64,
}

/// Body of `GET /v1/placement`: the workers of one slot, or how many slots each worker owns.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PlacementView {
    #[schemars(with = "u64")]
    pub epoch: Epoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub workers: Option<Vec<WorkerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, u32>>")]
    pub slots: Option<BTreeMap<WorkerId, u32>>,
}

/// Epoch that the leader prepares. It comes into force once no member is waited for.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct EpochPreparation {
    #[schemars(with = "u64")]
    pub epoch: Epoch,
    #[schemars(with = "Vec<String>")]
    pub waiting_for: Vec<WorkerId>,
}
