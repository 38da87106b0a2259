//! A cluster whose every process has a host of its own ([`Network`]): a store, etcd, coordinators,
//! workers and gateways.
//!
//! Owns the processes and the network. What is done to them is the tests'.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::cluster::{ACCESS_KEY, CLUSTER_SECRET, EAGER_LEASES, Gateway, SECRET_KEY, s3_client};
use crate::cluster_builder::store_config;
use crate::configuration::{
    ANY_PORT, MOUNT_OF_ALL, gateway_section, owner_identity, store_section, worker_section,
};
use crate::failure;
use crate::hosts::Network;
use crate::metrics::{Metrics, SENT_BYTES};
use crate::process::{self, START_WITHIN, built_binary, ready};

/// Where Debian's package faketime puts it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// What every key in etcd begins with.
pub const PREFIX: &str = "/verbs3-tests/spread";
/// Where etcd would talk to other members.
const ETCD_PEER: &str = "http://127.0.0.1:2380";
/// How long a leader's etcd lease is.
pub const LEADERSHIP: Duration = Duration::from_secs(2);
/// What the names begin with of those whose wall clocks can be set; one gateway's, so that the
/// others differ from it.
pub const CLOCKS: [&str; 3] = ["coordinator", "worker", "gateway-0"];
/// Ahead of the machine's clocks that are not set: hosts were not started at one moment.
const STARTED_EARLIER: [&str; 3] = ["1000000", "3000", "86400"];

#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub coordinators: usize,
    pub workers: usize,
    pub gateways: usize,
}

struct Process {
    name: String,
    child: Child,
}

/// Dropping it ends all processes.
pub struct SpreadCluster {
    pub network: Network,
    processes: Vec<Process>,
    pub gateways: Vec<Gateway>,
    pub size: Size,
    /// Of writes, in gateways' configuration.
    deadlines: &'static str,
    folder: TempDir,
}

impl SpreadCluster {
    /// To be made once in a process that is [`crate::hosts::alone`].
    pub async fn start(size: Size) -> anyhow::Result<Self> {
        Self::start_with(size, "announce_deadline = \"2s\"\n").await
    }

    /// The same, whose writes wait so long for their homes that none fails on a machine that is
    /// slow.
    pub async fn start_patient(size: Size) -> anyhow::Result<Self> {
        Self::start_with(size, "announce_deadline = \"30s\"\nreport_deadline = \"60s\"\n").await
    }

    async fn start_with(size: Size, deadlines: &'static str) -> anyhow::Result<Self> {
        failure::remember_reasons();
        ensure!(
            Path::new(FAKETIME).exists(),
            "{FAKETIME} is missing: tests/testbed/packages.sh installs faketime"
        );
        let folder = tempfile::Builder::new().prefix("verbs3-spread-").tempdir()?;
        let (network, processes, gateways) = (Network::new()?, Vec::new(), Vec::new());
        let mut cluster = Self { network, processes, gateways, size, deadlines, folder };
        let identities = owner_identity(ACCESS_KEY, SECRET_KEY);
        fs::write(cluster.file("identities.toml"), identities)?;
        for role in CLOCKS {
            cluster.set_clock(role, "+0")?;
        }
        for name in cluster.names() {
            cluster.network.add(&name)?;
        }
        cluster.write_configurations()?;
        for name in cluster.names() {
            cluster.launch(&name)?;
            if name != "etcd" && !name.starts_with("coordinator") {
                cluster.serves(&name).await?;
            }
            // Gateways begin with a map.
            if name == format!("worker-{}", size.workers - 1) {
                cluster.status_shows(&[&format!("{0} of {0} workers serve", size.workers)]).await?;
            }
        }
        for index in 0..size.gateways {
            let endpoint =
                format!("http://{}:9000", cluster.network.address(&format!("gateway-{index}"))?);
            cluster
                .gateways
                .push(Gateway { client: s3_client(&endpoint, ACCESS_KEY, SECRET_KEY), endpoint });
        }
        Ok(cluster)
    }

    /// All hosts, in the order in which they are started.
    fn names(&self) -> Vec<String> {
        let Size { coordinators, workers, gateways } = self.size;
        let many = |role: &str, count: usize| {
            (0..count).map(|n| format!("{role}-{n}")).collect::<Vec<_>>()
        };
        let first = ["store".to_owned(), "etcd".to_owned()].to_vec();
        [
            first,
            many("coordinator", coordinators),
            many("worker", workers),
            many("gateway", gateways),
        ]
        .concat()
    }

    pub fn hosts(&self, role: &str) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with(role)).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How far the wall clocks are off of those whose names begin so, one of [`CLOCKS`]: `+600s`.
    pub fn set_clock(&self, role: &str, offset: &str) -> anyhow::Result<()> {
        // Renamed into place: a process that reads it finds one or the other.
        let (new, file) = (self.file("clock.new"), self.file(&format!("clock-{role}")));
        fs::write(&new, format!("{offset}\n"))?;
        Ok(fs::rename(new, file)?)
    }

    /// How far the process called `name` is ahead of this one's clock, in seconds, by the date that
    /// its answers bear.
    pub async fn clock_ahead(&self, name: &str) -> anyhow::Result<f64> {
        let admin = ready(self.folder.path(), name, "admin")
            .with_context(|| format!("{name} is not ready"))?;
        let date = process::date(&admin).await?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        Ok(date.as_secs_f64() - now.as_secs_f64())
    }

    fn write_configurations(&self) -> anyhow::Result<()> {
        let address = self.network.address("store")?;
        let listen = format!("{address}:9000");
        // Where the router reaches it, too.
        let config = store_config(self.folder.path(), &listen)?
            .replace(ANY_PORT, &format!("{address}:9001"));
        fs::write(self.file("store.toml"), config)?;
        let urls: Vec<String> = self
            .hosts("coordinator")
            .iter()
            .map(|name| Ok(format!("\"http://{}:9500\"", self.network.address(name)?)))
            .collect::<anyhow::Result<_>>()?;
        let shared = format!(
            "[cluster]\nname = \"tests\"\nsecret = \"{CLUSTER_SECRET}\"\ncoordinators = [{}]\n{}\
             {MOUNT_OF_ALL}attributes_ttl = \"1h\"\nabsence_ttl = \"1h\"\n",
            urls.join(", "),
            store_section(&format!("http://{listen}"), ACCESS_KEY, SECRET_KEY),
        );
        for name in self.names() {
            let address = self.network.address(&name)?;
            let section = match name.split('-').next() {
                Some("coordinator") => {
                    etcd_coordinator_section(&address.to_string(), &self.etcd()?, PREFIX)
                }
                Some("worker") => self.worker_section(&name, address)?,
                Some("gateway") => {
                    let [listen, admin] = [9000, 9001].map(|port| format!("{address}:{port}"));
                    let section = gateway_section(&listen, &admin, &self.file("identities.toml"));
                    format!("{section}[gateway.tier]\n{}", self.deadlines)
                }
                _ => continue,
            };
            fs::write(self.file(&format!("{name}.toml")), format!("{shared}{section}"))?;
        }
        Ok(())
    }

    /// Each with a disk that holds less than it would like to keep there.
    fn worker_section(&self, name: &str, address: IpAddr) -> anyhow::Result<String> {
        let disk = self.file(&format!("{name}-disk"));
        fs::create_dir_all(&disk)?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=14m", "tmpfs"])
            .arg(&disk)
            .status()?;
        ensure!(mounted.success(), "a small file system can't be mounted");
        let disk = disk.join("tier");
        fs::create_dir_all(&disk)?;
        let [listen, admin] = [9400, 9401].map(|port| format!("{address}:{port}"));
        Ok(format!(
            "{}[worker.leases]\n{EAGER_LEASES}[worker.shm]\nenabled = false\n\
             [[worker.disk.folders]]\npath = \"{}\"\ncapacity = \"256MiB\"\n",
            worker_section(name, &listen, &admin, "64MiB"),
            disk.display()
        ))
    }

    /// Another disk, of a worker that does not run.
    pub fn empty_disk(&self, worker: &str) -> anyhow::Result<()> {
        let folder = self.file(&format!("{worker}-disk")).join("tier");
        fs::remove_dir_all(&folder)?;
        Ok(fs::create_dir(folder)?)
    }

    /// Makes a bucket in the store, around every gateway.
    pub async fn make_bucket(&self, name: &str) -> anyhow::Result<()> {
        let endpoint = format!("http://{}:9000", self.network.address("store")?);
        s3_client(&endpoint, ACCESS_KEY, SECRET_KEY).create_bucket().bucket(name).send().await?;
        Ok(())
    }

    pub fn etcd(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}:2379", self.network.address("etcd")?))
    }

    /// A process of another name and configuration on the host called `host`, without waiting for
    /// it.
    pub fn launch_other(&mut self, host: &str, name: &str, config: &str) -> anyhow::Result<()> {
        fs::write(self.file(&format!("{name}.toml")), config)?;
        self.launch_on(host, name)
    }

    /// The configuration of the process called `name`.
    pub fn configuration(&self, name: &str) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.file(&format!("{name}.toml")))?)
    }

    fn launch(&mut self, name: &str) -> anyhow::Result<()> {
        self.launch_on(name, name)
    }

    fn launch_on(&mut self, host: &str, name: &str) -> anyhow::Result<()> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file(&format!("{name}.log")))?;
        let role = name.split('-').next().unwrap_or_default();
        let mut command = if role == "etcd" {
            self.etcd_command()?
        } else {
            self.role_command(host, name, role)?
        };
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let child = child.with_context(|| format!("can't start {name}"))?;
        self.processes.retain(|process| process.name != name);
        self.processes.push(Process { name: name.to_owned(), child });
        Ok(())
    }

    fn role_command(&self, host: &str, name: &str, role: &str) -> anyhow::Result<Command> {
        let mut command = self.network.command(host, Path::new("unshare"));
        let number: usize =
            name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        let earlier = STARTED_EARLIER[number % STARTED_EARLIER.len()];
        command.args(["--time", "--boottime", earlier, "--monotonic", earlier, "--"]);
        let ready = self.file(&format!("{name}.ready"));
        let _ = fs::remove_file(&ready);
        let role = if role == "store" { "dev" } else { role };
        command
            .arg(built_binary()?)
            .arg(role)
            .arg("--config")
            .arg(self.file(&format!("{name}.toml")));
        command.arg("--ready-file").arg(ready);
        if let Some(clock) = CLOCKS.iter().find(|clock| name.starts_with(*clock)) {
            command
                .env("LD_PRELOAD", FAKETIME)
                .env("FAKETIME_TIMESTAMP_FILE", self.file(&format!("clock-{clock}")));
            command
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("DONT_FAKE_MONOTONIC", "1");
        }
        Ok(command)
    }

    fn etcd_command(&self) -> anyhow::Result<Command> {
        let program = etcd_program("etcd")?;
        let (url, peer) = (self.etcd()?, ETCD_PEER);
        let mut command = self.network.command("etcd", &program);
        command.arg("--data-dir").arg(self.file("etcd-data"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"]);
        // Hosts end here, the machine does not: a slow disk would end leases.
        command.arg("--unsafe-no-fsync");
        command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        Ok(command)
    }

    /// Saves a snapshot of etcd as `name`.
    pub fn save_etcd(&self, name: &str) -> anyhow::Result<()> {
        let mut command = Command::new(etcd_program("etcdctl")?);
        command.args(["--endpoints", &self.etcd()?, "snapshot", "save"]).arg(self.file(name));
        run_to_end(command)
    }

    /// Gives etcd, which is not running, a folder made of that snapshot.
    pub fn restore_etcd(&self, name: &str) -> anyhow::Result<()> {
        fs::remove_dir_all(self.file("etcd-data"))?;
        let mut command = Command::new(etcd_program("etcdctl")?);
        command.args(["snapshot", "restore"]).arg(self.file(name));
        command.arg("--data-dir").arg(self.file("etcd-data"));
        command.args(["--initial-cluster", &format!("default={ETCD_PEER}")]);
        command.args(["--initial-advertise-peer-urls", ETCD_PEER]);
        run_to_end(command)
    }

    /// Asks etcd over its HTTP gateway; the answer.
    pub fn ask_etcd(&self, path: &str, question: &str) -> anyhow::Result<serde_json::Value> {
        let url = format!("{}{path}", self.etcd()?);
        let asked = Command::new("curl")
            .args(["-sS", "--fail", "--max-time", "20", "-d", question, &url])
            .output()?;
        ensure!(asked.status.success(), "etcd: {}", String::from_utf8_lossy(&asked.stderr));
        Ok(serde_json::from_slice(&asked.stdout)?)
    }

    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let process = self
            .processes
            .iter_mut()
            .find(|process| process.name == name)
            .context("no such process")?;
        process.child.kill()?;
        process.child.wait()?;
        Ok(())
    }

    /// Starts it again after it was killed.
    pub fn restart(&mut self, name: &str) -> anyhow::Result<()> {
        self.launch(name)
    }

    /// The status with which the process ended, once it has.
    pub async fn ended(&mut self, name: &str) -> anyhow::Result<Option<i32>> {
        let began = Instant::now();
        let at = self
            .processes
            .iter()
            .position(|process| process.name == name)
            .context("no such process")?;
        loop {
            if let Some(status) = self.processes[at].child.try_wait()? {
                return Ok(status.code());
            }
            ensure!(
                began.elapsed() < START_WITHIN,
                "{name} does not end; its log:\n{}",
                self.log(name)
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn serves(&self, name: &str) -> anyhow::Result<()> {
        process::serves(self.folder.path(), name).await
    }

    pub fn log(&self, name: &str) -> String {
        process::log(self.folder.path(), name)
    }

    /// What the process called `name` says of itself.
    pub async fn metrics(&self, name: &str) -> anyhow::Result<Metrics> {
        let admin = ready(self.folder.path(), name, "admin")
            .with_context(|| format!("{name} is not ready"))?;
        Metrics::of(&admin).await
    }

    /// Bytes of bodies that the store has sent, to whomever.
    pub async fn sent_by_store(&self) -> anyhow::Result<f64> {
        Ok(self.metrics("store").await?.sum(SENT_BYTES, &[]))
    }

    /// What its coordinators' API is asked with.
    pub fn secret(&self) -> verbs3_coordinator_client::proof::ClusterSecret {
        verbs3_coordinator_client::proof::ClusterSecret::new("tests", CLUSTER_SECRET)
    }

    /// `verbs3 status`, asked from the router: its exit status and its screen.
    pub async fn status(&self) -> anyhow::Result<(Option<i32>, String)> {
        self.command(&["status"]).await
    }

    /// Runs `verbs3 WORDS --config …` of a coordinator on the router, and gives its status and what
    /// it printed.
    pub async fn command(&self, words: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        process::command(self.folder.path(), words).await
    }

    /// Begins `verbs3 WORDS --config …` as [`SpreadCluster::command`] does, without waiting for it.
    /// Killed when it is dropped.
    pub fn begin(&self, words: &[&str]) -> anyhow::Result<tokio::process::Child> {
        let mut command = process::words(self.folder.path(), "coordinator-0", words)?;
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?)
    }

    /// Waits until the status shows `wanted`, all of it; what it shows.
    pub async fn status_shows(&self, wanted: &[&str]) -> anyhow::Result<String> {
        process::status_shows(self.folder.path(), wanted).await
    }

    /// Who leads, once somebody does, and it is not `other`.
    pub async fn leader(&self, other: Option<&str>) -> anyhow::Result<String> {
        let began = Instant::now();
        loop {
            let (_, shown) = self.status().await?;
            for name in self.hosts("coordinator") {
                let url = format!("led by http://{}:9500", self.network.address(&name)?);
                if Some(name.as_str()) != other && shown.contains(&url) {
                    return Ok(name);
                }
            }
            ensure!(began.elapsed() < START_WITHIN, "nobody leads:\n{shown}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl SpreadCluster {
    /// How long after `since` coordinator `name` began to lead, by its own log: no question is in
    /// it. Its clock must not be set.
    pub fn led_after(&self, name: &str, since: SystemTime) -> anyhow::Result<Duration> {
        let log = self.log(name);
        let lines = log.lines().filter(|line| line.contains("\"this coordinator leads\""));
        for line in lines {
            let line: serde_json::Value = serde_json::from_str(line)?;
            let at = line["timestamp"].as_str().context("lines have a time")?;
            if let Ok(after) = process::time(at)?.duration_since(since) {
                return Ok(after);
            }
        }
        anyhow::bail!("{name} did not begin to lead; its log:\n{log}")
    }
}

/// A program that tests/testbed/etcd.sh has unpacked.
fn etcd_program(name: &str) -> anyhow::Result<PathBuf> {
    let cache = match std::env::var_os("VERBS3_CACHE_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?)
            .join(".cache/verbs3"),
    };
    let program = cache.join(name).join("usr/bin").join(name);
    ensure!(program.exists(), "{} is missing; run tests/testbed/etcd.sh", program.display());
    Ok(program)
}

fn run_to_end(mut command: Command) -> anyhow::Result<()> {
    let ended = command.output()?;
    ensure!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

/// A coordinator that keeps what must outlive it in etcd.
pub fn etcd_coordinator_section(address: &str, etcd: &str, prefix: &str) -> String {
    format!(
        "[coordinator]\nlisten = \"{address}:9500\"\nadvertise = \"http://{address}:9500\"\n\
         admin_listen = \"{address}:9501\"\nlease = \"1s\"\nleadership = \"{}s\"\n\
         store = {{ kind = \"etcd\", endpoints = [\"{etcd}\"], prefix = \"{prefix}\", deadline = \
             \"1s\" }}\n",
        LEADERSHIP.as_secs()
    )
}

impl Drop for SpreadCluster {
    fn drop(&mut self) {
        let processes = self.processes.iter_mut();
        let processes = processes.map(|Process { name, child }| (name.as_str(), child));
        process::kill_all(self.folder.path(), processes);
        // Mounted in this process's own namespace alone; gone with it, but the folder is removed
        // before.
        for name in self.hosts("worker") {
            let _ = Command::new("umount").arg(self.file(&format!("{name}-disk"))).status();
        }
    }
}
