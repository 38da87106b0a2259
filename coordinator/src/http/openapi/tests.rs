//! Checks the document against what the code reads and writes: each schema against a complete
//! value.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use verbs3_coordinator_client::api::{
    ClusterView, CoordinatorRefusal, CoordinatorRefusalKind, DrainProgress, EpochPreparation,
    PreloadView, UnfinishedJob, WorkerDrainView, WorkerState, WorkerTierCapacity, WorkerView,
};
use verbs3_coordinator_client::hot_blocks::{HotBlockView, HotView};
use verbs3_coordinator_client::proof::ProofRecipient;
use verbs3_preload::api::{
    BlockView, InvalidationRequest, JobState, JobView, JobsPage, JudgedMount, NotificationSummary,
    ObjectView, OwnedPreloadJob, PlaceView, PreloadByteRange, PreloadCounters, PreloadFailure,
    PreloadFailureSummary, PreloadJobSpec, PreloadPhase, PreloadSelection,
};
use verbs3_protocol::{Epoch, WorkerId};

use super::super::routes::ROUTES;
use super::build_document;

fn openapi_document() -> Value {
    build_document(&ROUTES)
}

fn value(of: impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn job() -> JobView {
    let spec = PreloadJobSpec {
        id: some("a"),
        paths: vec!["s3://m/k".into()],
        prefixes: vec!["s3://m".into()],
        manifest: some("s3://m/list"),
        ranges: vec![PreloadByteRange { first: 1, last: Some(2) }],
        pin_ttl: Some(1),
        deadline: some("2026-11-22T08:00:00Z"),
        bandwidth_bytes_per_second: Some(1),
        ..PreloadJobSpec::default()
    };
    let failure = PreloadFailure { path: "s3://m/k".into(), reason: "why".into() };
    JobView {
        id: "a".into(),
        owner: some("who"),
        state: JobState::Incomplete,
        phase: PreloadPhase::Check,
        reason: some("why"),
        counters: PreloadCounters::default(),
        failures: PreloadFailureSummary {
            count: 1,
            file: some("/f"),
            left_out: 0,
            first: vec![failure],
        },
        created_ms: 1,
        ended_ms: Some(2),
        resumed: 0,
        rounds: 0,
        news: 1,
        spec,
    }
}

fn object() -> ObjectView {
    let place = PlaceView {
        worker: "a".into(),
        memory_bytes: 1,
        disk_bytes: 1,
        pinned_bytes: 1,
        uses: 3,
        idle_seconds: 1,
    };
    ObjectView {
        path: "s3://m/k".into(),
        volume: "ufs/m".into(),
        key: "k".into(),
        home: some("a"),
        slot: 65_535,
        etag: "e".into(),
        bytes: 1,
        version_id: some("v"),
        blocks_total: 1,
        blocks: vec![BlockView {
            block: 0,
            bytes: 1,
            owners: vec!["a".into()],
            places: vec![place],
        }],
        silent: vec!["b: why".into()],
    }
}

fn worker(state: WorkerState) -> WorkerView {
    WorkerView {
        id: WorkerId("a".into()),
        address: "a:9400".into(),
        weight: 1.5,
        zone: "z".into(),
        state,
        lease_ms: 1,
        tiers: vec![WorkerTierCapacity { kind: "memory".into(), bytes: 1 }],
        rails: vec!["10.0.0.7:9403".into()],
        active: Epoch(1),
        slots: 65_536,
        share_percent: 100,
        handing_over: Some(DrainProgress { blocks: 1, blocks_left: 1, bytes: 1 }),
        drained: true,
    }
}

fn cluster() -> ClusterView {
    use WorkerState::{Draining, Joining, Lost, Missing, Serving};
    let hottest = HotBlockView {
        volume: "ufs/m".into(),
        key: "k".into(),
        block: 0,
        workers: 2,
        bytes_per_second: 1,
    };
    let job = |state: &str| UnfinishedJob {
        id: "a".into(),
        state: state.into(),
        reason: "why".into(),
        ended_ms: 1,
    };
    ClusterView {
        name: "train".into(),
        leader: some("http://c:9500"),
        epoch: Epoch(1),
        preparing: Some(EpochPreparation {
            epoch: Epoch(2),
            waiting_for: vec![WorkerId("a".into())],
        }),
        replicas: 2,
        workers: [Joining, Serving, Draining, Lost, Missing].map(worker).to_vec(),
        hot: HotView { blocks: 1, hottest: vec![hottest] },
        preload: PreloadView {
            running: 1,
            waiting: 1,
            unfinished: vec![job("incomplete"), job("failed")],
        },
        findings: vec!["to do".into()],
    }
}

/// Returns a value for each schema, with every field that the code has. Contents without a type of
/// their own are written out.
fn samples() -> BTreeMap<&'static str, Value> {
    let (job, object, cluster) = (job(), object(), cluster());
    let selection = |ttl| PreloadSelection {
        id: some("a"),
        paths: vec!["s3://m/k".into()],
        prefixes: vec!["s3://m".into()],
        manifest: some("s3://m/list"),
        ttl,
    };
    // `ttl` is absent in the requests that only name objects.
    let mut without_ttl = value(selection(None));
    without_ttl.as_object_mut().unwrap().remove("ttl");
    let refused = CoordinatorRefusal {
        kind: CoordinatorRefusalKind::NotLeader,
        reason: "why".into(),
        leader: some("l"),
        now_ms: Some(1),
        recipient: Some(ProofRecipient("0".repeat(32))),
        left_ms: Some(1),
    };
    let judged = JudgedMount {
        mount: "m".into(),
        store: "s@01234567".into(),
        bucket: "b".into(),
        prefix: "p/".into(),
    };
    let owned =
        OwnedPreloadJob { job: job.spec.clone(), tenant: some("t"), judged_mounts: vec![judged] };
    BTreeMap::from([
        ("PreloadByteRange", value(job.spec.ranges[0])),
        ("PreloadJobSpec", value(&job.spec)),
        ("OwnedPreloadJob", value(&owned)),
        ("JudgedMount", value(&owned.judged_mounts[0])),
        ("PreloadJobAction", value(job.spec.action)),
        ("PreloadTier", value(job.spec.tier)),
        ("PreloadPriority", value(job.spec.priority)),
        ("PreloadSelection", without_ttl),
        ("PinSelection", value(selection(Some(1)))),
        ("PreloadFailure", value(&job.failures.first[0])),
        ("PreloadFailureSummary", value(&job.failures)),
        ("PreloadCounters", value(job.counters)),
        ("ProvenLine", json!({ "proof": "mac", "said": value(&job) })),
        ("JobsPage", value(JobsPage { jobs: vec![job.clone()], next: some("1.a") })),
        ("JobState", value(job.state)),
        ("PreloadPhase", value(job.phase)),
        ("JobView", value(job)),
        ("CoordinatorRefusalKind", value(refused.kind)),
        ("CoordinatorRefusal", value(refused)),
        (
            "InvalidationRequest",
            value(InvalidationRequest {
                paths: vec!["s3://m/k".into()],
                prefixes: vec!["s3://m".into()],
            }),
        ),
        ("InvalidationSummary", json!({ "invalidated": 1 })),
        ("BucketNotification", json!({ "Records": [event_record()], "Event": "e" })),
        ("NotificationRecord", event_record()),
        (
            "NotificationSummary",
            value(NotificationSummary { job: some("a"), ..NotificationSummary::default() }),
        ),
        ("PlaceView", value(&object.blocks[0].places[0])),
        ("BlockView", value(&object.blocks[0])),
        ("ObjectView", value(object)),
        ("WorkerTierCapacity", value(&cluster.workers[0].tiers[0])),
        ("DrainProgress", value(cluster.workers[0].handing_over)),
        ("WorkerState", value(cluster.workers[0].state)),
        ("WorkerView", value(&cluster.workers[0])),
        (
            "WorkerDrainView",
            value(WorkerDrainView { worker: cluster.workers[0].clone(), has_takers: true }),
        ),
        ("HotBlockView", value(&cluster.hot.hottest[0])),
        ("HotView", value(&cluster.hot)),
        ("HotList", json!({ "version": 1, "good_for_ms": 1, "blocks": [[u64::MAX, 2]] })),
        ("EpochPreparation", value(&cluster.preparing)),
        ("UnfinishedJob", value(&cluster.preload.unfinished[0])),
        ("PreloadView", value(&cluster.preload)),
        ("ClusterView", value(cluster)),
        (
            "PlacementView",
            json!({ "epoch": 1, "slot": 0, "workers": ["a"], "slots": { "a": 65_536 } }),
        ),
    ])
}

fn event_record() -> Value {
    json!({ "eventName": "e", "s3": { "bucket": { "name": "m" }, "object": { "key": "k" } } })
}

/// Returns what the schema does not allow in `value`, and what it has that `value` lacks.
fn differing(schemas: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/components/schemas/").unwrap();
        return differing(schemas, &schemas[name], value, at);
    }
    // One of these: a variant, or an optional value.
    if let Some(choices) = ["allOf", "anyOf", "oneOf"].iter().find_map(|key| schema[key].as_array())
    {
        let choices = choices.iter().map(|choice| differing(schemas, choice, value, at));
        return choices.min_by_key(Vec::len).unwrap();
    }
    let kind = match value {
        Value::Null => return vec![format!("{at} is null: its fields are not compared")],
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() && schema["type"] == "integer" => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if schema["type"] != kind {
        return vec![format!("{at} is {kind}, and documented as {}", schema["type"])];
    }
    let mut found = Vec::new();
    if let Some(names) = schema["enum"].as_array().filter(|names| !names.contains(value)) {
        found.push(format!("{at} is {value}, and documented as one of {names:?}"));
    }
    if value
        .as_u64()
        .zip(schema["maximum"].as_u64())
        .is_some_and(|(value, maximum)| value > maximum)
    {
        found.push(format!("{at} is {value}, and documented as {} at most", schema["maximum"]));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(differing(schemas, &schema["items"], item, &format!("{at}[{index}]")));
    }
    let (Some(fields), Some(documented)) = (value.as_object(), schema["properties"].as_object())
    else {
        return found;
    };
    for (name, field) in fields {
        match documented.get(name) {
            Some(schema) => {
                found.extend(differing(schemas, schema, field, &format!("{at}.{name}")))
            }
            None => found.push(format!("{at}.{name} is not documented")),
        }
    }
    let gone = documented.keys().filter(|name| !fields.contains_key(*name));
    found.extend(gone.map(|name| format!("{at}.{name} is documented, and is not there")));
    found
}

#[test]
fn every_schema_is_what_the_code_has() {
    let document = openapi_document();
    let schemas = &document["components"]["schemas"];
    let samples = samples();
    let named: Vec<&str> = schemas.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(named, samples.keys().copied().collect::<Vec<_>>());
    let found: Vec<String> = samples
        .iter()
        .flat_map(|(name, value)| differing(schemas, &schemas[*name], value, name))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_schema_that_is_wrong_is_found() {
    let document = openapi_document();
    let schemas = &document["components"]["schemas"];
    let mut value = samples().remove("ClusterView").unwrap();
    value["workers"][0]["state"] = json!("unknown");
    value["preload"]["paused"] = json!(1);
    value["hot"].as_object_mut().unwrap().remove("blocks");
    value["leader"] = json!(7);
    let mut found = differing(schemas, &schemas["ClusterView"], &value, "Cluster");
    found.sort();
    let parts = [
        "hot.blocks is documented",
        "leader is number",
        "preload.paused is not",
        "workers[0].state is \"unknown\"",
    ];
    assert_eq!(found.len(), parts.len(), "{found:#?}");
    assert!(found.iter().zip(parts).all(|(found, part)| found.contains(part)), "{found:#?}");
}

#[test]
fn the_document_refers_to_nothing_that_is_not_there() {
    let document = openapi_document();
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let named = operation["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|parameter| parameter["in"] == "path");
            assert_eq!(named.count(), path.matches('{').count(), "{method} {path}");
        }
    }
}
