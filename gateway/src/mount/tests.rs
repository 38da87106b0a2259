//! The table's rules, and that keys survive the way there and back.
#![allow(clippy::unwrap_used)]

use super::*;

struct Nothing;
impl s3s::S3 for Nothing {}

fn mount(name: &str, prefix: &str) -> Mount {
    Mount {
        name: name.into(),
        volume: Volume::new("store", "train"),
        ufs: Ufs::new("store".into(), Arc::new(Nothing), verbs3_ufs::UfsLimits::default()),
        bucket: "train".into(),
        prefix: prefix.into(),
        attributes: Freshness::AlwaysAsk,
        absence_ttl: Duration::from_secs(1),
        coherence: Coherence::Strict,
        read_only: false,
        cached: true,
    }
}

#[test]
fn keys_survive_the_way_there_and_back() {
    for (prefix, key) in [("", "a"), ("sets/", "a/b"), ("sets/", "/a//b"), ("sets/", "ü+%2F")] {
        let mount = mount("data", prefix);
        let ufs_key = mount.ufs_key(key);
        assert_eq!(ufs_key, format!("{prefix}{key}"));
        assert_eq!(mount.client_key(&ufs_key), Some(key));
        assert_eq!(mount.object(key).key, ufs_key);
    }
}

#[test]
fn a_key_outside_the_prefix_has_no_client_key() {
    assert_eq!(mount("data", "sets/").client_key("set"), None);
}

#[test]
fn two_mounts_of_one_bucket_share_their_objects() {
    assert_eq!(mount("all", "").object("sets/a"), mount("some", "sets/").object("a"));
}

#[test]
fn bad_mounts_are_refused() {
    let error = |mount: Mount| Mounts::new([mount]).err().unwrap();
    assert!(matches!(error(mount("Data", "")), MountError::Name { .. }));
    assert!(matches!(error(mount("data", "sets")), MountError::Prefix { .. }));
    assert!(matches!(
        error(mount("data", &format!("{}/", "x".repeat(1024)))),
        MountError::PrefixLong { .. }
    ));
    assert!(matches!(
        error(Mount { bucket: "a/b".into(), ..mount("data", "") }),
        MountError::Bucket { .. }
    ));
    assert!(matches!(
        error(Mount { volume: Volume("x/y".into()), ..mount("data", "") }),
        MountError::Volume { .. }
    ));
    assert!(matches!(
        Mounts::new([mount("data", ""), mount("data", "")]).err().unwrap(),
        MountError::Duplicate { .. }
    ));
}

#[test]
fn a_ttl_is_never_taken_for_immutable() {
    assert_eq!(Freshness::Ttl(Duration::MAX).age_ms_max(), u64::MAX - 1);
    assert_eq!(Freshness::Ttl(Duration::from_millis(1500)).age_ms_max(), 1500);
    assert_eq!(Freshness::AlwaysAsk.age_ms_max(), 0);
    assert_eq!(Freshness::Immutable.age_ms_max(), u64::MAX);
}

#[test]
fn writes_are_announced_by_the_strictest_promise() {
    let of = |cached, coherence| Mount { cached, coherence, ..mount("data", "") };
    let promised = |mounts: Vec<Mount>| {
        let written = mounts[0].clone();
        Mounts::new(mounts).unwrap().promised(&written)
    };
    // Another gateway may cache what this one does not.
    assert_eq!(promised(vec![of(false, Coherence::Strict)]), Coherence::Strict);
    assert_eq!(promised(vec![of(false, Coherence::Ttl)]), Coherence::Ttl);
    let beside = |coherence| Mount { name: "beside".into(), ..of(true, coherence) };
    assert_eq!(
        promised(vec![of(false, Coherence::Ttl), beside(Coherence::Strict)]),
        Coherence::Strict
    );
    assert_eq!(promised(vec![of(true, Coherence::Ttl), beside(Coherence::Ttl)]), Coherence::Ttl);
}
