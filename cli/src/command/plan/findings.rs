//! What a plan means: fits, warn, act, or does not fit. Pure.

use std::fmt;

use serde::Serialize;
use verbs3_config::RootSettings;
use verbs3_coordinator::store::VALUE_BYTES_MAX;

use super::capacity_input::CapacityInput;
use super::capacity_plan::{CapacityPlan, WarmUpLimit};
use super::formulas::{ACT_PART, HEADROOM, WARN_PART};
use super::shown_figures::{show_percent, show_size};

/// Size of an etcd from which on it refuses writes, unless `--quota-backend-bytes` says more: the
/// default of etcd.
const ETCD_BYTES_MAX: u64 = 2 << 30;

/// How much a finding matters, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanSeverity {
    Fits,
    /// From 60 % on: order what is missing.
    Warn,
    /// From 80 % on: change something before the job starts.
    Act,
    DoesNotFit,
}

impl fmt::Display for PlanSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fits => "fits",
            Self::Warn => "WARN",
            Self::Act => "ACT",
            Self::DoesNotFit => "NO",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanFinding {
    pub severity: PlanSeverity,
    pub subject: &'static str,
    pub seen: String,
    /// What to do; `None` where nothing is.
    pub remedy: Option<String>,
}

/// Returns the severity of a bound that is used to `part`.
pub fn judge_part(part: f64) -> PlanSeverity {
    match part {
        part if part * HEADROOM > 1.0 => PlanSeverity::DoesNotFit,
        part if part >= ACT_PART => PlanSeverity::Act,
        part if part >= WARN_PART => PlanSeverity::Warn,
        _ => PlanSeverity::Fits,
    }
}

/// Returns everything that is to be said of a plan; the data first.
pub fn judge_plan(
    input: &CapacityInput,
    settings: &RootSettings,
    plan: &CapacityPlan,
) -> Vec<PlanFinding> {
    let mut findings = vec![judge_data(input, plan)];
    findings.extend(judge_lost_node(input, plan));
    findings.extend(judge_drives(plan));
    findings.push(judge_memory(input, plan));
    findings.extend(judge_queue_pairs(settings, plan));
    findings.push(judge_cluster_store(plan));
    if plan.warm_up.limit == WarmUpLimit::StoreRequests {
        findings.push(PlanFinding {
            severity: PlanSeverity::Fits,
            subject: "warm-up",
            seen: "the store's first byte bounds it, not its bandwidth".to_owned(),
            remedy: Some(format!(
                "coordinator.preload.blocks_per_ufs_max above {}, if the store takes more \
                requests at once",
                settings.coordinator.preload.blocks_per_ufs_max
            )),
        });
    }
    findings
}

fn judge_data(input: &CapacityInput, plan: &CapacityPlan) -> PlanFinding {
    let tier = plan.holding_tier();
    let part = tier.part.unwrap_or(f64::INFINITY);
    let severity = judge_part(part);
    let seen = format!(
        "{} of {} ({}), {} with headroom",
        show_size(tier.needed_bytes),
        show_size(tier.capacity_bytes),
        show_percent(part),
        show_size(tier.planned_bytes)
    );
    let more = plan.nodes_needed.filter(|nodes| *nodes > u64::from(input.nodes));
    let remedy = match (severity, more) {
        (PlanSeverity::Fits, _) => None,
        (PlanSeverity::Warn, _) => Some("order nodes or drives before the data grows".to_owned()),
        (_, Some(nodes)) => Some(format!("{nodes} such nodes, or more drives in each")),
        (_, None) => Some("add nodes or drives, or warm fewer copies".to_owned()),
    };
    PlanFinding { severity, subject: "data", seen, remedy }
}

/// What is lost with a node is filled again by the others, if they have the room.
fn judge_lost_node(input: &CapacityInput, plan: &CapacityPlan) -> Option<PlanFinding> {
    let nodes = f64::from(input.nodes);
    let part = plan.holding_tier().part?;
    let without_one = part * nodes / (nodes - 1.0).max(f64::MIN_POSITIVE);
    (part <= 1.0 && without_one > 1.0).then(|| PlanFinding {
        severity: PlanSeverity::Warn,
        subject: "a lost node",
        seen: "the others can't hold its part: those reads go to the store".to_owned(),
        remedy: Some("one more node".to_owned()),
    })
}

fn judge_drives(plan: &CapacityPlan) -> Option<PlanFinding> {
    let (memory, disk) = (plan.memory_tier.capacity_bytes, plan.disk_tier.capacity_bytes);
    (disk > 0 && disk <= memory).then(|| PlanFinding {
        severity: PlanSeverity::Warn,
        subject: "drives",
        seen: "they hold less than memory, and pages in memory are on them, too".to_owned(),
        remedy: Some("larger drives, or none: their use is a warm restart alone".to_owned()),
    })
}

fn judge_memory(input: &CapacityInput, plan: &CapacityPlan) -> PlanFinding {
    let arena = plan.node_memory.worker_arena;
    // The least that `worker.memory.capacity` takes.
    let is_too_small = arena < 16 << 20;
    PlanFinding {
        severity: if is_too_small { PlanSeverity::DoesNotFit } else { PlanSeverity::Fits },
        subject: "memory of a node",
        seen: format!(
            "{} of {} are the worker's arena",
            show_size(arena),
            show_size(input.memory_bytes)
        ),
        remedy: is_too_small
            .then(|| "more memory, or fewer readers (landings) or drives (index)".to_owned()),
    }
}

fn judge_queue_pairs(settings: &RootSettings, plan: &CapacityPlan) -> Option<PlanFinding> {
    if plan.nic.nics == 0 {
        return None;
    }
    let (pairs, bound) = (plan.nic.process_queue_pairs_max, settings.verbs.connections_max);
    let part = pairs as f64 / f64::from(bound);
    let severity = judge_part(part).min(PlanSeverity::Act);
    Some(PlanFinding {
        severity,
        subject: "queue pairs",
        seen: format!("up to {pairs} of a process, verbs.connections_max is {bound}"),
        remedy: (severity > PlanSeverity::Fits).then(|| {
            "the written file raises verbs.connections_max; ask the NIC's maker how many it \
            serves from its cache"
                .to_owned()
        }),
    })
}

fn judge_cluster_store(plan: &CapacityPlan) -> PlanFinding {
    let of_document = plan.store.document_bytes as f64 / VALUE_BYTES_MAX as f64;
    let of_etcd = plan.store.etcd_bytes as f64 / ETCD_BYTES_MAX as f64;
    let severity = judge_part(of_document.max(of_etcd));
    let remedy = match severity {
        PlanSeverity::Fits => None,
        _ if of_document > of_etcd => Some("a cluster for each part of the nodes".to_owned()),
        _ => Some("a larger --quota-backend-bytes, or compaction more often".to_owned()),
    };
    PlanFinding {
        severity,
        subject: "etcd",
        seen: format!(
            "{} with an hour of history, a document of {}",
            show_size(plan.store.etcd_bytes),
            show_size(plan.store.document_bytes)
        ),
        remedy,
    }
}
