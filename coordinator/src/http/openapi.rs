//! Builds the OpenAPI document of the routes that people use: `GET /v1/openapi.json`. Leaves out
//! the routes between processes.

mod schemas;

use serde_json::{Value, json};
use verbs3_preload::PAGE_JOBS_MAX;

use schemas::{all_schemas, number_schema, schema_ref};

fn json_response(description: &str, schema: &str) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema_ref(schema) } } })
}

fn refusal_responses() -> Vec<(&'static str, Value)> {
    let refused = |what: &str| json_response(what, "Refused");
    vec![
        ("400", refused("The request makes no sense; the reason says why")),
        ("401", refused("The proof of the cluster's secret is missing, wrong, or of another time")),
        ("404", refused("There is no such thing")),
        ("405", refused("This is not done here")),
        ("413", refused("The body is too long, or did not come")),
        ("421", refused("Another coordinator leads; `leader` is its URL")),
        ("503", refused("Not now; the reason says why")),
    ]
}

/// Builds a route from its summary, its parameters, its body's schema and its answers.
fn route_operation(
    summary: &str,
    parameters: &[Value],
    body: Option<&str>,
    answers: &[(&str, Value)],
) -> Value {
    let mut responses = serde_json::Map::new();
    for (status, answer) in refusal_responses().iter().chain(answers) {
        responses.insert((*status).to_owned(), answer.clone());
    }
    let mut operation =
        json!({ "summary": summary, "parameters": parameters, "responses": responses });
    if let Some(body) = body {
        let content = json!({ "application/json": { "schema": schema_ref(body) } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn route_parameter(name: &str, place: &str, schema: &Value, description: &str) -> Value {
    json!({
        "name": name, "in": place, "required": place == "path", "description": description,
            "schema": schema,
    })
}

fn in_path(name: &str, description: &str) -> Value {
    route_parameter(name, "path", &json!({ "type": "string", "minLength": 1 }), description)
}

fn in_query(name: &str, schema: &Value, description: &str) -> Value {
    route_parameter(name, "query", schema, description)
}

/// Builds the document.
pub(super) fn openapi_document() -> Value {
    let mut paths = job_paths();
    if let Some(into) = paths.as_object_mut() {
        for more in [object_paths(), cluster_paths()] {
            into.extend(
                more.as_object()
                    .into_iter()
                    .flatten()
                    .map(|(path, item)| (path.clone(), item.clone())),
            );
        }
    }
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "verbs3 coordinator", "version": env!("CARGO_PKG_VERSION"),
            "description": "Every request carries `x-verbs3-proof: TIME.NONCE.RECIPIENT.BODY.MAC`: \
            milliseconds since 1970, 32 hexadecimal digits, the coordinator's own name (any \
            answer's header `x-verbs3-coordinator`; new at each of its starts), the SHA-256 of the \
            body, and an HMAC-SHA256 by the cluster's secret over these and the request; \
            `coordinator/client/src/proof.rs` has the bytes. Answers carry \
            `x-verbs3-answer-proof`. Notifications may carry a token instead: `Authorization: \
            Bearer TOKEN`, or `?token=TOKEN`.",
        },
        "security": [{ "proof": [] }],
        "paths": paths,
        "components": {
            "schemas": all_schemas(),
            "securitySchemes": { "proof": { "type": "apiKey", "in": "header", "name": "x-verbs3-proof" } },
        },
    })
}

fn job_paths() -> Value {
    let job = || json_response("The job", "Job");
    let id = || in_path("id", "Name of the job");
    let begins = |summary: &str, body: &str| {
        let taken = ("409", json_response("Another job has this id", "Refused"));
        route_operation(summary, &[], Some(body), &[("200", job()), ("201", job()), taken])
    };
    let lines = json!({
        "description": "Lines", "content": { "application/x-ndjson": { "schema": schema_ref("Line") } },
    });
    json!({
        "/v1/preload": {
            "get": route_operation("The jobs, newest first, a page at a time", &[
                in_query("limit", &json!({ "type": "integer", "minimum": 1, "maximum": PAGE_JOBS_MAX, "default": PAGE_JOBS_MAX }), "Jobs of this page, at most; fewer come where they are long"),
                in_query("after", &json!({ "type": "string", "pattern": "^[0-9]{1,16}[.][A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" }), "`next` of the page before"),
            ], None, &[("200", json_response("The jobs", "Jobs"))]),
            "post": begins("Begin a job, or find the one of this id", "Spec"),
        },
        "/v1/preload/{id}": {
            "get": route_operation("One job", &[
                id(),
                in_query("news", &number_schema(), "Wait until the job's `news` is another number"),
                in_query("wait_ms", &number_schema(), "but no longer than this"),
            ], None, &[("200", job())]),
            "delete": route_operation("End a job; one that is over stays as it is", &[id()], None, &[("200", job())]),
        },
        "/v1/preload/{id}/progress": {
            "get": route_operation(
                "The job, and whenever something of it changes, until it is over: a line each, \
                with a proof of its own",
                &[id()], None, &[("200", lines)],
            ),
        },
        "/v1/evict": { "post": begins("Give up pages at the workers that own their blocks, pinned \
        or not; a job", "Selection") },
        "/v1/pin": { "post": begins("Load pages onto disk and keep them there; a job", "Pins") },
        "/v1/unpin": { "post": begins("Pinned pages may be given up again; a job", "Selection") },
    })
}

fn object_paths() -> Value {
    json!({
        "/v1/objects/{bucket}/{key}": {
            "get": route_operation("Where an object is: its blocks, who owns them, which of these have \
            them, in which tier, how hot", &[
                in_path("bucket", "As clients name it"), in_path("key",
                    "Slashes of it need no escape"),
                in_query("first_block", &json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }), "The first block to be shown; 1024 are"),
            ], None, &[("200", json_response("The object", "Object"))]),
        },
        "/v1/invalidate": {
            "post": route_operation(
                "Have the UFS asked before anything else is answered of these objects: every read that begins after the answer sees what the UFS has then, or later",
                &[], Some("Invalidation"), &[("200", json_response("Done", "Invalidated"))],
            ),
        },
        "/v1/notifications": {
            "post": route_operation("A bucket notification: what it names is invalidated", &[
                in_query("ufs", &json!({ "type": "string" }),
                    "Name of the UFS that it is from; default: any with a mount of the bucket"),
                in_query("warm", &json!({ "type": "boolean" }), "Load what was created"),
            ], Some("Notification"), &[("200", json_response("What was done", "Notified")), ("409", json_response("A \
                job of this name is there", "Refused"))]),
        },
    })
}

fn cluster_paths() -> Value {
    let text = json!({ "type": "string" });
    let id = || in_path("id", "Name of the worker");
    let done = || ("204", json!({ "description": "It is so" }));
    json!({
        "/v1/cluster": { "get": route_operation("Whether the cluster is well", &[], None, &[("200", json_response("The cluster", "Cluster"))]) },
        "/v1/workers": { "get": route_operation("All workers", &[], None, &[("200", json_response("The workers",
            "Workers"))]) },
        "/v1/workers/{id}": {
            "delete": route_operation("Say that a worker is dead and will not come back, so that no map \
            waits for it longer than its lease", &[id()], None, &[done()]),
        },
        "/v1/workers/{id}/drain": {
            "post": route_operation("Take a worker's slots away, and have others take over what is hot; \
            `drained` of the worker says when it may be stopped", &[id()], None, &[done()]),
        },
        "/v1/workers/{id}/undrain": { "post": route_operation("Give a worker its slots back", &[id()], None, &[done()]) },
        "/v1/openapi.json": {
            "get": route_operation("This document", &[], None, &[("200", json!({
                "description": "The document", "content": { "application/json": { "schema": { "type": "object" } } },
            }))]),
        },
        "/v1/placement": {
            "get": route_operation("The workers of a block, or of a slot; without either, how many slots \
            each worker owns", &[
                in_query("volume", &text, "UFS/BUCKET"), in_query("key", &text,
                    "As the UFS names it"),
                in_query("block", &json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }), "Default: 0"),
                in_query("slot", &json!({ "type": "integer", "minimum": 0, "maximum": 65535 }), "In place of volume and key"),
            ], None, &[("200", json_response("The workers", "Placement"))]),
        },
    })
}

#[cfg(test)]
mod tests;
