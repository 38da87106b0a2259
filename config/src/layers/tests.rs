//! Which layer wins, and where a value is said to come from.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::path::Path;

use super::{CommandFlag, ConfigLayers, LoadedConfig, load_config};
use crate::environment::EnvironmentLayer;
use crate::process_role::ProcessRole;
use verbs3_settings::{ByteSize, ConfigError};

fn environment(variables: &[(&str, &str)]) -> EnvironmentLayer {
    EnvironmentLayer::from_variables(
        variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))),
    )
}

fn flag(name: &str, path: &str, value: &str) -> CommandFlag {
    CommandFlag { name: name.into(), path: path.into(), value: value.into() }
}

fn load_text(
    folder: &Path,
    text: &str,
    variables: &[(&str, &str)],
    flags: &[CommandFlag],
) -> Result<LoadedConfig, ConfigError> {
    let file = folder.join("verbs3.toml");
    std::fs::write(&file, text).unwrap();
    load_config(
        &ConfigLayers {
            file: Some(file),
            environment: environment(variables),
            flags: flags.to_vec(),
        },
        &[ProcessRole::Dev],
    )
}

/// Settings that are numbers, and are none unless they are set.
#[test]
fn numbers_without_a_default_are_read_in_every_layer() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("VERBS3_VERBS__TOS", "104"),
        ("VERBS3_GATEWAY__LENDING__GROUP", "1001"),
        ("VERBS3_UFS__0__CREDENTIALS__PROFILE", "7"),
    ];
    let flags = [flag("--set", "verbs.path_mtu_max", "1024")];
    let text = "[gateway.lending]\nowner = 1000\n[[ufs]]\nname = \"store\"\ncredentials = { kind = \"profile\" }\n";
    let loaded = load_text(folder.path(), text, &variables, &flags).unwrap();
    let config = &loaded.config;
    assert_eq!((config.verbs.tos, config.verbs.path_mtu_max), (Some(104), Some(1024)));
    let lending = &config.gateway.lending;
    assert_eq!((lending.owner, lending.group), (Some(1000), Some(1001)));
    assert_eq!(config.ufs[0].credentials.profile.as_deref(), Some("7"), "a text stays one");
    let refused = load_text(folder.path(), "", &[("VERBS3_VERBS__TOS", "high")], &[]);
    assert!(refused.unwrap_err().to_string().contains("verbs.tos: wants a whole number"));
}

#[test]
fn file_environment_and_flags_win_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[gateway]\nlisten = \"127.0.0.1:1\"\nadmin_listen = \
        \"127.0.0.1:2\"\n[worker]\nlisten = \"127.0.0.1:3\"\n";
    let variables = [
        ("VERBS3_GATEWAY__ADMIN_LISTEN", "127.0.0.1:20"),
        ("VERBS3_WORKER__LISTEN", "127.0.0.1:30"),
        ("HOME", "/x"),
    ];
    let flags = [flag("--listen", "worker.listen", "127.0.0.1:300")];
    let loaded = load_text(folder.path(), text, &variables, &flags).unwrap();
    let config = &loaded.config;
    assert_eq!(config.gateway.listen.port(), 1);
    assert_eq!(config.gateway.admin_listen.port(), 20);
    assert_eq!(config.worker.listen.port(), 300);
    assert_eq!(config.worker.admin_listen.port(), 9401);
    let shown = loaded.show_settings();
    for (setting, origin) in [
        ("gateway.listen = \"127.0.0.1:1\"", "verbs3.toml"),
        (
            "gateway.admin_listen = \"127.0.0.1:20\"",
            "environment variable VERBS3_GATEWAY__ADMIN_LISTEN",
        ),
        ("worker.listen = \"127.0.0.1:300\"", "flag --listen"),
        ("worker.admin_listen = \"127.0.0.1:9401\"", "default"),
    ] {
        let line = shown
            .lines()
            .find(|line| line.starts_with(setting))
            .unwrap_or_else(|| panic!("{setting} in {shown}"));
        assert!(line.ends_with(origin), "{line}");
    }
}

#[test]
fn texts_from_the_environment_keep_their_type() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("VERBS3_CLUSTER__SECRET", "00000000000000000000000001234567"),
        ("VERBS3_CLUSTER__NAME", "true"),
        ("VERBS3_WORKER__FILL__RESERVE", "0.25"),
        ("VERBS3_WORKER__MEMORY__POPULATE", "true"),
        ("VERBS3_WORKER__MEMORY__CAPACITY", "2GiB"),
        ("VERBS3_GATEWAY__DOMAINS", "[\"s3.a\", \"s3.b\"]"),
        ("RUST_LOG", "debug"),
    ];
    let config =
        load_text(folder.path(), "[log]\nlevel = \"warn\"\n", &variables, &[]).unwrap().config;
    assert_eq!(config.cluster.secret.unwrap().reveal_text(), "00000000000000000000000001234567");
    assert_eq!(config.cluster.name, "true");
    assert_eq!(config.worker.fill.reserve, 0.25);
    assert!(config.worker.memory.populate);
    assert_eq!(config.worker.memory.capacity, ByteSize(2 << 30));
    assert_eq!(config.gateway.domains, ["s3.a", "s3.b"]);
    assert_eq!(config.log.level, "debug");
}

#[test]
fn list_entries_are_set_and_added_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[ufs]]\nname = \"ceph\"\n";
    let variables = [
        ("VERBS3_UFS__0__ENDPOINT", "http://ceph:7480"),
        ("VERBS3_UFS__1__NAME", "aws"),
        ("VERBS3_UFS__1__RETRIES__ATTEMPTS_MAX", "7"),
    ];
    let config = load_text(folder.path(), text, &variables, &[]).unwrap().config;
    assert_eq!(config.ufs[0].endpoint.as_deref(), Some("http://ceph:7480"));
    assert_eq!((config.ufs[1].name.as_str(), config.ufs[1].retries.attempts_max), ("aws", 7));
}

#[test]
fn problems_of_the_environment_and_of_flags_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("VERBS3_GATEWAY__LISTNE", "127.0.0.1:1"),
        ("VERBS3_WORKER__FILL__IN_FLIGHT_MAX", "many"),
        ("VERBS3_UFS__5__NAME", "far"),
    ];
    let flags = [flag("--listen", "gateway.listen", "nowhere")];
    let problems = load_text(folder.path(), "", &variables, &flags).unwrap_err().to_string();
    for line in [
        "gateway.listne: no such setting; did you mean \"listen\"? (environment variable \
        VERBS3_GATEWAY__LISTNE)",
        "worker.fill.in_flight_max: wants a whole number, got \"many\" (environment variable \
        VERBS3_WORKER__FILL__IN_FLIGHT_MAX)",
        "ufs[5].name: the list has 0 entries; set entry 0 first (environment variable \
        VERBS3_UFS__5__NAME)",
        "gateway.listen: is no IP address with a port, such as \"0.0.0.0:9000\" (flag --listen)",
    ] {
        assert!(problems.lines().any(|found| found == line), "{line}\nnot in\n{problems}");
    }
}

/// Else it would stand in a log, because a name in its variable is wrong or missing.
#[test]
fn a_secret_in_the_wrong_place_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    for (variable, line) in [
        ("VERBS3_GATEWAY__LIMITS", "gateway.limits: wants a table, got a text"),
        (
            "VERBS3_GATEWAY__DOMAINS",
            "gateway.domains: wants a list, such as [\"one\", \"two\"], \
            got a text",
        ),
        (
            "VERBS3_UFS__0__CREDENTIALS",
            "ufs[0].credentials: wants a table, got another type of \
            value",
        ),
        ("VERBS3_UFS__0__CREDENTIALS__KIND", "ufs[0].credentials.kind: is not one of "),
    ] {
        let text = "[[ufs]]\nname = \"ceph\"\n";
        let found = load_text(folder.path(), text, &[(variable, "hunter10")], &[]);
        let problems = found.unwrap_err().to_string();
        assert!(
            problems.lines().any(|found| found.starts_with(line)),
            "{line}\nnot in\n{problems}"
        );
        assert!(!problems.contains("hunter10"), "{problems}");
    }
    for text in ["[gateway]\nlimits = \"hunter10\"\n", "cluster = \"hunter10\"\n"] {
        let problems = load_text(folder.path(), text, &[], &[]).unwrap_err().to_string();
        assert!(problems.contains(": wants a table, got a text"), "{problems}");
        assert!(!problems.contains("hunter10"), "{problems}");
    }
}

#[test]
fn secrets_are_shown_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[cluster]\nsecret = \"hunter2 hunter2 hunter2 hunter2 and so on\"\n[[ufs]]\nname = \
        \"a\"\n[ufs.credentials]\nkind = \"static\"\naccess_key_id = \"AK\"\nsecret_access_key = \
        \"hunter2\"\nsession_token = \"hunter2\"\n";
    let loaded = load_text(folder.path(), text, &[], &[]).unwrap();
    let (shown, debug) = (loaded.show_settings(), format!("{loaded:?}"));
    assert!(!shown.contains("hunter2") && !debug.contains("hunter2"), "{shown}\n{debug}");
    assert_eq!(shown.matches("(redacted)").count(), 3, "{shown}");
    assert!(shown.contains("ufs[0].credentials.access_key_id = \"AK\""), "{shown}");
}
