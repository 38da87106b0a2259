//! The resource's definition in the chart, held against its type.
//!
//! After a change of it: `BLESS=1 cargo test --workspace --test resource_definition`.
#![allow(clippy::unwrap_used)]

use verbs3_kubernetes::PreloadResource;

/// What follows is JSON, which is YAML.
const HEAD: &str = "# Written from kubernetes/src/preload_resource.rs by the test \
    resource_definition of kubernetes.\n";

#[test]
fn the_charts_definition_is_that_of_the_type() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/verbs3/files/preloads.yaml");
    let definition = serde_json::to_string_pretty(&PreloadResource::definition()).unwrap();
    let wanted = format!("{HEAD}{definition}\n");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == wanted, "{path} is not what the type says; run this test with BLESS=1");
}

#[test]
fn nothing_names_an_endpoint_or_another_namespace() {
    let definition = PreloadResource::definition();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = &schema["properties"]["spec"];
    for name in spec["properties"].as_object().unwrap().keys() {
        let name = name.to_lowercase();
        let is_place = ["endpoint", "url", "namespace", "host"].iter().any(|w| name.contains(w));
        assert!(!is_place, "{name}");
    }
    let rules = spec["x-kubernetes-validations"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["rule"] == "self == oldSelf"), "{rules:?}");
}
