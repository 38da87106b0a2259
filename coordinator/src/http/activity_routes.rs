//! Takes what gateways and workers report of their work. Only the leader wants it, and only where
//! there is a console.

use futures::FutureExt;
use http::StatusCode;
use verbs3_certificates::NodeRole;
use verbs3_coordinator_client::api::{ActivityRole, NodeActivity};

use super::api_context::ApiContext;
use super::caller::RequestCaller;
use super::leader_refusal::redirect_to_leader;
use super::request::CoordinatorRequest;
use super::response::{CoordinatorResponse, HandlerResult, forbidden_response, malformed_response};
use super::route::Route;
use crate::activity_board::ReportRefusal;

/// Longest report. Lists that are longer than they may be take memory before they are cut.
const REPORT_BYTES_MAX: usize = 64 << 10;

pub(super) fn activity_routes() -> Vec<Route> {
    let route = Route::post("activity", "/v1/activity", |context, asked| {
        take_activity(context, asked).boxed()
    });
    vec![
        route
            .asked_by(&[NodeRole::Gateway, NodeRole::Worker])
            .unaudited()
            // A report that is told twice counts once, by its number.
            .repeatable()
            .summary("What a gateway or worker has done since its start, for the console")
            .takes_message("api::NodeActivity")
            .answers_message("When the next report is wanted", "api::ActivityWish"),
        Route::get("activity_wish", "/v1/activity", |context, _| say_wish(context).boxed())
            .asked_by(&[NodeRole::Gateway, NodeRole::Worker])
            .summary("Whether reports for the console are wanted, and how often")
            .answers_message("How often they are wanted", "api::ActivityWish"),
    ]
}

async fn take_activity(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    if asked.body.len() > REPORT_BYTES_MAX {
        let reason = format!("a report is longer than {REPORT_BYTES_MAX} bytes");
        return Err(malformed_response(StatusCode::PAYLOAD_TOO_LARGE, reason));
    }
    let report: NodeActivity = asked.parse_body()?;
    if let Some(why) = refusal_of_role(&asked.caller, &report) {
        return Err(forbidden_response(why));
    }
    if !context.leadership.is_leader() {
        return Err(redirect_to_leader(&context.leadership).await);
    }
    match context.activity.record_report(&certificate_name(&asked.caller), report) {
        // Its first answer may have been lost.
        Ok(()) | Err(ReportRefusal::Old) => {}
        Err(error) => {
            return Err(malformed_response(StatusCode::BAD_REQUEST, error.to_string()));
        }
    }
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &context.activity.report_wish()))
}

async fn say_wish(context: &ApiContext) -> HandlerResult {
    if !context.leadership.is_leader() {
        return Err(redirect_to_leader(&context.leadership).await);
    }
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &context.activity.report_wish()))
}

/// Returns the name that a caller has proved to have; empty: it has no certificate.
fn certificate_name(caller: &RequestCaller) -> String {
    match caller {
        RequestCaller::Node(name) => name.to_string(),
        _ => String::new(),
    }
}

/// Refuses a node that speaks as one of another role, or as another worker.
fn refusal_of_role(caller: &RequestCaller, report: &NodeActivity) -> Option<String> {
    let RequestCaller::Node(node) = caller else { return None };
    match (node.role, report.role) {
        (NodeRole::Gateway, ActivityRole::Gateway) => None,
        (NodeRole::Worker, ActivityRole::Worker) => caller.refusal_as_worker(&report.name),
        _ => Some(format!("{caller} may not report as a node of another role")),
    }
}

#[cfg(test)]
mod tests {
    use verbs3_certificates::NodeName;

    use super::*;

    #[test]
    fn gateways_are_told_apart_by_their_certificates() {
        let node = |name: &str| {
            RequestCaller::Node(NodeName { role: NodeRole::Gateway, name: name.to_owned() })
        };
        assert_eq!(certificate_name(&node("g")), "gateway/g");
        assert_ne!(certificate_name(&node("g")), certificate_name(&node("h")));
        assert_eq!(certificate_name(&RequestCaller::Secret), "");
    }
}
