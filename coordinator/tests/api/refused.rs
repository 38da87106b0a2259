//! Tests which requests are refused, and what the refusals reveal.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use verbs3_coordinator::store::EntryPrecondition;
use verbs3_coordinator::{ClusterClaimError, CoordinatorError};
use verbs3_coordinator_client::AskError;
use verbs3_coordinator_client::api::CoordinatorRefusalKind;
use verbs3_coordinator_client::proof::{ProvenRequest, REQUEST_HEADER, wall_clock_ms};

use super::*;

/// Proofs of relays are not remembered: they would be as many as writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_is_good_once_except_for_questions_and_relays() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let asking = client(&[&running.url], secret());
    register(&asking, "a").await;
    let recipient = asking.known_recipient(&running.url).unwrap();
    let path = |name: &str| format!("/v1/workers/a/{name}");
    // 400: the body does not fit the route.
    let cases = [
        ("POST", path("renew"), [400, 401]),
        ("POST", path("leave"), [400, 401]),
        ("POST", path("relay"), [400, 400]),
    ];
    for (method, path, statuses) in cases {
        let said = ProvenRequest { method, path_and_query: &path, body: EVENT.as_bytes() };
        let (proof, _) = secret().prove_request(said, &recipient, wall_clock_ms());
        let header = format!("{REQUEST_HEADER}: {proof}\r\n");
        for status in statuses {
            assert_eq!(unproven(&running.url, method, &path, &header).await, status, "{path}");
        }
        let (old, _) = secret().prove_request(said, &recipient, wall_clock_ms() - 120_000);
        let header = format!("{REQUEST_HEADER}: {old}\r\n");
        assert_eq!(
            unproven(&running.url, method, &path, &header).await,
            401,
            "{path}, of another time"
        );
    }
    running.coordinator.shutdown().await;
}

pub const EVENT: &str = r#"{"Event":"s3:TestEvent"}"#;

/// Returns the status of a request that proves nothing by itself.
pub async fn unproven(url: &str, method: &str, path: &str, header: &str) -> u16 {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let body = EVENT;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: \
        {length}\r\n"
    );
    stream.write_all(format!("{head}{header}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_know_the_secret_gets_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    register(&client(&[&running.url], secret()), "a").await;
    let stranger =
        client(&[&running.url], ClusterSecret::new("tests", "another secret of that length"));
    let refused = stranger
        .post_json::<_, WorkerLeaseGrant>("/v1/workers", &registration("evil"), Duration::ZERO)
        .await;
    // What comes back proves nothing to it either.
    assert!(
        matches!(&refused, Err(AskError::Away(reason)) if reason.contains("does not prove")),
        "{refused:?}"
    );
    assert!(stranger.get::<ClusterView>("/v1/cluster", Duration::ZERO).await.is_err());
    let view: ClusterView = client(&[&running.url], secret())
        .get("/v1/cluster", Duration::ZERO)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(view.workers.len(), 1);
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stores_token_lets_notifications_in_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let url = &running.url;
    let bearer = "authorization: Bearer a token of the store\r\n";
    // 503: this coordinator has no stores.
    assert_eq!(unproven(url, "POST", "/v1/notifications", bearer).await, 503);
    assert_eq!(
        unproven(url, "POST", "/v1/notifications?warm=true&token=a+token%20of+the+store", "").await,
        503
    );
    assert_eq!(unproven(url, "POST", "/v1/notifications?token=a+token", "").await, 401);
    assert_eq!(
        unproven(url, "POST", "/v1/notifications", "authorization: Bearer another\r\n").await,
        401
    );
    assert_eq!(unproven(url, "POST", "/v1/notifications", "").await, 401);
    let others = [
        ("POST", "/v1/invalidate"),
        ("POST", "/v1/workers"),
        ("GET", "/v1/notifications"),
        ("GET", "/v1/map"),
    ];
    for (method, path) in others {
        assert_eq!(unproven(url, method, path, bearer).await, 401, "{method} {path}");
    }
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_id_is_refused_with_who_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(file_store(&folder)).await;
    let asking = client(&[&running.url], secret());
    register(&asking, "a").await;
    let other = WorkerRegistration {
        incarnation: WorkerIncarnation::new(),
        address: "elsewhere:9400".into(),
        ..registration("a")
    };
    let refused = asking
        .post_json::<_, WorkerLeaseGrant>("/v1/workers", &other, Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(refused.refusal_kind(), Some(CoordinatorRefusalKind::Taken));
    assert!(refused.to_string().contains("a:9400"), "{refused}");
    // How long asking again is of no use.
    let AskError::Refused { refused, .. } = refused else { panic!("{refused}") };
    assert!(
        refused.left_ms.is_some_and(|left| left > 0 && Duration::from_millis(left) <= LEASE),
        "{refused:?}"
    );
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_another_cluster_is_refused() {
    let process = etcd::start("claim");
    let folder = tempfile::tempdir().unwrap();
    let stores = [file_store(&folder), etcd::store(&process.endpoint, "claim").await];
    for store in stores {
        let made = |name: &'static str| {
            let store = store.clone();
            async move {
                CoordinatorServer::new(options(name, "http://here".into()), store, &Registry::new())
                    .await
            }
        };
        made("train").await.unwrap();
        made("train").await.unwrap();
        let refused = made("prod").await.err().unwrap();
        assert!(
            matches!(refused, CoordinatorError::Claim(ClusterClaimError::Other { .. })),
            "{refused}"
        );
        assert!(refused.to_string().contains("\"train\""), "{refused}");
        // The entry of a release that ranked slots by other rules.
        let entry = store.get_entry("cluster").await.unwrap().unwrap();
        let mut claim: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
        claim.as_object_mut().unwrap().remove("ranking").unwrap();
        let claim = Bytes::from(serde_json::to_vec(&claim).unwrap());
        store
            .put_entry("cluster", claim, EntryPrecondition::Revision(entry.revision), None)
            .await
            .unwrap();
        let refused = made("train").await.err().unwrap();
        assert!(
            matches!(refused, CoordinatorError::Claim(ClusterClaimError::Ranking { found: 0, .. })),
            "{refused}"
        );
    }
}
