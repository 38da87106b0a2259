//! A cluster of real `verbs3` processes on loopback: a store, workers and gateways, with S3 clients
//! for each gateway.
//!
//! Owns the processes: they are ended by pid when the cluster is dropped. The store is `verbs3 dev`
//! with a mount that is not cached, unless `S3_ENDPOINT`, `S3_ACCESS_KEY` and `S3_SECRET_KEY` name
//! another one (Ceph RGW, say; `S3_STORE_PID`: its process).

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use tempfile::TempDir;

use crate::failure;
use crate::metrics::Metrics;
use crate::process::{self, START_WITHIN, binary, ready};
use crate::proxy::Proxy;
use crate::relay::Relay;

/// Where maps change, attributes are leased as soon as they are known: a lease that outlives a
/// write shows in every history.
pub(crate) const EAGER_LEASES: &str = "length = \"2s\"\nreads_min = 2\nquiet_for = \"0s\"\n";

pub(crate) const ACCESS_KEY: &str = "VERBS3TESTS";
pub(crate) const SECRET_KEY: &str = "verbs3-tests-secret-key";
pub(crate) const CLUSTER_SECRET: &str = "a secret of at least sixteen characters";
/// A gateway as tests see it.
#[derive(Clone)]
pub struct Gateway {
    pub endpoint: String,
    pub client: Client,
}

/// What to start.
pub struct Builder {
    gateways: usize,
    workers: usize,
    attributes_ttl: &'static str,
    worker_memory: &'static str,
    faulty_store: bool,
    relayed_workers: bool,
    coordinated: bool,
    lease: &'static str,
    move_for: &'static str,
    settings: [String; 5],
    environment: Vec<(String, String)>,
}

/// A part of the configuration that a test may add settings to, as TOML.
#[derive(Debug, Clone, Copy)]
pub enum Section {
    /// Behind `[[ufs]]`: sub-tables such as `[ufs.deadlines]`.
    Ufs,
    Mount,
    Worker,
    Gateway,
    /// Behind `[coordinator]`: sub-tables such as `[coordinator.hot]`.
    Coordinator,
}

/// Running processes. Dropping it ends them.
pub struct Cluster {
    processes: Vec<(String, Child)>,
    gateways: Vec<Gateway>,
    store: Store,
    proxy: Option<Proxy>,
    relays: Vec<Relay>,
    environment: Vec<(String, String)>,
    /// What all processes are configured with, and what workers are besides.
    shared: String,
    worker_settings: String,
    folder: TempDir,
}

struct Store {
    endpoint: String,
    access_key: String,
    secret_key: String,
}

impl Cluster {
    pub fn builder() -> Builder {
        Builder {
            gateways: 1,
            workers: 1,
            attributes_ttl: "1h",
            worker_memory: "96MiB",
            faulty_store: false,
            relayed_workers: false,
            coordinated: false,
            lease: "1s",
            move_for: "0",
            settings: Default::default(),
            environment: Vec::new(),
        }
    }

    pub fn gateways(&self) -> Vec<Gateway> {
        self.gateways.clone()
    }

    /// The store itself, around every gateway.
    pub fn store(&self) -> Client {
        client(&self.store.endpoint, &self.store.access_key, &self.store.secret_key)
    }

    /// The proxy in front of the store, of a cluster with [`Builder::faulty_store`].
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("built with faulty_store")
    }

    /// What stands between gateways and worker `index`, of a cluster with
    /// [`Builder::relayed_workers`].
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

    /// Starts the process called `name` again after it was killed.
    pub fn restart(&mut self, name: &str) -> anyhow::Result<()> {
        let config = self.folder.path().join(format!("{name}.toml"));
        let (_, child) = self
            .processes
            .iter_mut()
            .find(|(known, _)| known == name)
            .context("no such process")?;
        child.wait()?;
        *child = spawn(&config, name, self.folder.path(), &self.environment)?;
        Ok(())
    }

    /// Starts one more worker, which a coordinated cluster takes in.
    pub async fn add_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let section = self.worker_section(name, free_address()?);
        self.launch(name, &format!("{}{section}", self.shared))?;
        self.serves(name).await
    }

    /// Runs `verbs3 WORDS --config …` of the coordinator, and gives its status and what it printed.
    pub async fn command(&self, words: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        process::command(self.folder.path(), words).await
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

    async fn serves(&self, name: &str) -> anyhow::Result<()> {
        process::serves(self.folder.path(), name).await
    }

    /// What the process called `name` has logged so far.
    pub fn log(&self, name: &str) -> String {
        process::log(self.folder.path(), name)
    }

    /// Ends every process by SIGTERM and wants status 0 from each, gateways first.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        for (name, mut child) in std::mem::take(&mut self.processes).into_iter().rev() {
            Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
            let began = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                if began.elapsed() > START_WITHIN {
                    child.kill()?;
                    bail!("{name} did not end after SIGTERM; its log:\n{}", self.log(&name));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            ensure!(status.success(), "{name} ended with {status}; its log:\n{}", self.log(&name));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let fails = failure::await_logs();
        for (name, child) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
            if fails {
                process::tell_end_of_log(self.folder.path(), name);
            }
        }
        if fails {
            failure::tell_reason_again();
        }
    }
}

impl Builder {
    pub fn gateways(mut self, count: usize) -> Self {
        self.gateways = count;
        self
    }

    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// How long attributes are believed. The default of an hour makes every staleness show.
    pub fn attributes_ttl(mut self, ttl: &'static str) -> Self {
        self.attributes_ttl = ttl;
        self
    }

    /// Puts a [`Proxy`] between the cluster and its store. [`Cluster::store`] goes around it.
    pub fn faulty_store(mut self) -> Self {
        self.faulty_store = true;
        self
    }

    /// Puts a [`Relay`] between gateways and each worker. They then see no other way to it.
    pub fn relayed_workers(mut self) -> Self {
        self.relayed_workers = true;
        self.settings(Section::Worker, "enabled = false")
    }

    /// A variable of the environment of gateways and workers.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn settings(mut self, section: Section, toml: &str) -> Self {
        let text = &mut self.settings[section as usize];
        text.push_str(toml);
        text.push('\n');
        self
    }

    pub fn worker_memory(mut self, size: &'static str) -> Self {
        self.worker_memory = size;
        self
    }

    /// With a coordinator, `coordinator-0`, in place of a list of workers; leases of a second, so
    /// that tests need not wait.
    pub fn coordinated(mut self) -> Self {
        self.coordinated = true;
        self
    }

    /// Other leases of a cluster that is [`Builder::coordinated`].
    pub fn lease(mut self, lease: &'static str) -> Self {
        self.lease = lease;
        self
    }

    /// How long slots move of who joins or is drained, in a cluster that is
    /// [`Builder::coordinated`]; else all move at once.
    pub fn move_for(mut self, move_for: &'static str) -> Self {
        self.move_for = move_for;
        self
    }

    pub async fn start(self) -> anyhow::Result<Cluster> {
        failure::remember_reasons();
        let folder = tempfile::Builder::new().prefix("verbs3-cluster-").tempdir()?;
        fs::write(
            folder.path().join("identities.toml"),
            format!(
                "[[identity]]\nname = \"tests\"\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{SECRET_KEY}\"\n\
                 allow = [{{ mount = \"*\", rights = [\"read\", \"write\", \"list\", \"delete\", \
                     \"admin\"] }}]\n"
            ),
        )?;
        let store = match std::env::var("S3_ENDPOINT") {
            Ok(endpoint) => Store {
                endpoint,
                access_key: std::env::var("S3_ACCESS_KEY")
                    .context("S3_ENDPOINT wants S3_ACCESS_KEY too")?,
                secret_key: std::env::var("S3_SECRET_KEY")
                    .context("S3_ENDPOINT wants S3_SECRET_KEY too")?,
            },
            Err(_) => Store {
                endpoint: format!("http://{}", free_address()?),
                access_key: ACCESS_KEY.to_owned(),
                secret_key: SECRET_KEY.to_owned(),
            },
        };
        let own_store = std::env::var("S3_ENDPOINT").is_err();
        let mut cluster = Cluster {
            processes: Vec::new(),
            gateways: Vec::new(),
            store,
            proxy: None,
            relays: Vec::new(),
            environment: self.environment.clone(),
            shared: String::new(),
            worker_settings: format!(
                "memory = {{ capacity = \"{}\" }}\n{}",
                self.worker_memory,
                self.settings[Section::Worker as usize]
            ),
            folder,
        };
        if own_store {
            let listen = cluster.store.endpoint.trim_start_matches("http://").to_owned();
            cluster.launch("store", &store_config(cluster.folder.path(), &listen)?)?;
            cluster.serves("store").await?;
        }
        if self.faulty_store {
            cluster.proxy = Some(Proxy::start(&cluster.store.endpoint).await?);
        }
        let workers =
            (0..self.workers).map(|_| free_address()).collect::<anyhow::Result<Vec<_>>>()?;
        let mut seen = workers.clone();
        if self.relayed_workers {
            for address in &mut seen {
                let relay = Relay::start(*address).await?;
                *address = relay.address;
                cluster.relays.push(relay);
            }
        }
        if self.coordinated {
            self.start_coordinator(&mut cluster).await?;
        } else {
            cluster.shared = self.shared_config(&cluster, "", &seen);
        }
        let shared = cluster.shared.clone();
        for (index, address) in workers.iter().enumerate() {
            let name = format!("worker-{index}");
            let section = cluster.worker_section(&name, *address);
            cluster.launch(&name, &format!("{shared}{section}"))?;
            cluster.serves(&name).await?;
        }
        if self.coordinated {
            cluster.status_shows(&[&format!("{0} of {0} workers serve", self.workers)]).await?;
        }
        for index in 0..self.gateways {
            let (name, address) = (format!("gateway-{index}"), free_address()?);
            let identities = cluster.folder.path().join("identities.toml");
            let section = format!(
                "[gateway]\nlisten = \"{address}\"\nadmin_listen = \"127.0.0.1:0\"\nidentities = \"{}\"\n\
                 memory = {{ capacity = \"64MiB\" }}\n{}",
                identities.display(),
                self.settings[Section::Gateway as usize]
            );
            cluster.launch(&name, &format!("{shared}{section}"))?;
            cluster.serves(&name).await?;
            let endpoint = format!("http://{address}");
            cluster
                .gateways
                .push(Gateway { client: client(&endpoint, ACCESS_KEY, SECRET_KEY), endpoint });
        }
        Ok(cluster)
    }

    async fn start_coordinator(&self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let address = free_address()?;
        cluster.shared =
            self.shared_config(cluster, &format!("coordinators = [\"http://{address}\"]\n"), &[]);
        let folder = cluster.folder.path().join("coordinator");
        let section = format!(
            "[coordinator]\nlisten = \"{address}\"\nadmin_listen = \"127.0.0.1:0\"\nlease = \"{}\"\nleadership = \"2s\"\nmove_for = \"{}\"\n\
             store = {{ path = \"{}\" }}\n{}",
            self.lease,
            self.move_for,
            folder.display(),
            self.settings[Section::Coordinator as usize]
        );
        cluster.launch("coordinator-0", &format!("{}{section}", cluster.shared))?;
        cluster.serves("coordinator-0").await
    }

    /// The sections that all processes share.
    fn shared_config(
        &self,
        cluster: &Cluster,
        coordinators: &str,
        workers: &[SocketAddr],
    ) -> String {
        let store = &cluster.store;
        // No test changes the list of a cluster that lives.
        let fixed = if workers.is_empty() { "" } else { "workers_fixed = true" };
        let mut text = format!(
            "[cluster]\nname = \"tests\"\nsecret = \"{CLUSTER_SECRET}\"\n{coordinators}{fixed}\n\
             [[ufs]]\nname = \"store\"\nkind = \"s3\"\nendpoint = \"{}\"\n\
             credentials = {{ kind = \"static\", access_key_id = \"{}\", secret_access_key = \"{}\" }}\n{}\n\
             [[mount]]\nname = \"*\"\nufs = \"store\"\nattributes_ttl = \"{}\"\nabsence_ttl = \
                 \"1h\"\n{}\n",
            cluster.proxy.as_ref().map_or(store.endpoint.clone(), Proxy::endpoint),
            store.access_key,
            store.secret_key,
            self.settings[Section::Ufs as usize],
            self.attributes_ttl,
            self.settings[Section::Mount as usize]
        );
        for (index, address) in workers.iter().enumerate() {
            text.push_str(&format!(
                "[[cluster.workers]]\nid = \"worker-{index}\"\naddress = \"{address}\"\n\n"
            ));
        }
        text
    }
}

impl Cluster {
    fn worker_section(&self, name: &str, address: SocketAddr) -> String {
        // Tables of the test's own may follow.
        let (memory, tables) =
            self.worker_settings.split_once('\n').unwrap_or((self.worker_settings.as_str(), ""));
        format!(
            "[worker]\nid = \"{name}\"\nlisten = \"{address}\"\nadmin_listen = \"127.0.0.1:0\"\n{memory}\n\
             [worker.leases]\n{EAGER_LEASES}[worker.shm]\nsocket = \"{}\"\n{tables}",
            self.folder.path().join(format!("{name}.sock")).display(),
        )
    }

    fn launch(&mut self, name: &str, config: &str) -> anyhow::Result<()> {
        let path = self.folder.path().join(format!("{name}.toml"));
        fs::write(&path, config)?;
        let environment = if name == "store" { &[][..] } else { &self.environment[..] };
        let child = spawn(&path, name, self.folder.path(), environment)?;
        self.processes.push((name.to_owned(), child));
        Ok(())
    }
}

pub(crate) fn store_config(folder: &Path, listen: &str) -> anyhow::Result<String> {
    let data = folder.join("store");
    fs::create_dir_all(&data)?;
    Ok(format!(
        "[dev]\ndir = \"{}\"\ndemo = false\n\n[gateway]\nlisten = \"{listen}\"\nadmin_listen = \"127.0.0.1:0\"\n\
         identities = \"{}\"\nmemory = {{ capacity = \"32MiB\" }}\n\n[worker]\nmemory = {{ capacity = \"32MiB\" }}\n\n\
         [[ufs]]\nname = \"local\"\nkind = \"local\"\npath = \"{}\"\nsync = false\n\n\
         [[mount]]\nname = \"*\"\nufs = \"local\"\ncached = false\n",
        data.display(),
        folder.join("identities.toml").display(),
        data.join("objects").display()
    ))
}

/// Starts the role that `name` begins with.
fn spawn(
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
    let mut command = Command::new(binary()?);
    command
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
fn free_address() -> anyhow::Result<SocketAddr> {
    let [a, b, c] = rand::random::<[u8; 3]>();
    Ok(TcpListener::bind((Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254)), 0))?.local_addr()?)
}

pub(crate) fn client(endpoint: &str, access_key: &str, secret_key: &str) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .force_path_style(true)
        .credentials_provider(Credentials::new(access_key, secret_key, None, None, "tests"))
        .build();
    Client::from_conf(config)
}
