//! Owns the table of who may ask a worker what, by certificate. A requester that has shown none is
//! not judged: the transports let it in by the cluster's secret, where the configuration allows it.

use std::time::Instant;

use verbs3_certificates::NodeRole;
use verbs3_doors::RareWarning;
use verbs3_protocol::WorkerRequest;
use verbs3_rdma::transport::IncomingCall;

use super::{SPAN_PREFIX, span_name};
use crate::serve_refusal::ServeRefusal;

/// A node with a certificate may be denied as often as it likes. The metric counts all of them.
static DENIED_QUESTION: RareWarning = RareWarning::new();

/// Refuses what a node of the asker's role has no reason to ask. Somebody uses its certificate for
/// something else, so an operator hears of it.
pub(super) fn check_asker(
    asked_by: &IncomingCall,
    question: &WorkerRequest,
) -> Result<(), ServeRefusal> {
    let Some(role) = asked_by.role.filter(|role| !asking_roles(question).contains(role)) else {
        return Ok(());
    };
    let asked = span_name(question).trim_start_matches(SPAN_PREFIX);
    if DENIED_QUESTION.may_warn(Instant::now()) {
        let (peer, role) = (&asked_by.peer, role.role_text());
        tracing::warn!(%peer, role, asked, "a node asks what its role has no reason to ask");
    }
    Err(ServeRefusal::OtherRole { role, asked })
}

/// Returns the roles that ask this. Nobody else has a reason to.
fn asking_roles(question: &WorkerRequest) -> &'static [NodeRole] {
    use NodeRole::{Coordinator, Gateway, Worker};
    match question {
        // Reads, and news of writes.
        WorkerRequest::Open(_)
        | WorkerRequest::HeadList(_)
        | WorkerRequest::Announce(_)
        | WorkerRequest::Report(_)
        | WorkerRequest::GoneVersion(_)
        | WorkerRequest::Listed(_)
        | WorkerRequest::Recalls(_)
        // Pages of writes.
        | WorkerRequest::Stage(_)
        | WorkerRequest::Settle(_) => &[Gateway],
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
        let asked_by = |role| IncomingCall {
            message: Default::default(),
            landing_bytes: 0,
            peer: "gpu-07".into(),
            role,
        };
        for (role, may) in [
            (None, true),
            (Some(Gateway), true),
            (Some(Coordinator), true),
            (Some(Worker), false),
            (Some(Operator), false),
        ] {
            let checked = check_asker(&asked_by(role), &WorkerRequest::Standing);
            assert_eq!(checked.is_ok(), may, "{role:?}");
        }
    }
}
