//! The OpenAPI document of the routes that people use: `GET /v1/openapi.json`. What processes say among themselves is not in it.

use serde_json::{Value, json};

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn answer(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn refusals() -> Vec<(&'static str, Value)> {
    let refused = |what: &str| answer(what, reference("Refused"));
    vec![
        ("400", refused("The request makes no sense; the reason says why")),
        ("401", refused("The proof of the cluster's secret is missing, wrong, or of another time")),
        ("404", refused("There is no such job")),
        ("421", refused("Another coordinator leads; `leader` is its URL")),
        ("503", refused("Not now")),
    ]
}

fn operation(summary: &str, parameters: Value, body: Option<Value>, answers: &[(&str, Value)]) -> Value {
    let mut responses = serde_json::Map::new();
    for (status, answer) in refusals().iter().chain(answers) {
        responses.insert((*status).to_owned(), answer.clone());
    }
    let mut operation = json!({ "summary": summary, "parameters": parameters, "responses": responses });
    if let Some(body) = body {
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": body } } });
    }
    operation
}

fn parameter(name: &str, place: &str, kind: &str, description: &str) -> Value {
    json!({
        "name": name, "in": place, "required": place == "path", "description": description,
        "schema": { "type": kind },
    })
}

/// The document.
pub(super) fn document() -> Value {
    let job = || answer("The job", reference("Job"));
    let id = || parameter("id", "path", "string", "Name of the job");
    let taken = ("409", answer("Another job has this id", reference("Refused")));
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "verbs3 coordinator", "version": env!("CARGO_PKG_VERSION"),
            "description": "Every request carries `x-verbs3-proof: TIME.NONCE.MAC`: milliseconds since 1970, 32 hexadecimal digits, and an HMAC-SHA256 by the cluster's secret over both and the request; `coordinator/client/src/proof.rs` has the bytes. Answers carry `x-verbs3-answer-proof`.",
        },
        "paths": {
            "/v1/preload": {
                "get": operation("All preload jobs, newest first", json!([]), None, &[("200", answer("The jobs", reference("Jobs")))]),
                "post": operation(
                    "Begin a job, or find the one of this id", json!([]), Some(reference("Spec")),
                    &[("200", job()), ("201", job()), taken],
                ),
            },
            "/v1/preload/{id}": {
                "get": operation(
                    "One job",
                    json!([
                        id(),
                        parameter("news", "query", "integer", "Wait until the job's `news` is another number"),
                        parameter("wait_ms", "query", "integer", "but no longer than this"),
                    ]),
                    None, &[("200", job())],
                ),
                "delete": operation("End a job; one that is over stays as it is", json!([id()]), None, &[("200", job())]),
            },
            "/v1/preload/{id}/progress": {
                "get": operation(
                    "The job, and whenever something of it changes, until it is over: a line each, with a proof of its own",
                    json!([id()]), None,
                    &[("200", json!({ "description": "Lines", "content": { "application/x-ndjson": { "schema": reference("Line") } } }))],
                ),
            },
        },
        "components": { "schemas": schemas() },
    })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "additionalProperties": false, "properties": properties })
}

fn schemas() -> Value {
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let maybe = |kind: &str| json!({ "type": kind, "nullable": true });
    let one_of = |names: &[&str]| json!({ "type": "string", "enum": names });
    let counters = serde_json::to_value(verbs3_preload::api::Counters::default()).unwrap_or_default();
    let counters: Value =
        counters.as_object().into_iter().flatten().map(|(name, _)| (name.clone(), number())).collect();
    let boolean = |default: bool| json!({ "type": "boolean", "default": default });
    json!({
        "Range": object(&["first"], json!({ "first": number(), "last": maybe("integer") })),
        "Spec": object(&[], json!({
            "id": maybe("string"), "paths": texts(), "prefixes": texts(), "manifest": maybe("string"),
            "ranges": { "type": "array", "items": reference("Range") },
            "replicas": { "type": "integer", "minimum": 1, "maximum": 65535, "default": 1 },
            "tier": one_of(&["memory", "disk"]), "pin_ttl": maybe("integer"), "priority": one_of(&["low", "normal", "high"]),
            "deadline": { "type": "string", "format": "date-time", "nullable": true },
            "bandwidth_bytes_per_second": maybe("integer"),
            "skip_if_cached": boolean(true), "verify": boolean(false), "metadata_only": boolean(false), "dry_run": boolean(false),
        })),
        "Failure": object(&["path", "reason"], json!({ "path": { "type": "string" }, "reason": { "type": "string" } })),
        "Failures": object(&["count", "first", "left_out"], json!({
            "count": number(), "file": maybe("string"), "left_out": number(),
            "first": { "type": "array", "items": reference("Failure") },
        })),
        "Counters": object(&[], counters),
        "Job": object(&["id", "state", "phase", "counters", "failures", "created_ms", "resumed", "news", "spec"], json!({
            "id": { "type": "string" },
            "state": one_of(&["queued", "running", "done", "incomplete", "failed", "stopped"]),
            "phase": one_of(&["count", "load", "check"]), "reason": maybe("string"),
            "counters": reference("Counters"), "failures": reference("Failures"),
            "created_ms": number(), "ended_ms": maybe("integer"), "resumed": number(), "news": number(), "spec": reference("Spec"),
        })),
        "Line": object(&["proof", "said"], json!({ "proof": { "type": "string" }, "said": reference("Job") })),
        "Jobs": object(&["jobs"], json!({ "jobs": { "type": "array", "items": reference("Job") } })),
        "Refused": object(&["kind", "reason"], json!({
            "kind": { "type": "string" }, "reason": { "type": "string" },
            "leader": maybe("string"), "now_ms": maybe("integer"),
        })),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_preload::api::Spec;

    #[test]
    fn the_document_has_every_field_of_a_job_and_refers_to_nothing_that_is_not_there() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        let spec = serde_json::to_value(Spec::default()).unwrap();
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&spec), names(&schemas["Spec"]["properties"]));
        assert_eq!(
            names(&serde_json::to_value(verbs3_preload::api::Counters::default()).unwrap()),
            names(&schemas["Counters"]["properties"])
        );
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.get(name).is_some(), "{name}");
        }
    }
}
