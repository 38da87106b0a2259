//! Owns the table of who may ask a worker what, by certificate. A requester that has shown none is
//! not judged: the transports let it in by the cluster's secret, where the configuration allows it.

use verbs3_certificates::NodeRole;
use verbs3_protocol::WorkerRequest;

/// Returns whether a requester of this role may ask this.
pub(super) fn may_ask(role: Option<NodeRole>, question: &WorkerRequest) -> bool {
    role.is_none_or(|role| asking_roles(question).contains(&role))
}

/// Returns the roles that ask this. Nobody else has a reason to.
fn asking_roles(question: &WorkerRequest) -> &'static [NodeRole] {
    use NodeRole::{Coordinator, Gateway, Worker};
    match question {
        // Reads, and news of writes.
        WorkerRequest::Open(_)
        | WorkerRequest::Announce(_)
        | WorkerRequest::Report(_)
        | WorkerRequest::GoneVersion(_)
        | WorkerRequest::Listed(_)
        | WorkerRequest::Recalls(_) => &[Gateway],
        // A worker reads what another one holds.
        WorkerRequest::Read(_) => &[Gateway, Worker],
        WorkerRequest::Holds(_) | WorkerRequest::TakeOver(_) => &[Worker],
        // A gateway says which keys changed, a coordinator which ones an operator names.
        WorkerRequest::Forget(_) | WorkerRequest::Standing => &[Gateway, Coordinator],
        // Preload jobs and operators.
        WorkerRequest::ForgetPrefix(_)
        | WorkerRequest::Warm(_)
        | WorkerRequest::Look(_)
        | WorkerRequest::Tend(_) => &[Coordinator],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_refused_where_it_asks_for_anothers() {
        use NodeRole::{Coordinator, Gateway, Operator, Worker};
        let standing = WorkerRequest::Standing;
        for (role, may) in [
            (None, true),
            (Some(Gateway), true),
            (Some(Coordinator), true),
            (Some(Worker), false),
            (Some(Operator), false),
        ] {
            assert_eq!(may_ask(role, &standing), may, "{role:?}");
        }
    }
}
