//! Says what a cluster is to be like, and starts it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cluster::{
    ACCESS_KEY, CLUSTER_SECRET, Cluster, Gateway, SECRET_KEY, StoreAccess, free_address, s3_client,
};
use crate::configuration::{
    ANY_PORT, MOUNT_OF_ALL, coordinator_section, gateway_section, owner_identity, store_section,
};
use crate::failure;
use crate::process;
use crate::proxy::Proxy;
use crate::relay::Relay;
use crate::trust::{self, TestIssuer};

/// [`Section::Gateway`] of tests that count what is asked of whom: nobody is asked twice, and nothing
/// goes around the tier, because a slow machine takes its time.
pub const PATIENT_TIER: &str =
    "[gateway.tier]\nhedge_after = \"59s\"\nfirst_progress = \"60s\"\nidle = \"60s\"\n";

/// What to start.
pub struct ClusterBuilder {
    gateways: usize,
    workers: usize,
    attributes_ttl: &'static str,
    worker_memory: &'static str,
    faulty_store: bool,
    relayed_workers: bool,
    coordinated: bool,
    certified: bool,
    lease: &'static str,
    move_for: &'static str,
    /// More of the identities file.
    identities: String,
    settings: [String; 5],
    environment: Vec<(String, String)>,
    program: Option<PathBuf>,
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

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            gateways: 1,
            workers: 1,
            attributes_ttl: "1h",
            worker_memory: "96MiB",
            faulty_store: false,
            relayed_workers: false,
            coordinated: false,
            certified: false,
            lease: "1s",
            move_for: "0",
            identities: String::new(),
            settings: Default::default(),
            environment: Vec::new(),
            program: None,
        }
    }
}

impl ClusterBuilder {
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

    /// Coordinated, and every process has a node certificate, and the secret in a file:
    /// [`Cluster::trust_files`].
    pub fn certified(mut self) -> Self {
        self.certified = true;
        self.coordinated()
    }

    /// An identity besides the tests' own, which may read and write, and the tenant that it belongs
    /// to. Its secret is the tests' own.
    pub fn identity(mut self, access_key: &str, tenant: &str) -> Self {
        self.identities += &format!(
            "[[identity]]\naccess_key = \"{access_key}\"\nsecret_key = \"{SECRET_KEY}\"\n\
             tenant = \"{tenant}\"\nallow = [{{ mount = \"*\", rights = [\"read\", \"write\"] }}]\n"
        );
        self
    }

    /// Other leases of a cluster that is [`ClusterBuilder::coordinated`].
    pub fn lease(mut self, lease: &'static str) -> Self {
        self.lease = lease;
        self
    }

    /// How long slots move of who joins or is drained, in a cluster that is
    /// [`ClusterBuilder::coordinated`]; else all move at once.
    pub fn move_for(mut self, move_for: &'static str) -> Self {
        self.move_for = move_for;
        self
    }

    /// Another binary than the one of this build.
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }

    pub async fn start(self) -> anyhow::Result<Cluster> {
        failure::remember_reasons();
        let folder = tempfile::Builder::new().prefix("verbs3-cluster-").tempdir()?;
        fs::write(
            folder.path().join("identities.toml"),
            owner_identity(ACCESS_KEY, SECRET_KEY) + &self.identities,
        )?;
        let store = match std::env::var("S3_ENDPOINT") {
            Ok(endpoint) => StoreAccess {
                endpoint,
                access_key: std::env::var("S3_ACCESS_KEY")
                    .context("S3_ENDPOINT wants S3_ACCESS_KEY too")?,
                secret_key: std::env::var("S3_SECRET_KEY")
                    .context("S3_ENDPOINT wants S3_SECRET_KEY too")?,
            },
            Err(_) => StoreAccess {
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
            issuer: self.certified.then(TestIssuer::new),
            environment: self.environment.clone(),
            program: match self.program.clone() {
                Some(program) => program,
                None => process::built_binary()?,
            },
            shared: String::new(),
            worker_memory: self.worker_memory,
            worker_settings: self.settings[Section::Worker as usize].clone(),
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
            let section = gateway_section(&address.to_string(), ANY_PORT, &identities);
            let settings = &self.settings[Section::Gateway as usize];
            cluster.launch(&name, &format!("{shared}{section}{settings}"))?;
            cluster.serves(&name).await?;
            let endpoint = format!("http://{address}");
            cluster
                .gateways
                .push(Gateway { client: s3_client(&endpoint, ACCESS_KEY, SECRET_KEY), endpoint });
            if self.coordinated {
                process::is_ready(cluster.folder.path(), &name).await?;
            }
        }
        Ok(cluster)
    }

    async fn start_coordinator(&self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let address = free_address()?;
        let scheme = if self.certified { "https" } else { "http" };
        let coordinators = format!("coordinators = [\"{scheme}://{address}\"]\n");
        cluster.shared = self.shared_config(cluster, &coordinators, &[]);
        if self.certified {
            cluster.write_config(trust::OPERATOR, &cluster.shared)?;
        }
        let folder = cluster.coordinator_store();
        let section = format!(
            "{}lease = \"{}\"\nleadership = \"2s\"\nmove_for = \"{}\"\n{}",
            coordinator_section(&address.to_string(), ANY_PORT, &folder),
            self.lease,
            self.move_for,
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
        let trust = match self.certified {
            true => trust::trust_settings(cluster.folder.path()),
            false => format!("secret = \"{CLUSTER_SECRET}\"\n"),
        };
        let endpoint = cluster.proxy.as_ref().map_or(store.endpoint.clone(), Proxy::endpoint);
        let mut text = format!(
            "[cluster]\nname = \"tests\"\n{trust}{coordinators}{fixed}\n{}{}\n\
             {MOUNT_OF_ALL}attributes_ttl = \"{}\"\nabsence_ttl = \"1h\"\n{}\n",
            store_section(&endpoint, &store.access_key, &store.secret_key),
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
