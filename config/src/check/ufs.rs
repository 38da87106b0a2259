//! Checks of `[[ufs]]`.

use std::collections::BTreeMap;

use super::{Findings, Role};
use crate::quantity::{ByteSize, Period};
use crate::ufs::{Credentials, CredentialsKind, Ufs, UfsDeadlines, UfsKind, UfsLimits};

pub(super) fn check(list: &[Ufs], roles: &[Role], findings: &mut Findings) {
    if list.is_empty() && roles.iter().any(|role| matches!(role, Role::Gateway | Role::Worker)) {
        findings.error("ufs", "there is none; add [[ufs]] with a name and an endpoint");
    }
    let mut names = BTreeMap::new();
    for (index, ufs) in list.iter().enumerate() {
        let path = format!("ufs[{index}]");
        if ufs.name.trim().is_empty() {
            findings.error(format!("{path}.name"), "is missing; mounts refer to a UFS by its name");
        } else if ufs.name.contains('/') {
            findings.error(
                format!("{path}.name"),
                format!("{:?} contains '/', which separates a UFS from its bucket", ufs.name),
            );
        } else if let Some(first) = names.insert(ufs.name.as_str(), index) {
            findings.error(
                format!("{path}.name"),
                format!("{:?} is the name of ufs[{first}] too; names are unique", ufs.name),
            );
        }
        check_one(&path, ufs, findings);
    }
}

fn check_one(path: &str, ufs: &Ufs, findings: &mut Findings) {
    let Ufs {
        name: _,
        kind,
        path: folder,
        endpoint,
        region,
        path_style: _,
        trailing_checksums: _,
        credentials,
        limits,
        deadlines,
    } = ufs;
    match kind {
        UfsKind::S3 => {
            if folder.is_some() {
                findings
                    .error(format!("{path}.path"), "does nothing with kind = \"s3\"; a folder needs kind = \"local\"");
            }
            if let Some(Err(message)) = endpoint.as_deref().map(check_endpoint) {
                findings.error(format!("{path}.endpoint"), message);
            }
            if region.trim().is_empty() {
                findings.error(format!("{path}.region"), "is empty; stores without regions take \"us-east-1\"");
            }
        }
        UfsKind::Local => {
            match folder {
                None => findings.error(format!("{path}.path"), "is missing; kind = \"local\" needs a folder"),
                Some(folder) if folder.exists() && !folder.is_dir() => {
                    findings.error(format!("{path}.path"), format!("{} is not a folder", folder.display()));
                }
                Some(_) => {}
            }
            if endpoint.is_some() {
                findings.error(format!("{path}.endpoint"), "does nothing with kind = \"local\"");
            }
            if credentials.kind != CredentialsKind::Default {
                findings.error(format!("{path}.credentials.kind"), "does nothing with kind = \"local\"");
            }
        }
    }
    check_credentials(&format!("{path}.credentials"), credentials, findings);
    let UfsLimits { requests_in_flight_max, wait_max, attempts_max, connections_idle_max, error_body_max } = limits;
    let at = |field: &str| format!("{path}.limits.{field}");
    findings.range(at("requests_in_flight_max"), *requests_in_flight_max, 1, 65_536);
    findings.range(at("wait_max"), *wait_max, Period::millis(100), Period::seconds(300));
    findings.range(at("attempts_max"), *attempts_max, 1, 10);
    findings.range(at("connections_idle_max"), *connections_idle_max, 1, 65_536);
    findings.range(at("error_body_max"), *error_body_max, ByteSize::kib(1), ByteSize::kib(64));
    let UfsDeadlines { connect, first_byte, idle_body } = deadlines;
    let at = |field: &str| format!("{path}.deadlines.{field}");
    findings.range(at("connect"), *connect, Period::millis(10), Period::seconds(60));
    findings.range(at("first_byte"), *first_byte, Period::millis(100), Period::seconds(600));
    findings.range(at("idle_body"), *idle_body, Period::millis(100), Period::seconds(600));
}

fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Err(format!("{endpoint:?} is not a URL; write https://host or http://host:port"));
    };
    let authority = rest.trim_end_matches('/');
    if authority.contains('@') {
        return Err("has a user in it; credentials belong into the credentials table".to_owned());
    }
    let host = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || authority.len() != host.len() || host.contains(char::is_whitespace) {
        return Err(format!("{endpoint:?} is not a store's URL; it has a host and perhaps a port, and no path"));
    }
    Ok(())
}

/// Which settings count for which kind, and which of them it can't do without.
fn check_credentials(path: &str, credentials: &Credentials, findings: &mut Findings) {
    use CredentialsKind::{AssumeRole, Profile, Static, WebIdentity};
    let Credentials {
        kind,
        access_key_id,
        secret_access_key,
        secret_access_key_file,
        session_token,
        profile,
        role_arn,
        session_name,
        external_id,
        token_file,
    } = credentials;
    let settings: [(&str, bool, &[CredentialsKind]); 9] = [
        ("access_key_id", access_key_id.is_some(), &[Static]),
        ("secret_access_key", secret_access_key.is_some(), &[Static]),
        ("secret_access_key_file", secret_access_key_file.is_some(), &[Static]),
        ("session_token", session_token.is_some(), &[Static]),
        ("profile", profile.is_some(), &[Profile]),
        ("role_arn", role_arn.is_some(), &[AssumeRole, WebIdentity]),
        ("session_name", session_name.is_some(), &[AssumeRole, WebIdentity]),
        ("external_id", external_id.is_some(), &[AssumeRole]),
        ("token_file", token_file.is_some(), &[WebIdentity]),
    ];
    for (name, set, kinds) in settings {
        if set && !kinds.contains(kind) {
            let fitting: Vec<String> = kinds.iter().map(|kind| format!("{:?}", kind_name(*kind))).collect();
            findings.error(
                format!("{path}.{name}"),
                format!("does nothing with kind = {:?}; it belongs to {}", kind_name(*kind), fitting.join(" and ")),
            );
        }
    }
    let mut need = |name: &str, set: bool| {
        if !set {
            findings.error(format!("{path}.{name}"), format!("is missing; kind = {:?} needs it", kind_name(*kind)));
        }
    };
    match kind {
        Static => {
            need("access_key_id", access_key_id.is_some());
            need("secret_access_key", secret_access_key.is_some() || secret_access_key_file.is_some());
        }
        AssumeRole => need("role_arn", role_arn.is_some()),
        WebIdentity => {
            need("role_arn", role_arn.is_some());
            need("token_file", token_file.is_some());
        }
        CredentialsKind::Default
        | Profile
        | CredentialsKind::Environment
        | CredentialsKind::Instance
        | CredentialsKind::Anonymous => {}
    }
    if secret_access_key.is_some() && secret_access_key_file.is_some() {
        findings.error(format!("{path}.secret_access_key_file"), "secret_access_key is set too; keep one of them");
    }
    for (name, file) in [("secret_access_key_file", secret_access_key_file), ("token_file", token_file)] {
        if let Some(file) = file {
            findings.readable(format!("{path}.{name}"), file);
        }
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
