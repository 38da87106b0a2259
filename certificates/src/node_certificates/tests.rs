//! Tests who gets through a handshake, and that a CA is changed without a gap.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::*;

#[path = "../test_issuer.rs"]
mod test_issuer;

use test_issuer::TestIssuer;

fn read(files: [std::path::PathBuf; 3]) -> Result<Arc<NodeCertificates>, CertificateError> {
    let [certificate, key, ca_file] = files;
    let files = CertificateFiles { certificate, key, ca_file };
    NodeCertificates::read("train", files).map(Arc::new)
}

fn node(issuer: &TestIssuer, folder: &Path, name: &str) -> Arc<NodeCertificates> {
    let files = issuer.write_node(&folder.join(name), &[&format!("verbs3://train/{name}")]);
    read(files).unwrap()
}

/// Returns whom the server saw, and whether both sides took each other.
async fn shake(
    client: Arc<ClientConfig>,
    server: &NodeCertificates,
    demand: ClientDemand,
) -> Result<NodeName, String> {
    let (near, far) = tokio::io::duplex(64 << 10);
    let name = ServerName::try_from("any.where").unwrap();
    let accept = async {
        let stream = server.tls_acceptor(demand).accept(far).await.map_err(|e| e.to_string())?;
        server.peer_name(stream.get_ref().1.peer_certificates()).map_err(|e| e.to_string())
    };
    let connect = async {
        let connector = TlsConnector::from(client);
        connector.connect(name, near).await.map_err(|error| error.to_string())
    };
    let (seen, connected) = tokio::join!(accept, connect);
    connected?;
    seen
}

#[tokio::test]
async fn a_client_takes_the_role_that_it_wants_alone() {
    let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
    let gateway = node(&issuer, folder.path(), "gateway/a");
    let worker = node(&issuer, folder.path(), "worker/b");
    let operator = node(&issuer, folder.path(), "operator/alice");
    let coordinator = node(&issuer, folder.path(), "coordinator/c");
    let demand = ClientDemand::Required;
    let seen = shake(gateway.worker_config(), &worker, demand).await;
    assert_eq!(seen.unwrap().to_string(), "gateway/a");
    let seen = shake(operator.coordinator_config(), &coordinator, demand).await;
    assert_eq!(seen.unwrap().to_string(), "operator/alice");
    for wrong in [&operator, &coordinator, &gateway] {
        let error = shake(gateway.worker_config(), wrong, demand).await.unwrap_err();
        assert!(error.contains("wanted: Worker"), "{error}");
    }
    assert!(shake(gateway.coordinator_config(), &worker, demand).await.is_err());
}

#[tokio::test]
async fn strangers_have_no_way_in() {
    let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
    let worker = node(&issuer, folder.path(), "worker/b");
    let foreign = node(&TestIssuer::new(), &folder.path().join("foreign"), "worker/b");
    let demand = ClientDemand::Required;
    // Another CA, whichever side has it.
    assert!(shake(foreign.worker_config(), &worker, demand).await.is_err());
    assert!(shake(worker.worker_config(), &foreign, demand).await.is_err());
    // No certificate at all.
    let roots = Arc::new(worker.files.read_content().unwrap().roots.as_ref().clone());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let nobody = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let nobody = Arc::new(nobody);
    let name = ServerName::try_from("localhost").unwrap();
    for (demand, wanted) in [(ClientDemand::Required, false), (ClientDemand::Optional, true)] {
        let (near, far) = tokio::io::duplex(64 << 10);
        let accept = worker.tls_acceptor(demand).accept(far);
        let connector = TlsConnector::from(nobody.clone());
        let (accepted, _) = tokio::join!(accept, connector.connect(name.clone(), near));
        assert_eq!(accepted.is_ok(), wanted, "{demand:?}");
        if let Ok(stream) = accepted {
            let seen = worker.peer_name(stream.get_ref().1.peer_certificates());
            assert_eq!(seen, Err(NodeNameError::Missing));
        }
    }
}

#[test]
fn a_certificate_without_a_nodes_name_is_refused() {
    let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
    let cases: [(&[&str], &str); 4] = [
        (&[], "has no alternative name verbs3://"),
        (&["verbs3://prod/worker/a"], "is one of the cluster \"prod\""),
        (&["verbs3://train/worker/a", "verbs3://train/operator/a"], "more than one"),
        (&["verbs3://train/king/a"], "is not one of the roles"),
    ];
    for (uris, wanted) in cases {
        let error = read(issuer.write_node(folder.path(), uris)).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(wanted), "{cause}");
    }
}

#[test]
fn a_certificate_that_nobody_would_take_is_refused() {
    let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
    let uri = "verbs3://train/worker/a";
    let cause_of = |files| {
        let error = read(files).unwrap_err();
        assert!(error.to_string().contains("would be taken by nobody who believes"), "{error}");
        std::error::Error::source(&error).unwrap().to_string()
    };
    let files = issuer.write_node(folder.path(), &[uri]);
    std::fs::write(&files[2], TestIssuer::new().ca_pem()).unwrap();
    assert_eq!(cause_of(files), "invalid peer certificate: BadSignature");
    let files = issuer.write_node_until(folder.path(), &[uri], 2020);
    assert!(cause_of(files).contains("xpired"));
}

#[tokio::test]
async fn a_ca_is_changed_while_processes_run() {
    let (old, new) = (TestIssuer::new(), TestIssuer::new());
    let folder = tempfile::tempdir().unwrap();
    let names = ["gateway/a", "worker/b"];
    let nodes: Vec<_> = names.iter().map(|name| node(&old, folder.path(), name)).collect();
    let stop = CancellationToken::new();
    for node in &nodes {
        let metrics = CertificateMetrics::new(&prometheus::Registry::new()).unwrap();
        tokio::spawn(node.clone().follow_files(metrics, stop.clone()));
    }
    let works = async || {
        let seen = shake(nodes[0].worker_config(), &nodes[1], ClientDemand::Required).await;
        assert_eq!(seen.unwrap().to_string(), "gateway/a");
    };
    works().await;
    let both = format!("{}{}", old.ca_pem(), new.ca_pem());
    // Believe the new one, too; then a new certificate; then forget the old one.
    for (index, name) in names.iter().enumerate() {
        let ca = folder.path().join(name).join("ca.crt");
        change(&nodes[index], || std::fs::write(&ca, &both).unwrap()).await;
        works().await;
    }
    for (index, name) in names.iter().enumerate() {
        let here = folder.path().join(name);
        change(&nodes[index], || {
            new.write_node(&here, &[&format!("verbs3://train/{name}")]);
            std::fs::write(here.join("ca.crt"), &both).unwrap();
        })
        .await;
        works().await;
    }
    for (index, name) in names.iter().enumerate() {
        let ca = folder.path().join(name).join("ca.crt");
        change(&nodes[index], || std::fs::write(&ca, new.ca_pem()).unwrap()).await;
        works().await;
    }
    let late = node(&old, &folder.path().join("late"), "gateway/late");
    assert!(shake(late.worker_config(), &nodes[1], ClientDemand::Required).await.is_err());
    // Another node's certificate, and what can't be used, change nothing.
    new.write_node(&folder.path().join(names[1]), &["verbs3://train/worker/other"]);
    tokio::time::sleep(5 * LOOK_EVERY).await;
    works().await;
    assert_eq!(nodes[1].own_name().name, "b");
    // The own certificate's CA is forgotten before the certificate is replaced.
    new.write_node(&folder.path().join(names[1]), &["verbs3://train/worker/b"]);
    std::fs::write(folder.path().join(names[1]).join("ca.crt"), old.ca_pem()).unwrap();
    tokio::time::sleep(5 * LOOK_EVERY).await;
    works().await;
    std::fs::write(folder.path().join(names[1]).join("tls.crt"), "no certificate").unwrap();
    tokio::time::sleep(5 * LOOK_EVERY).await;
    works().await;
    stop.cancel();
}

/// Changes files and waits until they are in force.
async fn change(node: &NodeCertificates, change: impl FnOnce()) {
    let before = node.in_force.load_full();
    change();
    for _ in 0..500 {
        if !Arc::ptr_eq(&node.in_force.load_full(), &before) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the change did not come into force within 10 s");
}
