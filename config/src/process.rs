//! What every process has: threads, memory, logs, an end.

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, TimePeriod};

/// The `[process]` section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessSettings {
    /// Threads that run requests; `0` means one per CPU that the process may use. Default: `0`.
    /// Range: `0` to `1024`.
    pub threads: u16,
    /// How long requests under way may take to end after SIGTERM, before they are cut. Default:
    /// `"30s"`. Range: `"0"` to `"1h"`.
    pub drain_for: TimePeriod,
    /// Connections to the address of `/metrics`, `/healthz` and `/readyz`; each is for one
    /// question. Beyond it the oldest of the busiest address gives way, so that nobody keeps probes
    /// out. Default: `64`. Range: `4` to `65536`.
    pub admin_connections_max: u32,
    /// The same of one address, whose own oldest gives way. Default: `16`. Range: `1` to `65536`.
    pub admin_per_address_max: u32,
    /// For such a connection, from its beginning to its answer's end. Default: `"10s"`. Range:
    /// `"1s"` to `"5m"`.
    pub admin_deadline: TimePeriod,
}

/// A `memory` table: an arena, mapped once at start.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySettings {
    /// Bytes to map. Default: `"1GiB"`. Range: `"16MiB"` to `"16TiB"`.
    pub capacity: ByteSize,
    /// Touch all of it at start: a lack of memory then shows at once, not under load. Default:
    /// `false`.
    pub populate: bool,
}

/// The `[log]` section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// What to log: `error`, `warn`, `info`, `debug`, `trace`, or filters such as
    /// `"info,verbs3_gateway=debug"`. `RUST_LOG` overrides it. Default: `"info"`.
    pub level: String,
    /// `"text"`, `"json"`, or `"auto"`: text on a terminal, else json. Default: `"auto"`.
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

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            threads: 0,
            drain_for: TimePeriod::from_seconds(30),
            admin_connections_max: 64,
            admin_per_address_max: 16,
            admin_deadline: TimePeriod::from_seconds(10),
        }
    }
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self { capacity: ByteSize::from_mib(1024), populate: false }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto }
    }
}
