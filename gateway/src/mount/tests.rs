//! The table's rules, and that keys survive the way there and back.
#![allow(clippy::unwrap_used)]

use super::*;

struct Nothing;
impl s3s::S3 for Nothing {}

fn mount(name: &str, prefix: &str) -> MountedBucket {
    MountedBucket {
        name: name.into(),
        volume: ObjectVolume::new("store", "train"),
        ufs: Ufs::new(Arc::new(Nothing), verbs3_ufs::UfsSettings::with_name("store")),
        bucket: "train".into(),
        prefix: prefix.into(),
        attributes: AttributeFreshness::AlwaysAsk,
        absence_ttl: Duration::from_secs(1),
        coherence: WriteCoherence::Strict,
        read_only: false,
        cached: true,
        populate_bytes_max: None,
    }
}

#[test]
fn keys_survive_the_way_there_and_back() {
    for (prefix, key) in [("", "a"), ("sets/", "a/b"), ("sets/", "/a//b"), ("sets/", "ü+%2F")] {
        let mount = mount("data", prefix);
        let ufs_key = mount.ufs_key(key);
        assert_eq!(ufs_key, format!("{prefix}{key}"));
        assert_eq!(mount.client_key(&ufs_key), Some(key));
        assert_eq!(mount.object_key(key).key, ufs_key);
    }
}

#[test]
fn a_key_outside_the_prefix_has_no_client_key() {
    assert_eq!(mount("data", "sets/").client_key("set"), None);
}

#[test]
fn two_mounts_of_one_bucket_share_their_objects() {
    assert_eq!(mount("all", "").object_key("sets/a"), mount("some", "sets/").object_key("a"));
}

#[test]
fn bad_mounts_are_refused() {
    let error = |mount: MountedBucket| MountTable::new([mount]).err().unwrap();
    assert!(matches!(error(mount("Data", "")), MountError::Name { .. }));
    assert!(matches!(error(mount("data", "sets")), MountError::Prefix { .. }));
    assert!(matches!(
        error(mount("data", &format!("{}/", "x".repeat(1024)))),
        MountError::PrefixLong { .. }
    ));
    assert!(matches!(
        error(MountedBucket { bucket: "a/b".into(), ..mount("data", "") }),
        MountError::Bucket { .. }
    ));
    assert!(matches!(
        error(MountedBucket { volume: ObjectVolume("x/y".into()), ..mount("data", "") }),
        MountError::Volume { .. }
    ));
    assert!(matches!(
        MountTable::new([mount("data", ""), mount("data", "")]).err().unwrap(),
        MountError::Duplicate { .. }
    ));
}

#[test]
fn a_ttl_is_never_taken_for_immutable() {
    assert_eq!(AttributeFreshness::Ttl(Duration::MAX).age_ms_max(), u64::MAX - 1);
    assert_eq!(AttributeFreshness::Ttl(Duration::from_millis(1500)).age_ms_max(), 1500);
    assert_eq!(AttributeFreshness::AlwaysAsk.age_ms_max(), 0);
    assert_eq!(AttributeFreshness::Immutable.age_ms_max(), u64::MAX);
}

#[test]
fn writes_are_announced_by_the_strictest_promise() {
    let of = |cached, coherence| MountedBucket { cached, coherence, ..mount("data", "") };
    let promised = |mounts: Vec<MountedBucket>| {
        let written = mounts[0].clone();
        MountTable::new(mounts).unwrap().promised_coherence(&written)
    };
    // Another gateway may cache what this one does not.
    assert_eq!(promised(vec![of(false, WriteCoherence::Strict)]), WriteCoherence::Strict);
    assert_eq!(promised(vec![of(false, WriteCoherence::Ttl)]), WriteCoherence::Ttl);
    let beside = |coherence| MountedBucket { name: "beside".into(), ..of(true, coherence) };
    assert_eq!(
        promised(vec![of(false, WriteCoherence::Ttl), beside(WriteCoherence::Strict)]),
        WriteCoherence::Strict
    );
    assert_eq!(
        promised(vec![of(true, WriteCoherence::Ttl), beside(WriteCoherence::Ttl)]),
        WriteCoherence::Ttl
    );
}
