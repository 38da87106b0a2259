//! What `deploy/` says, held against the code.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Names of metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.match_indices("verbs3_").map(|(at, _)| text[at..].chars().take_while(|c| name(*c)).collect()).collect()
}

#[test]
fn alerts_name_metrics_that_exist() {
    let rules = std::fs::read_to_string(repository().join("deploy/prometheus/verbs3.rules.yaml")).unwrap();
    let sources = ["rdma", "ufs", "cache-worker", "cache-worker/client", "gateway", "coordinator"];
    let mut known = BTreeSet::new();
    for source in sources {
        known.extend(metrics(
            &std::fs::read_to_string(repository().join(source).join("src/metrics.rs")).unwrap_or_default(),
        ));
    }
    known.extend(metrics(&std::fs::read_to_string(repository().join("cache-worker/src/disk/metrics.rs")).unwrap()));
    known.extend(metrics(&std::fs::read_to_string(repository().join("gateway/src/read/metrics.rs")).unwrap()));
    let wanted = metrics(&rules);
    let unknown: Vec<&String> = wanted.difference(&known).collect();
    assert!(wanted.len() > 5 && unknown.is_empty(), "{unknown:?}");
}
