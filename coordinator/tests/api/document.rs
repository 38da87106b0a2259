//! The OpenAPI document against a coordinator that runs: every route answers as it says.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verbs3_coordinator_client::proof::{
    ProofRecipient, ProvenRequest, REQUEST_HEADER, wall_clock_ms,
};

use super::*;

/// A request, its path in the document, and the status that is to come back.
struct Question {
    method: &'static str,
    route: &'static str,
    path: String,
    body: Value,
    status: u16,
}

fn ask(method: &'static str, route: &'static str, status: u16) -> Question {
    Question { method, route, path: route.replace("{id}", "a"), body: Value::Null, status }
}

impl Question {
    fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    fn with(self, body: Value) -> Self {
        Self { body, ..self }
    }
}

struct Answer {
    status: u16,
    content_type: String,
    body: Vec<u8>,
}

/// Sends the question with a proof.
async fn answer_to(url: &str, recipient: &ProofRecipient, question: &Question) -> Answer {
    let Question { method, path, body, .. } = question;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let said = ProvenRequest { method, path_and_query: path, body: body.as_bytes() };
    let (proof, _) = secret().prove_request(said, recipient, wall_clock_ms());
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
        {REQUEST_HEADER}: {proof}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: "));
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: answer[end + 4..].to_vec(),
    }
}

/// Returns why `value` is not what the schema says.
fn misfit(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{value} {what}: {schema}"));
    if let Some(reference) = schema["$ref"].as_str() {
        return misfit(document, document.pointer(&reference[1..]).unwrap(), value);
    }
    if value.is_null() && schema["nullable"] == true {
        return Ok(());
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(choices) = schema[key].as_array() {
            let fits = choices.iter().any(|choice| misfit(document, choice, value).is_ok());
            return if fits { Ok(()) } else { wrong("fits none") };
        }
    }
    let is_of_type = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("{other}"),
    };
    if !is_of_type {
        return wrong("is of another type");
    }
    if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
        return wrong("is another word");
    }
    for item in value.as_array().into_iter().flatten() {
        misfit(document, &schema["items"], item)?;
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    let required = schema["required"].as_array().into_iter().flatten();
    if required.clone().any(|name| !fields.contains_key(name.as_str().unwrap())) {
        return wrong("lacks a field");
    }
    let closed = schema["additionalProperties"] == false;
    for (name, field) in fields {
        match schema["properties"].get(name) {
            Some(schema) => misfit(document, schema, field)?,
            None if closed => return wrong("has another field"),
            None => misfit(document, &schema["additionalProperties"], field)?,
        }
    }
    Ok(())
}

/// Routes that need stores are refused by a coordinator that has none, in the way of the document.
fn questions() -> Vec<Question> {
    let registration = serde_json::to_value(registration("a")).unwrap();
    let renewal = serde_json::to_value(renewal("a", Epoch(0), Epoch(0))).unwrap();
    let departure = json!({ "incarnation": registration["incarnation"] });
    let report = json!({
        "volume": "s/b", "keys": ["k"], "epoch": 1, "outcome": "Done",
        "write": { "gateway": 1, "sequence": 1 },
    });
    let relay = json!({ "word": { "report": report }, "wait_ms": 0 });
    let paths = json!({ "paths": ["s3://m/k"] });
    let event = json!({ "Event": "s3:TestEvent" });
    vec![
        ask("GET", "/v1/openapi.json", 200),
        ask("GET", "/v1/map", 200),
        ask("GET", "/v1/map", 204).at("/v1/map?epoch=18446744073709551615"),
        ask("GET", "/v1/map", 400).at("/v1/map?epoch=x"),
        ask("GET", "/v1/hot", 204),
        ask("GET", "/v1/placement", 200),
        ask("GET", "/v1/placement", 200).at("/v1/placement?slot=7"),
        ask("GET", "/v1/placement", 400).at("/v1/placement?slot=65536"),
        ask("GET", "/v1/cluster", 200),
        ask("GET", "/v1/workers", 200),
        ask("POST", "/v1/workers", 200).with(registration),
        ask("POST", "/v1/workers", 400).with(json!({})),
        ask("POST", "/v1/workers/{id}/renew", 200).with(renewal.clone()),
        ask("POST", "/v1/workers/{id}/renew", 404).at("/v1/workers/b/renew").with(renewal),
        ask("POST", "/v1/workers/{id}/relay", 200).with(relay),
        ask("GET", "/v1/workers/{id}/drain", 200),
        ask("POST", "/v1/workers/{id}/drain", 204),
        ask("POST", "/v1/workers/{id}/undrain", 204),
        ask("POST", "/v1/workers/{id}/drain", 404).at("/v1/workers/b/drain"),
        ask("POST", "/v1/workers/{id}/leave", 200).with(departure),
        ask("DELETE", "/v1/workers/{id}", 204),
        ask("POST", "/v1/preload", 503).with(paths.clone()),
        ask("GET", "/v1/preload", 503),
        ask("GET", "/v1/preload", 400).at("/v1/preload?limit=0"),
        ask("GET", "/v1/preload/{id}", 503),
        ask("DELETE", "/v1/preload/{id}", 503),
        ask("GET", "/v1/preload/{id}/progress", 503),
        ask("POST", "/v1/evict", 503).with(paths.clone()),
        ask("POST", "/v1/pin", 503).with(json!({ "paths": ["s3://m/k"], "ttl": 1 })),
        ask("POST", "/v1/pin", 400).with(paths.clone()),
        ask("POST", "/v1/unpin", 503).with(paths.clone()),
        ask("POST", "/v1/invalidate", 503).with(paths),
        ask("POST", "/v1/notifications", 503).with(event),
        ask("GET", "/v1/objects/{bucket}/{key}", 503).at("/v1/objects/m/k/l"),
        ask("GET", "/v1/activity", 200),
        ask("POST", "/v1/activity", 200).with(json!({ "role": "gateway", "name": "host:9000" })),
        ask("POST", "/v1/activity", 400).with(json!({ "role": "king" })),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_of_the_document_answers_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    // No list of hot blocks comes into being meanwhile, however slowly this runs.
    let running = start_at("127.0.0.1:0", file_store(&folder), |options| {
        options.settings.hot.report_every.0 = Duration::from_secs(3600);
    })
    .await;
    let client = client(&[&running.url], secret());
    register(&client, "a").await;
    assert!(map(&client, 0, 30_000).await.is_some());
    let recipient = client.known_recipient(&running.url).unwrap();
    let document: Value = client.get("/v1/openapi.json", Duration::ZERO).await.unwrap().unwrap();

    let mut documented = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys();
        documented.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let questions = questions();
    let asked = questions.iter().map(|question| format!("{} {}", question.method, question.route));
    assert_eq!(asked.collect::<BTreeSet<_>>(), documented);

    for question in &questions {
        let Question { method, route, path, body, status } = question;
        let operation = &document["paths"][route][method.to_lowercase()];
        if *status != 400 && !body.is_null() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!(misfit(&document, schema, body), Ok(()), "{method} {path}");
        }
        let began = Instant::now();
        let (answer, text) = loop {
            let answer = answer_to(&running.url, &recipient, question).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if !text.contains("coming into force") || began.elapsed() > SOON {
                break (answer, text);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(answer.status, *status, "{method} {path}: {text}");
        let said = &operation["responses"][status.to_string()];
        assert!(said.is_object(), "{method} {path}: {status} is not in the document");
        let Some(content) = said["content"].as_object() else {
            assert!(answer.body.is_empty(), "{method} {path}: {text}");
            continue;
        };
        let schema = &content[&answer.content_type]["schema"];
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(misfit(&document, schema, &value), Ok(()), "{method} {path}");
    }
    running.coordinator.shutdown().await;
}
