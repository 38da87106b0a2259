//! What the API's documents hold, as JSON Schema in the dialect of OpenAPI 3.0.

use serde_json::{Value, json};

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn object(required: &[&str], properties: Value) -> Value {
    let mut object =
        json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// Every property is there.
fn whole(properties: Value) -> Value {
    let names: Vec<String> =
        properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    object(&names, properties)
}

pub(super) fn number() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

fn below(maximum: u64) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": maximum })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn maybe(mut schema: Value) -> Value {
    schema["nullable"] = json!(true);
    schema
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn one_of(names: &[&str]) -> Value {
    json!({ "type": "string", "enum": names })
}

fn boolean(default: bool) -> Value {
    json!({ "type": "boolean", "default": default })
}

/// `s3://MOUNT/…`
fn path() -> Value {
    json!({ "type": "string", "pattern": r"^s3://[^/]+(/[\s\S]*)?$" })
}

/// `s3://MOUNT/KEY`
fn object_path() -> Value {
    json!({ "type": "string", "pattern": r"^s3://[^/]+/[\s\S]+$" })
}

fn id() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" })
}

pub(super) fn schemas() -> Value {
    let mut all = jobs();
    let (Some(into), objects, cluster) = (all.as_object_mut(), objects(), cluster()) else {
        return all;
    };
    for more in [objects, cluster] {
        into.extend(
            more.as_object()
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), schema.clone())),
        );
    }
    all
}

fn jobs() -> Value {
    let counters =
        serde_json::to_value(verbs3_preload::api::Counters::default()).unwrap_or_default();
    let counters: Value = counters
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), number()))
        .collect();
    let spec = json!({
        "id": maybe(id()), "action": { "type": "string", "enum": ["load", "evict", "unpin"], "default": "load" },
        "paths": list(object_path()), "prefixes": list(path()), "manifest": maybe(object_path()),
        "ranges": list(reference("Range")),
        "replicas": { "type": "integer", "minimum": 1, "maximum": 65535, "default": 1 },
        "tier": one_of(&["memory", "disk"]), "pin_ttl": maybe(number()), "priority": one_of(&["low", "normal", "high"]),
        "deadline": { "type": "string", "format": "date-time", "nullable": true },
        "bandwidth_bytes_per_second": { "type": "integer", "minimum": 1, "maximum": u64::MAX, "nullable": true },
        "skip_if_cached": boolean(true), "verify": boolean(false), "metadata_only": boolean(false),
            "dry_run": boolean(false),
    });
    let selection = |with_ttl: bool| {
        let mut properties = json!({
            "id": maybe(id()), "paths": list(object_path()), "prefixes": list(path()), "manifest": maybe(object_path()),
        });
        if with_ttl {
            properties["ttl"] = number();
        }
        object(if with_ttl { &["ttl"] } else { &[] }, properties)
    };
    json!({
        "Range": object(&["first"], json!({ "first": number(), "last": maybe(number()) })),
        "Spec": object(&[], spec),
        "Selection": selection(false),
        "Pins": selection(true),
        "Failure": whole(json!({ "path": text(), "reason": text() })),
        "Failures": whole(json!({
            "count": number(), "file": maybe(text()), "left_out": number(), "first": list(reference("Failure")),
        })),
        "Counters": whole(counters),
        "Job": whole(json!({
            "id": id(), "state": one_of(&["queued", "running", "done", "incomplete", "failed",
                "stopped"]),
            "phase": one_of(&["count", "load", "check"]), "reason": maybe(text()),
            "counters": reference("Counters"), "failures": reference("Failures"), "created_ms": number(),
            "ended_ms": maybe(number()), "resumed": number(), "rounds": number(), "news": number(), "spec": reference("Spec"),
        })),
        "Line": whole(json!({ "proof": text(), "said": reference("Job") })),
        "Jobs": whole(json!({ "jobs": list(reference("Job")), "next": maybe(text()) })),
        "Refused": object(&["kind", "reason"], json!({
            "kind": one_of(&["not_leader", "clock", "recipient", "unproven", "unknown", "taken", "superseded", "malformed", "unavailable"]),
            "reason": text(), "leader": maybe(text()), "now_ms": maybe(number()), "recipient": maybe(text()),
            "left_ms": maybe(number()),
        })),
    })
}

fn objects() -> Value {
    json!({
        "Invalidation": object(&[], json!({ "paths": list(object_path()), "prefixes": list(path()) })),
        "Invalidated": whole(json!({ "invalidated": number() })),
        "Notification": {
            "type": "object", "description": "S3 event JSON; what is not named here is passed over",
            "properties": {
                "Records": list(json!({
                    "type": "object", "required": ["eventName", "s3"], "properties": {
                        "eventName": text(),
                        "s3": { "type": "object", "required": ["bucket", "object"], "properties": {
                            "bucket": { "type": "object", "required": ["name"], "properties": { "name": text() } },
                            "object": { "type": "object", "required": ["key"], "properties": { "key": text() } },
                        } },
                    },
                })),
                "Event": maybe(text()),
            },
        },
        "Notified": whole(json!({
            "invalidated": number(), "ignored": number(), "unknown": number(), "job": maybe(text()),
        })),
        "Object": whole(json!({
            "path": text(), "volume": text(), "key": text(), "home": maybe(text()), "slot": below(65_535), "etag": text(),
            "bytes": number(), "version_id": maybe(text()), "blocks_total": number(), "blocks": list(reference("Block")),
            "silent": list(text()),
        })),
        "Block": whole(json!({
            "block": number(), "bytes": number(), "owners": list(text()), "places": list(reference("Place")),
        })),
        "Place": whole(json!({
            "worker": text(), "memory_bytes": number(), "disk_bytes": number(), "pinned_bytes": number(),
            "uses": below(3), "idle_seconds": number(),
        })),
    })
}

fn cluster() -> Value {
    json!({
        "Worker": whole(json!({
            "id": text(), "address": text(), "weight": { "type": "number" }, "zone": text(),
            "state": one_of(&["joining", "serving", "draining", "lost", "missing"]), "lease_ms": number(),
            "tiers": list(whole(json!({ "kind": text(), "bytes": number() }))), "rails": list(text()),
            "active": number(), "slots": below(65_536), "share_percent": below(100),
            "handing_over": maybe(whole(json!({ "blocks": number(), "blocks_left": number(), "bytes": number() }))),
            "drained": { "type": "boolean" },
        })),
        "Workers": list(reference("Worker")),
        "Cluster": whole(json!({
            "name": text(), "leader": maybe(text()), "epoch": number(), "replicas": number(),
            "preparing": maybe(whole(json!({ "epoch": number(), "waiting_for": list(text()) }))),
            "workers": reference("Workers"), "findings": list(text()),
            "hot": whole(json!({ "blocks": number(), "hottest": list(reference("HotBlock")) })),
            "preload": whole(json!({ "running": number(), "waiting": number(), "unfinished": list(whole(json!({
                "id": id(), "state": one_of(&["incomplete", "failed"]), "reason": text(),
                    "ended_ms": number(),
            }))) })),
        })),
        "HotBlock": whole(json!({
            "volume": text(), "key": text(), "block": number(), "workers": below(65_535),
                "bytes_per_second": number(),
        })),
        "Placement": object(&["epoch"], json!({
            "epoch": number(), "slot": below(65_535), "workers": list(text()),
            "slots": { "type": "object", "additionalProperties": below(65_536) },
        })),
    })
}
