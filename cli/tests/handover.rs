//! A gateway takes the place of one that serves: no client finds a port closed.
#![allow(clippy::unwrap_used)]

mod processes;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use aws_sdk_s3::presigning::PresigningConfig;
use processes::{
    Process, dev_key, free_address, get, get_object, mount_of_all, put_object, run, text, verbs3,
    wait_until, write_config,
};
use verbs3_tests::configuration::{gateway_section, worker_section};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A store, a worker, and files of gateways that take each other's place.
struct Host {
    folder: tempfile::TempDir,
    listen: String,
    admin: String,
    cluster: String,
    _store: Process,
    _worker: Process,
}

impl Host {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Process::start_dev(folder.path(), "store", &[]);
        let (access, key) = dev_key(&folder.path().join("data"));
        let (address, mount) = (free_address(), mount_of_all(&store, (&access, &key)));
        let cluster = format!(
            "[cluster]\nsecret = \"{SECRET}\"\nworkers = [{{ id = \"w0\", address = \
            \"{address}\" }}]\nworkers_fixed = true\n{mount}"
        );
        let worker = worker_section("w0", &address, &free_address(), "64MiB");
        let worker = format!("{cluster}{worker}[worker.shm]\nenabled = false\n");
        write_config(folder.path(), "worker", &worker);
        let worker = Process::start_role(folder.path(), "worker");
        let (listen, admin) = (free_address(), free_address());
        Self { folder, listen, admin, cluster, _store: store, _worker: worker }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_gateway(&self, name: &str) -> Process {
        self.write_gateway(name, &self.path("handover.sock"));
        Process::start_role(self.folder.path(), name)
    }

    fn write_gateway(&self, name: &str, handover: &Path) -> String {
        let section =
            gateway_section(&self.listen, &self.admin, &self.path("data/identities.toml"));
        let section = format!(
            "{section}handover_socket = {handover:?}\nprobe_socket = {:?}\n[gateway.lending]\n\
            socket = {:?}\n",
            self.path(&format!("{name}.sock")),
            self.path("lend.sock"),
        );
        write_config(self.folder.path(), name, &format!("{}{section}", self.cluster))
    }

    /// What the process itself says, and whether it is ready.
    fn probe(&self, name: &str) -> (bool, String) {
        let socket = self.path(&format!("{name}.sock"));
        let asked = run(&["probe", "ready", "--socket", socket.to_str().unwrap()]);
        (asked.status.success(), text(&asked.stdout) + &text(&asked.stderr))
    }
}

/// Strangers that connect anew for each request, until they are stopped.
struct Strangers {
    stop: Arc<AtomicBool>,
    running: Vec<JoinHandle<(usize, Vec<String>)>>,
}

impl Strangers {
    fn start(listen: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let running = (0..4).map(|_| {
            let (stop, listen) = (stop.clone(), listen.to_owned());
            std::thread::spawn(move || {
                let (mut answers, mut errors) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    match ask(&listen) {
                        Ok(answer) if answer.starts_with("HTTP/1.1 403") => answers += 1,
                        Ok(answer) => errors.push(answer),
                        Err(error) => errors.push(error.to_string()),
                    }
                }
                (answers, errors)
            })
        });
        let running = running.collect();
        Self { stop, running }
    }

    /// Answers so far; fails if one of them was none.
    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut answers = 0;
        for stranger in self.running {
            let (own, errors) = stranger.join().unwrap();
            assert!(errors.is_empty(), "{} errors, such as {:?}", errors.len(), errors[0]);
            answers += own;
        }
        answers
    }
}

fn ask(listen: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(listen)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"GET /demo/k HTTP/1.1\r\nhost: s3\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether somebody answers at the admin address each time, while a process is held.
fn answers_admin(host: &Host, held: Option<&Process>) -> bool {
    let signal = |signal| held.inspect(|process| process.signal(signal));
    signal("-STOP");
    let answered = (0..8).all(|_| get(&host.admin, "/healthz").status == 200);
    signal("-CONT");
    answered
}

#[tokio::test]
async fn nobody_is_refused_while_a_gateway_takes_anothers_place() {
    let host = Host::start();
    let mut first = host.start_gateway("gateway-first");
    let (access, secret) = dev_key(&host.path("data"));
    let body: Vec<u8> = (0..300_000u32).map(|n| (n % 253) as u8).collect();
    put_object(&first.client(&access, &secret), "demo", "k", body.clone()).await;
    let strangers = Strangers::start(&host.listen);

    let mut second = host.start_gateway("gateway-second");
    assert_eq!((&first.listen, &first.admin), (&second.listen, &second.admin));
    for name in ["gateway-first", "gateway-second"] {
        wait_until(|| host.probe(name).0, || format!("{name}: {}", host.probe(name).1));
    }
    assert!(
        answers_admin(&host, Some(&first)),
        "the one that serves is at the admin address alone"
    );
    assert_eq!(first.end(), Some(0));
    assert!(strangers.end() > 20, "clients came all the time");
    assert!(!host.probe("gateway-first").0, "it has ended");
    let read = get_object(&second.client(&access, &secret), "demo", "k").await;
    assert!(read.body == body);
    assert!(UnixStream::connect(host.path("lend.sock")).is_ok());

    // One that is killed takes its own connections along, and leaves all else to the one before.
    let mut third = host.start_gateway("gateway-third");
    third.signal("-KILL");
    third.ended();
    wait_until(|| second.log().contains("has everything again"), || second.log());
    assert_eq!(get(&host.admin, "/readyz").status, 200);
    let lends = || UnixStream::connect(host.path("lend.sock")).is_ok();
    wait_until(lends, || "nobody answers those who lend memory".to_owned());

    let strangers = Strangers::start(&host.listen);
    let mut fourth = host.start_gateway("gateway-fourth");
    assert_eq!(second.end(), Some(0));
    assert!(strangers.end() > 20, "clients came all the time");
    let read = get_object(&fourth.client(&access, &secret), "demo", "k").await;
    assert!(read.body == body);
    assert_eq!(fourth.end(), Some(0));
    for name in ["handover.sock", "lend.sock", "gateway-fourth.sock"] {
        assert!(!host.path(name).exists(), "{name} is left");
    }
}

/// Three at once: where the one in the middle goes, the first leaves the last one's name alone.
#[tokio::test]
async fn a_name_stays_with_the_newest_that_lives() {
    let host = Host::start();
    let mut first = host.start_gateway("gateway-first");
    let mut second = host.start_gateway("gateway-second");
    let mut third = host.start_gateway("gateway-third");
    second.signal("-KILL");
    second.ended();
    // Some looks of the first one later, the next comes after the third.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(first.end(), Some(0));
    assert!(answers_admin(&host, None));
    let mut fourth = host.start_gateway("gateway-fourth");
    assert_eq!(third.end(), Some(0));
    assert_eq!(get(&host.admin, "/readyz").status, 200);
    assert_eq!(fourth.end(), Some(0));
}

/// Pods have process numbers of their own: neither knows the other by one.
#[test]
fn gateways_of_two_pid_namespaces_take_each_others_place() {
    let host = Host::start();
    let file = host.write_gateway("gateway-apart", &host.path("handover.sock"));
    let mut apart = Command::new("unshare");
    // Who is not root is it in a namespace of users.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        apart.args(["--user", "--map-root-user"]);
    }
    apart.args(["--pid", "--fork", "--kill-child=KILL"]).arg(verbs3().get_program());
    apart.args(["gateway", "--config", &file]);
    let mut apart = Process::start_command(host.folder.path(), "gateway-apart", apart);
    let mut next = host.start_gateway("gateway-next");
    apart.signal("-KILL");
    apart.ended();
    assert!(ask(&host.listen).unwrap().starts_with("HTTP/1.1 403"));
    assert_eq!(get(&host.admin, "/healthz").status, 200);
    assert_eq!(next.end(), Some(0));
}

#[test]
fn a_gateway_of_another_cluster_gets_no_sockets() {
    let host = Host::start();
    let mut first = host.start_gateway("gateway-first");
    let file = host.write_gateway("gateway-other", &host.path("handover.sock"));
    let other = ["gateway", "--config", &file, "--set", "cluster.name=another"];
    let ended = run(&other);
    assert_eq!(ended.status.code(), Some(1));
    let told = text(&ended.stdout) + &text(&ended.stderr);
    for part in ["it gives no sockets", "it is of", "verbs3", "nodes.gateway.takesOver=false"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(first.log().contains("another"), "{}", first.log());
    assert!(answers_admin(&host, None) && ask(&host.listen).is_ok());
    // Whoever says nothing, or nonsense, holds nobody up.
    let mut silent = UnixStream::connect(host.path("handover.sock")).unwrap();
    let _idle = UnixStream::connect(host.path("handover.sock")).unwrap();
    silent.write_all(&[7; 100_000]).unwrap_or_default();
    let mut second = host.start_gateway("gateway-second");
    assert_eq!((first.end(), second.end()), (Some(0), Some(0)));
}

/// A gateway that ends while a client takes its time refuses new ones: nobody waits for it in vain.
#[tokio::test]
async fn a_gateway_that_ends_keeps_no_port_open() {
    let host = Host::start();
    let mut gateway = host.start_gateway("gateway-first");
    let (access, secret) = dev_key(&host.path("data"));
    let client = gateway.client(&access, &secret);
    put_object(&client, "demo", "large", vec![7; 60_000_000]).await;
    let valid = PresigningConfig::expires_in(Duration::from_secs(600)).unwrap();
    let signed = client.get_object().bucket("demo").key("large").presigned(valid).await.unwrap();
    let path = signed.uri().split_once(&host.listen).unwrap().1;
    let mut slow = TcpStream::connect(&host.listen).unwrap();
    write!(slow, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", host.listen).unwrap();
    slow.read_exact(&mut [0; 12]).unwrap();
    gateway.signal("-TERM");
    wait_until(|| TcpStream::connect(&host.listen).is_err(), || "it listens on".to_owned());
    assert!(!host.probe("gateway-first").0, "it is no longer ready");
    drop(slow);
    assert_eq!(gateway.ended(), Some(0));
}

#[test]
fn a_socket_file_that_can_not_be_made_names_its_setting() {
    let host = Host::start();
    let file = host.write_gateway("gateway-lost", &host.path("no-folder/handover.sock"));
    let ended = run(&["gateway", "--config", &file]);
    assert_eq!(ended.status.code(), Some(1));
    let told = text(&ended.stdout) + &text(&ended.stderr);
    assert!(told.contains("gateway.handover_socket") && told.contains("no-folder"), "{told}");
}

#[test]
fn a_probe_says_that_nobody_answers() {
    let asked = run(&["probe", "alive", "--socket", "/no/such.sock"]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(text(&asked.stderr).contains("/no/such.sock: nobody answers there"));
}
