//! Real `verbs3` processes on loopback, and clients for them. Processes are ended by their handle
//! when it is dropped.
#![allow(clippy::unwrap_used, dead_code)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use verbs3_tests::configuration::{MOUNT_OF_ALL, store_section};
use verbs3_tests::metrics::Metrics;

/// Generous: the machine may be busy with other tests, and the build may be unoptimised.
const WITHIN: Duration = Duration::from_secs(180);

pub struct Process {
    child: Child,
    log: PathBuf,
    pub listen: String,
    pub admin: String,
}

/// An answer to a plain GET.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

/// A port on an address that nobody else takes ports of: who ends and comes back finds it free.
pub fn free_address() -> String {
    verbs3_tests::free_address().unwrap().to_string()
}

pub fn verbs3() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbs3"));
    // What the tests' own environment says must not configure the processes.
    for (name, _) in std::env::vars() {
        if name.starts_with("VERBS3_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(words: &[&str]) -> Output {
    verbs3().args(words).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Process {
    /// Starts `verbs3 WORDS`, and waits until it serves. Its log is `NAME.log` in `folder`.
    pub fn start(folder: &Path, name: &str, words: &[&str]) -> Self {
        Self::start_in(folder, name, words, &[])
    }

    /// Starts `verbs3 dev` over the folder `data` in `folder`, without its demonstration.
    pub fn start_dev(folder: &Path, name: &str, more: &[&str]) -> Self {
        let data = folder.join("data");
        let own = ["dev", "--no-demo", "--listen", "127.0.0.1:0", "--dir", data.to_str().unwrap()];
        Self::start(folder, name, &[&own[..], more].concat())
    }

    /// Starts the role that `name` begins with, as NAME.toml in `folder` says.
    pub fn start_role(folder: &Path, name: &str) -> Self {
        let (role, file) = (name.split('-').next().unwrap(), folder.join(format!("{name}.toml")));
        Self::start(folder, name, &[role, "--config", file.to_str().unwrap()])
    }

    /// The same with variables of the environment.
    pub fn start_in(folder: &Path, name: &str, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = verbs3();
        command.envs(variables.iter().copied()).args(words);
        Self::start_command(folder, name, command)
    }

    /// The same by a command that becomes verbs3.
    pub fn start_command(folder: &Path, name: &str, mut command: Command) -> Self {
        let (ready, log) =
            (folder.join(format!("{name}.ready")), folder.join(format!("{name}.log")));
        let _ = fs::remove_file(&ready);
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        command.arg("--ready-file").arg(&ready).stdout(file.try_clone().unwrap()).stderr(file);
        let mut process = Self {
            child: command.spawn().unwrap(),
            log,
            listen: String::new(),
            admin: String::new(),
        };
        process.wait_for("it does not serve", |process| {
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("{name} ended with {status}:\n{}", process.log());
            }
            ready.exists()
        });
        let addresses: serde_json::Value =
            serde_json::from_slice(&fs::read(&ready).unwrap()).unwrap();
        process.listen = addresses["listen"].as_str().unwrap().to_owned();
        process.admin = addresses["admin"].as_str().unwrap().to_owned();
        process
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What it says of itself.
    pub fn metrics(&self) -> Metrics {
        Metrics::parse(&text(&get(&self.admin, "/metrics").body))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM, and its exit status.
    pub fn end(&mut self) -> Option<i32> {
        self.signal("-TERM");
        self.ended()
    }

    pub fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill").args([signal, &self.id().to_string()]).status().unwrap().success()
        );
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        self.wait_for("it does not end", |process| {
            status = process.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    fn wait_for(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let log = self.log.clone();
        wait_until(
            || condition(self),
            || format!("{what}; its log:\n{}", fs::read_to_string(log).unwrap_or_default()),
        );
    }

    pub fn client(&self, access_key: &str, secret_key: &str) -> Client {
        verbs3_tests::s3_client(&format!("http://{}", self.listen), access_key, secret_key)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}:\n{}", self.log.display(), self.log());
        }
    }
}

/// Waits until `condition` holds; fails with what `complaint` says then.
pub fn wait_until(mut condition: impl FnMut() -> bool, complaint: impl FnOnce() -> String) {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > WITHIN {
            panic!("{}", complaint());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Writes NAME.toml in `folder`, and gives its path.
pub fn write_config(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The key that `verbs3 dev` has put into its folder.
pub fn dev_key(folder: &Path) -> (String, String) {
    let table: toml::Table =
        fs::read_to_string(folder.join("identities.toml")).unwrap().parse().unwrap();
    let identity = &table["identity"][0];
    (
        identity["access_key"].as_str().unwrap().to_owned(),
        identity["secret_key"].as_str().unwrap().to_owned(),
    )
}

/// The sections of a mount of all that is in a `verbs3 dev`. More settings of the mount may follow.
pub fn mount_of_all(store: &Process, (access_key, secret_key): (&str, &str)) -> String {
    let endpoint = format!("http://{}", store.listen);
    store_section(&endpoint, access_key, secret_key) + MOUNT_OF_ALL
}

/// PUTs an object.
pub async fn put_object(client: &Client, bucket: &str, key: &str, body: impl Into<Vec<u8>>) {
    let body = ByteStream::from(body.into());
    client.put_object().bucket(bucket).key(key).body(body).send().await.unwrap();
}

/// GETs an object and gives the answer's head too.
pub async fn get_object(client: &Client, bucket: &str, key: &str) -> Answer {
    let expires = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
    let signed = client.get_object().bucket(bucket).key(key).presigned(expires).await.unwrap();
    let url = signed.uri().strip_prefix("http://").unwrap().to_owned();
    tokio::task::spawn_blocking(move || {
        let (host, path) = url.split_at(url.find('/').unwrap());
        get(host, path)
    })
    .await
    .unwrap()
}

/// A plain GET over a connection of its own.
pub fn get(host: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = text(&bytes[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: bytes[end..].to_vec() }
}
