//! Checks of `[webhook]`.

use std::ffi::OsStr;
use std::path::{Component, Path};

use super::certificates::check_pair;
use crate::process_role::ProcessRole;
use verbs3_kubernetes::{WebhookSettings, WebhookTlsSettings};
use verbs3_settings::CheckFindings;

pub(super) fn check_webhook(
    webhook: &WebhookSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let WebhookSettings {
        listen,
        admin_listen,
        endpoint,
        region,
        credentials_secret,
        lending_socket,
        connections_max,
        connections_per_address_max,
        deadline,
        body_deadline,
        tls,
        ..
    } = webhook;
    if listen == admin_listen && listen.port() != 0 {
        findings.add_error(
            "webhook.admin_listen",
            format!("{admin_listen} is webhook.listen too; choose another port"),
        );
    }
    let has_scheme = ["http://", "https://"]
        .iter()
        .any(|scheme| endpoint.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    if !has_scheme || endpoint.contains(char::is_whitespace) {
        findings.add_error(
            "webhook.endpoint",
            format!("{endpoint:?} is no URL; write http://$(VERBS3_NODE_IP):9000"),
        );
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if !region.chars().all(is_plain) {
        findings.add_error("webhook.region", format!("{region:?} is no name of a region"));
    }
    // RFC 1123, which the API server asks of a Secret's name.
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 253
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
    };
    if let Some(secret) = credentials_secret.as_deref().filter(|name| !is_name(name)) {
        findings
            .add_error("webhook.credentials_secret", format!("{secret:?} is no name of a Secret"));
    }
    // The folder is mounted into pods, whole: none of the host's own, such as /run, nor the workers'.
    let is_apart = |socket: &Path| {
        let mut parts = socket.components();
        let folder = socket.parent().and_then(Path::file_name).and_then(OsStr::to_str);
        socket.is_absolute()
            && socket.to_str().is_some()
            && parts.all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
            && folder.is_some_and(|folder| folder.starts_with("verbs3-"))
    };
    if lending_socket.as_deref().is_some_and(|socket| !is_apart(socket)) {
        findings.add_error(
            "webhook.lending_socket",
            "has to be an absolute path in a folder of its own, named verbs3-…, such as \
            /run/verbs3-lending/gateway.sock: pods see all of that folder",
        );
    }
    if connections_per_address_max > connections_max {
        findings.add_error(
            "webhook.connections_per_address_max",
            format!("is more than webhook.connections_max ({connections_max})"),
        );
    }
    if body_deadline.0 > deadline.0 {
        findings.add_error(
            "webhook.body_deadline",
            format!("{body_deadline} is longer than webhook.deadline ({deadline})"),
        );
    }
    if roles.contains(&ProcessRole::Webhook) {
        check_tls(tls, findings);
    }
}

fn check_tls(tls: &WebhookTlsSettings, findings: &mut CheckFindings) {
    let WebhookTlsSettings { certificate, key } = tls;
    for (name, file) in [("certificate", certificate), ("key", key)] {
        if file.is_none() {
            let path = format!("webhook.tls.{name}");
            findings.add_error(path, "is missing; API servers speak HTTPS alone");
        }
    }
    if let (Some(certificate), Some(key)) = (certificate, key) {
        let before = findings.problems.len();
        findings.check_readable("webhook.tls.certificate", certificate);
        findings.check_readable("webhook.tls.key", key);
        if findings.problems.len() == before {
            check_pair("webhook.tls.certificate", certificate, key, findings);
        }
    }
}
