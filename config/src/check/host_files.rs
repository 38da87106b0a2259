//! What a process finds around it: the files that its role reads, and the variables that hold its
//! keys. Looks at those of the roles in question alone: a pod or a host has what its own processes
//! need, and one file of settings serves all of them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::certificates::{check_listener_certificate, check_node_certificate};
use crate::cluster_tls::ClusterTlsSettings;
use crate::environment::EnvironmentLayer;
use crate::process_role::ProcessRole;
use crate::root::RootSettings;
use verbs3_cache_worker::WorkerDiskSettings;
use verbs3_coordinator::CoordinatorStoreSettings;
use verbs3_gateway::GatewaySettings;
use verbs3_settings::{ByteSize, CheckFindings};
use verbs3_telemetry::TelemetrySettings;
use verbs3_ufs::{CredentialsKind, CredentialsSettings, UfsKind, UfsSettings};

pub(super) fn check_surroundings(
    config: &RootSettings,
    roles: &[ProcessRole],
    environment: &EnvironmentLayer,
    findings: &mut CheckFindings,
) {
    let plays = |wanted: &[ProcessRole]| roles.iter().any(|role| wanted.contains(role));
    if plays(&[ProcessRole::Gateway, ProcessRole::Dev]) {
        check_gateway(&config.gateway, findings);
    }
    if plays(&[ProcessRole::Gateway, ProcessRole::Worker, ProcessRole::Coordinator]) {
        let ClusterTlsSettings { certificate, key, ca_file, mode: _ } = &config.cluster.tls;
        let before = findings.problems.len();
        for (name, file) in [("certificate", certificate), ("key", key), ("ca_file", ca_file)] {
            check_optional_file(&format!("cluster.tls.{name}"), file.as_deref(), findings);
        }
        if findings.problems.len() == before {
            check_node_certificate(config, roles, findings);
        }
    }
    if plays(&[ProcessRole::Worker]) {
        check_disk_space(&config.worker.disk, findings);
    }
    // A coordinator asks stores for preload jobs, and has none without mounts.
    if plays(&[ProcessRole::Gateway, ProcessRole::Worker, ProcessRole::Dev])
        || plays(&[ProcessRole::Coordinator]) && !config.mount.is_empty()
    {
        for (index, ufs) in config.ufs.iter().enumerate() {
            check_store(&format!("ufs[{index}]"), ufs, environment, findings);
        }
    }
    if plays(&[ProcessRole::Coordinator]) {
        let token = &config.coordinator.notification_token_file;
        check_optional_file("coordinator.notification_token_file", token.as_deref(), findings);
        check_coordinators_store(&config.coordinator.store, findings);
    }
    if plays(&[ProcessRole::Gateway, ProcessRole::Worker, ProcessRole::Dev]) {
        let TelemetrySettings { otlp } = &config.telemetry;
        check_optional_file("telemetry.otlp.ca_file", otlp.ca_file.as_deref(), findings);
    }
}

/// Warns of folders whose file system is smaller than what their files may take. Says nothing of a
/// folder that is not there: the worker makes it, or this is another host.
fn check_disk_space(disk: &WorkerDiskSettings, findings: &mut CheckFindings) {
    let mut wanted_of = BTreeMap::new();
    for (number, folder) in disk.folders.iter().enumerate() {
        let (Ok(metadata), Ok(system)) =
            (std::fs::metadata(&folder.path), rustix::fs::statvfs(&folder.path))
        else {
            continue;
        };
        // Folders on one file system share it.
        let wanted: &mut u64 = wanted_of.entry(metadata.dev()).or_default();
        *wanted = wanted.saturating_add(folder.capacity.0);
        let size = system.f_blocks.saturating_mul(system.f_frsize);
        if *wanted > size {
            findings.add_warning(
                format!("worker.disk.folders[{number}].capacity"),
                format!(
                    "the file system of {} has {} MiB in all, and the folders on it up to this one \
                    may take {}; lower the capacity, or name a folder on a larger drive",
                    folder.path.display(),
                    size >> 20,
                    ByteSize(*wanted)
                ),
            );
        }
    }
}

fn check_optional_file(path: &str, file: Option<&Path>, findings: &mut CheckFindings) {
    if let Some(file) = file {
        findings.check_readable(path, file);
    }
}

fn check_gateway(gateway: &GatewaySettings, findings: &mut CheckFindings) {
    check_optional_file("gateway.identities", gateway.identities.as_deref(), findings);
    if let (Some(certificate), Some(key)) = (&gateway.tls.certificate, &gateway.tls.key) {
        let before = findings.problems.len();
        findings.check_readable("gateway.tls.certificate", certificate);
        findings.check_readable("gateway.tls.key", key);
        if findings.problems.len() == before {
            check_listener_certificate(&gateway.tls, findings);
        }
    }
}

fn check_coordinators_store(store: &CoordinatorStoreSettings, findings: &mut CheckFindings) {
    let files = [
        ("ca_file", &store.ca_file),
        ("certificate", &store.certificate),
        ("key", &store.key),
        ("password_file", &store.password_file),
    ];
    for (name, file) in files {
        check_optional_file(&format!("coordinator.store.{name}"), file.as_deref(), findings);
    }
}

fn check_store(
    path: &str,
    ufs: &UfsSettings,
    environment: &EnvironmentLayer,
    findings: &mut CheckFindings,
) {
    check_optional_file(&format!("{path}.ca_file"), ufs.ca_file.as_deref(), findings);
    let CredentialsSettings { kind, secret_access_key_file, token_file, profile_file, .. } =
        &ufs.credentials;
    let files = [
        ("secret_access_key_file", secret_access_key_file),
        ("token_file", token_file),
        ("profile_file", profile_file),
    ];
    for (name, file) in files {
        check_optional_file(&format!("{path}.credentials.{name}"), file.as_deref(), findings);
    }
    // Else the process would start, say that it is ready, and refuse whatever needs the store.
    if *kind == CredentialsKind::Environment && ufs.kind == UfsKind::S3 {
        let missing = environment.missing_store_keys();
        if !missing.is_empty() {
            findings.add_error(
                format!("{path}.credentials.kind"),
                format!(
                    "\"environment\" takes the store's keys from variables, and {} is not set",
                    missing.join(" and ")
                ),
            );
        }
    }
}
