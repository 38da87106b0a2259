//! Describes the contents of the API's documents as JSON Schema in the dialect of OpenAPI 3.0.

use serde_json::{Value, json};

pub(super) fn schema_ref(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn object_schema(required: &[&str], properties: Value) -> Value {
    let mut object =
        json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// Returns the schema of an object that has every property.
fn complete_object(properties: Value) -> Value {
    let names: Vec<String> =
        properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    object_schema(&names, properties)
}

pub(super) fn number_schema() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

fn bounded_number_schema(maximum: u64) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": maximum })
}

fn text_schema() -> Value {
    json!({ "type": "string" })
}

fn nullable_schema(mut schema: Value) -> Value {
    schema["nullable"] = json!(true);
    schema
}

fn list_schema(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn one_of(names: &[&str]) -> Value {
    json!({ "type": "string", "enum": names })
}

fn boolean_schema(default: bool) -> Value {
    json!({ "type": "boolean", "default": default })
}

/// Returns the schema of `s3://MOUNT/…`.
fn path_schema() -> Value {
    json!({ "type": "string", "pattern": r"^s3://[^/]+(/[\s\S]*)?$" })
}

/// Returns the schema of `s3://MOUNT/KEY`.
fn object_path() -> Value {
    json!({ "type": "string", "pattern": r"^s3://[^/]+/[\s\S]+$" })
}

fn id_schema() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" })
}

pub(super) fn all_schemas() -> Value {
    let mut all = job_schemas();
    let (Some(into), objects, cluster) =
        (all.as_object_mut(), object_view_schemas(), cluster_schemas())
    else {
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

fn job_schemas() -> Value {
    let counters =
        serde_json::to_value(verbs3_preload::api::PreloadCounters::default()).unwrap_or_default();
    let counters: Value = counters
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), number_schema()))
        .collect();
    let spec = json!({
        "id": nullable_schema(id_schema()), "action": { "type": "string", "enum": ["load", "evict", "unpin"], "default": "load" },
        "paths": list_schema(object_path()), "prefixes": list_schema(path_schema()), "manifest": nullable_schema(object_path()),
        "ranges": list_schema(schema_ref("Range")),
        "replicas": { "type": "integer", "minimum": 1, "maximum": 65535, "default": 1 },
        "tier": one_of(&["memory", "disk"]), "pin_ttl": nullable_schema(number_schema()), "priority": one_of(&["low", "normal", "high"]),
        "deadline": { "type": "string", "format": "date-time", "nullable": true },
        "bandwidth_bytes_per_second": { "type": "integer", "minimum": 1, "maximum": u64::MAX, "nullable": true },
        "skip_if_cached": boolean_schema(true), "verify": boolean_schema(false), "metadata_only": boolean_schema(false),
            "dry_run": boolean_schema(false),
    });
    let selection = |with_ttl: bool| {
        let mut properties = json!({
            "id": nullable_schema(id_schema()), "paths": list_schema(object_path()), "prefixes": list_schema(path_schema()), "manifest": nullable_schema(object_path()),
        });
        if with_ttl {
            properties["ttl"] = number_schema();
        }
        object_schema(if with_ttl { &["ttl"] } else { &[] }, properties)
    };
    json!({
        "Range": object_schema(&["first"], json!({ "first": number_schema(), "last": nullable_schema(number_schema()) })),
        "Spec": object_schema(&[], spec),
        "Selection": selection(false),
        "Pins": selection(true),
        "Failure": complete_object(json!({ "path": text_schema(), "reason": text_schema() })),
        "Failures": complete_object(json!({
            "count": number_schema(), "file": nullable_schema(text_schema()), "left_out": number_schema(), "first": list_schema(schema_ref("Failure")),
        })),
        "Counters": complete_object(counters),
        "Job": complete_object(json!({
            "id": id_schema(), "state": one_of(&["queued", "running", "done", "incomplete", "failed",
                "stopped"]),
            "phase": one_of(&["count", "load", "check"]), "reason": nullable_schema(text_schema()),
            "counters": schema_ref("Counters"), "failures": schema_ref("Failures"), "created_ms": number_schema(),
            "ended_ms": nullable_schema(number_schema()), "resumed": number_schema(), "rounds": number_schema(), "news": number_schema(), "spec": schema_ref("Spec"),
        })),
        "Line": complete_object(json!({ "proof": text_schema(), "said": schema_ref("Job") })),
        "Jobs": complete_object(json!({ "jobs": list_schema(schema_ref("Job")), "next": nullable_schema(text_schema()) })),
        "Refused": object_schema(&["kind", "reason"], json!({
            "kind": one_of(&["not_leader", "clock", "recipient", "unproven", "unknown", "taken", "superseded", "malformed", "unavailable"]),
            "reason": text_schema(), "leader": nullable_schema(text_schema()), "now_ms": nullable_schema(number_schema()), "recipient": nullable_schema(text_schema()),
            "left_ms": nullable_schema(number_schema()),
        })),
    })
}

fn object_view_schemas() -> Value {
    json!({
        "Invalidation": object_schema(&[], json!({ "paths": list_schema(object_path()), "prefixes": list_schema(path_schema()) })),
        "Invalidated": complete_object(json!({ "invalidated": number_schema() })),
        "Notification": {
            "type": "object", "description": "S3 event JSON; what is not named here is passed over",
            "properties": {
                "Records": list_schema(json!({
                    "type": "object", "required": ["eventName", "s3"], "properties": {
                        "eventName": text_schema(),
                        "s3": { "type": "object", "required": ["bucket", "object"], "properties": {
                            "bucket": { "type": "object", "required": ["name"], "properties": { "name": text_schema() } },
                            "object": { "type": "object", "required": ["key"], "properties": { "key": text_schema() } },
                        } },
                    },
                })),
                "Event": nullable_schema(text_schema()),
            },
        },
        "Notified": complete_object(json!({
            "invalidated": number_schema(), "ignored": number_schema(), "unknown": number_schema(), "job": nullable_schema(text_schema()),
        })),
        "Object": complete_object(json!({
            "path": text_schema(), "volume": text_schema(), "key": text_schema(), "home": nullable_schema(text_schema()), "slot": bounded_number_schema(65_535), "etag": text_schema(),
            "bytes": number_schema(), "version_id": nullable_schema(text_schema()), "blocks_total": number_schema(), "blocks": list_schema(schema_ref("Block")),
            "silent": list_schema(text_schema()),
        })),
        "Block": complete_object(json!({
            "block": number_schema(), "bytes": number_schema(), "owners": list_schema(text_schema()), "places": list_schema(schema_ref("Place")),
        })),
        "Place": complete_object(json!({
            "worker": text_schema(), "memory_bytes": number_schema(), "disk_bytes": number_schema(), "pinned_bytes": number_schema(),
            "uses": bounded_number_schema(3), "idle_seconds": number_schema(),
        })),
    })
}

fn cluster_schemas() -> Value {
    json!({
        "Worker": complete_object(json!({
            "id": text_schema(), "address": text_schema(), "weight": { "type": "number" }, "zone": text_schema(),
            "state": one_of(&["joining", "serving", "draining", "lost", "missing"]), "lease_ms": number_schema(),
            "tiers": list_schema(complete_object(json!({ "kind": text_schema(), "bytes": number_schema() }))), "rails": list_schema(text_schema()),
            "active": number_schema(), "slots": bounded_number_schema(65_536), "share_percent": bounded_number_schema(100),
            "handing_over": nullable_schema(complete_object(json!({ "blocks": number_schema(), "blocks_left": number_schema(), "bytes": number_schema() }))),
            "drained": { "type": "boolean" },
        })),
        "Workers": list_schema(schema_ref("Worker")),
        "Cluster": complete_object(json!({
            "name": text_schema(), "leader": nullable_schema(text_schema()), "epoch": number_schema(), "replicas": number_schema(),
            "preparing": nullable_schema(complete_object(json!({ "epoch": number_schema(), "waiting_for": list_schema(text_schema()) }))),
            "workers": schema_ref("Workers"), "findings": list_schema(text_schema()),
            "hot": complete_object(json!({ "blocks": number_schema(), "hottest": list_schema(schema_ref("HotBlock")) })),
            "preload": complete_object(json!({ "running": number_schema(), "waiting": number_schema(), "unfinished": list_schema(complete_object(json!({
                "id": id_schema(), "state": one_of(&["incomplete", "failed"]), "reason": text_schema(),
                    "ended_ms": number_schema(),
            }))) })),
        })),
        "HotBlock": complete_object(json!({
            "volume": text_schema(), "key": text_schema(), "block": number_schema(), "workers": bounded_number_schema(65_535),
                "bytes_per_second": number_schema(),
        })),
        "Placement": object_schema(&["epoch"], json!({
            "epoch": number_schema(), "slot": bounded_number_schema(65_535), "workers": list_schema(text_schema()),
            "slots": { "type": "object", "additionalProperties": bounded_number_schema(65_536) },
        })),
    })
}
