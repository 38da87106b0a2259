//! A cluster of real `verbs3` processes on loopback: a store, workers and gateways, with S3 clients
//! for each gateway.
//!
//! Owns the processes: they are ended by pid when the cluster is dropped. The store is `verbs3 dev`
//! with a mount that is not cached, unless `S3_ENDPOINT`, `S3_ACCESS_KEY` and `S3_SECRET_KEY` name
//! another one (Ceph RGW, say; `S3_STORE_PID`: its process).

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use tempfile::TempDir;

use crate::cluster_builder::ClusterBuilder;
use crate::configuration::{ANY_PORT, worker_section};
use crate::metrics::{Metrics, SENT_BYTES, eventually};
use crate::process::{self, START_WITHIN, ready};
use crate::proxy::Proxy;
use crate::relay::Relay;
use crate::trust::{NAME_MARK, TestIssuer, TrustFiles};

/// Where maps change, attributes are leased as soon as they are known: a lease that outlives a
/// write shows in every history.
pub(crate) const EAGER_LEASES: &str = "length = \"2s\"\nreads_min = 2\nquiet_for = \"0s\"\n";

/// The tests' own key, which may do everything.
pub const ACCESS_KEY: &str = "VERBS3TESTS";
/// Its secret.
pub const SECRET_KEY: &str = "verbs3-tests-secret-key";
pub(crate) const CLUSTER_SECRET: &str = "a secret of at least sixteen characters";
/// A gateway as tests see it.
#[derive(Clone)]
pub struct Gateway {
    pub endpoint: String,
    pub client: Client,
}

impl Gateway {
    /// A client that asks it by another key of the tests' secret: [`ClusterBuilder::identity`].
    ///
    /// [`ClusterBuilder::identity`]: crate::ClusterBuilder::identity
    pub fn client_by(&self, access_key: &str) -> Client {
        s3_client(&self.endpoint, access_key, SECRET_KEY)
    }
}

/// Running processes. Dropping it ends them.
pub struct Cluster {
    pub(crate) processes: Vec<(String, Child)>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) store: StoreAccess,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) relays: Vec<Relay>,
    /// Who made the certificates of the processes, in a cluster that has some.
    pub(crate) issuer: Option<TestIssuer>,
    pub(crate) environment: Vec<(String, String)>,
    /// What the next processes are started from.
    pub(crate) program: PathBuf,
    /// What all processes are configured with, and what workers are besides.
    pub(crate) shared: String,
    pub(crate) worker_memory: &'static str,
    pub(crate) worker_settings: String,
    pub(crate) folder: TempDir,
}

pub(crate) struct StoreAccess {
    pub(crate) endpoint: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
}

impl Cluster {
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    pub fn gateways(&self) -> Vec<Gateway> {
        self.gateways.clone()
    }

    /// The store itself, around every gateway.
    pub fn store(&self) -> Client {
        s3_client(&self.store.endpoint, &self.store.access_key, &self.store.secret_key)
    }

    /// The proxy in front of the store, of a cluster with [`ClusterBuilder::faulty_store`].
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("built with faulty_store")
    }

    /// What stands between gateways and worker `index`, of a cluster with
    /// [`ClusterBuilder::relayed_workers`].
    pub fn relay(&self, index: usize) -> &Relay {
        &self.relays[index]
    }

    /// Where the process called `name` is reached by its own protocol, as it was told at its start.
    pub fn address(&self, name: &str) -> anyhow::Result<String> {
        ready(self.folder.path(), name, "listen").with_context(|| format!("{name} is not ready"))
    }

    /// What the process called `name` says of itself.
    pub async fn metrics(&self, name: &str) -> anyhow::Result<Metrics> {
        let admin = ready(self.folder.path(), name, "admin")
            .with_context(|| format!("{name} is not ready"))?;
        Metrics::of(&admin).await
    }

    /// The sum of a metric over all processes whose names begin with `role` (`worker`).
    pub async fn sum_of(&self, role: &str, family: &str, labels: &[&str]) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for (name, _) in self.processes.iter().filter(|(name, _)| name.starts_with(role)) {
            sum += self.metrics(name).await?.sum(family, labels);
        }
        Ok(sum)
    }

    /// Bytes of bodies that the store has sent, to whomever.
    pub async fn sent_by_store(&self) -> anyhow::Result<f64> {
        Ok(self.metrics("store").await?.sum(SENT_BYTES, &[]))
    }

    /// Waits until all of `families` are 0 at the process called `name`.
    pub async fn until_zero(
        &self,
        name: &str,
        families: &[&str],
        within: Duration,
    ) -> anyhow::Result<()> {
        let all_zero = async || {
            let metrics = self.metrics(name).await.map_err(|error| format!("{error:#}"))?;
            let sums = families.iter().map(|family| (family, metrics.sum(family, &[])));
            match sums.into_iter().find(|(_, value)| *value != 0.0) {
                Some((family, value)) => Err(format!("{name}: {family} stays {value}")),
                None => Ok(()),
            }
        };
        eventually(within, all_zero).await
    }

    /// Makes a bucket in the store whose name starts with `prefix`.
    pub async fn bucket(&self, prefix: &str) -> anyhow::Result<String> {
        let name = format!("{prefix}-{:016x}", rand::random::<u64>());
        self.store()
            .create_bucket()
            .bucket(&name)
            .send()
            .await
            .with_context(|| format!("can't create bucket {name}"))?;
        Ok(name)
    }

    /// Pid of the process called `name`: `store`, `worker-0`, `gateway-0`.
    pub fn pid(&self, name: &str) -> anyhow::Result<u32> {
        if let (true, Ok(pid)) = (name == "store", std::env::var("S3_STORE_PID")) {
            return pid.parse().context("S3_STORE_PID is a process id");
        }
        let (_, child) =
            self.processes.iter().find(|(known, _)| known == name).context("no such process")?;
        Ok(child.id())
    }

    /// Sends `signal` ("-KILL", "-STOP", "-CONT") to the process called `name`. One that is to stop
    /// has stopped afterwards.
    pub fn signal(&self, name: &str, signal: &str) -> anyhow::Result<()> {
        let pid = self.pid(name)?;
        let status = Command::new("kill").args([signal, &pid.to_string()]).status()?;
        ensure!(status.success(), "kill {signal} {name} failed");
        if signal == "-STOP" { process::wait_stopped(pid) } else { Ok(()) }
    }

    /// Kills the process called `name`, and waits until nothing of it is left.
    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let child = self.process_mut(name)?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Where `coordinator-0` keeps what must outlive it.
    pub fn coordinator_store(&self) -> PathBuf {
        self.folder.path().join("coordinator")
    }

    /// Starts processes from another binary from now on.
    pub fn use_program(&mut self, program: PathBuf) {
        self.program = program;
    }

    /// Ends the process called `name` by SIGTERM, and wants status 0 from it.
    pub async fn terminate(&mut self, name: &str) -> anyhow::Result<()> {
        let folder = self.folder.path().to_owned();
        terminate_child(&folder, name, self.process_mut(name)?).await
    }

    /// Starts the process called `name` again after it was killed.
    pub fn restart(&mut self, name: &str) -> anyhow::Result<()> {
        let config = self.folder.path().join(format!("{name}.toml"));
        self.process_mut(name)?.wait()?;
        let child = spawn(&self.program, &config, name, self.folder.path(), &self.environment)?;
        *self.process_mut(name)? = child;
        Ok(())
    }

    fn process_mut(&mut self, name: &str) -> anyhow::Result<&mut Child> {
        let found = self.processes.iter_mut().find(|(known, _)| known == name);
        Ok(&mut found.context("no such process")?.1)
    }

    /// Starts one more worker, which a coordinated cluster takes in.
    pub async fn add_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let section = self.worker_section(name, free_address()?);
        self.launch(name, &format!("{}{section}", self.shared))?;
        self.serves(name).await
    }

    /// What the process called `name` proves itself by, in a cluster that is
    /// [`ClusterBuilder::certified`].
    pub fn trust_files(&self, name: &str) -> TrustFiles {
        TrustFiles::of_process(self.folder.path(), name)
    }

    /// Hands out who made the certificates. Processes that are added later get none.
    pub fn take_issuer(&mut self) -> Option<TestIssuer> {
        self.issuer.take()
    }

    /// Runs `verbs3 WORDS --config …` with the configuration of the coordinator, or of an operator
    /// where there are certificates. Gives its status and what it printed.
    pub async fn command(&self, words: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        process::command(self.folder.path(), words).await
    }

    /// The same with the configuration, and so the certificate, of the process `name`.
    pub async fn command_as(
        &self,
        name: &str,
        words: &[&str],
    ) -> anyhow::Result<(Option<i32>, String)> {
        process::command_as(self.folder.path(), name, words).await
    }

    /// Waits until `verbs3 status` shows `wanted`, all of it.
    pub async fn status_shows(&self, wanted: &[&str]) -> anyhow::Result<()> {
        process::status_shows(self.folder.path(), wanted).await.map(drop)
    }

    /// The same, and waits until it serves again.
    pub async fn restart_and_wait(&mut self, name: &str) -> anyhow::Result<()> {
        self.restart(name)?;
        self.serves(name).await
    }

    pub(crate) async fn serves(&self, name: &str) -> anyhow::Result<()> {
        process::serves(self.folder.path(), name).await
    }

    /// What the process called `name` has logged so far.
    pub fn log(&self, name: &str) -> String {
        process::log(self.folder.path(), name)
    }

    /// Ends every process by SIGTERM and wants status 0 from each, gateways first.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        for (name, mut child) in std::mem::take(&mut self.processes).into_iter().rev() {
            terminate_child(self.folder.path(), &name, &mut child).await?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let processes = self.processes.iter_mut().map(|(name, child)| (name.as_str(), child));
        process::kill_all(self.folder.path(), processes);
    }
}

impl Cluster {
    pub(crate) fn worker_section(&self, name: &str, address: SocketAddr) -> String {
        let section = worker_section(name, &address.to_string(), ANY_PORT, self.worker_memory);
        let socket = self.folder.path().join(format!("{name}.sock"));
        format!(
            "{section}[worker.leases]\n{EAGER_LEASES}[worker.shm]\nsocket = \"{}\"\n{}",
            socket.display(),
            self.worker_settings
        )
    }

    /// Writes the configuration of the process `name`, and the files that it proves itself by.
    pub(crate) fn write_config(&self, name: &str, config: &str) -> anyhow::Result<PathBuf> {
        if let Some(issuer) = self.issuer.as_ref().filter(|_| name != "store") {
            self.trust_files(name).make_all(issuer)?;
        }
        let path = self.folder.path().join(format!("{name}.toml"));
        fs::write(&path, config.replace(NAME_MARK, name))?;
        Ok(path)
    }

    pub(crate) fn launch(&mut self, name: &str, config: &str) -> anyhow::Result<()> {
        let path = self.write_config(name, config)?;
        let environment = if name == "store" { &[][..] } else { &self.environment[..] };
        let child = spawn(&self.program, &path, name, self.folder.path(), environment)?;
        self.processes.push((name.to_owned(), child));
        Ok(())
    }
}

/// Ends a process by SIGTERM, and wants status 0 of it.
async fn terminate_child(folder: &Path, name: &str, child: &mut Child) -> anyhow::Result<()> {
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > START_WITHIN {
            child.kill()?;
            bail!("{name} did not end after SIGTERM; its log:\n{}", process::log(folder, name));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    ensure!(
        status.success(),
        "{name} ended with {status}; its log:\n{}",
        process::log(folder, name)
    );
    Ok(())
}

/// Starts the role that `name` begins with.
fn spawn(
    program: &Path,
    config: &Path,
    name: &str,
    folder: &Path,
    environment: &[(String, String)],
) -> anyhow::Result<Child> {
    let role = match name.split('-').next() {
        Some("store") => "dev",
        Some(role @ ("gateway" | "worker" | "coordinator")) => role,
        _ => bail!("{name} is no role"),
    };
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(format!("{name}.log")))?;
    let file = folder.join(format!("{name}.ready"));
    let _ = fs::remove_file(&file);
    let mut command = Command::new(program);
    command
        // Clients of a test stay connected until its end; nobody waits for them to leave.
        .env("VERBS3_GATEWAY__TIMEOUTS__FAREWELL", "50ms")
        .envs(environment.iter().cloned())
        .arg(role)
        .arg("--config")
        .arg(config)
        .arg("--ready-file")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    command.spawn().with_context(|| format!("can't start {name}"))
}

/// A port for a process that may end and come back: on an address that nobody else takes ports of
/// meanwhile, neither for listening nor for connections on their way out (SEED=1795295592532282914:
/// a worker's port was another one's admin port when it came back).
pub fn free_address() -> anyhow::Result<SocketAddr> {
    let [a, b, c] = rand::random::<[u8; 3]>();
    Ok(TcpListener::bind((Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254)), 0))?.local_addr()?)
}

/// A client of the S3 service at `endpoint`.
pub fn s3_client(endpoint: &str, access_key: &str, secret_key: &str) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .force_path_style(true)
        .credentials_provider(Credentials::new(access_key, secret_key, None, None, "tests"))
        .build();
    Client::from_conf(config)
}
