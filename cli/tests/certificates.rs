//! A cluster of processes with certificates, made as the guide says, whose secret is changed while
//! it serves.
#![allow(clippy::unwrap_used)]

mod processes;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_s3::primitives::ByteStream;
use processes::{
    Process, dev_key, free_address, get_object, mount_of_all, text, verbs3, wait_until,
    write_config,
};
use verbs3_certificates::{CertificateFiles, NodeCertificates};
use verbs3_protocol::{RefusalKind, WorkerReply, WorkerRequest};
use verbs3_rdma::calls::{CallOptions, HandshakeError, HandshakeSecret};
use verbs3_rdma::peer::TransportWays;
use verbs3_rdma::shm::ShmTransport;
use verbs3_rdma::tcp::{TcpOptions, TcpTls, TcpTransport};
use verbs3_rdma::transport::{
    CallEvent, PeerAddress, PeerConnection, PeerTransport, TransportError,
};
use verbs3_settings::TimePeriod;
use verbs3_tests::configuration::{ANY_PORT, coordinator_section, gateway_section, worker_section};

const OLD: &str = "5ee7cbe4d98f6e32bd3ec4f8ef0aa3e05d45b6cb1adf8f5b2c88f1e1b1eb46c1";
const NEW: &str = "0b1f1c5be6a1a37e1cf2d52ea5a33d4bcf10a9ba2b0a43f6f1dd21b0d6a2c998";
const IN_FORCE: &str = "the cluster's secret is in force";
const WITHIN: Duration = Duration::from_secs(120);

/// Processes, and the certificates that the guide makes for them.
const NODES: [(&str, &str); 4] = [
    ("coordinator", "coordinator-0"),
    ("worker", "gpu-01"),
    ("gateway", "gateway-01"),
    ("operator", "alice"),
];

/// Runs the commands of the guide.
fn make_certificates(folder: &Path) {
    let guide = include_str!("../../docs/security.md");
    let from = guide.find("CLUSTER=train").unwrap();
    let script = &guide[from..from + guide[from..].find("```").unwrap()];
    let made =
        Command::new("bash").args(["-e", "-c", script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
}

struct CertifiedCluster {
    folder: tempfile::TempDir,
    store: Process,
    url: String,
    /// Where the worker listens.
    worker: String,
}

impl CertifiedCluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let store = Process::start_dev(folder.path(), "store", &[]);
        let cluster = Self { folder, store, url: free_address(), worker: free_address() };
        for (role, _) in NODES {
            cluster.write_secret(role, OLD);
            cluster.write_accepted(role, "");
        }
        cluster
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// By renaming, like the guide says.
    fn replace_file(&self, name: &str, text: &str) {
        std::fs::write(self.path("next"), text).unwrap();
        std::fs::rename(self.path("next"), self.path(name)).unwrap();
    }

    fn write_secret(&self, role: &str, secret: &str) {
        self.replace_file(&format!("{role}.secret"), secret);
    }

    fn write_accepted(&self, role: &str, secrets: &str) {
        self.replace_file(&format!("{role}.accepted"), secrets);
    }

    /// Writes the file of a process of this role, with the certificate of `node`.
    fn write_config(&self, role: &str, node: &str) -> String {
        let folder = self.folder.path();
        let (access, key) = dev_key(&folder.join("data"));
        let section = match role {
            "coordinator" => format!(
                "{}preload = {{ failures = \"{}\", memory = \"16MiB\" }}\n",
                coordinator_section(&self.url, ANY_PORT, &folder.join("coordinator-store")),
                self.path("failures")
            ),
            "worker" => format!(
                "{}advertise = \"{}\"\n[worker.shm]\nsocket = \"{}\"\n",
                worker_section("gpu-01", &self.worker, ANY_PORT, "64MiB"),
                self.worker,
                self.path("run/gpu-01.sock"),
            ),
            "gateway" => gateway_section(ANY_PORT, ANY_PORT, &folder.join("data/identities.toml")),
            _ => String::new(),
        };
        let text = format!(
            "[cluster]\nname = \"train\"\ncoordinators = [\"https://{}\"]\nreplicas = 1\n\
             secret_file = \"{}\"\nsecret_accepted_file = \"{}\"\n\
             tls = {{ certificate = \"{}\", key = \"{}\", ca_file = \"{}\" }}\n\
             {}{section}",
            self.url,
            self.path(&format!("{role}.secret")),
            self.path(&format!("{role}.accepted")),
            self.path(&format!("{node}.crt")),
            self.path(&format!("{node}.key")),
            self.path("ca.crt"),
            mount_of_all(&self.store, (&access, &key)),
        );
        write_config(folder, &format!("{role}-{node}"), &text)
    }

    fn start(&self, role: &str, node: &str) -> Process {
        let file = self.write_config(role, node);
        Process::start(self.folder.path(), role, &[role, "--config", &file])
    }

    /// Runs a command with the certificate of `node`; its output if it succeeded.
    fn command(&self, node: &str, words: &[&str]) -> Result<String, String> {
        let file = self.write_config("operator", node);
        let output = verbs3().args(words).args(["--config", &file]).output().unwrap();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{}{}", text(&output.stdout), text(&output.stderr))),
        }
    }

    /// The names and files of a node's certificate.
    fn node_certificates(&self, node: &str) -> Arc<NodeCertificates> {
        let file = |name: String| self.folder.path().join(name);
        let files = CertificateFiles {
            certificate: file(format!("{node}.crt")),
            key: file(format!("{node}.key")),
            ca_file: file("ca.crt".to_owned()),
        };
        Arc::new(NodeCertificates::read("train", files).unwrap())
    }

    /// Connects to the worker over TLS, by the certificate of `node`.
    async fn dial_worker(&self, node: &str) -> Arc<dyn PeerConnection> {
        let certificates = self.node_certificates(node);
        let tls = TcpTls { certificates, dials_tls: true, plain_allowed: false };
        let mut options = TcpOptions { tls: Some(tls), ..TcpOptions::new(handshake_secret()) };
        options.calls.settings.connect_deadline = TimePeriod::from_millis(60_000);
        TcpTransport::new(options)
            .connect(&self.worker_address(TransportWays::default()))
            .await
            .unwrap()
    }

    /// Connects to the worker over shared memory, as `ways` say.
    async fn attach_worker(
        &self,
        ways: TransportWays,
    ) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let transport = ShmTransport::new(CallOptions::new(handshake_secret()));
        transport.connect(&self.worker_address(ways)).await
    }

    fn worker_address(&self, ways: TransportWays) -> PeerAddress {
        let address = self.worker.parse().unwrap();
        PeerAddress { ways, ..PeerAddress::with_name(address, "gpu-01".to_owned()) }
    }

    /// Waits until the worker serves, as an operator sees it.
    fn until_worker_serves(&self) {
        wait_until(
            || self.command("alice", &["status"]).is_ok_and(|said| said.contains("gpu-01")),
            || format!("the worker does not serve: {:?}", self.command("alice", &["status"])),
        );
    }
}

/// Of the cluster `train`.
fn handshake_secret() -> HandshakeSecret {
    HandshakeSecret::new(format!("train\n{OLD}"))
}

/// Asks a worker whether it may take part in writes.
async fn ask_standing(connection: &dyn PeerConnection) -> WorkerReply {
    let message = WorkerRequest::Standing.with_trace(None).encode();
    match connection.start_call(message, None).next().await.unwrap() {
        CallEvent::Part(part) => WorkerReply::decode(&part.message).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_judges_certificates_over_tls_and_shared_memory() {
    let cluster = CertifiedCluster::new();
    let _coordinator = cluster.start("coordinator", "coordinator-0");
    let worker = cluster.start("worker", "gpu-01");
    for (node, may_ask) in [("gateway-01", true), ("coordinator-0", true), ("gpu-01", false)] {
        let over_tls = cluster.dial_worker(node).await;
        let ways = over_tls.peer_ways().clone();
        let attached = cluster.attach_worker(ways).await.unwrap();
        for connection in [&over_tls, &attached] {
            match ask_standing(&**connection).await {
                WorkerReply::Standing(_) => assert!(may_ask, "{node}"),
                WorkerReply::Refused(refusal) => {
                    assert!(!may_ask && refusal.kind == RefusalKind::Denied, "{node}: {refusal:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(worker.log().contains("has no reason to ask"), "{}", worker.log());

    // Who knows the secret and no certificate has no way in over shared memory.
    let ways = cluster.dial_worker("gateway-01").await.peer_ways().clone();
    for (ticket, wanted) in [
        (None, HandshakeError::Plain),
        (Some("00".repeat(64).parse().unwrap()), HandshakeError::Ticket),
    ] {
        match cluster.attach_worker(TransportWays { ticket, ..ways.clone() }).await.map(drop) {
            Err(TransportError::Handshake { cause, .. }) => {
                assert_eq!(cause.to_string(), wanted.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_certificates_serves_and_changes_its_secret() {
    let cluster = CertifiedCluster::new();
    let mut coordinator = cluster.start("coordinator", "coordinator-0");
    let worker = cluster.start("worker", "gpu-01");
    let gateway = cluster.start("gateway", "gateway-01");
    let (access, key) = dev_key(&cluster.folder.path().join("data"));
    let client = gateway.client(&access, &key);
    let put = client.put_object().bucket("demo").key("k");
    cluster.until_worker_serves();
    put.body(ByteStream::from_static(b"bytes")).send().await.unwrap();
    let began = Instant::now();
    // Shared memory is opened by the ticket that TLS brought.
    let wanted = ["x-verbs3-cache: hit", "x-verbs3-transport: shm"];
    loop {
        let head = get_object(&client, "demo", "k").await.head;
        if wanted.iter().all(|line| head.contains(line)) {
            break;
        }
        assert!(began.elapsed() < WITHIN, "{head}");
    }

    // Operators alone undo a drain; nobody starts under another's certificate.
    cluster.command("gpu-01", &["worker", "drain", "gpu-01"]).unwrap();
    let refused = cluster.command("gpu-01", &["worker", "undrain", "gpu-01"]).unwrap_err();
    assert!(refused.contains("worker/gpu-01 may not ask undrain"), "{refused}");
    cluster.command("alice", &["worker", "drain", "gpu-01"]).unwrap();
    cluster.command("alice", &["worker", "undrain", "gpu-01"]).unwrap();
    let file = cluster.write_config("worker", "alice");
    let output = verbs3().args(["worker", "--config", &file]).output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success() && said.contains("the role worker is wanted"), "{said}");
    let log = coordinator.log();
    assert!(log.contains("verbs3::audit") && log.contains("\"who\":\"operator/alice\""), "{log}");

    // The secret is changed while clients read.
    let reading = tokio::spawn(async move {
        let mut reads = 0;
        loop {
            assert_eq!(get_object(&client, "demo", "k").await.body, b"bytes");
            reads += 1;
            if reads % 10 == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    let both = format!("{OLD}\n{NEW}\n");
    let processes = [("coordinator", &coordinator), ("worker", &worker), ("gateway", &gateway)];
    for step in 0..3 {
        for (role, process) in processes {
            let before = process.log().matches(IN_FORCE).count();
            match step {
                0 => cluster.write_accepted(role, &both),
                1 => cluster.write_secret(role, NEW),
                _ => cluster.write_accepted(role, ""),
            }
            wait_until(
                || process.log().matches(IN_FORCE).count() > before,
                || format!("{role} does not read its secret again"),
            );
            // An operator's secret is changed last.
            if step < 2 {
                cluster.command("alice", &["status"]).unwrap();
            }
        }
        if step == 1 {
            cluster.write_secret("operator", NEW);
        }
    }
    cluster.command("alice", &["status"]).unwrap();
    assert!(!reading.is_finished(), "a read failed");
    reading.abort();
    let logs = format!("{}{}", worker.log(), gateway.log());
    assert!(!logs.contains("does not prove the cluster's secret"), "{logs}");

    // A coordinator that knows the new secret alone takes its store again.
    assert_eq!(coordinator.end(), Some(0));
    let again = cluster.start("coordinator", "coordinator-0");
    cluster.until_worker_serves();
    drop(again);
}
