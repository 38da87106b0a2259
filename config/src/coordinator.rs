//! The coordinator: where it listens, what it keeps where, and how long leases last.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::hot::CoordinatorHotSettings;
use crate::preload::CoordinatorPreloadSettings;
use crate::quantity::{ByteSize, TimePeriod};

/// The `[coordinator]` section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorSettings {
    /// Address that workers, gateways, other coordinators and `verbs3 status` connect to. Default:
    /// `"0.0.0.0:9500"`.
    pub listen: SocketAddr,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    /// Default: `"127.0.0.1:9501"`.
    pub admin_listen: SocketAddr,
    /// URL at which the others reach this coordinator; none means `http://HOSTNAME:PORT` with this
    /// host's name and the port of `listen`. Default: none.
    pub advertise: Option<String>,
    /// How long a worker may answer for attributes without being heard of. A worker that vanishes
    /// is out of the map after so long, and until then writes of its keys wait, or get 503 after
    /// `gateway.tier.announce_deadline`. At least three times `leadership`, so that no lease ends
    /// when a leader dies. Default: `"6s"`. Range: `"1s"` to `"5m"`.
    pub lease: TimePeriod,
    /// How long after their leases workers go on to take writes while no coordinator answers
    /// anybody; and so how long a map waits to replace one whose workers all vanished at once.
    /// Default: `"10m"`. Range: `"0"` to `"1d"`.
    pub outage: TimePeriod,
    /// How long joins and leaves are gathered into one change of the map. Default: `"200ms"`.
    /// Range: `"0"` to `"1m"`.
    pub gather: TimePeriod,
    /// How long it takes, about, until a worker that joins has its whole share of the slots, and
    /// until one that is drained has none. They move in four steps, the first at once: in a quarter
    /// of this time a worker gains or gives up a quarter of its share at most. At once move the
    /// slots of a worker that is lost, of one that is back at its address within this time, and of
    /// those that join within this time of a cluster's first map. `"0"`: all at once. Default:
    /// `"15s"`. Range: `"0"` to `"1h"`.
    pub move_for: TimePeriod,
    /// How long the leadership outlives a leader that vanishes. Default: `"2s"`. Range: `"2s"` to
    /// `"5m"`.
    pub leadership: TimePeriod,
    /// How far the clocks of a cluster may be apart in requests that change something. Default:
    /// `"1m"`. Range: `"1s"` to `"1h"`.
    pub clock_skew: TimePeriod,
    /// Workers that may be registered. Default: `4000`. Range: `1` to `4000`.
    pub workers_max: u32,
    /// Connections to `listen`: each worker has one or two; each gateway two, and up to
    /// `gateway.tier.relays_max` more while it reaches some worker by way of the coordinators
    /// alone. Over it workers can't renew their leases either. Default: `32768`. Range: `16` to
    /// `1000000`.
    pub connections_max: u32,
    /// Connections over which nothing has been proved yet. Beyond it, and where `connections_max`
    /// are open, the oldest of the busiest address gives way to a new one, if it is older than a
    /// second; else the new one is closed. Default: `1024`. Range: `16` to `1000000`.
    pub unproven_connections_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits). Default: `256`. Range: `1` to
    /// `1000000`.
    pub unproven_per_address_max: u32,
    /// From the beginning of a connection until a proof, or the token of notifications, has been
    /// shown over it. Default: `"10s"`. Range: `"1s"` to `"5m"`.
    pub proof_deadline: TimePeriod,
    /// File with the token that stores show in bucket notifications (`POST /v1/notifications`):
    /// `Authorization: Bearer TOKEN`, or `?token=TOKEN`; white space at its end is ignored. None:
    /// notifications need the cluster's proof. Default: none.
    pub notification_token_file: Option<PathBuf>,
    /// Longest time that a request may wait for news. Default: `"30s"`. Range: `"1s"` to `"10m"`.
    pub wait_max: TimePeriod,
    /// Announcements and reports of writes that wait at once for workers which their gateways can't
    /// reach, and fetch them here; `0` relays none. Default: `4096`. Range: `0` to `1000000`.
    pub relays_max: u32,
    /// Memory for them; one has up to some 1 MiB, of a batch delete. Default: `"16MiB"`. Range:
    /// `"2MiB"` to `"1GiB"`.
    pub relays_memory: ByteSize,
    /// Where the membership and preload jobs are kept.
    pub store: CoordinatorStoreSettings,
    /// Jobs that load objects before they are read. Where there are none, `[[ufs]]` and `[[mount]]`
    /// are not needed.
    pub preload: CoordinatorPreloadSettings,
    /// Blocks that are read more than one worker should serve.
    pub hot: CoordinatorHotSettings,
}

/// The `[coordinator.store]` table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorStoreSettings {
    /// `"folder"`: on this host, for a single coordinator. `"etcd"`: for several, of which one
    /// leads. Default: `"folder"`.
    pub kind: CoordinatorStoreKind,
    /// Folder of a folder store, made if absent. Default: `"/var/lib/verbs3/coordinator"`.
    pub path: PathBuf,
    /// URLs of an etcd cluster's members, such as `"http://etcd-0:2379"`. Default: `[]`.
    pub endpoints: Vec<String>,
    /// What every key in etcd begins with; each cluster needs its own. Default: `"/verbs3"`.
    pub prefix: String,
    /// PEM file of the certificates to trust, for `https` endpoints. Default: none.
    pub ca_file: Option<PathBuf>,
    /// PEM file of this coordinator's certificate, for etcd that asks for one. Default: none.
    pub certificate: Option<PathBuf>,
    /// PEM file of its key. Default: none.
    pub key: Option<PathBuf>,
    /// User of etcd. Default: none.
    pub user: Option<String>,
    /// File that holds the user's password; white space at its end is ignored. Default: none.
    pub password_file: Option<PathBuf>,
    /// For one request to etcd. Default: `"2s"`. Range: `"100ms"` to `"1m"`.
    pub deadline: TimePeriod,
}

/// What keeps the membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinatorStoreKind {
    Folder,
    Etcd,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 9500)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9501)),
            advertise: None,
            lease: TimePeriod::from_seconds(6),
            outage: TimePeriod::from_seconds(600),
            gather: TimePeriod::from_millis(200),
            move_for: TimePeriod::from_seconds(15),
            leadership: TimePeriod::from_seconds(2),
            clock_skew: TimePeriod::from_seconds(60),
            workers_max: 4000,
            connections_max: 32768,
            unproven_connections_max: 1024,
            unproven_per_address_max: 256,
            proof_deadline: TimePeriod::from_seconds(10),
            notification_token_file: None,
            wait_max: TimePeriod::from_seconds(30),
            relays_max: 4096,
            relays_memory: ByteSize::from_mib(16),
            store: CoordinatorStoreSettings::default(),
            preload: CoordinatorPreloadSettings::default(),
            hot: CoordinatorHotSettings::default(),
        }
    }
}

impl Default for CoordinatorStoreSettings {
    fn default() -> Self {
        Self {
            kind: CoordinatorStoreKind::Folder,
            path: PathBuf::from("/var/lib/verbs3/coordinator"),
            endpoints: Vec::new(),
            prefix: "/verbs3".to_owned(),
            ca_file: None,
            certificate: None,
            key: None,
            user: None,
            password_file: None,
            deadline: TimePeriod::from_seconds(2),
        }
    }
}
