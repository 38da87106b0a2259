//! Checks that the router and the document know the same routes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;

/// Returns a path of the route, with `a` for each part that has a name.
fn sample_path(route: &Route) -> String {
    let parts = route.path.split('/').map(|part| if part.starts_with('{') { "a" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_is_found_by_its_path_and_only_it() {
    for route in ROUTES.iter() {
        let path = sample_path(route);
        let found: Vec<&str> = ROUTES
            .iter()
            .filter(|other| other.method == route.method && other.match_path(&path).is_some())
            .map(|other| other.name)
            .collect();
        assert_eq!(found, [route.name], "{path}");
    }
    let names: BTreeSet<&str> = ROUTES.iter().map(|route| route.name).collect();
    assert_eq!(names.len(), ROUTES.len(), "each has a name of its own in the metrics");
}

#[test]
fn every_route_is_in_the_document_and_nothing_else_is() {
    let mut documented: Vec<String> = Vec::new();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys();
        documented.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let mut routed: Vec<String> = ROUTES
        .iter()
        .map(|route| format!("{} {}", route.method, route.path.replace("{*", "{")))
        .collect();
    documented.sort();
    routed.sort();
    assert_eq!(documented, routed);
    for route in ROUTES.iter() {
        assert!(!route.summary.is_empty() && !route.answers.is_empty(), "{}", route.path);
    }
}

#[test]
fn parts_of_a_path_are_decoded_and_a_key_has_its_slashes() {
    let value = |path: &str, name: &str| {
        let found = find_route(&Method::GET, path).unwrap();
        found.path_values.into_iter().find(|value| value.name == name).unwrap().value
    };
    assert_eq!(value("/v1/objects/train/a/b%20c%2Fd//e", "key"), "a/b c/d//e");
    assert_eq!(value("/v1/objects/train/a", "bucket"), "train");
    assert_eq!(value("/v1/preload/a%2Fb/progress", "id"), "a/b");
    for absent in ["/v1/objects/train", "/v1", "/v1/", "/map", "/v2/map", "/v1/map/", "/v1map"] {
        assert!(find_route(&Method::GET, absent).is_none(), "{absent}");
    }
    assert!(find_route(&Method::PUT, "/v1/map").is_none());
}

#[test]
fn only_what_nodes_do_all_the_time_is_left_out_of_the_audit_log() {
    let changes = ROUTES.iter().filter(|route| route.method != Method::GET);
    let unaudited: Vec<&str> =
        changes.filter(|route| !route.is_audited).map(|route| route.name).collect();
    assert_eq!(unaudited, ["renew", "relay", "activity"]);
}
