//! Tests stores that are away, send nothing, or break off.

use futures::StreamExt;
use s3s::S3Error;
use verbs3_settings::TimePeriod;
use verbs3_ufs::raw_answer::answer_of;
use verbs3_ufs::s3::connect_store;
use verbs3_ufs::{ReadObject, Ufs, UfsError, UfsSettings};

use crate::loopback::{Raw, settings};
use crate::{answer, get};

fn expect_unavailable(error: &S3Error, code: &str, reason: &str) {
    let answer = answer_of(error, None);
    assert_eq!((answer.status.as_u16(), error.code().as_str()), (503, code));
    assert_eq!(answer.headers["retry-after"], "1");
    let UfsError::Unreachable { cause, .. } = UfsError::from_s3("main", error, None) else {
        panic!("{error:?}")
    };
    let said = cause.to_string();
    assert!(said.contains(reason), "{said}");
}

#[tokio::test]
async fn a_closed_port_is_an_explained_503() {
    // Nobody listens there, nor can anybody else.
    let unheard = tokio::net::TcpSocket::new_v4().unwrap();
    unheard.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let client = connect_store(&settings(unheard.local_addr().unwrap())).await.unwrap();
    expect_unavailable(
        &client.get_object(get("k")).await.err().unwrap(),
        "ServiceUnavailable",
        "refused",
    );
}

#[tokio::test]
async fn a_store_that_says_nothing_is_an_explained_503() {
    let raw = Raw::saying(vec![String::new()]).await;
    let mut settings = settings(raw.address);
    settings.deadlines.connect = TimePeriod::from_millis(200);
    settings.deadlines.answer = TimePeriod::from_millis(300);
    let client = connect_store(&settings).await.unwrap();
    expect_unavailable(
        &client.get_object(get("k")).await.err().unwrap(),
        "ServiceUnavailable",
        "no answer within 500 ms",
    );
}

#[tokio::test]
async fn a_connection_cut_before_the_answer_is_an_explained_503() {
    let raw = Raw::saying(vec!["HTTP/1.1 200 OK\r\nconnection: close\r\n".into()]).await;
    let error = raw.client().await.get_object(get("k")).await.err().unwrap();
    expect_unavailable(&error, "ServiceUnavailable", "");
}

#[tokio::test]
async fn more_requests_than_connections_wait_and_are_then_slowed_down() {
    let raw = Raw::saying(vec![answer("200 OK", "", "text"), answer("200 OK", "", "text")]).await;
    let mut settings = settings(raw.address);
    settings.deadlines.connect = TimePeriod::from_seconds(1);
    settings.limits.connections_max = 1;
    let client = connect_store(&settings).await.unwrap();
    let held = client.get_object(get("k")).await.unwrap();
    expect_unavailable(
        &client.get_object(get("k")).await.err().unwrap(),
        "SlowDown",
        "connections_max",
    );
    drop(held);
    assert!(client.get_object(get("k")).await.is_ok());
}

#[tokio::test]
async fn a_body_that_falls_silent_ends_in_an_error() {
    let raw =
        Raw::saying(vec!["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n0123".into(), String::new()])
            .await;
    let mut settings = settings(raw.address);
    settings.deadlines.idle_body = TimePeriod::from_millis(500);
    let client = connect_store(&settings).await.unwrap();
    let mut body = client.get_object(get("k")).await.unwrap().output.body.unwrap();
    assert_eq!(body.next().await.unwrap().unwrap(), "0123");
    assert!(body.next().await.unwrap().err().unwrap().to_string().contains("nothing for 500 ms"));
}

#[tokio::test]
async fn a_cut_body_is_truncated_and_not_short() {
    let answer =
        "HTTP/1.1 200 OK\r\netag: \"e\"\r\ncontent-length: 9\r\nconnection: close\r\n\r\n0123"
            .to_owned();
    let raw = Raw::saying(vec![answer]).await;
    let ufs = Ufs::new(raw.client().await, UfsSettings::with_name("main"));
    let (bucket, key) = ("bkt".into(), "k".into());
    let wanted =
        ReadObject { bucket, key, version_id: None, if_match: None, range: None, checksums: false };
    let mut body = ufs.read(wanted).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "0123");
    assert!(matches!(body.next().await, Some(Err(UfsError::Truncated { got: 4, want: 9, .. }))));
    assert!(body.next().await.is_none());
}
