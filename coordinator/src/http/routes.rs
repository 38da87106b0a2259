//! All routes, and the way from a request to its route.

use std::sync::LazyLock;

use futures::FutureExt;
use http::{Method, StatusCode};
use verbs3_certificates::NodeRole;

use super::activity_routes::activity_routes;
use super::api_context::ApiContext;
use super::audit::AuditedRequest;
use super::cluster_routes::cluster_routes;
use super::map_routes::map_routes;
use super::object_routes::object_routes;
use super::openapi::build_document;
use super::preload_routes::preload_routes;
use super::relay_routes::relay_routes;
use super::request::{CoordinatorRequest, PathValue};
use super::response::{CoordinatorResponse, forbidden_response, malformed_response};
use super::route::Route;
use super::route_access::find_refusal;
use super::worker_routes::worker_routes;

/// The API. Every coordinator answers reads of the map; the leader answers everything else.
pub(super) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = map_routes();
    routes.extend(cluster_routes());
    routes.extend(worker_routes());
    routes.extend(relay_routes());
    routes.extend(preload_routes());
    routes.extend(object_routes());
    routes.extend(activity_routes());
    routes.push(
        Route::get("openapi", "/v1/openapi.json", |_, _| {
            async { Ok(CoordinatorResponse::from_json(StatusCode::OK, &*DOCUMENT)) }.boxed()
        })
        .summary("This document")
        .asked_by(&NodeRole::ALL)
        .answers::<serde_json::Map<String, serde_json::Value>>(StatusCode::OK, "The document"),
    );
    routes
});

static DOCUMENT: LazyLock<serde_json::Value> = LazyLock::new(|| build_document(&ROUTES));

/// A route, and the parts of the path that it names.
pub(super) struct FoundRoute {
    pub(super) route: &'static Route,
    path_values: Vec<PathValue>,
}

pub(super) fn find_route(method: &Method, path: &str) -> Option<FoundRoute> {
    ROUTES.iter().filter(|route| route.method == *method).find_map(|route| {
        route.match_path(path).map(|path_values| FoundRoute { route, path_values })
    })
}

/// What a route says, and its name for metrics.
pub(super) struct RoutedResponse {
    pub(super) route_name: &'static str,
    pub(super) response: CoordinatorResponse,
}

/// Answers a request by its route, if its caller may ask that.
pub(super) async fn route_request(
    context: &ApiContext,
    mut asked: CoordinatorRequest,
) -> RoutedResponse {
    let Some(FoundRoute { route, path_values }) = find_route(&asked.method, &asked.path) else {
        let reason = format!("no {} {} here", asked.method, asked.path);
        let response = malformed_response(StatusCode::NOT_FOUND, reason);
        return RoutedResponse { route_name: "unknown", response };
    };
    asked.path_values = path_values;
    let audited = AuditedRequest::begin(route, &asked);
    let response = match find_refusal(route, &asked) {
        Some(why) => forbidden_response(why),
        None => (route.handler)(context, &asked).await.unwrap_or_else(|refusal| refusal),
    };
    audited.conclude(&response);
    RoutedResponse { route_name: route.name, response }
}

#[cfg(test)]
mod tests;
