//! Asks over TLS: which roles may ask what, and what the audit log says of it.

use std::io::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use parking_lot::Mutex;
use verbs3_certificates::{CertificateFiles, NodeCertificates};
use verbs3_coordinator::store::{
    ClusterStore, ClusterStoreEntry, ClusterStoreError, ClusterStoreRevision, ClusterStoreWatch,
    EntryPrecondition, FencingToken, LeadershipGuard,
};
use verbs3_coordinator_client::CoordinatorTls;
use verbs3_coordinator_client::api::CoordinatorRefusalKind;

use super::*;

#[path = "../../../certificates/src/test_issuer.rs"]
mod test_issuer;

pub(super) use test_issuer::TestIssuer;

/// An authority, a folder for its files, and a coordinator with a certificate.
struct Stage {
    issuer: TestIssuer,
    folder: tempfile::TempDir,
    running: Running,
}

pub(super) fn node_tls(
    issuer: &TestIssuer,
    folder: &tempfile::TempDir,
    name: &str,
) -> CoordinatorTls {
    let uri = format!("verbs3://tests/{name}");
    let [certificate, key, ca_file] = issuer.write_node(&folder.path().join(name), &[&uri]);
    let files = CertificateFiles { certificate, key, ca_file };
    let certificates = Arc::new(NodeCertificates::read("tests", files).unwrap());
    CoordinatorTls { certificates, plain_allowed: false }
}

impl Stage {
    async fn start(plain_allowed: bool) -> Self {
        Self::start_over(plain_allowed, |store| store).await
    }

    /// `wrap` gets a store in the stage's folder.
    async fn start_over(
        plain_allowed: bool,
        wrap: impl FnOnce(SharedClusterStore) -> SharedClusterStore,
    ) -> Self {
        let (issuer, folder) = (TestIssuer::new(), tempfile::tempdir().unwrap());
        let tls = node_tls(&issuer, &folder, "coordinator/c0");
        let store = wrap(file_store(&folder));
        let mut running = start_at("127.0.0.1:0", store, |options| {
            options.tls = Some(CoordinatorTls { plain_allowed, ..tls });
            options.advertise = options.advertise.replace("http://", "https://");
        })
        .await;
        running.url = running.url.replace("http://", "https://");
        Self { issuer, folder, running }
    }

    /// A client of the node that `name` names: role and name.
    fn client(&self, name: &str) -> CoordinatorClient {
        self.client_with(Some(node_tls(&self.issuer, &self.folder, name)), &self.running.url)
    }

    fn client_with(&self, tls: Option<CoordinatorTls>, url: &str) -> CoordinatorClient {
        CoordinatorClient::new(CoordinatorClientOptions {
            coordinators: vec![url.to_owned()],
            secrets: secret().into(),
            tls,
            connect_deadline: Duration::from_secs(5),
            deadline: Duration::from_secs(5),
        })
    }
}

/// Asks and says how it ended: `ok`, or the kind of the refusal.
async fn ask(client: &CoordinatorClient, method: &str, path: &str) -> String {
    let body = if path == "/v1/workers" && method == "POST" {
        serde_json::to_vec(&registration("a")).unwrap()
    } else if path.ends_with("/renew") {
        serde_json::to_vec(&renewal("a", Epoch(0), Epoch(0))).unwrap()
    } else {
        Vec::new()
    };
    let method = method.parse().unwrap();
    match client.ask_value(method, path, body.into(), Duration::ZERO).await {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.refusal_kind() {
            Some(kind) => format!("{kind:?}"),
            None => panic!("{error}"),
        },
    }
}

#[tokio::test]
async fn each_role_asks_what_is_its_own() {
    let stage = Stage::start(false).await;
    register(&stage.client("worker/a"), "a").await;
    let names = ["gateway/g", "worker/a", "worker/b", "coordinator/c1", "operator/alice"];
    let clients: Vec<_> = names.iter().map(|name| stage.client(name)).collect();
    // Who may: gateway, the worker itself, another worker, coordinator, operator.
    let table = [
        ("GET", "/v1/map?epoch=0&wait_ms=0", "++++ +"),
        ("GET", "/v1/hot?wait_ms=0", "++++ +"),
        ("GET", "/v1/openapi.json", "++++ +"),
        ("GET", "/v1/cluster", "---- +"),
        ("GET", "/v1/workers", "---- +"),
        ("GET", "/v1/placement", "---- +"),
        ("POST", "/v1/workers", "-+-- -"),
        ("POST", "/v1/workers/a/renew", "-+-- -"),
        ("POST", "/v1/workers/a/leave", "-+-- -"),
        ("POST", "/v1/workers/a/drain", "-+-- +"),
        ("GET", "/v1/workers/a/drain", "-+-- +"),
        ("POST", "/v1/workers/a/undrain", "---- +"),
        ("POST", "/v1/workers/a/relay", "+--- -"),
        ("DELETE", "/v1/workers/x", "---- +"),
        ("POST", "/v1/preload", "---- +"),
        ("POST", "/v1/preload?owner=lab", "+--- +"),
        ("GET", "/v1/preload", "---- +"),
        ("GET", "/v1/preload?owner=lab", "+--- +"),
        ("GET", "/v1/preload/j", "---- +"),
        ("GET", "/v1/preload/j?owner=lab", "+--- +"),
        ("GET", "/v1/preload/j/progress", "---- +"),
        ("GET", "/v1/preload/j/progress?owner=lab", "+--- +"),
        ("DELETE", "/v1/preload/j", "---- +"),
        ("DELETE", "/v1/preload/j?owner=lab", "+--- +"),
        ("POST", "/v1/evict", "---- +"),
        ("POST", "/v1/pin", "---- +"),
        ("POST", "/v1/unpin", "---- +"),
        ("POST", "/v1/invalidate", "---- +"),
        ("POST", "/v1/notifications", "---- +"),
        ("GET", "/v1/objects/b/k", "---- +"),
        ("GET", "/v1/activity", "+++- -"),
        ("POST", "/v1/activity", "+++- -"),
    ];
    let document: serde_json::Value =
        clients[4].get("/v1/openapi.json", Duration::ZERO).await.unwrap().unwrap();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let is_asked = |row: &(&str, &str, &str)| {
                row.0.eq_ignore_ascii_case(method) && is_of_template(row.1, path)
            };
            assert!(table.iter().any(is_asked), "nobody asks {method} {path} here");
        }
    }
    for (method, path, wanted) in table {
        let mut found = String::new();
        for (index, client) in clients.iter().enumerate() {
            if index == 4 {
                found.push(' ');
            }
            let is_forbidden = match client
                .ask_value(method.parse().unwrap(), path, body_of(method, path), Duration::ZERO)
                .await
            {
                Ok(_) => false,
                Err(error) => error.refusal_kind() == Some(CoordinatorRefusalKind::Forbidden),
            };
            found.push(if is_forbidden { '-' } else { '+' });
        }
        assert_eq!(found, wanted, "{method} {path}");
    }
    // A worker speaks under its own name alone.
    assert_eq!(ask(&clients[2], "POST", "/v1/workers").await, "Forbidden");
    assert_eq!(ask(&clients[2], "POST", "/v1/workers/a/renew").await, "Forbidden");
    stage.running.coordinator.shutdown().await;
}

/// Whether a path is one of those that the document describes as `template`.
fn is_of_template(path: &str, template: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('?').next().unwrap().split('/').map(str::to_owned).collect()
    };
    let (found, wanted) = (parts(path), parts(template));
    found.len() == wanted.len()
        && found
            .iter()
            .zip(&wanted)
            .all(|(found, wanted)| wanted.starts_with('{') || found == wanted)
}

fn body_of(method: &str, path: &str) -> bytes::Bytes {
    match (method, path) {
        ("POST", "/v1/workers") => serde_json::to_vec(&registration("a")).unwrap().into(),
        (_, path) if path.ends_with("/renew") => {
            serde_json::to_vec(&renewal("a", Epoch(0), Epoch(0))).unwrap().into()
        }
        (_, path) if path.ends_with("/leave") => {
            let leave = serde_json::json!({
                "incarnation": registration("a").incarnation,
            });
            leave.to_string().into()
        }
        _ => bytes::Bytes::new(),
    }
}

#[tokio::test]
async fn without_a_certificate_of_the_cluster_nothing_is_answered() {
    let stage = Stage::start(false).await;
    register(&stage.client("worker/a"), "a").await;
    let plain_url = stage.running.url.replace("https://", "http://");
    let operator = || node_tls(&stage.issuer, &stage.folder, "operator/alice");
    let foreign = TestIssuer::new();
    let other_folder = tempfile::tempdir().unwrap();
    let strangers = [
        // Plain, though it knows the secret.
        stage.client_with(None, &plain_url),
        // A certificate of another CA, under a good name.
        stage.client_with(
            Some(node_tls(&foreign, &other_folder, "operator/alice")),
            &stage.running.url,
        ),
        // Its own side forbids plain connections.
        stage.client_with(Some(operator()), &plain_url),
    ];
    for stranger in strangers {
        let error = stranger.get::<ClusterView>("/v1/cluster", Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, AskError::Away(_)), "{error}");
    }
    // The certificate does not replace the secret.
    let guessing = CoordinatorClient::new(CoordinatorClientOptions {
        coordinators: vec![stage.running.url.clone()],
        secrets: ClusterSecret::new("tests", "another secret of that length").into(),
        tls: Some(operator()),
        connect_deadline: Duration::from_secs(5),
        deadline: Duration::from_secs(5),
    });
    let error = guessing.get::<ClusterView>("/v1/cluster", Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AskError::Away(_)), "{error}");
    // A client takes nobody but a coordinator for one.
    let impostor = start_at("127.0.0.1:0", file_store(&other_folder), |options| {
        options.tls = Some(node_tls(&stage.issuer, &stage.folder, "worker/a"));
    })
    .await;
    let url = impostor.url.replace("http://", "https://");
    let error = stage
        .client_with(Some(operator()), &url)
        .get::<MapAnswer>("/v1/map", Duration::ZERO)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("wanted: Coordinator"), "{error}");
    impostor.coordinator.shutdown().await;
    stage.running.coordinator.shutdown().await;
}

#[tokio::test]
async fn during_the_move_to_certificates_plain_connections_work_too() {
    let stage = Stage::start(true).await;
    let plain_url = stage.running.url.replace("https://", "http://");
    let plain = stage.client_with(None, &plain_url);
    register(&plain, "a").await;
    let sees = async |client: &CoordinatorClient| {
        client.get::<ClusterView>("/v1/cluster", Duration::ZERO).await.unwrap().is_some()
    };
    assert!(sees(&plain).await && sees(&stage.client("operator/alice")).await);
    // Who shows a certificate is held by its role.
    assert_eq!(ask(&stage.client("worker/a"), "POST", "/v1/workers/a/undrain").await, "Forbidden");
    assert_eq!(ask(&stage.client("worker/b"), "POST", "/v1/workers/a/drain").await, "Forbidden");
    stage.running.coordinator.shutdown().await;
}

/// Keeps what is logged.
#[derive(Clone, Default)]
pub(super) struct KeptLog(Arc<Mutex<Vec<u8>>>);

impl Write for KeptLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl KeptLog {
    /// The audit log of all tests of this process: a subscriber of one thread would miss lines that
    /// other threads came by first. So each test has names of its own.
    pub(super) fn of_process() -> Self {
        static KEPT: LazyLock<KeptLog> = LazyLock::new(|| {
            let kept = KeptLog::default();
            let writer = kept.clone();
            let subscriber = tracing_subscriber::fmt()
                .json()
                .with_writer(move || writer.clone())
                .with_env_filter("off,verbs3::audit=info")
                .finish();
            tracing::subscriber::set_global_default(subscriber).unwrap();
            kept
        });
        KEPT.clone()
    }

    pub(super) fn lines(&self) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn every_change_has_a_line_in_the_audit_log() {
    let kept = KeptLog::of_process();
    let stage = Stage::start(true).await;
    let operator = stage.client("operator/auditor");
    let worker = stage.client("worker/audited");
    register(&worker, "audited").await;
    renew(&worker, "audited", Epoch(0), Epoch(0), Duration::ZERO).await.unwrap();
    assert_eq!(ask(&operator, "POST", "/v1/workers/audited/drain").await, "ok");
    assert_eq!(ask(&operator, "GET", "/v1/cluster").await, "ok");
    assert_eq!(ask(&worker, "POST", "/v1/workers/audited/drain").await, "ok");
    let other = stage.client("worker/audit-other");
    assert_eq!(ask(&other, "POST", "/v1/workers/audited/drain").await, "Forbidden");
    assert_eq!(ask(&worker, "POST", "/v1/workers/audited/undrain").await, "Forbidden");
    assert_eq!(ask(&operator, "DELETE", "/v1/workers/nobody").await, "Unknown");
    let plain = stage.client_with(None, &stage.running.url.replace("https://", "http://"));
    let job = serde_json::json!({ "job": { "id": "night\n22", "paths": ["s3://train/a"] } });
    let _ = plain
        .post_json::<_, serde_json::Value>("/v1/preload?owner=audited", &job, Duration::ZERO)
        .await;
    stage.running.coordinator.shutdown().await;
    let lines = kept.lines();
    let ours = |line: &&serde_json::Value| {
        let field = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
        // Registered again and again until the coordinator leads.
        let is_early = line["fields"]["status"] == 503 && field("action") == "register";
        !is_early && (field("who").contains("audit") || field("owner").contains("audited"))
    };
    let lines: Vec<_> = lines.iter().filter(ours).collect();
    let short: Vec<String> = lines
        .iter()
        .map(|line| {
            let fields = &line["fields"];
            assert_eq!(line["target"], "verbs3::audit");
            format!(
                "{} {} {} {} {}",
                line["level"].as_str().unwrap(),
                fields["who"].as_str().unwrap(),
                fields["action"].as_str().unwrap(),
                fields["path"].as_str().unwrap(),
                fields["status"],
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            "INFO worker/audited register \"/v1/workers\" 200",
            "INFO operator/auditor drain \"/v1/workers/audited/drain\" 204",
            "INFO worker/audited drain \"/v1/workers/audited/drain\" 204",
            "WARN worker/audit-other drain \"/v1/workers/audited/drain\" 403",
            "WARN worker/audited undrain \"/v1/workers/audited/undrain\" 403",
            "INFO operator/auditor forget \"/v1/workers/nobody\" 404",
            "INFO the cluster secret preload_create \"/v1/preload\" 503",
        ]
    );
    let job = &lines[6]["fields"];
    assert_eq!(job["owner"], "\"audited\"");
    assert!(job["arguments"].as_str().unwrap().contains("s3://train/a"), "{job}");
    assert!(lines[5]["fields"]["reason"].as_str().unwrap().contains("nobody"));
}

/// A store at which nobody becomes leader, and that never says who is.
struct SilentStore {
    inner: SharedClusterStore,
    is_asked: Arc<tokio::sync::Notify>,
}

#[async_trait::async_trait]
impl ClusterStore for SilentStore {
    async fn get_entry(&self, key: &str) -> Result<Option<ClusterStoreEntry>, ClusterStoreError> {
        self.inner.get_entry(key).await
    }

    async fn list_entries(
        &self,
        prefix: &str,
    ) -> Result<Vec<ClusterStoreEntry>, ClusterStoreError> {
        self.inner.list_entries(prefix).await
    }

    async fn put_entry(
        &self,
        key: &str,
        value: Bytes,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<ClusterStoreRevision, ClusterStoreError> {
        self.inner.put_entry(key, value, expect, fence).await
    }

    async fn delete_entry(
        &self,
        key: &str,
        expect: EntryPrecondition,
        fence: Option<&FencingToken>,
    ) -> Result<(), ClusterStoreError> {
        self.inner.delete_entry(key, expect, fence).await
    }

    async fn watch_prefix(&self, prefix: &str) -> Result<ClusterStoreWatch, ClusterStoreError> {
        self.inner.watch_prefix(prefix).await
    }

    async fn campaign_for_leader(
        &self,
        _: &str,
        _: Duration,
    ) -> Result<LeadershipGuard, ClusterStoreError> {
        std::future::pending().await
    }

    async fn current_leader(&self) -> Result<Option<String>, ClusterStoreError> {
        self.is_asked.notify_one();
        std::future::pending().await
    }

    fn store_name(&self) -> &str {
        self.inner.store_name()
    }
}

#[tokio::test]
async fn who_hangs_up_before_the_answer_stands_in_the_audit_log() {
    let kept = KeptLog::of_process();
    let is_asked = Arc::new(tokio::sync::Notify::new());
    let asked = is_asked.clone();
    let stage =
        Stage::start_over(false, |inner| Arc::new(SilentStore { inner, is_asked: asked })).await;
    let operator = stage.client("operator/impatient");
    let asking = tokio::spawn(async move {
        ask(&operator, "POST", "/v1/workers/w1/drain").await;
    });
    is_asked.notified().await;
    asking.abort();
    let began = Instant::now();
    let line = loop {
        let found = kept.lines().into_iter().find(|line| {
            line["fields"]["who"] == "operator/impatient" && line["fields"]["action"] == "drain"
        });
        if let Some(line) = found {
            break line;
        }
        assert!(began.elapsed() < SOON, "no line of who hung up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(line["target"], "verbs3::audit");
    assert!(line["fields"]["status"].is_null(), "{line}");
    assert!(line["fields"]["message"].as_str().unwrap().contains("hung up"), "{line}");
    stage.running.coordinator.shutdown().await;
}

/// What an operator alone may ask for is not asked for in somebody's name.
#[tokio::test]
async fn a_gateway_begins_no_job_that_is_an_operators() {
    let stage = Stage::start(true).await;
    let gateway = stage.client("gateway/evil");
    for part in [
        serde_json::json!({ "action": "evict" }),
        serde_json::json!({ "action": "unpin" }),
        serde_json::json!({ "tier": "disk", "pin_ttl": 60 }),
        serde_json::json!({ "priority": "high" }),
        serde_json::json!({ "manifest": "s3://train/list" }),
    ] {
        let mut job = part;
        job["prefixes"] = serde_json::json!(["s3://train/"]);
        let job = serde_json::json!({ "job": job });
        let path = "/v1/preload?owner=anybody";
        let begun = gateway.post_json::<_, serde_json::Value>(path, &job, Duration::ZERO).await;
        let refusal = begun.unwrap_err().refusal_kind();
        assert_eq!(refusal, Some(CoordinatorRefusalKind::Forbidden), "{job}");
    }
    // Nor one of which it does not say by which mounts it was judged.
    let bare = serde_json::json!({ "prefixes": ["s3://train/"] });
    let path = "/v1/preload?owner=anybody";
    let begun = gateway.post_json::<_, serde_json::Value>(path, &bare, Duration::ZERO).await;
    let refusal = begun.unwrap_err().refusal_kind();
    assert_eq!(refusal, Some(CoordinatorRefusalKind::Malformed));
    stage.running.coordinator.shutdown().await;
}
