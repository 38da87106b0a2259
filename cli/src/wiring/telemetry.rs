//! The export of traces of a process, where it is configured.

use prometheus::Registry;
use verbs3_config::{OtlpProtocol, TelemetryOtlpSettings, TelemetrySettings};
use verbs3_telemetry::{TelemetryError, TelemetryOptions};

/// Begins to export; `None` where no receiver is configured. `service` and `instance`: who this
/// process is.
pub fn start_telemetry(
    telemetry: &TelemetrySettings,
    service: &str,
    instance: &str,
    registry: &Registry,
) -> Result<Option<verbs3_telemetry::TelemetryHandle>, TelemetryError> {
    let TelemetrySettings { otlp } = telemetry;
    let TelemetryOtlpSettings {
        endpoint,
        protocol: OtlpProtocol::HttpProtobuf,
        ca_file,
        headers,
        sample_ratio,
        interval,
        timeout,
        queue_max,
        batch_max,
        spans_max,
        flush_max,
    } = otlp;
    let Some(endpoint) = endpoint else { return Ok(None) };
    let options = TelemetryOptions {
        endpoint: endpoint.clone(),
        headers: headers.iter().map(|header| header.reveal_text().to_owned()).collect(),
        ca_file: ca_file.clone(),
        service: service.to_owned(),
        instance: instance.to_owned(),
        sample_ratio: *sample_ratio,
        interval: interval.0,
        timeout: timeout.0,
        queue_max: *queue_max as usize,
        batch_max: *batch_max as usize,
        spans_max: *spans_max as usize,
        flush_max: flush_max.0,
    };
    verbs3_telemetry::TelemetryHandle::start(options, registry).map(Some)
}

/// What is left is sent, for a bounded time.
pub async fn shutdown_telemetry(telemetry: Option<verbs3_telemetry::TelemetryHandle>) {
    if let Some(telemetry) = telemetry {
        telemetry.shutdown().await;
    }
}
