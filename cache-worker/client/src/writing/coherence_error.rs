//! Says why a home does not know of a write.

use std::sync::Arc;

use tokio::task::JoinError;
use verbs3_protocol::{Epoch, WorkerId, WorkerRefusal};

use crate::asking::single_answer::QuestionError;

/// Reason why a home does not know of a write.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CoherenceError {
    #[error(
        "worker {worker}, the home of the key, can't be told of the write: {cause}; bring the \
        worker back, or set coherence = \"ttl\" on the mount"
    )]
    HomeUnreachable {
        worker: WorkerId,
        #[source]
        cause: Box<HomeSilence>,
    },
    #[error(
        "worker {worker}, the home of the key, refused the write's {what}: {:?}: {refusal}",
        refusal.kind
    )]
    HomeRefused {
        worker: WorkerId,
        what: &'static str,
        #[source]
        refusal: WorkerRefusal,
    },
    #[error(
        "there is no placement map, and so no home to tell; is a coordinator there, and a worker?"
    )]
    NoMap,
    #[error(
        "the lease of worker {worker} is over, and worker {other} does not stand by the same map: \
        {cause}; bring the coordinators back"
    )]
    Alone {
        worker: WorkerId,
        other: WorkerId,
        #[source]
        cause: Box<StandingDoubt>,
    },
    #[error("worker {worker}, the home of the key, has another placement map: {cause}")]
    OtherMap {
        worker: WorkerId,
        #[source]
        cause: MapDisagreement,
    },
    #[error("the placement map changed while worker {worker} was told of the write")]
    Moved { worker: WorkerId },
}

/// Reason why a home has not acknowledged a notice.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HomeSilence {
    #[error(transparent)]
    Directly(QuestionError),
    #[error("{directly}; by way of the coordinators: {relayed}")]
    BothWays {
        directly: QuestionError,
        #[source]
        relayed: RelayFailure,
    },
    #[error("the task that told it has ended: {0}")]
    TaskEnded(#[source] Arc<JoinError>),
}

/// Reason to doubt that a worker stands by the map of a write.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StandingDoubt {
    #[error("it is at epoch {}", .0.0)]
    OtherEpoch(Epoch),
    #[error(transparent)]
    Question(QuestionError),
}

/// How a home, or the coordinators, disagree about the map of a write.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MapDisagreement {
    #[error(transparent)]
    Refused(WorkerRefusal),
    #[error("the map in force has epoch {}", .0.0)]
    InForce(Epoch),
}

/// No coordinator has answered.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the coordinators can't be asked: {0}")]
pub struct RelayError(pub String);

/// Reason why the coordinators have not brought a home's acknowledgement.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RelayFailure {
    #[error("it was not asked in time")]
    NotAsked,
    #[error(transparent)]
    Refused(#[from] WorkerRefusal),
    #[error("the worker did not answer them in time")]
    Silent,
    #[error("the worker has no lease; the next map will be without it")]
    NoLease,
    #[error(
        "they relay as many messages, or bytes of them, as they may (coordinator.relays_max, \
        coordinator.relays_memory)"
    )]
    Full,
    #[error(transparent)]
    Away(#[from] RelayError),
}
