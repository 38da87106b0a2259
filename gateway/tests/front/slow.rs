//! Clients that are known and slow, and one that wants all there is: what they can hold.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use verbs3_gateway::auth::IdentityStore;

use crate::gateway_fixture::{Answer, GatewayFixture, until};
use crate::identities::rules;
use crate::signing::Request;
use verbs3_settings::{ByteSize, TimePeriod};

const PATIENCE: Duration = Duration::from_secs(60);

pub fn slow_put(path: &str) -> Request {
    Request::new("PUT", path).header("content-length", "100000")
}

pub async fn begin(fixture: &GatewayFixture, request: &Request) -> TcpStream {
    let (head, _) = request.signed(&fixture.host());
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(b"x").await.unwrap();
    socket
}

#[tokio::test]
async fn an_upload_that_trickles_is_refused_though_it_never_rests() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.limits.upload_rate_min = ByteSize(10_000);
        setup.settings.timeouts.rate_window = TimePeriod::from_seconds(1);
    })
    .await;
    let socket = begin(&fixture, &slow_put("/data/x")).await;
    let (read, mut write) = socket.into_split();
    let trickle = async {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::future::pending().await
    };
    let answer = tokio::select! {
        () = trickle => unreachable!("it goes on"),
        answer = timeout(PATIENCE, Answer::read(read)) => answer.expect("an answer"),
    };
    assert_eq!(answer.error(), (400, "RequestTimeout".to_owned()));
    assert!(
        fixture.metrics_text().contains("verbs3_gateway_bodies_refused_total{reason=\"slow\"} 1"),
        "{}",
        fixture.metrics_text()
    );
    assert!(!fixture.visible("data", "x").await);
}

/// 4 KiB in a minute were progress once.
#[tokio::test]
async fn an_answer_that_is_taken_too_slowly_is_cut_and_holds_nothing() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.limits.download_rate_min = ByteSize(1 << 20);
        setup.settings.timeouts.rate_window = TimePeriod::from_seconds(1);
    })
    .await;
    fixture.put("/data/x", &vec![7; 64 << 20]).await;
    let (head, _) = Request::new("GET", "/data/x").signed(&fixture.host());
    let mut socket = TcpStream::connect(fixture.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    let reading = async {
        let mut piece = vec![0; 8 << 10];
        while socket.read(&mut piece).await.is_ok_and(|bytes| bytes > 0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let cut = async {
        until(|| {
            fixture
                .metrics_text()
                .contains("verbs3_gateway_connections_cut_total{reason=\"slow\"} 1")
        })
        .await;
        until(|| fixture.metrics_text().contains("verbs3_gateway_requests_in_flight 0\n")).await;
    };
    tokio::select! {
        () = reading => panic!("it was given all of it"),
        () = cut => {}
    }
}

#[tokio::test]
async fn one_of_two_identities_leaves_places_to_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identities.toml");
    rules(&path, "[[identity.allow]]\nmount = \"*\"\nrights = [\"read\", \"write\"]\n");
    let identities = IdentityStore::load_file(&path).unwrap();
    let fixture = GatewayFixture::start_with(|setup| {
        setup.identities = identities;
        setup.settings.limits.requests_in_flight_max = 4;
        setup.settings.limits.store_requests_max = 3;
        setup.settings.limits.tenant_reserve_percent = 25;
        setup.settings.timeouts.turn_wait = TimePeriod(Duration::from_millis(200));
    })
    .await;
    let greedy = |request: Request| request.by("AKOTHER", "other-secret");
    let owner = |request: Request| request.by("AKOWNER", "owner-secret");
    let mut held = Vec::new();
    for number in 0..2 {
        held.push(begin(&fixture, &greedy(slow_put(&format!("/data/{number}")))).await);
    }
    until(|| fixture.metrics_text().contains("verbs3_gateway_requests_in_flight 2\n")).await;
    // Its uploads are as many as may be; reads it still may, as far as its share of requests goes.
    let third = greedy(Request::new("PUT", "/data/more").header("content-length", "1"));
    assert_eq!(fixture.send(&third, b"x").await.error(), (503, "SlowDown".to_owned()));
    assert_eq!(fixture.send(&greedy(Request::new("GET", "/data/absent")), b"").await.status, 404);
    let other = owner(Request::new("PUT", "/data/mine").header("content-length", "1"));
    assert_eq!(fixture.send(&other, b"x").await.status, 200);
    assert!(
        fixture.metrics_text().contains("verbs3_gateway_denied_total{reason=\"tenant_share\"} 1")
    );
    drop(held);
    until(|| fixture.metrics_text().contains("verbs3_gateway_requests_in_flight 0\n")).await;
    assert_eq!(fixture.send(&third, b"x").await.status, 200);
}
