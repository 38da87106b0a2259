//! Checks of `[telemetry]`.

use verbs3_settings::CheckFindings;
use verbs3_telemetry::{TelemetryOtlpSettings, TelemetrySettings};

pub(super) fn check_telemetry(telemetry: &TelemetrySettings, findings: &mut CheckFindings) {
    let TelemetrySettings { otlp } = telemetry;
    let TelemetryOtlpSettings { endpoint, headers, .. } = otlp;
    let at = |name: &str| format!("telemetry.otlp.{name}");
    if let Some(Err(message)) = endpoint.as_deref().map(check_endpoint) {
        findings.add_error(at("endpoint"), message);
    }
    for (index, header) in headers.iter().enumerate() {
        let name =
            header.reveal_text().split_once(':').map(|(name, _)| name.trim()).unwrap_or_default();
        if name.is_empty()
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        {
            findings.add_error(format!("{}[{index}]", at("headers")), "is not \"name: value\"");
        }
    }
}

/// A URL that may have a path, as receivers behind a gateway have.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    // First of all: the messages below show the URL.
    if endpoint.contains('@') {
        return Err("has a user in it; credentials belong into headers".to_owned());
    }
    let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Err(format!(
            "{endpoint:?} is not a URL; write http://host:4318 or https://host:4318"
        ));
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty()
        || host.starts_with(':')
        || rest.contains(['?', '#'])
        || rest.contains(char::is_whitespace)
    {
        return Err(format!(
            "{endpoint:?} is not a receiver's URL; it has a host, perhaps a port and a path, and \
            no query"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs3_settings::ConfigSecret;
    use verbs3_settings::SettingsTable as _;

    fn problems(otlp: TelemetryOtlpSettings) -> Vec<String> {
        let mut findings = CheckFindings::default();
        let telemetry = TelemetrySettings { otlp };
        telemetry.check_ranges("telemetry", &mut findings);
        check_telemetry(&telemetry, &mut findings);
        findings.problems.iter().map(|problem| problem.path.clone()).collect()
    }

    #[test]
    fn receivers_are_urls_and_headers_have_names() {
        assert!(problems(TelemetryOtlpSettings::default()).is_empty());
        for good in ["http://127.0.0.1:4318", "https://otel.example/ingest/"] {
            assert!(
                problems(TelemetryOtlpSettings {
                    endpoint: Some(good.to_owned()),
                    ..Default::default()
                })
                .is_empty(),
                "{good}"
            );
        }
        for bad in [
            "",
            "localhost:4318",
            "http://",
            "http://:4318",
            "https://user:pass@host",
            "http://h/?q=1",
        ] {
            let found = problems(TelemetryOtlpSettings {
                endpoint: Some(bad.to_owned()),
                ..Default::default()
            });
            assert_eq!(found, ["telemetry.otlp.endpoint"], "{bad}");
        }
        let headers =
            vec![ConfigSecret::new("authorization: Bearer x"), ConfigSecret::new("no name")];
        assert_eq!(
            problems(TelemetryOtlpSettings { headers, ..Default::default() }),
            ["telemetry.otlp.headers[1]"]
        );
        let (sample_ratio, queue_max) = (1.5, 0);
        let found =
            problems(TelemetryOtlpSettings { sample_ratio, queue_max, ..Default::default() });
        assert_eq!(found, ["telemetry.otlp.sample_ratio", "telemetry.otlp.queue_max"]);
    }
}
