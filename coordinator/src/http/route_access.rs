//! Who may ask what: holds a request's caller against the roles of its route.

use http::Method;
use verbs3_certificates::{NodeName, NodeRole};

use super::caller::RequestCaller;
use super::request::CoordinatorRequest;
use super::route::Route;
use crate::console_access::ConsoleRole;

/// Returns why the caller may not ask `route`. `None`: it may. A worker's own name is up to the
/// handler, which knows where the request says it.
pub(super) fn find_refusal(route: &Route, asked: &CoordinatorRequest) -> Option<String> {
    let (caller, roles) = (&asked.caller, route.asked_by);
    match caller {
        RequestCaller::Secret | RequestCaller::Token => None,
        // Else a gateway would ask as an operator does, of everybody's jobs.
        RequestCaller::Node(NodeName { role: NodeRole::Gateway, .. })
            if route.has_owners && asked.query_text("owner").is_none() =>
        {
            Some(format!("{caller} may ask {} on behalf of an owner alone", route.name))
        }
        RequestCaller::Node(node) if roles.contains(&node.role) => None,
        // Operators' routes alone: viewers see, and change nothing.
        RequestCaller::ConsoleUser { role, .. }
            if roles.contains(&NodeRole::Operator)
                && (*role == ConsoleRole::Operator || route.method == Method::GET) =>
        {
            None
        }
        RequestCaller::ConsoleUser { .. } => Some(format!("{caller} may not ask {}", route.name)),
        RequestCaller::Node(_) | RequestCaller::Nobody => {
            let roles: Vec<_> = roles.iter().map(|role| role.role_text()).collect();
            let (name, roles) = (route.name, roles.join(", "));
            Some(format!("{caller} may not ask {name}: the roles that may are {roles}"))
        }
    }
}
