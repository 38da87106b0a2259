//! Checks of `[cluster]`.

use std::collections::BTreeMap;

use crate::cluster::{ClusterSettings, ClusterWorkerSettings};
use crate::cluster_secret::ClusterSecretError;
use crate::cluster_tls::{ClusterTlsMode, ClusterTlsSettings};
use crate::mount::{CoherenceSetting, MountSettings};
use crate::process_role::ProcessRole;
use verbs3_settings::{ByteSize, CheckFindings};

pub(super) fn check_cluster(
    cluster: &ClusterSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let ClusterSettings { name, block, page, workers, coordinators, .. } = cluster;
    if name.trim().is_empty() {
        findings.add_error("cluster.name", "is empty; name the cluster");
    }
    check_secret(cluster, roles, findings);
    check_geometry(*block, *page, findings);
    check_workers(workers, findings);
    for (index, url) in coordinators.iter().enumerate() {
        super::coordinator::check_url(
            &format!("cluster.coordinators[{index}]"),
            url,
            &["http://", "https://"],
            findings,
        );
    }
    check_tls(cluster, findings);
    let needs_workers =
        roles.iter().any(|role| matches!(role, ProcessRole::Gateway | ProcessRole::Worker));
    if workers.is_empty() && coordinators.is_empty() && needs_workers {
        findings.add_error(
            "cluster.workers",
            "is empty; list every worker: [[cluster.workers]] id = \"…\", address = \"host:9400\"; \
            or name cluster.coordinators",
        );
    }
    if !workers.is_empty() && !coordinators.is_empty() && needs_workers {
        findings.add_error(
            "cluster.coordinators",
            "cluster.workers is set too; keep one: a map has one maker",
        );
    }
}

/// A list that changes is two lists for a while, and two lists give a key two homes that know
/// nothing of each other: a write is told to one, and the other answers what it knows. Only an age
/// bounds that.
pub(super) fn check_list(
    cluster: &ClusterSettings,
    mounts: &[MountSettings],
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    if cluster.workers_fixed && cluster.workers.is_empty() {
        findings.add_error("cluster.workers_fixed", "does nothing without cluster.workers");
    }
    if cluster.workers.is_empty() || cluster.workers_fixed || !roles.contains(&ProcessRole::Gateway)
    {
        return;
    }
    let strict =
        mounts.iter().position(|mount| mount.cached && mount.coherence == CoherenceSetting::Strict);
    if let Some(index) = strict {
        findings.add_error(
            "cluster.workers",
            format!(
                "while a list changes, processes of the old one are alive, and reads through them miss writes for as long as mount[{index}] \
                 believes attributes; name cluster.coordinators instead (one with a folder will do), or say coherence = \"ttl\" on every \
                 cached mount, or cluster.workers_fixed = true if all processes are stopped before the list changes"
            ),
        );
    }
}

fn check_secret(cluster: &ClusterSettings, roles: &[ProcessRole], findings: &mut CheckFindings) {
    if cluster.secret.is_some() && cluster.secret_file.is_some() {
        findings.add_error("cluster.secret_file", "cluster.secret is set too; keep one of them");
    }
    // Whoever plays no role reads files when they are needed.
    if roles.is_empty() && !cluster.secret_files().is_empty() {
        return;
    }
    let needs_none = roles.iter().all(|role| {
        matches!(role, ProcessRole::Dev | ProcessRole::Webhook | ProcessRole::Controller)
    });
    match cluster.read_secrets() {
        Ok(_) => {}
        Err(ClusterSecretError::Missing) if needs_none => {}
        Err(error) => findings.add_failure(error.setting(), &error),
    }
}

fn check_tls(cluster: &ClusterSettings, findings: &mut CheckFindings) {
    let ClusterTlsSettings { certificate, key, ca_file, mode } = &cluster.tls;
    let files = [("certificate", certificate), ("key", key), ("ca_file", ca_file)];
    let named = files.iter().filter(|(_, file)| file.is_some()).count();
    if named > 0 {
        for (name, _) in files.iter().filter(|(_, file)| file.is_none()) {
            let path = format!("cluster.tls.{name}");
            findings.add_error(path, "is missing; certificate, key and ca_file belong together");
        }
    }
    if named == 0 && mode.is_some() {
        let path = "cluster.tls.mode";
        findings.add_error(path, "is set without cluster.tls.certificate: nothing would use TLS");
    }
    for (index, url) in cluster.coordinators.iter().enumerate() {
        let path = format!("cluster.coordinators[{index}]");
        if url.starts_with("https://") && named == 0 {
            findings.add_error(path, "begins with https://, which needs cluster.tls");
        } else if url.starts_with("http://")
            && named > 0
            && cluster.tls.tls_mode() == ClusterTlsMode::Require
        {
            findings.add_error(
                path,
                "begins with http://, and cluster.tls.mode is \"require\"; write https://",
            );
        }
    }
}

fn check_geometry(block: ByteSize, page: ByteSize, findings: &mut CheckFindings) {
    if !page.0.is_power_of_two() {
        findings.add_error("cluster.page", format!("{page} is not a power of two"));
    } else if !block.0.is_multiple_of(page.0) {
        findings.add_error(
            "cluster.block",
            format!("{block} is not a multiple of cluster.page ({page})"),
        );
    }
}

/// What the handshake of the transports has room for.
const WORKER_ID_BYTES_MAX: usize = 64;

fn check_workers(workers: &[ClusterWorkerSettings], findings: &mut CheckFindings) {
    let mut ids = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    for (index, ClusterWorkerSettings { id, address, .. }) in workers.iter().enumerate() {
        let path = |field: &str| format!("cluster.workers[{index}].{field}");
        if id.trim().is_empty() {
            findings.add_error(
                path("id"),
                "is missing; a worker has the name that its own worker.id says",
            );
        } else if id.len() > WORKER_ID_BYTES_MAX || id.chars().any(char::is_control) {
            let why = "workers say who they are in so many bytes when gateways connect";
            findings.add_error(
                path("id"),
                format!(
                    "{id:?} is longer than {WORKER_ID_BYTES_MAX} bytes or has control \
                    characters; {why}"
                ),
            );
        } else if let Some(first) = ids.insert(id.as_str(), index) {
            findings.add_error(
                path("id"),
                format!("{id:?} is the name of cluster.workers[{first}] too; names are unique"),
            );
        }
        match check_address(address) {
            Err(message) => findings.add_error(path("address"), message),
            Ok(()) => {
                if let Some(first) = addresses.insert(address.as_str(), index) {
                    findings.add_error(
                        path("address"),
                        format!("{address:?} is the address of cluster.workers[{first}] too"),
                    );
                }
            }
        }
    }
}

/// `host:port`, the host being a name, an IPv4 address or a bracketed IPv6 address.
fn check_address(address: &str) -> Result<(), String> {
    if address.is_empty() {
        return Err("is missing; write host:port".to_owned());
    }
    let wrong = |why: &str| Err(format!("{address:?} is not host:port: {why}"));
    let Some((host, port)) = address.rsplit_once(':') else { return wrong("it has no port") };
    if host.is_empty() || host.contains(char::is_whitespace) || host.contains('/') {
        return wrong("the host is not one");
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return wrong("an IPv6 address stands in brackets");
    }
    match port.parse::<u16>() {
        Ok(0) | Err(_) => wrong("the port is not between 1 and 65535"),
        Ok(_) => Ok(()),
    }
}
