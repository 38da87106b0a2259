//! One etcd process for the tests of this binary; each case has a prefix of its own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use verbs3_coordinator::store::etcd::{EtcdOptions, EtcdStore};
use verbs3_coordinator::store::{ClusterStore, EntryPrecondition, SharedClusterStore};

use crate::Pair;

const START_WITHIN: Duration = Duration::from_secs(60);

/// A process that is ended when it is dropped.
pub struct Etcd {
    child: Mutex<Child>,
    pub endpoint: String,
    arguments: Vec<String>,
}

impl Etcd {
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts the same etcd again, after it was killed.
    pub fn restart(&self) {
        *self.child.lock().unwrap() = spawn(&self.arguments);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Statics are never dropped, so the process is told to end with this one.
fn shared() -> &'static Etcd {
    static ETCD: OnceLock<Etcd> = OnceLock::new();
    ETCD.get_or_init(|| start("shared"))
}

pub async fn pair(case: &str) -> Pair {
    let endpoint = shared().endpoint.clone();
    Pair { one: store(&endpoint, case).await, other: store(&endpoint, case).await }
}

pub fn options(endpoint: &str, prefix: &str) -> EtcdOptions {
    EtcdOptions {
        endpoints: vec![endpoint.to_owned()],
        prefix: format!("/verbs3-tests/{prefix}"),
        ca: None,
        identity: None,
        user: None,
        deadline: Duration::from_secs(20),
    }
}

pub async fn store(endpoint: &str, prefix: &str) -> SharedClusterStore {
    let store = EtcdStore::connect(options(endpoint, prefix)).await.unwrap();
    let began = Instant::now();
    while let Err(error) = store.get_entry("anything").await {
        assert!(began.elapsed() < START_WITHIN, "etcd does not answer: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Arc::new(store)
}

fn program() -> PathBuf {
    let cache = std::env::var("VERBS3_CACHE_DIR").map(PathBuf::from);
    let cache = cache
        .unwrap_or_else(|_| PathBuf::from(std::env::var("HOME").unwrap()).join(".cache/verbs3"));
    let program = cache.join("etcd/usr/bin/etcd");
    assert!(program.exists(), "{} is missing; run tests/testbed/etcd.sh", program.display());
    program
}

/// Starts etcd without client authentication.
pub fn start(name: &str) -> Etcd {
    start_with(name, "http", &[])
}

/// Starts etcd on ports that were free a moment ago, with further arguments.
pub fn start_with(name: &str, scheme: &str, more: &[String]) -> Etcd {
    // A static leaves it behind, so the next run removes it.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("etcd-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    // Both are held until both are chosen.
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [free(), free()].map(|port| port.local_addr().unwrap());
    let (client, peer) = (format!("{scheme}://{}", ports[0]), format!("http://{}", ports[1]));
    let (data, initial) = (folder.join("data").display().to_string(), format!("default={peer}"));
    let words = [
        ["--data-dir", &data],
        ["--listen-client-urls", &client],
        ["--advertise-client-urls", &client],
        ["--listen-peer-urls", &peer],
        ["--initial-advertise-peer-urls", &peer],
        ["--initial-cluster", &initial],
        ["--log-level", "error"],
    ];
    let mut arguments: Vec<String> =
        words.as_flattened().iter().map(ToString::to_string).chain(more.to_vec()).collect();
    // Nothing here ends the machine, and a slow disk would end leases.
    arguments.push("--unsafe-no-fsync".to_owned());
    Etcd { child: Mutex::new(spawn(&arguments)), endpoint: client, arguments }
}

fn spawn(arguments: &[String]) -> Child {
    let mut command = Command::new("setpriv");
    // The test process ends by a signal at times, and nobody else would end this one.
    command.args(["--pdeathsig", "KILL"]).arg(program()).args(arguments);
    command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The signal follows the death of the thread that started etcd, so that thread must live as
    // long as the process.
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        sender.send(command.spawn().unwrap()).unwrap();
        loop {
            std::thread::park();
        }
    });
    receiver.recv().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_etcd_has_died_knows_that_it_leads_no_more() {
    use verbs3_coordinator_client::lease_clock::{BootLeaseClock, LeaseClock};
    let etcd = start("cut");
    let one = store(&etcd.endpoint, "cut").await;
    let leadership = one.campaign_for_leader("one", Duration::from_secs(2)).await.unwrap();
    etcd.kill();
    tokio::time::timeout(START_WITHIN, leadership.wait_until_lost()).await.unwrap();
    assert!(leadership.certain_until() <= BootLeaseClock.now());
    let write = one
        .put_entry(
            "map",
            bytes::Bytes::new(),
            EntryPrecondition::Any,
            Some(leadership.fencing_token()),
        )
        .await;
    assert!(write.is_err());
}
