//! The same over a network: the UFS behind the gateway is an S3 endpoint (another gateway, over a
//! local store). What is cut here must leave nothing there.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use verbs3_settings::ConfigSecret;
use verbs3_ufs::s3::connect_store;
use verbs3_ufs::{CredentialsKind, Ufs, UfsSettings};

use crate::gateway_fixture::{GatewayFixture, GatewaySetup, mount};
use crate::signing::{ACCESS_KEY, REGION, Request, SECRET_KEY};

/// The gateway that clients use, and the one that is its UFS. `far` is all of the other's `data`,
/// `part` its `p/`.
pub async fn start_fixtures() -> (GatewayFixture, GatewayFixture) {
    start_fixtures_with(|_| {}).await
}

/// The same, with another gateway behind.
async fn start_fixtures_with(
    behind: impl FnOnce(&mut GatewaySetup),
) -> (GatewayFixture, GatewayFixture) {
    let behind = GatewayFixture::start_with(behind).await;
    let ufs = store_at("remote", behind.address, |_| {}).await;
    let front = GatewayFixture::start_with(|setup| {
        // Both buckets are called data, so that nothing is renamed on the first.
        setup.mounts =
            vec![mount("far", ufs.clone(), "data", ""), mount("part", ufs, "data", "p/")];
    })
    .await;
    (front, behind)
}

/// The store at an address.
pub async fn store_at(
    name: &str,
    address: SocketAddr,
    change: impl FnOnce(&mut UfsSettings),
) -> Ufs {
    let mut settings = UfsSettings::with_name(name);
    settings.endpoint = Some(format!("http://{address}"));
    settings.region = REGION.to_owned();
    settings.credentials.kind = CredentialsKind::Static;
    settings.credentials.access_key_id = Some(ACCESS_KEY.to_owned());
    settings.credentials.secret_access_key = Some(ConfigSecret::new(SECRET_KEY));
    change(&mut settings);
    Ufs::new(connect_store(&settings).await.unwrap(), settings)
}

fn put(path: &str, bytes: usize) -> Request {
    Request::new("PUT", path).header("content-length", &bytes.to_string())
}

#[tokio::test]
async fn bodies_of_all_sizes_arrive_and_come_back() {
    let (front, behind) = start_fixtures().await;
    for bytes in [0, 1, 70_000, 3_000_000] {
        let body: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let answer = front.send(&put("/part/x", bytes), &body).await;
        assert_eq!(answer.status, 200, "{bytes}: {}", answer.text());
        assert!(behind.visible("data", "p/x").await);
        let got = front.get("/part/x").await;
        assert!(got.body == body, "{bytes}: {} bytes came back", got.body.len());
        assert_eq!(got.headers["etag"], answer.headers["etag"]);
    }
}

#[tokio::test]
async fn a_batch_slowed_down_as_a_whole_leaves_no_key_uncertain() {
    let (front, _behind) =
        start_fixtures_with(|setup| setup.settings.limits.requests_in_flight_max = 0).await;
    let document = b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
    let length = document.len().to_string();
    let batch = Request::new("POST", "/far").query("delete=").header("content-length", &length);
    assert_eq!(front.send(&batch, document).await.error(), (503, "SlowDown".to_owned()));
    assert_eq!(front.told(), ["announce a,b visible=false", "report a,b Done"]);
    // What is slowed down without such a document may have begun: stores with disks of their own
    // say so in the middle.
    assert_eq!(
        front.send(&Request::new("DELETE", "/far/a"), b"").await.error(),
        (503, "SlowDown".to_owned())
    );
    assert_eq!(front.told()[2..], ["announce a visible=false", "report a Unknown"]);
}

#[tokio::test]
async fn a_wrong_checksum_cuts_the_connection_and_leaves_nothing() {
    let (front, behind) = start_fixtures().await;
    for bytes in [1, 5, 3_000_000] {
        let body = vec![7; bytes];
        let answer = front
            .send(&put("/far/x", bytes).header("x-amz-checksum-crc32", "AAAAAA=="), &body)
            .await;
        assert_eq!(answer.error(), (400, "BadDigest".to_owned()), "{bytes}");
    }
    assert!(!behind.visible("data", "x").await);
    assert!(
        front.told().is_empty() && behind.told().is_empty(),
        "{:?} {:?}",
        front.told(),
        behind.told()
    );
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let (front, behind) = start_fixtures().await;
    let (head, _) = put("/far/x", 3_000_000).signed(&front.host());
    let mut socket = TcpStream::connect(front.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&[7; 2_000_000]).await.unwrap();
    drop(socket);
    // Both have given the request up once nothing is in flight.
    for fixture in [&front, &behind] {
        fixture.gateway.shutdown(std::time::Duration::from_secs(20)).await;
    }
    assert!(!behind.visible("data", "x").await);
    assert!(front.told().is_empty() && behind.told().is_empty());
}

#[tokio::test]
async fn errors_from_afar_keep_their_status_code_and_headers() {
    let (front, _behind) = start_fixtures().await;
    assert_eq!(front.send(&put("/far/x", 5), b"hello").await.status, 200);
    for path in ["/far/absent", "/part/absent"] {
        let absent = front.get(path).await;
        assert_eq!(absent.error(), (404, "NoSuchKey".to_owned()), "{path}");
        assert!(absent.headers.contains_key("x-verbs3-ufs-request-id"), "{:?}", absent.headers);
    }
    let again = front.send(&put("/far/x", 5).header("if-none-match", "*"), b"other").await;
    assert_eq!(again.error(), (412, "PreconditionFailed".to_owned()));
    let unchanged = Request::new("GET", "/far/x")
        .header("if-none-match", "\"5d41402abc4b2a76b9719d911017c592\"");
    let unchanged = front.send(&unchanged, b"").await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(unchanged.headers["etag"], "\"5d41402abc4b2a76b9719d911017c592\"");
}

#[tokio::test]
async fn a_store_that_is_down_is_a_503() {
    let (front, behind) = start_fixtures().await;
    behind.gateway.shutdown(std::time::Duration::from_secs(5)).await;
    let answer = front.get("/far/x").await;
    assert_eq!(answer.error(), (503, "ServiceUnavailable".to_owned()), "{}", answer.text());
    let answer = front.send(&put("/far/x", 5), b"hello").await;
    assert_eq!(answer.error(), (503, "ServiceUnavailable".to_owned()), "{}", answer.text());
}
