//! Form uploads and version 2 signatures, where only a gateway of its own shows what happens.

use base64::Engine as _;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::gateway_fixture::{Answer, GatewayFixture, until};
use crate::signing::{ACCESS_KEY, REGION, SECRET_KEY};
use verbs3_settings::ByteSize;

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// A signed form that lets anything be stored under `key`.
fn form(key: &str, file: &str) -> String {
    let stamp = OffsetDateTime::now_utc()
        .format(format_description!("[year][month][day]T000000Z"))
        .unwrap();
    let scope = format!("{}/{REGION}/s3/aws4_request", &stamp[..8]);
    let fields = [
        ("key", key.to_owned()),
        ("x-amz-algorithm", "AWS4-HMAC-SHA256".to_owned()),
        ("x-amz-credential", format!("{ACCESS_KEY}/{scope}")),
        ("x-amz-date", stamp.clone()),
    ];
    let conditions: Vec<String> =
        fields.iter().map(|(name, _)| format!("[\"starts-with\", \"${name}\", \"\"]")).collect();
    let policy = format!(
        "{{\"expiration\": \"2099-01-01T00:00:00Z\", \"conditions\": [{}]}}",
        conditions.join(",")
    );
    let policy = base64::engine::general_purpose::STANDARD.encode(policy);
    let signing = scope
        .split('/')
        .fold(format!("AWS4{SECRET_KEY}").into_bytes(), |key, text| hmac(&key, text));
    let signature = hex::encode(hmac(&signing, &policy));
    let mut text = String::new();
    for (name, value) in
        fields.into_iter().chain([("policy", policy), ("x-amz-signature", signature)])
    {
        text +=
            &format!("--X\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    text + &format!(
        "--X\r\nContent-Disposition: form-data; name=\"file\"; \
        filename=\"f.txt\"\r\n\r\n{file}\r\n--X--\r\n"
    )
}

fn head(fixture: &GatewayFixture, bucket: &str, length: usize) -> String {
    format!(
        "POST /{bucket} HTTP/1.1\r\nhost: {}\r\ncontent-type: multipart/form-data; \
        boundary=X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n",
        fixture.host()
    )
}

async fn post(fixture: &GatewayFixture, bucket: &str, document: &str) -> Answer {
    fixture.exchange(&head(fixture, bucket, document.len()), document.as_bytes()).await
}

#[tokio::test]
async fn a_form_is_announced_and_counted_as_a_write_of_its_key() {
    let fixture = GatewayFixture::start().await;
    let answer = post(&fixture, "sets", &form("in/${filename}", "bytes")).await;
    assert_eq!(
        (answer.status, answer.headers["location"].as_str()),
        (204, format!("http://{}/sets/in/f.txt", fixture.host()).as_str())
    );
    assert!(fixture.visible("store", "team/a/in/f.txt").await, "the mount's prefix");
    assert_eq!(
        fixture.told(),
        ["announce team/a/in/f.txt visible=false", "report team/a/in/f.txt Done"]
    );
    assert_eq!(fixture.get("/sets/in/f.txt").await.body, b"bytes");
    until(|| {
        let text = fixture.metrics_text();
        text.contains("verbs3_gateway_requests_total{op=\"PostObject\",status=\"2xx\"} 1")
            && text.contains("verbs3_gateway_form_bytes 0")
    })
    .await;
}

#[tokio::test]
async fn what_a_put_may_not_do_a_form_may_not_either() {
    let fixture = GatewayFixture::start().await;
    assert_eq!(
        post(&fixture, "frozen", &form("k", "v")).await.error(),
        (403, "AccessDenied".to_owned())
    );
    assert_eq!(
        post(&fixture, "nowhere", &form("k", "v")).await.error(),
        (404, "NoSuchBucket".to_owned())
    );
    assert_eq!(
        post(&fixture, "data/k", &form("k", "v")).await.error(),
        (405, "MethodNotAllowed".to_owned())
    );
    fixture.homes.refuse_announce.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(post(&fixture, "data", &form("k", "v")).await.status, 503);
    assert!(!fixture.visible("data", "k").await);
}

#[tokio::test]
async fn headers_around_a_form_are_not_obeyed() {
    let fixture = GatewayFixture::start().await;
    fixture.put("/data/secret", b"hush").await;
    let document = form("k", "v");
    let slipped =
        "x-amz-copy-source: data/secret\r\nx-amz-object-lock-legal-hold: ON\r\ncontent-type";
    let head = head(&fixture, "data", document.len()).replacen("content-type", slipped, 1);
    assert_eq!(fixture.exchange(&head, document.as_bytes()).await.status, 204);
    assert_eq!(fixture.get("/data/k").await.body, b"v");
}

#[tokio::test]
async fn forms_share_a_bound_and_give_their_memory_back() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.limits.form_max = ByteSize(1_000_000);
        setup.settings.limits.forms_max = ByteSize(1_400_000);
    })
    .await;
    let whole = form("k", &"v".repeat(1_000_000));
    assert_eq!(
        post(&fixture, "data", &form("k", &"v".repeat(1_000_001))).await.error(),
        (400, "EntityTooLarge".to_owned())
    );
    assert_eq!(
        post(&fixture, "data", &"v".repeat(4_000_000)).await.error(),
        (400, "EntityTooLarge".to_owned())
    );
    let held = || fixture.gateway_metric("form_bytes") as usize;
    // Announced bytes hold nothing, so two that stop early leave room for a third.
    let mut slow = Vec::new();
    for sent in [5_000, 5_000, 900_000, 900_000] {
        use tokio::io::AsyncWriteExt;
        let before = held();
        let mut socket = tokio::net::TcpStream::connect(fixture.address).await.unwrap();
        socket.write_all(head(&fixture, "data", whole.len()).as_bytes()).await.unwrap();
        // With its fields: what nobody has signed holds no memory.
        socket.write_all(&whole.as_bytes()[..sent]).await.unwrap();
        until(|| held() >= before + sent).await;
        assert!(held() <= before + sent.max(512 * 1024) * 2, "{} for {sent}", held() - before);
        if slow.len() == 1 {
            assert_eq!(post(&fixture, "data", &whole).await.status, 204);
        }
        slow.push(socket);
    }
    assert_eq!(post(&fixture, "data", &whole).await.error(), (503, "SlowDown".to_owned()));
    drop(slow);
    until(|| held() == 0).await;
    assert_eq!(post(&fixture, "data", &whole).await.status, 204);
}

#[tokio::test]
async fn version_2_signatures_are_refused_unless_they_are_asked_for() {
    let date = "Tue, 27 Mar 2007 19:36:42 GMT";
    let heads = |host: &str| {
        [
            format!(
                "GET /data/k?AWSAccessKeyId={ACCESS_KEY}&Expires=4000000000&Signature=c2ln \
                HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
            ),
            format!(
                "GET /data/k HTTP/1.1\r\nhost: {host}\r\ndate: {date}\r\nauthorization: AWS \
                {ACCESS_KEY}:c2ln\r\nconnection: close\r\n\r\n"
            ),
        ]
    };
    let fixture = GatewayFixture::start().await;
    for head in heads(&fixture.host()) {
        let answer = fixture.exchange(&head, b"").await;
        assert_eq!(answer.error(), (400, "InvalidRequest".to_owned()));
        assert!(answer.text().contains("Please use AWS4-HMAC-SHA256"), "{}", answer.text());
    }
    let fixture = GatewayFixture::start_with(|setup| setup.settings.sigv2 = true).await;
    let [by_url, by_header] = heads(&fixture.host());
    assert_eq!(
        fixture.exchange(&by_url, b"").await.error(),
        (403, "SignatureDoesNotMatch".to_owned())
    );
    assert_eq!(
        fixture.exchange(&by_header, b"").await.error(),
        (403, "RequestTimeTooSkewed".to_owned())
    );
}
