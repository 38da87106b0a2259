//! Options that can't work are refused before anything is sent.
#![allow(clippy::unwrap_used)]
use super::*;

fn options(endpoint: Option<&str>) -> S3Options {
    S3Options::new(endpoint.map(str::to_owned), "us-east-1", S3StoreCredentials::Anonymous)
}

#[tokio::test]
async fn endpoints_that_can_not_work_are_refused() {
    for bad in [
        "",
        "127.0.0.1:9000",
        "ftp://host",
        "http://",
        "http://host/?x=1",
        "https://user:hush@host",
        "http://a b",
    ] {
        let error = connect_store(options(Some(bad))).await.err().unwrap();
        assert!(matches!(error, ConnectError::Endpoint { .. }), "{bad}: {error}");
        assert!(!error.to_string().contains("hush"));
    }
    assert!(connect_store(options(Some("http://[::1]:9000"))).await.is_ok());
}

#[tokio::test]
async fn certificates_that_can_not_be_read_are_refused_and_do_not_panic() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let with = |path: &std::path::Path| S3Options {
        ca_file: Some(path.to_owned()),
        ..options(Some("https://host"))
    };
    for text in [
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n",
    ] {
        std::io::Write::write_all(&mut file.as_file_mut(), text.as_bytes()).unwrap();
        assert!(
            matches!(connect_store(with(file.path())).await, Err(ConnectError::CaFile { .. })),
            "{text}"
        );
    }
    assert!(matches!(
        connect_store(with("/no/such/file".as_ref())).await,
        Err(ConnectError::CaFile { .. })
    ));
}

#[tokio::test]
async fn a_region_must_be_named() {
    let nowhere = S3Options { region: String::new(), ..options(None) };
    assert!(matches!(connect_store(nowhere).await, Err(ConnectError::Region)));
}
