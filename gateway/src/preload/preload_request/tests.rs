//! What holders of keys may ask for, and what becomes of it on the way to the coordinators.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::{Ufs, UfsSettings};

use super::*;
use crate::auth::IdentityStore;
use crate::mount::{AttributeFreshness, MountedBucket, WriteCoherence};

struct Judge {
    identities: Arc<IdentityStore>,
    mounts: MountTable,
    _folder: tempfile::TempDir,
}

impl Judge {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("identities.toml");
        let text = r#"
            [[identity]]
            name = "lab & co"
            access_key = "AKLAB"
            secret_key = "0123456789abcdef"
            tenant = "vision"
            [[identity.allow]]
            mount = "train"
            prefix = "2026/"
            rights = ["warm"]
            [[identity.allow]]
            mount = "part"
            rights = ["warm"]
            [[identity.allow]]
            mount = "open-1"
            rights = ["warm"]
            [[identity.allow]]
            mount = "other"
            rights = ["read", "list"]
        "#;
        std::fs::write(&file, text).unwrap();
        let identities = IdentityStore::load_file(&file).unwrap();
        let store = LocalStore::open_store(LocalOptions::new(folder.path().join("s"))).unwrap();
        let ufs = Ufs::new(Arc::new(store), UfsSettings::with_name("local"));
        let mount = |name: &str| MountedBucket {
            name: name.into(),
            volume: verbs3_protocol::ObjectVolume::new("local", name),
            ufs: ufs.clone(),
            bucket: name.into(),
            prefix: String::new(),
            attributes: AttributeFreshness::Immutable,
            absence_ttl: Duration::ZERO,
            coherence: WriteCoherence::Strict,
            read_only: false,
            cached: true,
            populate_bytes_max: None,
        };
        let part = MountedBucket {
            bucket: "data".into(),
            prefix: "a/".into(),
            volume: verbs3_protocol::ObjectVolume::new("local", "data"),
            ..mount("part")
        };
        let mounts = MountTable::new(vec![mount("train"), mount("other"), part]).unwrap();
        let mounts = mounts.with_open(mount("all"));
        Self { identities, mounts, _folder: folder }
    }

    fn ask(&self, method: Method, target: &str, body: &str) -> Result<PreloadQuestion, u16> {
        let identity = self.identities.get("AKLAB").unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let made = PreloadTarget::read_request(&method, path).and_then(|target| {
            target.make_question(query, body.as_bytes(), &identity, &self.mounts)
        });
        made.map_err(|refusal| {
            assert!(serde_json::from_slice::<Value>(&refusal.body).unwrap()["reason"].is_string());
            refusal.status.as_u16()
        })
    }

    /// Returns what is passed on of a job.
    fn pass_on(&self, body: &str) -> Result<Value, u16> {
        let question = self.ask(Method::POST, PATH, body)?;
        assert_eq!(question.path_and_query, "/v1/preload?owner=lab%20%26%20co");
        Ok(serde_json::from_slice(&question.body).unwrap())
    }

    fn begin(&self, body: &str) -> Result<Value, u16> {
        Ok(self.pass_on(body)?["job"].clone())
    }
}

#[tokio::test]
async fn a_job_may_name_what_its_owner_may_warm_and_nothing_else() {
    let judge = Judge::new();
    for good in [
        r#"{"prefixes": ["s3://train/2026/"]}"#,
        r#"{"paths": ["s3://train/2026/a"], "prefixes": ["s3://train/2026/b/"], "action": "load"}"#,
        r#"{"prefixes": ["s3://train/2026/"], "priority": "low", "id": "mine"}"#,
    ] {
        let mut passed = judge.begin(good).unwrap();
        let wanted: Value = serde_json::from_str(good).unwrap();
        assert!(passed["id"].as_str().is_some_and(is_job_id), "{passed}");
        if wanted.get("id").is_none() {
            passed.as_object_mut().unwrap().remove("id");
        }
        assert_eq!(passed, wanted);
    }
    for (bad, status) in [
        (r#"{"prefixes": ["s3://train"]}"#, 403),
        (r#"{"prefixes": ["s3://train/2025/"]}"#, 403),
        (r#"{"prefixes": ["s3://train/2026"]}"#, 403),
        (r#"{"prefixes": ["s3://other/"]}"#, 403),
        (r#"{"prefixes": ["s3://nowhere/"]}"#, 403),
        (r#"{"paths": ["s3://train/2026/a", "s3://other/b"]}"#, 403),
        (r#"{"prefixes": ["s3://train/2026/"], "action": "evict"}"#, 403),
        (r#"{"prefixes": ["s3://train/2026/"], "action": 1}"#, 403),
        (r#"{"prefixes": ["s3://train/2026/"], "pin_ttl": 60, "tier": "disk"}"#, 403),
        (r#"{"prefixes": ["s3://train/2026/"], "priority": "high"}"#, 403),
        // Two forms of one value: the coordinators read both as `high`.
        (r#"{"prefixes": ["s3://train/2026/"], "priority": {"high": null}}"#, 403),
        (r#"{"prefixes": ["s3://train/2026/"], "action": {"evict": null}}"#, 403),
        (r#"{"manifest": "s3://train/2026/list"}"#, 403),
        (r#"{"paths": "s3://train/2026/a"}"#, 400),
        (r#"{"paths": ["/train/2026/a"]}"#, 400),
        (r#"{"paths": [7]}"#, 400),
        ("[]", 400),
        ("", 400),
    ] {
        assert_eq!(judge.begin(bad), Err(status), "{bad}");
    }
}

/// A coordinator may take a mount for something else. It has to hear what was judged.
#[tokio::test]
async fn what_each_mount_stands_for_goes_with_the_job() {
    let judge = Judge::new();
    let job = r#"{"paths": ["s3://part/k", "s3://train/2026/a", "s3://part/l"],
        "prefixes": ["s3://open-1/x/", "s3://train/2026/"]}"#;
    let passed = judge.pass_on(job).unwrap();
    assert_eq!(passed["tenant"], "vision");
    let judged = |mount: &str, bucket: &str, prefix: &str| json!({ "mount": mount, "store": "local", "bucket": bucket, "prefix": prefix });
    let expected = [
        judged("open-1", "open-1", ""),
        judged("part", "data", "a/"),
        judged("train", "train", ""),
    ];
    assert_eq!(passed["judged_mounts"], Value::from(expected.to_vec()));
}

/// What a client says of mounts or tenants reaches the coordinators as a part of its job, which
/// has no such fields. They refuse it.
#[tokio::test]
async fn nobody_says_what_was_judged_but_the_gateway() {
    let forged = r#"{"paths": ["s3://part/k"], "tenant": "other", "judged_mounts": []}"#;
    let passed = Judge::new().pass_on(forged).unwrap();
    assert_eq!((&passed["tenant"], &passed["job"]["tenant"]), (&"vision".into(), &"other".into()));
    assert_eq!(passed["judged_mounts"].as_array().unwrap().len(), 1);
}

/// A reader that takes the first of two members would see another job than the one judged.
#[tokio::test]
async fn a_member_that_comes_twice_is_passed_on_once_as_it_was_judged() {
    let twice = r#"{"prefixes": ["s3://other/"], "prefixes": ["s3://train/2026/"]}"#;
    let passed = Judge::new().begin(twice).unwrap();
    assert_eq!(passed["prefixes"].to_string(), r#"["s3://train/2026/"]"#);
    let twice = r#"{"prefixes": ["s3://train/2026/"], "prefixes": ["s3://other/"]}"#;
    assert_eq!(Judge::new().begin(twice), Err(403));
}

#[tokio::test]
async fn nobody_asks_in_the_name_of_another() {
    let judge = Judge::new();
    let asked = |method, target| judge.ask(method, target, "").map(|asked| asked.path_and_query);
    assert_eq!(
        asked(Method::GET, "/v1/preload?owner=other&limit=5&after=1.a&owner=x"),
        Ok("/v1/preload?owner=lab%20%26%20co&limit=5&after=1.a".into())
    );
    assert_eq!(
        asked(Method::GET, "/v1/preload/night-22?news=3&wait_ms=500&x=y&limit=a%26owner=b"),
        Ok("/v1/preload/night-22?owner=lab%20%26%20co&news=3&wait_ms=500".into())
    );
    assert_eq!(
        asked(Method::DELETE, "/v1/preload/night-22"),
        Ok("/v1/preload/night-22?owner=lab%20%26%20co".into())
    );
    for (method, target, status) in [
        (Method::GET, "/v1/preload/", 404),
        (Method::GET, "/v1/preload/..", 404),
        (Method::GET, "/v1/preload/a/progress", 404),
        (Method::GET, "/v1/preload/a%3Fowner=b", 404),
        (Method::POST, "/v1/preload/a", 405),
        (Method::PUT, "/v1/preload", 405),
        (Method::DELETE, "/v1/preload", 405),
    ] {
        assert_eq!(asked(method.clone(), target), Err(status), "{method} {target}");
    }
}
