//! What is told to an OpenTelemetry receiver.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::quantity::TimePeriod;
use crate::secret::ConfigSecret;

/// The `[telemetry]` section.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetrySettings {
    /// Traces by OTLP.
    pub otlp: TelemetryOtlpSettings,
}

/// The `[telemetry.otlp]` table. Without an endpoint nothing is exported, and nothing traced.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryOtlpSettings {
    /// URL of a receiver; `/v1/traces` is appended. Default: none.
    pub endpoint: Option<String>,
    /// How it is spoken to; there is `"http/protobuf"` alone. Default: `"http/protobuf"`.
    pub protocol: OtlpProtocol,
    /// Certificates in PEM that an https receiver's has to come from; none means the system's.
    /// Default: none.
    pub ca_file: Option<PathBuf>,
    /// Sent with each message, `"name: value"` each, and shown nowhere. Default: `[]`.
    pub headers: Vec<ConfigSecret>,
    /// Part of the requests that are traced where their client does not say (`traceparent`).
    /// Default: `0.01`. Range: `0.0` to `1.0`.
    pub sample_ratio: f64,
    /// Between two messages. Default: `"10s"`. Range: `"100ms"` to `"1h"`.
    pub interval: TimePeriod,
    /// For the receiver's answer to one message. Default: `"10s"`. Range: `"100ms"` to `"5m"`.
    pub timeout: TimePeriod,
    /// Traced requests that wait for their export; beyond it their spans are dropped and counted.
    /// Default: `2048`. Range: `1` to `1000000`.
    pub queue_max: u32,
    /// Requests in one message; a full one is sent before the interval is over. Default: `256`.
    /// Range: `1` to `100000`.
    pub batch_max: u32,
    /// Spans of one request besides its own. Default: `32`. Range: `0` to `1000`.
    pub spans_max: u32,
    /// For what is left when the process ends. Default: `"5s"`. Range: `"0"` to `"5m"`.
    pub flush_max: TimePeriod,
}

/// How a receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OtlpProtocol {
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

impl Default for TelemetryOtlpSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: OtlpProtocol::HttpProtobuf,
            ca_file: None,
            headers: Vec::new(),
            sample_ratio: 0.01,
            interval: TimePeriod::from_seconds(10),
            timeout: TimePeriod::from_seconds(10),
            queue_max: 2048,
            batch_max: 256,
            spans_max: 32,
            flush_max: TimePeriod::from_seconds(5),
        }
    }
}
