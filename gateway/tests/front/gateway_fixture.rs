//! A gateway on loopback over a local store, with homes that remember what they are told and fail
//! on demand.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus::{Registry, TextEncoder};
use s3s::dto::{CreateBucketInput, HeadObjectInput};
use s3s::{S3, S3Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use verbs3_admin::{
    AdminEndpoints, AdminLimits, AdminMetrics, AdminSockets, ReadinessCheck, ReadinessList,
};
use verbs3_gateway::auth::IdentityStore;
use verbs3_gateway::mount::{AttributeFreshness, MountTable, MountedBucket, WriteCoherence};
use verbs3_gateway::{
    GatewayParts, GatewayService, GatewaySettings, HomeNotifier, HomeUnreachable, HttpListener,
    NoticeRoute, PopulateTier, PreloadJobs, TlsFiles, WriteAnnouncement,
};
use verbs3_protocol::{ListedEntry, ObjectVolume, TenantTag, WriteOutcome};
use verbs3_tests::metrics::Metrics;
use verbs3_ufs::local::{LocalOptions, LocalStore};
use verbs3_ufs::{Ufs, UfsSettings};

use crate::signing::{ACCESS_KEY, Request, SECRET_KEY};

pub fn s3_request<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: http::Method::GET,
        uri: http::Uri::from_static("/"),
        headers: http::HeaderMap::new(),
        extensions: http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// What the homes were told, in order: `announce_write KEY visible=…`, `report_outcome KEY OUTCOME`,
/// `abandoned KEY`, `forget_keys KEY`, `report_listing VOLUME KEY=BYTES,…`.
pub struct TestHomes {
    pub told: Arc<Mutex<Vec<String>>>,
    /// On whose behalf writes were announced.
    pub tenants: Mutex<Vec<Option<TenantTag>>>,
    pub refuse_announce: AtomicBool,
    pub refuse_report: Arc<AtomicBool>,
    store: LocalStore,
}

struct Told {
    key: String,
    told: Arc<Mutex<Vec<String>>>,
    refuse: Arc<AtomicBool>,
    reported: AtomicBool,
}

#[async_trait]
impl HomeNotifier for TestHomes {
    async fn announce_write(
        &self,
        volume: &ObjectVolume,
        keys: &[String],
        tenant: Option<TenantTag>,
    ) -> Result<Box<dyn WriteAnnouncement>, HomeUnreachable> {
        self.tenants.lock().push(tenant);
        if self.refuse_announce.load(Ordering::SeqCst) {
            return Err(HomeUnreachable::new("worker w1 is away"));
        }
        let bucket = volume.0.split_once('/').unwrap().1;
        let visible = visible(&self.store, bucket, &keys[0]).await;
        let key = keys.join(",");
        self.told.lock().push(format!("announce {key} visible={visible}"));
        let (told, refuse) = (self.told.clone(), self.refuse_report.clone());
        Ok(Box::new(Told { key, told, refuse, reported: AtomicBool::new(false) }))
    }

    fn forget_keys(&self, _: &ObjectVolume, keys: &[String]) {
        self.told.lock().push(format!("forget {}", keys.join(",")));
    }

    async fn report_listing(&self, volume: &ObjectVolume, entries: Vec<ListedEntry>) {
        let objects = entries.iter().map(|entry| {
            let bytes = entry.shown.as_ref().and_then(|shown| shown.bytes);
            format!("{}={}", entry.key, bytes.map_or("none".to_owned(), |bytes| bytes.to_string()))
        });
        self.told.lock().push(format!("listed {volume} {}", objects.collect::<Vec<_>>().join(",")));
    }
}

#[async_trait]
impl WriteAnnouncement for Told {
    async fn report_outcome(
        self: Box<Self>,
        outcome: WriteOutcome,
    ) -> Result<NoticeRoute, HomeUnreachable> {
        self.reported.store(true, Ordering::SeqCst);
        self.told.lock().push(format!("report {} {outcome:?}", self.key));
        if self.refuse.load(Ordering::SeqCst) {
            return Err(HomeUnreachable::new("worker w1 is away"));
        }
        Ok(if self.key.starts_with("around") { NoticeRoute::Relayed } else { NoticeRoute::Direct })
    }

    async fn report_batch(
        self: Box<Self>,
        unknown: Vec<String>,
    ) -> Result<NoticeRoute, HomeUnreachable> {
        self.told.lock().push(format!("unknown {}", unknown.join(",")));
        self.report_outcome(WriteOutcome::Done).await
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if !self.reported.load(Ordering::SeqCst) {
            self.told.lock().push(format!("abandoned {}", self.key));
        }
    }
}

pub async fn visible(store: &LocalStore, bucket: &str, key: &str) -> bool {
    let input = HeadObjectInput {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        ..HeadObjectInput::default()
    };
    store.head_object(s3_request(input)).await.is_ok()
}

/// How a fixture differs from the usual.
pub struct GatewaySetup {
    pub settings: GatewaySettings,
    pub preload: Option<Arc<dyn PreloadJobs>>,
    pub identities: Arc<IdentityStore>,
    pub tls: Option<TlsFiles>,
    /// Mounts besides the usual: `data` (whole bucket), `sets` (`team/a/` of bucket `store`),
    /// `loose` (bucket `loose`, coherence by ttl), `frozen` (bucket `data`, read-only), `raw`
    /// (bucket `apart`, not cached).
    pub mounts: Vec<MountedBucket>,
    pub open: bool,
    /// Gets copies of writes through every mount.
    pub populate: Option<Arc<dyn PopulateTier>>,
}

pub struct GatewayFixture {
    pub address: SocketAddr,
    /// The same service, whose connections have threads of their own.
    pub on_threads: SocketAddr,
    pub gateway: GatewayService,
    pub store: LocalStore,
    pub homes: Arc<TestHomes>,
    pub registry: Registry,
    exchanges: AtomicUsize,
    _folder: tempfile::TempDir,
    _threads: ServingThreads,
}

/// Runtimes of one thread each.
struct ServingThreads(Vec<Runtime>);

impl ServingThreads {
    fn start() -> Self {
        let runtime = |_| Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self((0..2).map(runtime).collect::<Result<_, _>>().unwrap())
    }
}

impl Drop for ServingThreads {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Runtime::shutdown_background);
    }
}

pub fn mount(name: &str, ufs: Ufs, bucket: &str, prefix: &str) -> MountedBucket {
    MountedBucket {
        name: name.to_owned(),
        volume: ObjectVolume::new(ufs.store_name(), bucket),
        ufs,
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        attributes: AttributeFreshness::AlwaysAsk,
        absence_ttl: Duration::ZERO,
        coherence: WriteCoherence::Strict,
        read_only: false,
        cached: true,
        populate_bytes_max: None,
    }
}

impl GatewayFixture {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut GatewaySetup)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open_store(LocalOptions::new(folder.path())).unwrap();
        for bucket in ["data", "store", "loose", "apart"] {
            let input =
                CreateBucketInput { bucket: bucket.to_owned(), ..CreateBucketInput::default() };
            store.create_bucket(s3_request(input)).await.unwrap();
        }
        let mut setup = GatewaySetup {
            settings: GatewaySettings::default(),
            preload: None,
            identities: IdentityStore::with_single(ACCESS_KEY, SECRET_KEY),
            tls: None,
            mounts: Vec::new(),
            open: false,
            populate: None,
        };
        change(&mut setup);
        let ufs = Ufs::new(Arc::new(store.clone()), UfsSettings::with_name("local"));
        let mut mounts = vec![
            mount("data", ufs.clone(), "data", ""),
            mount("sets", ufs.clone(), "store", "team/a/"),
            MountedBucket {
                coherence: WriteCoherence::Ttl,
                ..mount("loose", ufs.clone(), "loose", "")
            },
            MountedBucket { read_only: true, ..mount("frozen", ufs.clone(), "data", "") },
            MountedBucket {
                cached: false,
                coherence: WriteCoherence::Ttl,
                ..mount("raw", ufs.clone(), "apart", "")
            },
        ];
        mounts.extend(setup.mounts);
        if setup.populate.is_some() {
            mounts.iter_mut().for_each(|mount| mount.populate_bytes_max = Some(1 << 30));
        }
        let mut mounts = MountTable::new(mounts).unwrap();
        if setup.open {
            mounts = mounts.with_open(mount("any", ufs, "any", ""));
        }
        let homes = Arc::new(TestHomes {
            told: Arc::default(),
            tenants: Mutex::default(),
            refuse_announce: AtomicBool::new(false),
            refuse_report: Arc::default(),
            store: store.clone(),
        });
        let registry = Registry::new();
        let gateway = GatewayService::without_tier(
            &setup.settings,
            GatewayParts {
                mounts,
                identities: setup.identities,
                preload: setup.preload,
                registry: &registry,
            },
            homes.clone(),
            setup.populate,
        )
        .unwrap();
        let listen = async |tls| {
            let listener = HttpListener::bind("127.0.0.1:0".parse().unwrap(), tls).await.unwrap();
            (listener.local_address().unwrap(), listener)
        };
        let (address, listener) = listen(setup.tls.as_ref()).await;
        gateway.serve_s3(listener);
        let threads = ServingThreads::start();
        let (on_threads, listener) = listen(None).await;
        let handles = threads.0.iter().map(|runtime| runtime.handle().clone()).collect();
        gateway.serve_s3(listener.served_by(handles));
        gateway.open_lending(false).unwrap();
        Self {
            address,
            on_threads,
            gateway,
            store,
            homes,
            registry,
            exchanges: AtomicUsize::new(0),
            _folder: folder,
            _threads: threads,
        }
    }

    /// Serves the admin endpoints until the test ends, with `checks` besides the gateway's own.
    pub async fn serve_admin(
        &self,
        limits: AdminLimits,
        checks: Vec<ReadinessCheck>,
    ) -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let readiness = ReadinessList::with_checks(checks);
        readiness.add_checks(self.gateway.start_readiness());
        let (registry, stop) = (self.registry.clone(), CancellationToken::new());
        let metrics = Arc::new(AdminMetrics::new(&registry).unwrap());
        let endpoints = AdminEndpoints { registry, readiness, stop, limits, metrics };
        tokio::spawn(endpoints.serve_endpoints(AdminSockets::at_address(socket)));
        address
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Sends a signed request with a body as it stands.
    pub async fn send(&self, request: &Request, body: &[u8]) -> Answer {
        let (head, _) = request.signed(&self.host());
        self.exchange(&head, body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(&Request::new("GET", path), b"").await
    }

    /// A PUT with the right length.
    pub async fn put(&self, path: &str, body: &[u8]) -> Answer {
        self.send(
            &Request::new("PUT", path).header("content-length", &body.len().to_string()),
            body,
        )
        .await
    }

    /// Sends what it is given, in turn to each of the two listeners.
    pub async fn exchange(&self, head: &str, body: &[u8]) -> Answer {
        let first = self.exchanges.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        let address = if first { self.address } else { self.on_threads };
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        // A refusal may come, and the connection close, before all is sent.
        let _ = socket.write_all(body).await;
        Answer::read(socket).await
    }

    /// What `/metrics` would answer.
    pub fn metrics_text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap()
    }

    /// The same as numbers.
    pub fn metrics(&self) -> Metrics {
        Metrics::parse(&self.metrics_text())
    }

    /// One of `verbs3_gateway_…`, which has to be shown.
    pub fn gateway_metric(&self, name: &str) -> f64 {
        self.metrics().sum_shown(&format!("verbs3_gateway_{name}"), &[]).unwrap()
    }

    pub fn told(&self) -> Vec<String> {
        self.homes.told.lock().clone()
    }

    pub fn announced_for(&self) -> Vec<Option<TenantTag>> {
        self.homes.tenants.lock().clone()
    }

    pub async fn visible(&self, bucket: &str, key: &str) -> bool {
        visible(&self.store, bucket, key).await
    }
}

/// Waits for what happens by itself.
pub async fn until(condition: impl Fn() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("did not come true within 60 s");
}

/// A parsed answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub async fn read(mut socket: impl tokio::io::AsyncRead + Unpin) -> Self {
        let mut bytes = Vec::new();
        // A connection that is cut after the answer is no concern here.
        let _ = tokio::time::timeout(Duration::from_secs(60), socket.read_to_end(&mut bytes))
            .await
            .expect("an answer in time");
        let at = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer");
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { status, headers, body: bytes[at + 4..].to_vec() }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Status and S3's code.
    pub fn error(&self) -> (u16, String) {
        let text = self.text();
        let code = text
            .split_once("<Code>")
            .and_then(|(_, rest)| rest.split_once("</Code>"))
            .map_or("", |(code, _)| code);
        (self.status, code.to_owned())
    }
}
