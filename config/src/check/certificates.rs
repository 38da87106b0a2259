//! Whether the certificates that a process is given can be used by it, and for how long.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use verbs3_certificates::{CertificateFiles, NodeCertificates, NodeRole, TlsFiles};
use verbs3_gateway::GatewayTlsSettings;
use verbs3_settings::CheckFindings;

use crate::cluster_tls::ClusterTlsFiles;
use crate::process_role::ProcessRole;
use crate::root::RootSettings;

/// Time before a certificate's end from which it is a warning, in seconds. The alerts begin then.
const ENDS_SOON: i64 = 14 * 86_400;

/// Checks the certificate by which a process of these roles proves itself within the cluster.
pub(super) fn check_node_certificate(
    config: &RootSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let Some(files) = config.cluster.tls.tls_files() else { return };
    let ClusterTlsFiles { certificate, key, ca_file } = files;
    let path = "cluster.tls.certificate";
    let files = CertificateFiles { certificate, key, ca_file };
    let certificates = match NodeCertificates::read(&config.cluster.name, files) {
        Ok(certificates) => certificates,
        Err(error) => return findings.add_failure(path, &error),
    };
    let own = certificates.own_name();
    for role in roles {
        let checked = match role {
            ProcessRole::Gateway => own.require_role(NodeRole::Gateway),
            ProcessRole::Coordinator => own.require_role(NodeRole::Coordinator),
            ProcessRole::Worker => own
                .require_role(NodeRole::Worker)
                .and_then(|()| own.require_name(&config.worker.id)),
            ProcessRole::Dev | ProcessRole::Webhook | ProcessRole::Controller => Ok(()),
        };
        if let Err(error) = checked {
            findings.add_failure(path, &error);
        }
    }
    check_end(path, certificates.not_after(), findings);
}

/// Checks the certificate that a gateway shows to clients.
pub(super) fn check_listener_certificate(tls: &GatewayTlsSettings, findings: &mut CheckFindings) {
    let (Some(certificate), Some(key)) = (tls.certificate.clone(), tls.key.clone()) else { return };
    check_pair("gateway.tls.certificate", &certificate, &key, findings);
}

/// Checks a listener's certificate and key, which are readable files.
pub(super) fn check_pair(path: &str, certificate: &Path, key: &Path, findings: &mut CheckFindings) {
    let files = TlsFiles { certificate: certificate.to_owned(), key: key.to_owned() };
    match files.read_end() {
        Ok(not_after) => check_end(path, not_after, findings),
        Err(error) => findings.add_failure(path, &error),
    }
}

fn check_end(path: &str, not_after: i64, findings: &mut CheckFindings) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let left = not_after.saturating_sub(i64::try_from(now).unwrap_or(i64::MAX));
    if left < 0 {
        findings.add_warning(path, "has ended; put a new one in its place");
    } else if left < ENDS_SOON {
        let message = format!("ends in {} days; put a new one in its place", left / 86_400);
        findings.add_warning(path, message);
    }
}
