//! Takes what gateways and workers report of their work. Only the leader wants it, and only where
//! there is a console.

use futures::FutureExt;
use http::StatusCode;
use verbs3_certificates::NodeRole;
use verbs3_coordinator_client::api::{ActivityRole, ActivityWish, NodeActivity};

use super::caller::RequestCaller;
use super::request::CoordinatorRequest;
use super::response::{CoordinatorResponse, HandlerResult, forbidden_response, malformed_response};
use super::route::Route;
use crate::coordinator_state::CoordinatorState;

pub(super) fn activity_routes() -> Vec<Route> {
    let route =
        Route::post("activity", "/v1/activity", |state, asked| state.take_activity(asked).boxed());
    vec![
        route
            .asked_by(&[NodeRole::Gateway, NodeRole::Worker])
            .unaudited()
            // Figures count from the start of a process: told twice, they are the same.
            .repeatable()
            .summary("What a gateway or worker has done since its start, for the console")
            .takes_message("api::NodeActivity")
            .answers_message("When the next report is wanted", "api::ActivityWish"),
        Route::get("activity_wish", "/v1/activity", |state, _| state.say_wish().boxed())
            .asked_by(&[NodeRole::Gateway, NodeRole::Worker])
            .summary("Whether reports for the console are wanted, and how often")
            .answers_message("How often they are wanted", "api::ActivityWish"),
    ]
}

impl CoordinatorState {
    async fn take_activity(&self, asked: &CoordinatorRequest) -> HandlerResult {
        let report: NodeActivity = asked.parse_body()?;
        if let Some(why) = refusal_of_role(&asked.caller, &report) {
            return Err(forbidden_response(why));
        }
        if !self.is_leader() {
            return Err(self.not_leader().await);
        }
        if self.console.is_some() {
            let taken = self.activity.lock().record_report(report, self.clock.now());
            taken
                .map_err(|error| malformed_response(StatusCode::BAD_REQUEST, error.to_string()))?;
        }
        Ok(CoordinatorResponse::from_json(StatusCode::OK, &self.activity_wish()))
    }

    async fn say_wish(&self) -> HandlerResult {
        if !self.is_leader() {
            return Err(self.not_leader().await);
        }
        Ok(CoordinatorResponse::from_json(StatusCode::OK, &self.activity_wish()))
    }

    fn activity_wish(&self) -> ActivityWish {
        let every = self.console.as_ref().map(|console| console.options.report_every.as_millis());
        ActivityWish { every_ms: every.map_or(0, |ms| u64::try_from(ms).unwrap_or(u64::MAX)) }
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
