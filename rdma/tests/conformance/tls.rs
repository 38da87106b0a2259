//! TCP over TLS: certificates for both sides, and who is let in by them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use verbs3_certificates::{CertificateFiles, NodeCertificates};
use verbs3_fabric_bench::{
    BenchHost, BenchRequester, DialOptions, HostOptions, TransferDirection, TransferLoad,
};
use verbs3_rdma::calls::{CallOptions, HandshakeError, HandshakeSecret};
use verbs3_rdma::tcp::{TcpOptions, TcpServer, TcpServerOptions, TcpTls, TcpTransport};
use verbs3_rdma::transport::{PeerAddress, PeerTransport, TransportError, TransportKind};
use verbs3_rdma::verbs::VerbsOptions;

use crate::transport_fixture::{
    listen_address, options, serve, server_options, service, within_deadline,
};

#[path = "../../../certificates/src/test_issuer.rs"]
mod test_issuer;

pub use test_issuer::TestIssuer;

/// Certificates of the node `verbs3://tests/NAME`, made in `folder`.
pub fn node_tls(issuer: &TestIssuer, folder: &Path, name: &str) -> TcpTls {
    let uri = format!("verbs3://tests/{name}");
    let [certificate, key, ca_file] = issuer.write_node(&folder.join(name), &[&uri]);
    let files = CertificateFiles { certificate, key, ca_file };
    let certificates = Arc::new(NodeCertificates::read("tests", files).unwrap());
    TcpTls { certificates, dials_tls: true, plain_allowed: false }
}

/// A worker that takes TLS, and an authority.
struct TlsFixture {
    issuer: TestIssuer,
    folder: tempfile::TempDir,
    server: TcpServer,
}

impl TlsFixture {
    async fn start(plain_allowed: bool) -> Self {
        let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
        let tls =
            TcpTls { plain_allowed, ..node_tls(&issuer, folder.path(), "worker/conformance") };
        let tcp = TcpOptions { tls: Some(tls), ..options() };
        let options = TcpServerOptions { tcp, ..server_options() };
        let server = serve(service(|_, _| async {}), options).await;
        Self { issuer, folder, server }
    }

    fn node(&self, name: &str) -> Option<TcpTls> {
        Some(node_tls(&self.issuer, self.folder.path(), name))
    }

    /// Connects to the worker of this id, as `tls` says.
    async fn connect(&self, tls: Option<TcpTls>, id: &str) -> Result<(), TransportError> {
        let transport = TcpTransport::new(TcpOptions { tls, ..options() });
        let address = PeerAddress::with_name(self.server.local_addr(), id.to_owned());
        transport.connect(&address).await.map(|_| ())
    }
}

fn cause(result: Result<(), TransportError>) -> Arc<HandshakeError> {
    match result {
        Err(TransportError::Handshake { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_worker_takes_gateways_workers_and_coordinators() {
    within_deadline(async {
        let fixture = TlsFixture::start(false).await;
        for name in ["gateway/g", "worker/other", "coordinator/c"] {
            fixture.connect(fixture.node(name), "conformance").await.unwrap();
        }
        // An operator serves no reads. The worker hangs up before the secret is proved.
        assert!(fixture.connect(fixture.node("operator/alice"), "conformance").await.is_err());
        // Plain connections, and those by another CA, have no way in.
        assert!(fixture.connect(None, "conformance").await.is_err());
        let foreign = tempfile::tempdir().unwrap();
        let foreign = node_tls(&TestIssuer::new(), foreign.path(), "gateway/g");
        let refused = cause(fixture.connect(Some(foreign), "conformance").await);
        assert!(matches!(*refused, HandshakeError::Tls(_)), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn a_requester_takes_the_worker_of_that_id_alone() {
    within_deadline(async {
        let fixture = TlsFixture::start(false).await;
        let refused = cause(fixture.connect(fixture.node("gateway/g"), "gpu-07").await);
        assert!(matches!(*refused, HandshakeError::Certificate(_)), "{refused:?}");
        // A server that is no worker is none, whatever it calls itself.
        let tcp = TcpOptions { tls: fixture.node("gateway/conformance"), ..options() };
        let options = TcpServerOptions { tcp, ..server_options() };
        let impostor = serve(service(|_, _| async {}), options).await;
        let transport = TcpTransport::new(TcpOptions {
            tls: fixture.node("gateway/g"),
            ..crate::transport_fixture::options()
        });
        let address = PeerAddress::from(impostor.local_addr());
        let refused = cause(transport.connect(&address).await.map(|_| ()));
        assert!(matches!(*refused, HandshakeError::Tls(_)), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn on_the_way_to_tls_a_worker_takes_both() {
    within_deadline(async {
        let fixture = TlsFixture::start(true).await;
        fixture.connect(None, "conformance").await.unwrap();
        fixture.connect(fixture.node("gateway/g"), "conformance").await.unwrap();
        let dials_plain = fixture.node("gateway/g").map(|tls| TcpTls { dials_tls: false, ..tls });
        fixture.connect(dials_plain, "conformance").await.unwrap();
    })
    .await;
}

/// What TLS costs. `-- --ignored --nocapture tls_costs` prints it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; a busy machine tells nothing"]
async fn tls_costs() {
    const TIME: Duration = Duration::from_secs(4);
    const PAGE_BYTES: usize = 256 << 10;
    let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
    let secret = || HandshakeSecret::new("the cluster's secret");
    let tcp = |tls| TcpOptions { tls, ..TcpOptions::new(secret()) };
    for round in 0..3 {
        for over_tls in [false, true] {
            let node = |name| tcp(over_tls.then(|| node_tls(&issuer, folder.path(), name)));
            let host = BenchHost::start(HostOptions {
                listen: listen_address(),
                tcp: node("worker/w"),
                verbs: VerbsOptions::new(secret()),
                rails: vec![],
                shm: CallOptions::new(secret()),
                socket: None,
                page_bytes: PAGE_BYTES,
                arena_bytes: 64 << 20,
                runtimes: vec![],
            });
            let host = host.await.unwrap();
            let dialled = BenchRequester::dial_host(DialOptions {
                host: host.local_addr(),
                tcp: node("gateway/g"),
                verbs: VerbsOptions::new(secret()),
                shm: CallOptions::new(secret()),
                rails: vec![],
                kinds: vec![TransportKind::Tcp],
                connections: 2,
                page_bytes: PAGE_BYTES,
                in_flight_bytes_max: 16 << 20,
                in_process: false,
            });
            let dialled = dialled.await.unwrap();
            let way = &dialled.open_ways()[0];
            let load = TransferLoad {
                bytes: 1 << 20,
                direction: TransferDirection::Read,
                depth: 4,
                time: TIME,
                whole: false,
            };
            let moved = dialled.measure_bandwidth(way, &load).await.unwrap();
            let trips = dialled.measure_echo(way, 64, TIME / 4).await.unwrap();
            println!(
                "{round} tls={over_tls}: {:.0} MiB/s, {:.0} us of CPU a MiB (both sides), echo of \
                64 bytes {:?}",
                moved.mib_per_second(),
                moved.per_mib(moved.here.cpu_micros),
                trips.p50,
            );
            drop(dialled);
            host.shutdown().await;
        }
    }
}
