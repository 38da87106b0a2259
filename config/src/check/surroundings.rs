//! What a process finds around it: the files that its role reads, and the variables that hold its
//! keys. Looks at those of the roles in question alone: a pod or a host has what its own processes
//! need, and one file of settings serves all of them.

use std::path::Path;

use super::{Findings, Role};
use crate::coordinator::CoordinatorStore;
use crate::environment::Environment;
use crate::gateway::Gateway;
use crate::root::Config;
use crate::telemetry::Telemetry;
use crate::ufs::{Credentials, CredentialsKind, Ufs, UfsKind};

pub(super) fn check(
    config: &Config,
    roles: &[Role],
    environment: &Environment,
    findings: &mut Findings,
) {
    let plays = |wanted: &[Role]| roles.iter().any(|role| wanted.contains(role));
    if plays(&[Role::Gateway, Role::Dev]) {
        check_gateway(&config.gateway, findings);
    }
    // A coordinator asks stores for preload jobs, and has none without mounts.
    if plays(&[Role::Gateway, Role::Worker, Role::Dev])
        || plays(&[Role::Coordinator]) && !config.mount.is_empty()
    {
        for (index, ufs) in config.ufs.iter().enumerate() {
            check_store(&format!("ufs[{index}]"), ufs, environment, findings);
        }
    }
    if plays(&[Role::Coordinator]) {
        let token = &config.coordinator.notification_token_file;
        readable("coordinator.notification_token_file", token.as_deref(), findings);
        check_coordinators_store(&config.coordinator.store, findings);
    }
    if !roles.is_empty() {
        let Telemetry { otlp } = &config.telemetry;
        readable("telemetry.otlp.ca_file", otlp.ca_file.as_deref(), findings);
    }
}

fn readable(path: &str, file: Option<&Path>, findings: &mut Findings) {
    if let Some(file) = file {
        findings.readable(path, file);
    }
}

fn check_gateway(gateway: &Gateway, findings: &mut Findings) {
    readable("gateway.identities", gateway.identities.as_deref(), findings);
    if let (Some(certificate), Some(key)) = (&gateway.tls.certificate, &gateway.tls.key) {
        findings.readable("gateway.tls.certificate", certificate);
        findings.readable("gateway.tls.key", key);
    }
}

fn check_coordinators_store(store: &CoordinatorStore, findings: &mut Findings) {
    let files = [
        ("ca_file", &store.ca_file),
        ("certificate", &store.certificate),
        ("key", &store.key),
        ("password_file", &store.password_file),
    ];
    for (name, file) in files {
        readable(&format!("coordinator.store.{name}"), file.as_deref(), findings);
    }
}

fn check_store(path: &str, ufs: &Ufs, environment: &Environment, findings: &mut Findings) {
    readable(&format!("{path}.ca_file"), ufs.ca_file.as_deref(), findings);
    let Credentials { kind, secret_access_key_file, token_file, profile_file, .. } =
        &ufs.credentials;
    let files = [
        ("secret_access_key_file", secret_access_key_file),
        ("token_file", token_file),
        ("profile_file", profile_file),
    ];
    for (name, file) in files {
        readable(&format!("{path}.credentials.{name}"), file.as_deref(), findings);
    }
    // Else the process would start, say that it is ready, and refuse whatever needs the store.
    if *kind == CredentialsKind::Environment && ufs.kind == UfsKind::S3 {
        let missing = environment.missing_store_keys();
        if !missing.is_empty() {
            findings.error(
                format!("{path}.credentials.kind"),
                format!(
                    "\"environment\" takes the store's keys from variables, and {} is not set",
                    missing.join(" and ")
                ),
            );
        }
    }
}
