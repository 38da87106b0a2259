//! Tests an etcd that requires a certificate and a user: a client with both is let in, also after
//! etcd's restart.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{
    Certificate, Client, ConnectOptions, Identity, Permission, PermissionType, TlsOptions,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use verbs3_coordinator::store::etcd::{EtcdOptions, EtcdStore, EtcdUser};
use verbs3_coordinator::store::{ClusterStore, EntryPrecondition};

use crate::etcd::{self, Etcd};

const WITHIN: Duration = Duration::from_secs(120);
const PASSWORD: &str = "a password of the coordinators";

/// PEM.
struct Certificates {
    ca: String,
    server: (String, String),
    client: (String, String),
}

fn certificates() -> Certificates {
    let mut of_ca = CertificateParams::new(Vec::new()).unwrap();
    of_ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    of_ca.distinguished_name.push(DnType::CommonName, "tests");
    let ca = CertifiedIssuer::self_signed(of_ca, KeyPair::generate().unwrap()).unwrap();
    let made = |names: &[&str]| {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        // etcd would take a common name for a user's.
        params.distinguished_name = rcgen::DistinguishedName::new();
        (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
    };
    Certificates {
        ca: ca.pem(),
        server: made(&["127.0.0.1", "localhost"]),
        client: made(&["coordinator"]),
    }
}

fn start(name: &str, Certificates { ca, server, .. }: &Certificates) -> Etcd {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("certificates-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, pem: &str| {
        std::fs::write(folder.join(name), pem).unwrap();
        folder.join(name).display().to_string()
    };
    let mut words =
        vec!["--client-cert-auth".to_owned(), "--trusted-ca-file".to_owned(), file("ca.pem", ca)];
    words.extend(["--cert-file".to_owned(), file("server.pem", &server.0)]);
    words.extend(["--key-file".to_owned(), file("server.key", &server.1)]);
    etcd::start_with(name, "https", &words)
}

/// From here on nobody reads or writes without a user. The coordinators' user does so only below
/// this prefix.
async fn demand_a_user(endpoint: &str, prefix: &str, made: &Certificates) {
    let tls = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(&made.ca))
        .identity(Identity::from_pem(&made.client.0, &made.client.1));
    let mut client =
        Client::connect([endpoint], Some(ConnectOptions::new().with_tls(tls))).await.unwrap();
    let began = Instant::now();
    while let Err(error) = client.get("anything", None).await {
        assert!(began.elapsed() < WITHIN, "etcd does not answer: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client.user_add("root", "a password of the administrator", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("coordinator", PASSWORD, None).await.unwrap();
    client.role_add("coordinators").await.unwrap();
    let below = Permission::new(PermissionType::Readwrite, format!("{prefix}/")).with_prefix();
    client.role_grant_permission("coordinators", below).await.unwrap();
    client.user_grant_role("coordinator", "coordinators").await.unwrap();
    client.auth_enable().await.unwrap();
}

async fn put_within(store: &EtcdStore, value: &'static str) {
    let began = Instant::now();
    while let Err(error) = store
        .put_entry("map", Bytes::from_static(value.as_bytes()), EntryPrecondition::Any, None)
        .await
    {
        assert!(began.elapsed() < WITHIN, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_with_certificates_and_users_serves_only_who_has_both() {
    let made = certificates();
    let etcd = start("secured", &made);
    let plain = etcd::options(&etcd.endpoint, "secured");
    demand_a_user(&etcd.endpoint, &plain.prefix, &made).await;
    let pem = |text: &String| text.clone().into_bytes();
    let identity = Some((pem(&made.client.0), pem(&made.client.1)));
    let user = Some(EtcdUser { name: "coordinator".to_owned(), password: PASSWORD.to_owned() });
    let options = EtcdOptions { ca: Some(pem(&made.ca)), identity, user, ..plain };

    let one = EtcdStore::connect(options.clone()).await.unwrap();
    let mut watch = one.watch_prefix("map").await.unwrap();
    let leadership = one.campaign_for_leader("one", Duration::from_secs(5)).await.unwrap();
    one.put_entry(
        "map",
        Bytes::from_static(b"1"),
        EntryPrecondition::Absent,
        Some(leadership.fencing_token()),
    )
    .await
    .unwrap();
    tokio::time::timeout(WITHIN, watch.next_change()).await.unwrap();
    assert_eq!(one.list_entries("").await.unwrap().len(), 1);

    // A client without either gets nothing.
    for without in [
        EtcdOptions { identity: None, ..options.clone() },
        EtcdOptions { ca: None, ..options.clone() },
        EtcdOptions { user: None, ..options.clone() },
        EtcdOptions { prefix: "/verbs3-tests/of-others".to_owned(), ..options.clone() },
    ] {
        let without =
            EtcdStore::connect(EtcdOptions { deadline: Duration::from_secs(2), ..without })
                .await
                .unwrap();
        assert!(without.get_entry("map").await.is_err());
    }
    let (name, password) = ("coordinator".to_owned(), "another password".to_owned());
    let wrong = Some(EtcdUser { name, password });
    let refused =
        EtcdStore::connect(EtcdOptions { user: wrong, ..options.clone() }).await.err().unwrap();
    assert!(refused.to_string().contains("does not take user coordinator"), "{refused}");

    // etcd's tokens die with it. A client that starts while etcd is away is let in when it is back.
    etcd.kill();
    let other = EtcdStore::connect(EtcdOptions { deadline: Duration::from_secs(1), ..options })
        .await
        .unwrap();
    assert!(other.get_entry("map").await.is_err());
    etcd.restart();
    put_within(&one, "2").await;
    put_within(&other, "3").await;
    let calm = async {
        while tokio::time::timeout(Duration::from_secs(2), watch.next_change()).await.is_ok() {}
    };
    tokio::time::timeout(WITHIN, calm).await.unwrap();
    put_within(&other, "4").await;
    tokio::time::timeout(WITHIN, watch.next_change()).await.unwrap();
    assert_eq!(one.get_entry("map").await.unwrap().unwrap().value, "4");
}
