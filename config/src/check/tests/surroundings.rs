//! Files and variables that a role needs around it.

use super::{GOOD, findings};
use crate::check::ProcessRole;
use crate::environment::EnvironmentLayer;
use crate::layers::{ConfigLayers, load_config};

/// Every file that a setting can name, and none of them there.
const FILES: &str = r#"
[cluster]
secret_file = "/no/secret"
coordinators = ["http://c:9500"]
[[ufs]]
name = "ceph"
endpoint = "https://ceph:7480"
ca_file = "/no/ca"
[[ufs]]
name = "aws"
credentials = { kind = "environment" }
[[mount]]
name = "train"
ufs = "ceph"
[gateway]
identities = "/no/identities"
tls = { certificate = "/no/certificate", key = "/no/key" }
[worker]
id = "w0"
[coordinator]
notification_token_file = "/no/token"
store = { kind = "etcd", endpoints = ["http://e:2379"], ca_file = "/no/ca", certificate = "/no/certificate", key = "/no/key", user = "u", password_file = "/no/password" }
[telemetry.otlp]
ca_file = "/no/ca"
"#;

#[test]
fn a_role_looks_at_the_files_that_it_reads_and_at_no_other() {
    let paths = |text: &str, roles: &[ProcessRole]| -> Vec<String> {
        findings(text, roles)
            .iter()
            .map(|line| line.split(": ").next().unwrap().to_owned())
            .collect()
    };
    let stores = ["ufs[0].ca_file", "ufs[1].credentials.kind"];
    let gateway = ["gateway.identities", "gateway.tls.certificate", "gateway.tls.key"];
    let coordinator = [
        "coordinator.notification_token_file",
        "coordinator.store.ca_file",
        "coordinator.store.certificate",
        "coordinator.store.key",
        "coordinator.store.password_file",
    ];
    let (first, last) = (&["cluster.secret_file"][..], &["telemetry.otlp.ca_file"][..]);
    assert_eq!(paths(FILES, &[ProcessRole::Gateway]), [first, &gateway, &stores, last].concat());
    assert_eq!(paths(FILES, &[ProcessRole::Worker]), [first, &stores, last].concat());
    assert_eq!(paths(FILES, &[ProcessRole::Coordinator]), [first, &stores, &coordinator].concat());
    assert_eq!(paths(FILES, &[ProcessRole::Dev]), [first, &gateway, &stores, last].concat());
    // Without mounts there are no preload jobs, and so nobody who asks a store.
    let (before, after) = FILES.split_once("[[mount]]").unwrap();
    let alone = format!("{before}{}", &after[after.find("[gateway]").unwrap()..]);
    assert_eq!(paths(&alone, &[ProcessRole::Coordinator]), [first, &coordinator].concat());
}

#[test]
fn a_command_looks_at_no_file_and_misses_no_section() {
    assert_eq!(findings(FILES, &[]), [""; 0]);
    assert_eq!(findings("", &[]), [""; 0]);
    // What is wrong whoever reads it stays wrong.
    assert_eq!(
        findings("[worker]\nfill = { reserve = 9 }", &[]),
        ["worker.fill.reserve: 9 is not between 0 and 0.9"]
    );
}

#[test]
fn keys_from_the_environment_have_to_be_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("verbs3.toml");
    std::fs::write(
        &file,
        GOOD.replace("name = \"aws\"", "name = \"aws\"\ncredentials = { kind = \"environment\" }"),
    )
    .unwrap();
    let said = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let environment = EnvironmentLayer::from_variables(variables);
        let layers =
            ConfigLayers { file: Some(file.clone()), environment, ..ConfigLayers::default() };
        load_config(&layers, &[ProcessRole::Worker])
            .map(|_| ())
            .map_err(|problems| problems.to_string())
    };
    let wanted = |missing: &str| {
        let what = "ufs[1].credentials.kind: \"environment\" takes the store's keys from variables";
        Err(format!("{what}, and {missing} is not set"))
    };
    assert_eq!(said(&[]), wanted("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
    assert_eq!(
        said(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "")]),
        wanted("AWS_SECRET_ACCESS_KEY")
    );
    assert_eq!(said(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "s")]), Ok(()));
}

#[test]
fn a_folder_on_a_drive_that_is_too_small_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    let system = rustix::fs::statvfs(folder.path()).unwrap();
    let mib = (system.f_blocks * system.f_frsize) >> 20;
    let warned = |capacities: [u64; 2], roles: &[ProcessRole]| -> Vec<String> {
        let [first, second] = capacities;
        let file = folder.path().join("verbs3.toml");
        let disk = format!(
            "[worker.disk]\nfolders = [\n{{ path = {one:?}, capacity = \"{first}MiB\" }},\n\
             {{ path = {two:?}, capacity = \"{second}MiB\" }},\n\
             {{ path = \"/no/folder\", capacity = \"1000TiB\" }},\n]\n"
        );
        let identities = folder.path().join("identities.toml");
        std::fs::write(&identities, "").unwrap();
        let good = GOOD.replace("IDENTITIES", identities.to_str().unwrap());
        std::fs::write(&file, good + &disk).unwrap();
        let layers = ConfigLayers { file: Some(file), ..ConfigLayers::default() };
        let loaded = load_config(&layers, roles).unwrap();
        let of_disk = |path: &String| path.starts_with("worker.disk");
        loaded.warnings.into_iter().map(|warning| warning.path).filter(of_disk).collect()
    };
    let worker = [ProcessRole::Worker];
    let (small, half) = (16, mib / 2 + 16);
    assert_eq!(warned([small, small], &worker), [""; 0]);
    assert_eq!(warned([mib + 16, small], &worker).len(), 2, "the second has no room either");
    assert_eq!(warned([half, half], &worker), ["worker.disk.folders[1].capacity"]);
    assert_eq!(warned([half, half], &[ProcessRole::Gateway]), [""; 0]);
}
