//! What the gateway holds of bodies: chunks of any size stream through, and there is a bound on all
//! of them together.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::gateway_fixture::{Answer, GatewayFixture, until};
use crate::remote::start_fixtures;
use crate::signing::Request;
use verbs3_settings::ByteSize;

/// One chunk as long as the object, of which the store has most before its end is sent.
#[tokio::test]
async fn a_chunk_of_any_size_streams_through_and_is_cut_if_it_lies() {
    let data = vec![7; 8 << 20];
    for right in [true, false] {
        let (front, behind) = start_fixtures().await;
        let request = Request::new("PUT", "/far/x").payload("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        let request = request.header("x-amz-decoded-content-length", &data.len().to_string());
        let (head, mut seed) = request.signed(&front.host());
        let mut body =
            format!("{:x};chunk-signature={}\r\n", data.len(), seed.chunk(&data)).into_bytes();
        body.extend(&data);
        body.extend(format!("\r\n0;chunk-signature={}\r\n\r\n", seed.chunk(b"")).into_bytes());
        let head = head.replace(
            "connection: close",
            &format!("content-length: {}\r\nconnection: close", body.len()),
        );
        let mut socket = TcpStream::connect(front.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let half = body.len() / 2;
        socket.write_all(&body[..half]).await.unwrap();
        until(|| behind.gateway_metric("body_bytes_received_total") > 3e6).await;
        if !right {
            body[half] ^= 1;
        }
        let _ = socket.write_all(&body[half..]).await;
        let answer = Answer::read(socket).await;
        if right {
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(behind.get("/data/x").await.body == data);
        } else {
            assert_eq!(answer.error(), (403, "SignatureDoesNotMatch".to_owned()));
            assert!(!behind.visible("data", "x").await);
            assert!(front.told().is_empty() && behind.told().is_empty());
        }
    }
}

#[tokio::test]
async fn over_the_bound_on_bodies_an_upload_is_told_to_slow_down() {
    let fixture =
        GatewayFixture::start_with(|setup| setup.settings.limits.bodies_max = ByteSize(1 << 20))
            .await;
    let body = vec![7; 1 << 20];
    let (head, _) = Request::new("PUT", "/data/slow")
        .header("content-length", "1048576")
        .signed(&fixture.host());
    let mut slow = TcpStream::connect(fixture.address).await.unwrap();
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(&body[..1000]).await.unwrap();
    until(|| fixture.gateway_metric("body_memory_bytes") > 5e5).await;

    let refused = fixture.put("/data/other", &body).await;
    assert_eq!(refused.error(), (503, "SlowDown".to_owned()));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(fixture.put("/data/small", b"hello").await.status, 200);
    let unproven =
        Request::new("PUT", "/data/other").by("AKNOBODY", "x").header("content-length", "1048576");
    assert_eq!(
        fixture.send(&unproven, &body).await.error().0,
        403,
        "who has no key is told so, and holds nothing"
    );
    let document = format!("<Delete>{}</Delete>", "<Object><Key>a</Key></Object>".repeat(20_000));
    let delete = Request::new("POST", "/data")
        .query("delete=")
        .header("content-length", &document.len().to_string());
    assert_eq!(
        fixture.send(&delete, document.as_bytes()).await.error(),
        (503, "SlowDown".to_owned())
    );
    assert!(!fixture.visible("data", "other").await);

    slow.write_all(&body[1000..]).await.unwrap();
    assert_eq!(Answer::read(slow).await.status, 200);
    until(|| fixture.gateway_metric("body_memory_bytes") < 0.5).await;
    assert_eq!(fixture.put("/data/other", &body).await.status, 200);
}
