//! What the processes of a cluster prove themselves by is changed while clients read and write: no
//! request fails, no byte is wrong, and what was taken away opens nothing any more.
//!
//! Workers are reached over tcp alone, where certificates and secrets are shown.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use verbs3_certificates::{CertificateFiles, NodeCertificates};
use verbs3_coordinator_client::api::MapAnswer;
use verbs3_coordinator_client::proof::ClusterSecret;
use verbs3_coordinator_client::{CoordinatorClient, CoordinatorClientOptions, CoordinatorTls};
use verbs3_protocol::{WorkerReply, WorkerRequest};
use verbs3_rdma::calls::HandshakeSecret;
use verbs3_rdma::tcp::{TcpOptions, TcpTls, TcpTransport};
use verbs3_rdma::transport::{
    CallEvent, PeerAddress, PeerConnection, PeerTransport, TransportError,
};
use verbs3_tests::history::{History, Writes};
use verbs3_tests::metrics::eventually;
use verbs3_tests::trust::{TestIssuer, TrustFiles};
use verbs3_tests::{Cluster, Gateway, Section, reading, seed};

/// Generous: the machine may be busy with other tests.
const WITHIN: Duration = Duration::from_secs(120);
const NODES: [&str; 4] = ["coordinator-0", "worker-0", "worker-1", "gateway-0"];
const ALL_SERVE: [&str; 1] = ["2 of 2 workers serve"];
/// What the load does between two changes.
const WRITES: u64 = 10;
const READS: u64 = 40;

/// A cluster under load.
struct TrustFixture {
    /// Ends before the processes do.
    history: History,
    cluster: Cluster,
}

impl TrustFixture {
    async fn start() -> Self {
        let cluster = Cluster::builder().certified().workers(2).lease("5s");
        let cluster = cluster.settings(Section::Worker, "enabled = false").start().await.unwrap();
        let bucket = cluster.bucket("trust").await.unwrap();
        // An SDK that tries again would hide what failed.
        let gateway =
            |gateway: Gateway| Gateway { client: reading::once(&gateway.client), ..gateway };
        let gateways: Vec<Gateway> = cluster.gateways().into_iter().map(gateway).collect();
        let history = History::start(&gateways, &bucket, seed::from_environment(), Writes::Succeed);
        let mut fixture = Self { history, cluster };
        fixture.go_on().await;
        fixture
    }

    /// Lets the load run on for a while.
    async fn go_on(&mut self) {
        let done = self.history.summary();
        self.history.run_until(done.writes + WRITES, done.reads + READS).await;
    }

    fn files(&self, node: &str) -> TrustFiles {
        self.cluster.trust_files(node)
    }

    async fn reloads(&self, node: &str) -> f64 {
        let metrics = self.cluster.metrics(node).await.unwrap();
        metrics.sum("verbs3_certificates_reloads_total", &["outcome=\"taken\""])
    }

    /// Changes files of one node after the other. Each takes them before the next is changed, and
    /// the load goes on.
    async fn change_certificates(&mut self, change: impl Fn(&TrustFiles) -> anyhow::Result<()>) {
        for node in NODES {
            let before = self.reloads(node).await;
            change(&self.files(node)).unwrap();
            eventually(WITHIN, async || match self.reloads(node).await > before {
                true => Ok(()),
                false => Err(format!("{node} does not take its changed files")),
            })
            .await
            .unwrap();
            self.go_on().await;
        }
    }

    async fn change_secrets(&mut self, file: &str, text: &str) {
        const TAKEN: &str = "the cluster's secret is in force";
        for node in NODES {
            let taken = || self.cluster.log(node).matches(TAKEN).count();
            let before = taken();
            self.files(node).replace_file(file, text).unwrap();
            eventually(WITHIN, async || match taken() > before {
                true => Ok(()),
                false => Err(format!("{node} does not take its changed secret")),
            })
            .await
            .unwrap();
            self.go_on().await;
        }
    }

    /// Ends a process in order, and starts it again: all connections to it are new ones.
    async fn renew_connections(&mut self, node: &str) {
        self.cluster.signal(node, "-TERM").unwrap();
        self.cluster.restart_and_wait(node).await.unwrap();
        self.cluster.status_shows(&ALL_SERVE).await.unwrap();
        self.go_on().await;
    }

    /// Ends the load: nothing of it has failed.
    async fn end_load(self) -> Cluster {
        let summary = self.history.end().await;
        assert_eq!(
            (summary.failed, summary.refused, summary.cut_unchanged),
            (0, 0, 0),
            "{summary:?}"
        );
        self.cluster
    }
}

/// Whether a command of the operator is carried out.
async fn is_served(cluster: &Cluster) -> bool {
    cluster.command(&["status"]).await.unwrap().0 == Some(0)
}

/// Somebody with a certificate by `issuer`, who believes `known`.
struct Requester {
    tls: Arc<NodeCertificates>,
    secret: String,
    /// Holds the files.
    _folder: tempfile::TempDir,
}

impl Requester {
    fn of_issuer(fixture: &TrustFixture, issuer: &TestIssuer, known: &[&TestIssuer]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key, ca_file] =
            issuer.write_node(folder.path(), &["verbs3://tests/gateway/requester"]);
        let known: String = known.iter().map(|issuer| issuer.ca_pem()).collect();
        std::fs::write(&ca_file, known).unwrap();
        let files = CertificateFiles { certificate, key, ca_file };
        let tls = Arc::new(NodeCertificates::read("tests", files).unwrap());
        let secret =
            std::fs::read_to_string(fixture.files("gateway-0").folder.join("secret")).unwrap();
        Self { tls, secret, _folder: folder }
    }

    /// Fails if the worker refuses.
    async fn dial(
        &self,
        cluster: &Cluster,
        worker: &str,
    ) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let tls = TcpTls { certificates: self.tls.clone(), dials_tls: true, plain_allowed: false };
        let secret = HandshakeSecret::new(format!("tests\n{}", self.secret));
        let address = cluster.address(worker).unwrap().parse().unwrap();
        let address = PeerAddress::with_name(address, worker.to_owned());
        TcpTransport::new(TcpOptions { tls: Some(tls), ..TcpOptions::new(secret) })
            .connect(&address)
            .await
    }

    /// Waits until it is let in: a busy machine keeps no deadline of a handshake.
    async fn enter(&self, cluster: &Cluster, worker: &str) -> Arc<dyn PeerConnection> {
        eventually(WITHIN, async || {
            let line = self.dial(cluster, worker).await.map_err(|error| format!("{error:?}"))?;
            if is_answered(&*line).await { Ok(line) } else { Err(format!("{worker} is silent")) }
        })
        .await
        .unwrap()
    }

    async fn enter_coordinator(&self, cluster: &Cluster) -> CoordinatorClient {
        let client = self.client(cluster);
        eventually(WITHIN, async || match knows_map(&client).await {
            true => Ok(()),
            false => Err("the coordinator does not answer".to_owned()),
        })
        .await
        .unwrap();
        client
    }

    fn client(&self, cluster: &Cluster) -> CoordinatorClient {
        let address = cluster.address("coordinator-0").unwrap();
        CoordinatorClient::new(CoordinatorClientOptions {
            coordinators: vec![format!("https://{address}")],
            secrets: ClusterSecret::new("tests", &self.secret).into(),
            tls: Some(CoordinatorTls { certificates: self.tls.clone(), plain_allowed: false }),
            connect_deadline: Duration::from_secs(30),
            deadline: Duration::from_secs(30),
        })
    }
}

async fn is_answered(connection: &dyn PeerConnection) -> bool {
    let message = WorkerRequest::Standing.with_trace(None).encode();
    match connection.start_call(message, None).next().await {
        Ok(CallEvent::Part(part)) => {
            matches!(WorkerReply::decode(&part.message), Ok(WorkerReply::Standing(_)))
        }
        _ => false,
    }
}

async fn knows_map(client: &CoordinatorClient) -> bool {
    client.get::<MapAnswer>("/v1/map?epoch=0&wait_ms=0", Duration::ZERO).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ca_changes_under_load_and_no_request_fails() {
    let mut fixture = TrustFixture::start().await;
    let old = fixture.cluster.take_issuer().unwrap();
    let new = TestIssuer::new();
    let stale = Requester::of_issuer(&fixture, &old, &[&old, &new]);
    let fresh = Requester::of_issuer(&fixture, &new, &[&old, &new]);
    let kept_line = stale.enter(&fixture.cluster, "worker-0").await;
    stale.enter_coordinator(&fixture.cluster).await;
    assert!(fresh.dial(&fixture.cluster, "worker-0").await.is_err());
    assert!(!knows_map(&fresh.client(&fixture.cluster)).await);

    fixture.change_certificates(|files| files.replace_authorities(&[&old, &new])).await;
    // An operator is not in a hurry: the old certificate opens doors until its CA is taken away.
    fixture.files("operator-0").replace_authorities(&[&old, &new]).unwrap();
    fixture.change_certificates(|files| files.replace_certificate(&new)).await;
    fixture.cluster.status_shows(&ALL_SERVE).await.unwrap();
    for requester in [&stale, &fresh] {
        requester.enter(&fixture.cluster, "worker-0").await;
        requester.enter_coordinator(&fixture.cluster).await;
    }
    fixture.change_certificates(|files| files.replace_authorities(&[&new])).await;

    // What stays open is what the guide says.
    assert!(is_answered(&*kept_line).await);
    for worker in ["worker-0", "worker-1"] {
        assert!(stale.dial(&fixture.cluster, worker).await.is_err());
        fresh.enter(&fixture.cluster, worker).await;
    }
    assert!(!knows_map(&stale.client(&fixture.cluster)).await);
    fresh.enter_coordinator(&fixture.cluster).await;
    assert!(!is_served(&fixture.cluster).await);
    fixture.files("operator-0").replace_certificate(&new).unwrap();
    fixture.cluster.status_shows(&ALL_SERVE).await.unwrap();

    // Gateway, workers and coordinator have nothing but the new certificates to meet anew by.
    for worker in ["worker-0", "worker-1"] {
        fixture.renew_connections(worker).await;
        let metrics = fixture.cluster.metrics(worker).await.unwrap();
        assert!(metrics.sum("verbs3_worker_requests_total", &[]) > 0.0, "{worker}");
    }
    assert!(!is_answered(&*kept_line).await, "a restart closes what was open");
    fixture.end_load().await.stop().await.unwrap();
}

/// `preStop` and `ExecStop` have the files of their worker, and no operator's.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_drains_itself_and_nobody_else_by_its_certificate() {
    let mut cluster = Cluster::builder().certified().workers(2).start().await.unwrap();
    let drain = ["worker", "drain", "worker-0", "--wait=2m"];
    for (node, reason) in [
        ("worker-1", "worker/worker-1 may not speak as worker worker-0"),
        ("gateway-0", "gateway/gateway-0 may not ask drain"),
        ("coordinator-0", "coordinator/coordinator-0 may not ask drain"),
    ] {
        let (status, said) = cluster.command_as(node, &drain).await.unwrap();
        assert!(status == Some(1) && said.contains(reason), "{node}: {status:?}: {said}");
    }
    cluster.status_shows(&ALL_SERVE).await.unwrap();

    let (status, said) = cluster.command_as("worker-0", &drain).await.unwrap();
    assert!(status == Some(0) && said.contains("may be stopped"), "{status:?}: {said}");
    let log = cluster.log("coordinator-0");
    let audited = |line: &&str| line.contains("verbs3::audit") && line.contains("\"drain\"");
    let lines: Vec<&str> = log.lines().filter(audited).collect();
    assert!(lines.iter().any(|line| line.contains("\"who\":\"worker/worker-0\"")), "{lines:#?}");
    // A drain may be an operator's, so no worker takes it back.
    let undrain = ["worker", "undrain", "worker-0"];
    assert_eq!(cluster.command_as("worker-0", &undrain).await.unwrap().0, Some(1));

    cluster.signal("worker-0", "-TERM").unwrap();
    cluster.restart_and_wait("worker-0").await.unwrap();
    cluster.status_shows(&ALL_SERVE).await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_changes_under_load_and_no_request_fails() {
    const NEW: &str = "0b1f1c5be6a1a37e1cf2d52ea5a33d4bcf10a9ba2b0a43f6f1dd21b0d6a2c998";
    let mut fixture = TrustFixture::start().await;
    let issuer = fixture.cluster.take_issuer().unwrap();
    let stale = Requester::of_issuer(&fixture, &issuer, &[&issuer]);
    let fresh =
        Requester { secret: NEW.to_owned(), ..Requester::of_issuer(&fixture, &issuer, &[&issuer]) };
    assert!(fresh.dial(&fixture.cluster, "worker-0").await.is_err());
    assert!(!knows_map(&fresh.client(&fixture.cluster)).await);

    fixture.change_secrets("accepted", &format!("{}\n{NEW}\n", stale.secret)).await;
    fixture.change_secrets("secret", NEW).await;
    for requester in [&stale, &fresh] {
        requester.enter(&fixture.cluster, "worker-0").await;
        requester.enter_coordinator(&fixture.cluster).await;
    }
    fixture.cluster.status_shows(&ALL_SERVE).await.unwrap();
    fixture.change_secrets("accepted", "").await;

    assert!(stale.dial(&fixture.cluster, "worker-0").await.is_err());
    assert!(
        !knows_map(&stale.client(&fixture.cluster)).await && !is_served(&fixture.cluster).await
    );
    fixture.files("operator-0").replace_file("secret", NEW).unwrap();
    for worker in ["worker-0", "worker-1"] {
        fixture.renew_connections(worker).await;
        fresh.enter(&fixture.cluster, worker).await;
    }
    fixture.end_load().await.stop().await.unwrap();
}
