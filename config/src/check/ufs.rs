//! Checks of `[[ufs]]`.

use std::collections::BTreeMap;

use crate::process_role::ProcessRole;
use verbs3_settings::CheckFindings;
use verbs3_ufs::{
    CredentialsKind, CredentialsSettings, UfsCircuitSettings, UfsKind, UfsLimitsSettings,
    UfsRetriesSettings, UfsSettings,
};

pub(super) fn check_ufs_list(
    list: &[UfsSettings],
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    if list.is_empty()
        && roles.iter().any(|role| matches!(role, ProcessRole::Gateway | ProcessRole::Worker))
    {
        findings.add_error("ufs", "there is none; add [[ufs]] with a name and an endpoint");
    }
    let mut names = BTreeMap::new();
    for (index, ufs) in list.iter().enumerate() {
        let path = format!("ufs[{index}]");
        if ufs.name.trim().is_empty() {
            findings
                .add_error(format!("{path}.name"), "is missing; mounts refer to a UFS by its name");
        } else if ufs.name.contains('/') {
            findings.add_error(
                format!("{path}.name"),
                format!("{:?} contains '/', which separates a UFS from its bucket", ufs.name),
            );
        } else if let Some(first) = names.insert(ufs.name.as_str(), index) {
            findings.add_error(
                format!("{path}.name"),
                format!("{:?} is the name of ufs[{first}] too; names are unique", ufs.name),
            );
        }
        // Its folder is locked by whoever opens it.
        if ufs.kind == UfsKind::Local
            && roles.iter().any(|role| {
                matches!(
                    role,
                    ProcessRole::Gateway | ProcessRole::Worker | ProcessRole::Coordinator
                )
            })
        {
            findings.add_error(
                format!("{path}.kind"),
                "a local store belongs to one process; let `verbs3 dev` serve it, and name that \
                here as an s3 store",
            );
        }
        check_one(&path, ufs, findings);
    }
}

fn check_one(path: &str, ufs: &UfsSettings, findings: &mut CheckFindings) {
    let UfsSettings {
        kind,
        path: folder,
        endpoint,
        region,
        credentials,
        limits,
        retries,
        circuit,
        ..
    } = ufs;
    match kind {
        UfsKind::S3 => {
            if folder.is_some() {
                findings.add_error(
                    format!("{path}.path"),
                    "does nothing with kind = \"s3\"; a folder needs kind = \"local\"",
                );
            }
            if let Some(Err(message)) = endpoint.as_deref().map(check_endpoint) {
                findings.add_error(format!("{path}.endpoint"), message);
            }
            if region.trim().is_empty() {
                findings.add_error(
                    format!("{path}.region"),
                    "is empty; stores without regions take \"us-east-1\"",
                );
            }
        }
        UfsKind::Local => {
            match folder {
                None => findings.add_error(
                    format!("{path}.path"),
                    "is missing; kind = \"local\" needs a folder",
                ),
                Some(folder) if folder.exists() && !folder.is_dir() => {
                    findings.add_error(
                        format!("{path}.path"),
                        format!("{} is not a folder", folder.display()),
                    );
                }
                Some(_) => {}
            }
            if endpoint.is_some() {
                findings
                    .add_error(format!("{path}.endpoint"), "does nothing with kind = \"local\"");
            }
            if credentials.kind != CredentialsKind::Default {
                findings.add_error(
                    format!("{path}.credentials.kind"),
                    "does nothing with kind = \"local\"",
                );
            }
        }
    }
    check_credentials(&format!("{path}.credentials"), credentials, findings);
    check_limits(&format!("{path}.limits"), limits, findings);
    check_retries(path, retries, circuit, findings);
}

fn check_limits(path: &str, limits: &UfsLimitsSettings, findings: &mut CheckFindings) {
    let UfsLimitsSettings { connections_max, requests_in_flight_max, .. } = limits;
    if requests_in_flight_max > connections_max {
        findings.add_error(
            format!("{path}.requests_in_flight_max"),
            format!("{requests_in_flight_max} is more than connections_max ({connections_max})"),
        );
    }
}

fn check_retries(
    path: &str,
    retries: &UfsRetriesSettings,
    circuit: &UfsCircuitSettings,
    findings: &mut CheckFindings,
) {
    let UfsRetriesSettings { pause, pause_max, .. } = retries;
    let UfsCircuitSettings { open_for, open_for_max, .. } = circuit;
    for (name, first, most) in
        [("retries.pause", pause, pause_max), ("circuit.open_for", open_for, open_for_max)]
    {
        if first > most {
            findings.add_error(
                format!("{path}.{name}"),
                format!("{first} is more than its own maximum ({most})"),
            );
        }
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), String> {
    // First of all: the messages below show the URL.
    if endpoint.contains('@') {
        return Err("has a user in it; credentials belong into the credentials table".to_owned());
    }
    let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Err(format!("{endpoint:?} is not a URL; write https://host or http://host:port"));
    };
    let authority = rest.trim_end_matches('/');
    let host = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || authority.len() != host.len() || host.contains(char::is_whitespace) {
        return Err(format!(
            "{endpoint:?} is not a service's URL; it has a host and perhaps a port, and no path"
        ));
    }
    Ok(())
}

/// Which settings count for which kind, and which of them it can't do without.
fn check_credentials(path: &str, credentials: &CredentialsSettings, findings: &mut CheckFindings) {
    use CredentialsKind::{AssumeRole, Instance, Profile, Static, WebIdentity};
    let CredentialsSettings {
        kind,
        access_key_id,
        secret_access_key,
        secret_access_key_file,
        session_token,
        profile,
        profile_file,
        role_arn,
        session_name,
        external_id,
        token_file,
        sts_endpoint,
        metadata_endpoint,
        ..
    } = credentials;
    let settings: [(&str, bool, &[CredentialsKind]); 12] = [
        ("access_key_id", access_key_id.is_some(), &[Static]),
        ("secret_access_key", secret_access_key.is_some(), &[Static]),
        ("secret_access_key_file", secret_access_key_file.is_some(), &[Static]),
        ("session_token", session_token.is_some(), &[Static]),
        ("profile", profile.is_some(), &[Profile]),
        ("profile_file", profile_file.is_some(), &[Profile]),
        ("role_arn", role_arn.is_some(), &[AssumeRole, WebIdentity]),
        ("session_name", session_name.is_some(), &[AssumeRole, WebIdentity]),
        ("external_id", external_id.is_some(), &[AssumeRole]),
        ("token_file", token_file.is_some(), &[WebIdentity]),
        ("sts_endpoint", sts_endpoint.is_some(), &[AssumeRole, WebIdentity]),
        ("metadata_endpoint", metadata_endpoint.is_some(), &[Instance]),
    ];
    for (name, set, kinds) in settings {
        if set && !kinds.contains(kind) {
            let fitting: Vec<String> =
                kinds.iter().map(|kind| format!("{:?}", kind_name(*kind))).collect();
            findings.add_error(
                format!("{path}.{name}"),
                format!(
                    "does nothing with kind = {:?}; it belongs to {}",
                    kind_name(*kind),
                    fitting.join(" and ")
                ),
            );
        }
    }
    let mut need = |name: &str, set: bool| {
        if !set {
            findings.add_error(
                format!("{path}.{name}"),
                format!("is missing; kind = {:?} needs it", kind_name(*kind)),
            );
        }
    };
    match kind {
        Static => {
            need("access_key_id", access_key_id.is_some());
            need(
                "secret_access_key",
                secret_access_key.is_some() || secret_access_key_file.is_some(),
            );
        }
        AssumeRole => need("role_arn", role_arn.is_some()),
        WebIdentity => {
            need("role_arn", role_arn.is_some());
            need("token_file", token_file.is_some());
        }
        CredentialsKind::Default
        | Profile
        | CredentialsKind::Environment
        | Instance
        | CredentialsKind::Anonymous => {}
    }
    for (name, endpoint) in
        [("sts_endpoint", sts_endpoint), ("metadata_endpoint", metadata_endpoint)]
    {
        if let Some(Err(message)) = endpoint.as_deref().map(check_endpoint) {
            findings.add_error(format!("{path}.{name}"), message);
        }
    }
    if secret_access_key.is_some() && secret_access_key_file.is_some() {
        findings.add_error(
            format!("{path}.secret_access_key_file"),
            "secret_access_key is set too; keep one of them",
        );
    }
}

fn kind_name(kind: CredentialsKind) -> &'static str {
    match kind {
        CredentialsKind::Default => "default",
        CredentialsKind::Static => "static",
        CredentialsKind::Environment => "environment",
        CredentialsKind::Profile => "profile",
        CredentialsKind::WebIdentity => "web_identity",
        CredentialsKind::Instance => "instance",
        CredentialsKind::AssumeRole => "assume_role",
        CredentialsKind::Anonymous => "anonymous",
    }
}
