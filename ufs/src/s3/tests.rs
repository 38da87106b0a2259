//! Options that can't work are refused before anything is sent.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::settings::CredentialsKind;

fn settings(endpoint: Option<&str>) -> UfsSettings {
    let mut settings =
        UfsSettings { endpoint: endpoint.map(str::to_owned), ..UfsSettings::default() };
    settings.credentials.kind = CredentialsKind::Anonymous;
    settings
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
        let error = connect_store(&settings(Some(bad))).await.err().unwrap();
        assert!(matches!(error, ConnectError::Endpoint { .. }), "{bad}: {error}");
        assert!(!error.to_string().contains("hush"));
    }
    assert!(connect_store(&settings(Some("http://[::1]:9000"))).await.is_ok());
}

#[tokio::test]
async fn unreadable_certificates_are_refused_without_a_panic() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let with = |path: &std::path::Path| UfsSettings {
        ca_file: Some(path.to_owned()),
        ..settings(Some("https://host"))
    };
    for text in [
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n",
    ] {
        std::io::Write::write_all(&mut file.as_file_mut(), text.as_bytes()).unwrap();
        assert!(
            matches!(connect_store(&with(file.path())).await, Err(ConnectError::CaFile { .. })),
            "{text}"
        );
    }
    assert!(matches!(
        connect_store(&with("/no/such/file".as_ref())).await,
        Err(ConnectError::CaFile { .. })
    ));
}

#[tokio::test]
async fn a_region_must_be_named() {
    let nowhere = UfsSettings { region: String::new(), ..settings(None) };
    assert!(matches!(connect_store(&nowhere).await, Err(ConnectError::Region)));
}
