//! Everything that can happen in the simulation, and its order.

use std::sync::Arc;

use verbs3_coordinator_client::api::{WorkerLeaseGrant, WorkerLeaseRenewal};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, MemberRoster};

use crate::membership::{ClusterDocument, MembershipError};

/// Event of the simulation. Its worker or coordinator may have died since; `life` and
/// `current_term` tell.
pub(super) enum SimulationEvent {
    LeaderWakes { term: u64 },
    Persisted { term: u64, document: Box<ClusterDocument> },
    Elected,
    Published { coordinator: usize, membership: Arc<MemberRoster> },
    Worker { at: usize, life: u32, what: SimulatedWorkerEvent },
    Gateway { at: usize, what: SimulatedGatewayEvent },
}

pub(super) struct PlannedEvent {
    pub(super) at: LeaseInstant,
    pub(super) serial: u64,
    pub(super) event: SimulationEvent,
}

impl PartialEq for PlannedEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}
impl Eq for PlannedEvent {}
impl PartialOrd for PlannedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for PlannedEvent {
    /// Orders the earliest event first; at one moment, in the order of planning.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

#[derive(Clone)]
pub(super) enum SimulatedQuestion {
    Register,
    Renew(WorkerLeaseRenewal),
}

pub(super) enum SimulatedWorkerEvent {
    Asks,
    Arrives {
        question: SimulatedQuestion,
        sent: LeaseInstant,
    },
    /// The coordinator waited for news in vain.
    WaitOver {
        question: u64,
    },
    Answered {
        granted: Box<WorkerLeaseGrant>,
        sent: LeaseInstant,
    },
    Refused {
        error: MembershipError,
    },
    Away,
    Computed {
        epoch: Epoch,
    },
}

pub(super) enum SimulatedGatewayEvent {
    Asks,
    Arrives,
    WaitOver { question: u64 },
    Told { membership: Arc<MemberRoster> },
    Adopted { epoch: Epoch },
}
