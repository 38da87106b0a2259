//! The vocabulary of the cases, which are written by hand; `chaos` holds random histories.
#![allow(clippy::unwrap_used)]

mod chaos;
mod cluster_views;
mod lost_maps;
mod map_changes;
mod moving;
mod processes;
mod uncertain;

use verbs3_coordinator_client::api::{
    MembershipActivation, OPEN_WRITES_MAX, WorkerRegistration, WorkerState,
};
use verbs3_protocol::{Epoch, MemberRoster, NoticeRelayOutcome};
use verbs3_settings::TimePeriod;

use super::registration::RAILS_MAX;
use super::*;

const LEASE: Duration = Duration::from_secs(10);
const OUTAGE: Duration = Duration::from_secs(600);
const GATHER: Duration = Duration::from_millis(500);

fn options() -> ClusterOptions {
    options_moving_for(Duration::ZERO)
}

fn options_moving_for(move_for: Duration) -> ClusterOptions {
    let settings = CoordinatorSettings {
        lease: TimePeriod(LEASE),
        outage: TimePeriod(OUTAGE),
        gather: TimePeriod(GATHER),
        move_for: TimePeriod(move_for),
        workers_max: 100,
        ..CoordinatorSettings::default()
    };
    ClusterOptions { settings, replicas: 2 }
}

fn seconds(seconds: u64) -> LeaseInstant {
    LeaseInstant::default().saturating_add(Duration::from_secs(seconds))
}

fn registration(id: &str, incarnation: &str) -> WorkerRegistration {
    WorkerRegistration {
        id: WorkerId(id.into()),
        incarnation: WorkerIncarnation(incarnation.into()),
        address: format!("{id}:9400"),
        weight: 1.0,
        zone: String::new(),
        tiers: Vec::new(),
        rails: Vec::new(),
        knows: Epoch(0),
        place: 0,
    }
}

fn renewal(incarnation: &str, active: Epoch, prepared: Epoch) -> WorkerLeaseRenewal {
    let open_writes = (prepared.0 > 0).then(Vec::new);
    let given_up =
        RelinquishedEpoch { epoch: Epoch(prepared.0.saturating_sub(1)), uncertain_ms: 0 };
    WorkerLeaseRenewal {
        incarnation: WorkerIncarnation(incarnation.into()),
        active,
        prepared,
        open_writes,
        wait_ms: 0,
        knows: Epoch(0),
        handing_over: None,
        heard: Vec::new(),
        hot: None,
        given_up,
        rails: None,
    }
}

/// Ends a worker in order; it has answered under epoch 101.
fn leave(
    incarnation: &str,
    open_writes: Option<Vec<OpenWriteReport>>,
    uncertain_ms: u64,
) -> WorkerDeparture {
    let given_up = RelinquishedEpoch { epoch: Epoch(101), uncertain_ms };
    WorkerDeparture { incarnation: WorkerIncarnation(incarnation.into()), open_writes, given_up }
}

/// Returns the activation for a worker that knew no map.
fn activation(granted: WorkerLeaseGrant) -> MembershipActivation {
    granted.activation.unwrap().resolve_activation(None).unwrap()
}

fn id(id: &str) -> WorkerId {
    WorkerId(id.into())
}

/// Does what is due at `now`. Returns the moment of the next step.
fn settle(cluster: &mut MembershipController, now: LeaseInstant) -> LeaseInstant {
    loop {
        match cluster.decide_step(now) {
            MembershipStep::Wait(until) => return until,
            MembershipStep::Persist(document) => cluster.confirm_persisted(*document, now),
        }
    }
}

fn members(cluster: &MembershipController) -> Vec<&str> {
    cluster.cluster_document().active.members.iter().map(|member| member.id.0.as_str()).collect()
}

/// Returns a cluster at second 1 whose map holds these workers. Each is its own incarnation.
fn cluster_of(ids: &[&str]) -> MembershipController {
    let mut cluster =
        MembershipController::new(options(), ClusterDocument::new(Epoch(100), 2), seconds(0));
    for id in ids {
        cluster.register_worker(registration(id, id), seconds(0)).unwrap();
    }
    settle(&mut cluster, seconds(0));
    settle(&mut cluster, seconds(1));
    assert_eq!(members(&cluster), ids);
    for name in ids {
        let granted =
            cluster.renew_lease(&id(name), &renewal(name, Epoch(0), Epoch(0)), seconds(1)).unwrap();
        assert_eq!(activation(granted).membership, cluster.cluster_document().active);
    }
    cluster
}

fn epoch(cluster: &MembershipController) -> Epoch {
    cluster.cluster_document().active.epoch
}

/// Renews the lease of a worker that answers under the map in force, and gives that map up if it is
/// asked to.
fn renew_and_prepare(cluster: &mut MembershipController, name: &str, now: LeaseInstant) {
    let answering = renewal(name, epoch(cluster), Epoch(0));
    if let Some(next) = cluster.renew_lease(&id(name), &answering, now).unwrap().prepare {
        cluster.renew_lease(&id(name), &renewal(name, Epoch(0), next), now).unwrap();
    }
}
