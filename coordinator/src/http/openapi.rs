//! Builds the OpenAPI document from the routes: `GET /v1/openapi.json`. The types that a route
//! takes and gives describe themselves.

use http::StatusCode;
use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};
use verbs3_coordinator_client::api::CoordinatorRefusal;

use super::route::{AnswerContent, Route, RouteAnswer, RouteParameter};

/// Describes what travels, in the dialect of OpenAPI 3.0.
struct BodySchemas {
    /// Fields with a default may be left out of questions.
    questions: SchemaGenerator,
    /// Fields with a default are there in answers.
    answers: SchemaGenerator,
}

impl BodySchemas {
    fn new() -> Self {
        let generator = |contract| {
            SchemaSettings::openapi3().with(|with| with.contract = contract).into_generator()
        };
        Self {
            questions: generator(Contract::Deserialize),
            answers: generator(Contract::Serialize),
        }
    }

    /// Returns all schemas that have a name. What questions and answers share may be left out of
    /// questions.
    fn take_named(mut self) -> Map<String, Value> {
        let mut named = self.answers.take_definitions(true);
        named.extend(self.questions.take_definitions(true));
        named
    }
}

/// Builds the document.
pub(super) fn build_document(routes: &[Route]) -> Value {
    let mut schemas = BodySchemas::new();
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path.replace("{*", "{")).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = describe_route(route, &mut schemas);
    }
    let mut document = json!({
        "openapi": "3.0.3",
        "info": {
            "title": "verbs3 coordinator",
            "version": env!("CARGO_PKG_VERSION"),
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
            "schemas": schemas.take_named(),
            "securitySchemes": {
                "proof": { "type": "apiKey", "in": "header", "name": "x-verbs3-proof" },
            },
        },
    });
    plain_links(&mut document);
    document
}

fn describe_route(route: &Route, schemas: &mut BodySchemas) -> Value {
    let parameters = route.parameters.iter();
    let parameters: Vec<Value> =
        parameters.map(|parameter| describe_parameter(parameter, schemas)).collect();
    let mut responses = common_refusals(&mut schemas.answers);
    for answer in &route.answers {
        let described = describe_answer(answer, &mut schemas.answers);
        responses.insert(answer.status.as_str().to_owned(), described);
    }
    let mut operation =
        json!({ "summary": route.summary, "parameters": parameters, "responses": responses });
    if let Some(body) = &route.body {
        let schema = body(&mut schemas.questions);
        let content = json!({ "application/json": { "schema": schema } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn describe_parameter(parameter: &RouteParameter, schemas: &mut BodySchemas) -> Value {
    let RouteParameter { name, place, description, schema } = parameter;
    let schema = schema(&mut schemas.questions);
    let required = *place == "path";
    json!({
        "name": name, "in": place, "required": required, "description": description,
        "schema": schema,
    })
}

fn describe_answer(answer: &RouteAnswer, generator: &mut SchemaGenerator) -> Value {
    let mut described = json!({ "description": answer.description });
    if let Some(AnswerContent { media_type, schema }) = &answer.content {
        described["content"] = json!({ *media_type: { "schema": schema(generator) } });
    }
    described
}

/// Returns the refusals that every route may give.
fn common_refusals(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let refusals = [
        (StatusCode::BAD_REQUEST, "The request makes no sense; the reason says why"),
        (
            StatusCode::UNAUTHORIZED,
            "The proof of the cluster's secret is missing, wrong, or of another time",
        ),
        (StatusCode::NOT_FOUND, "There is no such thing"),
        (StatusCode::METHOD_NOT_ALLOWED, "This is not done here"),
        (StatusCode::PAYLOAD_TOO_LARGE, "The body is too long, or did not come"),
        (StatusCode::MISDIRECTED_REQUEST, "Another coordinator leads; `leader` is its URL"),
        (StatusCode::SERVICE_UNAVAILABLE, "Not now; the reason says why"),
    ];
    let schema = generator.subschema_for::<CoordinatorRefusal>();
    let content = json!({ "application/json": { "schema": schema } });
    let described = refusals.map(|(status, description)| {
        let refusal = json!({ "description": description, "content": content });
        (status.as_str().to_owned(), refusal)
    });
    described.into_iter().collect()
}

/// Takes the brackets off links: the descriptions are those of the code.
fn plain_links(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("[`", "`").replace("`]", "`"),
        Value::Array(items) => items.iter_mut().for_each(plain_links),
        Value::Object(fields) => fields.values_mut().for_each(plain_links),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;
