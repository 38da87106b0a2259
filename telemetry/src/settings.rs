//! The settings of what is told to an OpenTelemetry receiver.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verbs3_settings::{ConfigSecret, SettingsTable, TimePeriod};

/// The `[telemetry]` section.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetrySettings {
    /// Traces by OTLP.
    #[setting(table)]
    pub otlp: TelemetryOtlpSettings,
}

/// The `[telemetry.otlp]` table. Without an endpoint nothing is exported, and nothing traced.
#[derive(Debug, Clone, Serialize, Deserialize, SettingsTable)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryOtlpSettings {
    /// URL of a receiver; `/v1/traces` is appended.
    #[setting(example = "http://127.0.0.1:4318")]
    pub endpoint: Option<String>,
    /// How it is spoken to; there is `"http/protobuf"` alone.
    #[setting(default = "http/protobuf")]
    pub protocol: OtlpProtocol,
    /// Certificates in PEM that an https receiver's has to come from; none means the system's.
    #[setting(example = "/etc/verbs3/store-ca.pem")]
    pub ca_file: Option<PathBuf>,
    /// Sent with each message, `"name: value"` each, and shown nowhere.
    pub headers: Vec<ConfigSecret>,
    /// Part of the requests that are traced where their client does not say (`traceparent`).
    #[setting(default = 0.01, range = 0.0..=1.0)]
    pub sample_ratio: f64,
    /// Between two messages.
    #[setting(default = "10s", range = "100ms"..="1h")]
    pub interval: TimePeriod,
    /// For the receiver's answer to one message.
    #[setting(default = "10s", range = "100ms"..="5m")]
    pub timeout: TimePeriod,
    /// Traced requests that wait for their export; beyond it their spans are dropped and counted.
    #[setting(default = 2048, range = 1..=1_000_000)]
    pub queue_max: u32,
    /// Requests in one message; a full one is sent before the interval is over.
    #[setting(default = 256, range = 1..=100_000)]
    pub batch_max: u32,
    /// Spans of one request besides its own.
    #[setting(default = 32, range = 0..=1000)]
    pub spans_max: u32,
    /// For what is left when the process ends.
    #[setting(default = "5s", range = "0"..="5m")]
    pub flush_max: TimePeriod,
}

/// How a receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OtlpProtocol {
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}
