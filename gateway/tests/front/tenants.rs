//! Tenants: what identities of one share, what one leaves to others, and what is told of them.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use verbs3_gateway::auth::IdentityStore;
use verbs3_protocol::TenantTag;
use verbs3_settings::{ByteSize, TimePeriod};

use crate::gateway_fixture::{GatewayFixture, until};
use crate::signing::Request;
use crate::slow::{begin, slow_put};

/// A, B: of the tenant greedy. C: of the tenant modest.
fn three_identities() -> Arc<IdentityStore> {
    let identity = |name: &str, tenant: &str| {
        format!(
            "[[identity]]\naccess_key = \"{name}\"\nsecret_key = \"secret\"\ntenant = \"{tenant}\"\n\
             [[identity.allow]]\nmount = \"*\"\nrights = [\"read\", \"write\"]\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identities.toml");
    let text = [identity("A", "greedy"), identity("B", "greedy"), identity("C", "modest")];
    fs::write(&path, text.concat()).unwrap();
    IdentityStore::load_file(&path).unwrap()
}

/// A fixture with four places for requests, of which one is kept from whoever holds most.
async fn start_narrow_fixture(wait: Duration) -> GatewayFixture {
    GatewayFixture::start_with(|setup| {
        setup.identities = three_identities();
        setup.settings.limits.requests_in_flight_max = 4;
        setup.settings.limits.tenant_reserve_percent = 25;
        setup.settings.timeouts.turn_wait = TimePeriod(wait);
    })
    .await
}

fn by(key: &str, request: Request) -> Request {
    request.by(key, "secret")
}

fn get(key: &str) -> Request {
    by(key, Request::new("GET", "/data/absent"))
}

#[tokio::test]
async fn identities_of_one_tenant_hold_one_share() {
    let fixture = start_narrow_fixture(Duration::from_millis(200)).await;
    let mut held = Vec::new();
    for (number, key) in ["A", "B", "A"].into_iter().enumerate() {
        held.push(begin(&fixture, &by(key, slow_put(&format!("/data/{number}")))).await);
    }
    until(|| fixture.metrics_text().contains("verbs3_gateway_requests_in_flight 3\n")).await;
    assert_eq!(fixture.send(&get("B"), b"").await.error(), (503, "SlowDown".to_owned()));
    assert_eq!(fixture.send(&get("C"), b"").await.status, 404);
    for line in [
        "verbs3_tenant_requests_total{tenant=\"greedy\"} 4\n",
        "verbs3_tenant_requests_total{tenant=\"modest\"} 1\n",
        "verbs3_tenant_held{resource=\"requests\",tenant=\"greedy\"} 3\n",
        "verbs3_tenant_refusals_total{resource=\"requests\",tenant=\"greedy\"} 1\n",
        "verbs3_gateway_denied_total{reason=\"tenant_share\"} 1\n",
    ] {
        let text = fixture.metrics_text();
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn request_over_the_bound_waits_for_its_turn() {
    let fixture = start_narrow_fixture(Duration::from_secs(60)).await;
    let mut held = Vec::new();
    for (number, key) in ["A", "A", "A", "C"].into_iter().enumerate() {
        held.push(begin(&fixture, &by(key, slow_put(&format!("/data/{number}")))).await);
    }
    until(|| fixture.metrics_text().contains("verbs3_gateway_requests_in_flight 4\n")).await;
    let (request, others) = (get("C"), by("B", slow_put("/data/more")));
    let answered = async {
        // The greedy one comes first, and waits on.
        let greedy = begin(&fixture, &others).await;
        let requests = "verbs3_tenant_requests_total{tenant=\"greedy\"} 4\n";
        until(|| fixture.metrics_text().contains(requests)).await;
        let answer = fixture.send(&request, b"").await;
        (answer.status, greedy)
    };
    let released = async {
        let requests = "verbs3_tenant_requests_total{tenant=\"modest\"} 2\n";
        until(|| fixture.metrics_text().contains(requests)).await;
        held.remove(0);
    };
    let ((status, _greedy), ()) = tokio::join!(answered, released);
    assert_eq!(status, 404);
    let waits = "verbs3_tenant_waits_total{resource=\"requests\",tenant=\"modest\"} 1\n";
    assert!(fixture.metrics_text().contains(waits), "{}", fixture.metrics_text());
}

#[tokio::test]
async fn an_upload_does_not_wait_behind_the_bytes_of_another_tenant() {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.identities = three_identities();
        setup.settings.limits.store_rate_max = ByteSize(64 << 10);
    })
    .await;
    let put = async |key: &str, name: &str, bytes: usize| {
        let put = Request::new("PUT", &format!("/data/{name}"));
        let put = by(key, put.header("content-length", &bytes.to_string()));
        let answer = fixture.send(&put, &vec![7; bytes]).await;
        assert_eq!(answer.status, 200);
    };
    let greedy = async {
        tokio::join!(put("A", "0", 300 << 10), put("B", "1", 300 << 10), put("A", "2", 300 << 10))
    };
    let modest = async {
        let waits = "verbs3_tenant_waits_total{resource=\"store_bytes\",tenant=\"greedy\"}";
        until(|| fixture.metrics_text().contains(waits)).await;
        put("C", "3", 40 << 10).await;
    };
    tokio::select! {
        biased;
        () = modest => {}
        _ = greedy => panic!("more than twenty times as much came first"),
    }
    let written = "verbs3_tenant_store_bytes_total{tenant=\"modest\"} 40960\n";
    assert!(fixture.metrics_text().contains(written), "{}", fixture.metrics_text());
    let read = fixture.send(&by("C", Request::new("GET", "/data/3")), b"").await;
    assert_eq!(read.body, vec![7; 40 << 10]);
}

#[tokio::test]
async fn homes_are_told_for_whom_a_write_is() {
    let fixture = GatewayFixture::start_with(|setup| setup.identities = three_identities()).await;
    for key in ["A", "C", "B"] {
        let put = Request::new("PUT", "/data/x").header("content-length", "1");
        assert_eq!(fixture.send(&by(key, put), b"x").await.status, 200);
    }
    let [greedy, modest] = ["greedy", "modest"].map(|name| TenantTag::new(name, 1));
    assert!(greedy.is_some() && greedy != modest);
    assert_eq!(fixture.announced_for(), [greedy, modest, greedy]);
}

#[tokio::test]
async fn what_the_cache_did_can_be_kept_from_clients() {
    for (shown, header) in [(true, Some("relayed")), (false, None)] {
        let fixture =
            GatewayFixture::start_with(|setup| setup.settings.cache_headers = shown).await;
        let put = Request::new("PUT", "/data/around").header("content-length", "1");
        let answer = fixture.send(&put, b"x").await;
        let told = answer.headers.get("x-verbs3-home").map(String::as_str);
        assert_eq!((answer.status, told), (200, header));
    }
}
