//! What `/readyz` says of a store that does not answer.

use std::net::SocketAddr;
use std::time::Duration;

use prometheus::{Registry, TextEncoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use verbs3_admin::AdminLimits;
use verbs3_settings::TimePeriod;
use verbs3_ufs::Ufs;

use crate::gateway_fixture::{Answer, GatewayFixture, mount};
use crate::remote::store_at;

/// A gateway before that store, and the address of its `/readyz`.
async fn gateway_before(ufs: Ufs, unready_after: Duration) -> (GatewayFixture, SocketAddr) {
    let fixture = GatewayFixture::start_with(|setup| {
        setup.mounts = vec![mount("far", ufs, "data", "")];
        setup.settings.store_probe.every = TimePeriod(Duration::from_millis(50));
        setup.settings.store_probe.unready_after = TimePeriod(unready_after);
    })
    .await;
    let admin = fixture.serve_admin(AdminLimits::default(), Vec::new()).await;
    (fixture, admin)
}

/// Asks until the answer is as wanted.
async fn wait_for_readiness(
    admin: SocketAddr,
    status: u16,
    is_wanted: impl Fn(&str) -> bool,
) -> String {
    loop {
        let mut socket = TcpStream::connect(admin).await.unwrap();
        socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let answer = Answer::read(socket).await;
        let text = answer.text();
        if answer.status == status && is_wanted(&text) {
            return text;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A socket at whose address nobody listens, nor can anybody else.
fn unheard_socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test]
async fn an_unreachable_store_is_named_until_it_answers_even_an_error() {
    let socket = unheard_socket();
    let ufs = store_at("far", socket.local_addr().unwrap(), |_| {}).await;
    let (_fixture, admin) = gateway_before(ufs, Duration::ZERO).await;
    let said = wait_for_readiness(admin, 200, |text| {
        text.starts_with("ready\nstores: far has not answered for ")
    })
    .await;
    assert!(said.contains("efused") || said.contains("connect"), "{said}");
    let registry = Registry::new();
    verbs3_ufs::metrics::register(&registry).unwrap();
    let is_reachable = || {
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        text.contains("verbs3_ufs_reachable{ufs=\"far\"} 1")
    };
    assert!(!is_reachable());

    let socket = socket.listen(16).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = socket.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let denied =
                b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(denied).await;
        }
    });
    wait_for_readiness(admin, 200, |text| text == "ready\n").await;
    assert!(is_reachable());
}

#[tokio::test]
async fn a_store_that_takes_requests_and_never_answers_is_silent_too() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ufs = store_at("mute", socket.local_addr().unwrap(), |settings| {
        settings.deadlines.first_byte = TimePeriod(Duration::from_millis(100));
    })
    .await;
    let (_fixture, admin) = gateway_before(ufs, Duration::ZERO).await;
    let said = wait_for_readiness(admin, 200, |text| {
        text.starts_with("ready\nstores: mute has not answered for ")
    })
    .await;
    assert!(said.contains("no answer within 100 ms"), "{said}");
}

#[tokio::test]
async fn a_gateway_without_its_store_is_unready_if_settings_say_so() {
    let socket = unheard_socket();
    let ufs = store_at("away", socket.local_addr().unwrap(), |_| {}).await;
    let (_fixture, admin) = gateway_before(ufs, Duration::from_millis(1)).await;
    wait_for_readiness(admin, 503, |text| text.starts_with("stores: away has not answered for "))
        .await;
}
