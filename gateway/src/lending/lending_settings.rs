//! The settings of lent memory: where its socket is, who may connect, and what clients may hold.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_lending::{LendingSocketOptions, SocketAccess};
use verbs3_settings::{ByteSize, SettingsTable};

/// The `[gateway.lending]` table. Beyond a bound a client is refused, and goes over HTTP.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayLendingSettings {
    /// Unix socket over which processes of this host lend memory; none: nobody does. Its folder has
    /// to be there. Clients sign this path, so it is the same for all of them.
    #[setting(example = "/run/verbs3/gateway.sock")]
    pub socket: Option<PathBuf>,
    /// Who may connect to it: `"owner"`, `"group"` or `"everyone"`. Nobody reads or writes without a
    /// key of the identities file.
    #[setting(default = "group")]
    pub access: LendingAccess,
    /// User that owns the socket, by number; none: the gateway's own.
    #[setting(example = 1000)]
    pub owner: Option<u32>,
    /// Group that owns it, by number; none: the gateway's own.
    #[setting(example = 1000)]
    pub group: Option<u32>,
    /// Processes that lend memory at once, shared by tenants. One whose session is over counts while it
    /// keeps pages of a worker.
    #[setting(default = 256, range = 1..=65_536)]
    pub clients_max: u32,
    /// Connections over which no signature has held yet, half of them of one user. Beyond it the
    /// oldest of the busiest user gives way.
    #[setting(default = 64, range = 2..=65_536)]
    pub unproven_max: u32,
    /// Memory that one process may lend. It is the process's own; the gateway maps it.
    #[setting(default = "1GiB", range = "1MiB"..="1TiB")]
    pub memory_max: ByteSize,
    /// The same over all processes, shared by tenants. Not less than `memory_max`.
    #[setting(default = "16GiB", range = "1MiB"..="64TiB")]
    pub memory_total: ByteSize,
    /// Threads that map their memory at once, shared by tenants; more wait for
    /// `gateway.timeouts.turn_wait`. A process can keep one until it ends.
    #[setting(default = 12, range = 1..=256)]
    pub mappings_max: u32,
    /// Whether bytes that a worker sends over tcp or verbs are received straight into lent memory.
    /// Devices then register it: it is pinned, and counts against the gateway's locked memory.
    #[setting(default = true)]
    pub direct: bool,
    /// Bytes of this host's workers that clients may keep and read where they lie, shared by tenants;
    /// beyond it bytes are copied. `"0B"`: none are. Else a client maps the memory of those workers,
    /// and **whoever may read anything here can read everything that they hold**: only where all
    /// identities trust each other.
    #[setting(default = "0B", range = "0B"..="1TiB", example = "256MiB")]
    pub pages_total: ByteSize,
    /// Reads and writes of one process under way; more wait in its own ring.
    #[setting(default = 256, range = 1..=4096)]
    pub reads_in_flight_max: u32,
}

/// Who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LendingAccess {
    Owner,
    Group,
    Everyone,
}

impl GatewayLendingSettings {
    /// Returns what the socket is made of. `None`: there is none.
    pub fn socket_options(&self) -> Option<LendingSocketOptions> {
        let access = match self.access {
            LendingAccess::Owner => SocketAccess::Owner,
            LendingAccess::Group => SocketAccess::Group,
            LendingAccess::Everyone => SocketAccess::Everyone,
        };
        let path = self.socket.clone()?;
        Some(LendingSocketOptions { path, access, owner: self.owner, group: self.group })
    }
}
