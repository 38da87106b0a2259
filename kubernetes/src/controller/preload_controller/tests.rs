//! How long a deletion has lasted. The rest is held at a real API server (tests/kubernetes).
#![allow(clippy::unwrap_used)]

use super::*;
use crate::preload_resource::{
    PreloadResourcePriority, PreloadResourceSpec, PreloadResourceTier, ResourceMetadata,
};

fn deleted_at(time: Option<&str>) -> PreloadResource {
    let spec = PreloadResourceSpec {
        prefixes: vec!["s3://train/".to_owned()],
        paths: Vec::new(),
        secret_name: "key".to_owned(),
        priority: PreloadResourcePriority::Normal,
        tier: PreloadResourceTier::Memory,
        replicas: 1,
        deadline: None,
        bandwidth_bytes_per_second: None,
        verify: false,
        metadata_only: false,
    };
    let metadata = ResourceMetadata {
        deletion_timestamp: time.map(str::to_owned),
        ..ResourceMetadata::default()
    };
    PreloadResource { metadata, spec, status: PreloadResourceStatus::default() }
}

#[test]
fn a_deletion_ends_even_where_its_time_is_odd() {
    assert!(deleted_for(&deleted_at(Some(&rfc3339_now()))) < Duration::from_secs(60));
    assert!(deleted_for(&deleted_at(Some("2020-01-01T00:00:00Z"))) > Duration::from_secs(3600));
    // Of a clock that is ahead.
    assert_eq!(deleted_for(&deleted_at(Some("2999-01-01T00:00:00Z"))), Duration::ZERO);
    assert_eq!(deleted_for(&deleted_at(Some("yesterday"))), Duration::MAX);
}
