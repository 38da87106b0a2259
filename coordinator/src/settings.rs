//! The settings of the coordinator: where it listens, what it keeps where, and how long leases last.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_preload::CoordinatorPreloadSettings;
use verbs3_settings::{ByteSize, SettingsTable, TimePeriod};

use crate::hot_block_table::CoordinatorHotSettings;

/// The `[coordinator]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorSettings {
    /// Address that workers, gateways, other coordinators and `verbs3 status` connect to.
    #[setting(default = "0.0.0.0:9500")]
    pub listen: SocketAddr,
    /// Address of `/metrics`, `/healthz` and `/readyz`: unauthenticated, so keep it inside.
    #[setting(default = "127.0.0.1:9501")]
    pub admin_listen: SocketAddr,
    /// URL at which the others reach this coordinator; none means `http://HOSTNAME:PORT` with this
    /// host's name and the port of `listen`, or `https://…` with `cluster.tls`.
    #[setting(example = "http://coordinator-0:9500")]
    pub advertise: Option<String>,
    /// How long a worker may answer for attributes without being heard of. A worker that vanishes
    /// is out of the map after so long, and until then writes of its keys wait, or get 503 after
    /// `gateway.tier.announce_deadline`. At least three times `leadership`, so that no lease ends
    /// when a leader dies.
    #[setting(default = "6s", range = "1s"..="5m")]
    pub lease: TimePeriod,
    /// How long after their leases workers go on to take writes while no coordinator answers
    /// anybody; and so how long a map waits to replace one whose workers all vanished at once.
    #[setting(default = "10m", range = "0"..="1d")]
    pub outage: TimePeriod,
    /// How long joins and leaves are gathered into one change of the map.
    #[setting(default = "200ms", range = "0"..="1m")]
    pub gather: TimePeriod,
    /// How long it takes, about, until a worker that joins has its whole share of the slots, and
    /// until one that is drained has none. They move in four steps, the first at once: in a quarter
    /// of this time a worker gains or gives up a quarter of its share at most. At once move the
    /// slots of a worker that is lost, of one that is back at its address within this time, and of
    /// those that join within this time of a cluster's first map. `"0"`: all at once.
    #[setting(default = "15s", range = "0"..="1h")]
    pub move_for: TimePeriod,
    /// How long the leadership outlives a leader that vanishes.
    #[setting(default = "2s", range = "2s"..="5m")]
    pub leadership: TimePeriod,
    /// How far the clocks of a cluster may be apart in requests that change something.
    #[setting(default = "1m", range = "1s"..="1h")]
    pub clock_skew: TimePeriod,
    /// Workers that may be registered.
    #[setting(default = 4000, range = 1..=4000)]
    pub workers_max: u32,
    /// Connections to `listen`: each worker has one or two; each gateway two, and up to
    /// `gateway.tier.relays_max` more while it reaches some worker by way of the coordinators
    /// alone, and up to `gateway.limits.preloads_in_flight_max` for preload jobs of S3 clients.
    /// Over it workers can't renew their leases either.
    #[setting(default = 32_768, range = 16..=1_000_000)]
    pub connections_max: u32,
    /// Connections over which nothing has been proved yet. Beyond it, and where `connections_max`
    /// are open, the oldest of the busiest address gives way to a new one, if it is older than a
    /// second; else the new one is closed.
    #[setting(default = 1024, range = 16..=1_000_000)]
    pub unproven_connections_max: u32,
    /// The same of one address (of IPv6, of a network of 64 bits).
    #[setting(default = 256, range = 1..=1_000_000)]
    pub unproven_per_address_max: u32,
    /// From the beginning of a connection until a proof, or the token of notifications, has been
    /// shown over it.
    #[setting(default = "10s", range = "1s"..="5m")]
    pub proof_deadline: TimePeriod,
    /// File with the token that stores show in bucket notifications (`POST /v1/notifications`):
    /// `Authorization: Bearer TOKEN`, or `?token=TOKEN`; white space at its end is ignored. None:
    /// notifications need the cluster's proof.
    #[setting(example = "/etc/verbs3/notification.token")]
    pub notification_token_file: Option<PathBuf>,
    /// Longest time that a request may wait for news.
    #[setting(default = "30s", range = "1s"..="10m")]
    pub wait_max: TimePeriod,
    /// Announcements and reports of writes that wait at once for workers which their gateways can't
    /// reach, and fetch them here; `0` relays none.
    #[setting(default = 4096, range = 0..=1_000_000)]
    pub relays_max: u32,
    /// Memory for them; one has up to some 1 MiB, of a batch delete.
    #[setting(default = "16MiB", range = "2MiB"..="1GiB")]
    pub relays_memory: ByteSize,
    /// Where the membership and preload jobs are kept.
    #[setting(table)]
    pub store: CoordinatorStoreSettings,
    /// Jobs that load objects before they are read. Where there are none, `[[ufs]]` and `[[mount]]`
    /// are not needed.
    #[setting(table)]
    pub preload: CoordinatorPreloadSettings,
    /// Pages for people, at `/console` of `listen`. Off without `users`.
    #[setting(table)]
    pub console: CoordinatorConsoleSettings,
    /// Blocks that are read more than one worker should serve.
    #[setting(table)]
    pub hot: CoordinatorHotSettings,
}

/// The `[coordinator.console]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorConsoleSettings {
    /// File of those who may sign in, `[[user]]` each; `verbs3 console-user NAME` makes an entry.
    /// Read again within seconds of a change.
    #[setting(example = "/etc/verbs3/console-users.toml")]
    pub users: Option<PathBuf>,
    /// Take plain connections from other hosts, too: passwords can be read on the network then.
    #[setting(default = false)]
    pub plain: bool,
    /// Sessions at once; the one that was used longest ago gives way.
    #[setting(default = 64, range = 1..=10_000)]
    pub sessions_max: u32,
    /// Time after which a session ends that nobody uses.
    #[setting(default = "30m", range = "1m"..="1d")]
    pub session_idle: TimePeriod,
    /// Time after which a session ends in any case.
    #[setting(default = "12h", range = "5m"..="7d")]
    pub session_age: TimePeriod,
    /// Time between two reports of each gateway and worker, for the pages' figures. Who misses three
    /// of them, and 15 seconds, is called silent.
    #[setting(default = "10s", range = "1s"..="30s")]
    pub report_every: TimePeriod,
}

/// The `[coordinator.store]` table.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorStoreSettings {
    /// `"folder"`: on this host, for a single coordinator. `"etcd"`: for several, of which one
    /// leads.
    #[setting(default = "folder")]
    pub kind: CoordinatorStoreKind,
    /// Folder of a folder store, made if absent.
    #[setting(default = "/var/lib/verbs3/coordinator")]
    pub path: PathBuf,
    /// URLs of an etcd cluster's members, such as `"http://etcd-0:2379"`.
    pub endpoints: Vec<String>,
    /// What every key in etcd begins with; each cluster needs its own.
    #[setting(default = "/verbs3")]
    pub prefix: String,
    /// PEM file of the certificates to trust, for `https` endpoints.
    #[setting(example = "/etc/verbs3/store-ca.pem")]
    pub ca_file: Option<PathBuf>,
    /// PEM file of this coordinator's certificate, for etcd that asks for one.
    #[setting(example = "/etc/verbs3/tls.crt")]
    pub certificate: Option<PathBuf>,
    /// PEM file of its key.
    #[setting(example = "/etc/verbs3/tls.key")]
    pub key: Option<PathBuf>,
    /// User of etcd.
    #[setting(example = "verbs3")]
    pub user: Option<String>,
    /// File that holds the user's password; white space at its end is ignored.
    #[setting(example = "/etc/verbs3/etcd.secret")]
    pub password_file: Option<PathBuf>,
    /// For one request to etcd.
    #[setting(default = "2s", range = "100ms"..="1m")]
    pub deadline: TimePeriod,
}

/// What keeps the membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinatorStoreKind {
    Folder,
    Etcd,
}
