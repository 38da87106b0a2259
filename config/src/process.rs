//! What every process has: threads, logs, an end.

use serde::{Deserialize, Serialize};
use verbs3_settings::{SettingsTable, TimePeriod};

/// The `[process]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessSettings {
    /// Threads that run requests; `0` means one per CPU that the process may use. Workers and
    /// `verbs3 dev` have as many again that serve connections.
    #[setting(default = 0, range = 0..=1024)]
    pub threads: u16,
    /// How long requests under way may take to end after SIGTERM, before they are cut.
    #[setting(default = "30s", range = "0"..="1h")]
    pub drain_for: TimePeriod,
    /// Connections to the address of `/metrics`, `/healthz` and `/readyz`; each is for one
    /// question. Beyond it the oldest of the busiest address gives way, so that nobody keeps probes
    /// out.
    #[setting(default = 64, range = 4..=65_536)]
    pub admin_connections_max: u32,
    /// The same of one address, whose own oldest gives way.
    #[setting(default = 16, range = 1..=65_536)]
    pub admin_per_address_max: u32,
    /// For such a connection, from its beginning to its answer's end.
    #[setting(default = "10s", range = "1s"..="5m")]
    pub admin_deadline: TimePeriod,
}

/// The `[log]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// What to log: `error`, `warn`, `info`, `debug`, `trace`, or filters such as
    /// `"info,verbs3_gateway=debug"`. `RUST_LOG` overrides it.
    #[setting(default = "info")]
    pub level: String,
    /// `"text"`, `"json"`, or `"auto"`: text on a terminal, else json.
    #[setting(default = "auto")]
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Auto,
    Text,
    Json,
}
