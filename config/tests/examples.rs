//! The example files and the documentation of the settings, held against the code.
//!
//! `config/examples/*.toml` are written from the doc comments of the settings:
//! `BLESS=1 cargo test -p verbs3-config --test examples` writes them again after a change.
#![allow(clippy::unwrap_used)]

mod documented;

use std::path::{Path, PathBuf};

use documented::{Setting, Structs};
use verbs3_config::{
    ByteSize, ClusterWorkerSettings, CommandFlag, ConfigLayers, DiskFolderSettings,
    DiskVolumeSettings, EnvironmentLayer, MountSettings, ProcessRole, RootSettings, TimePeriod,
    UfsSettings, load_config,
};

struct Example {
    file: &'static str,
    role: ProcessRole,
    intro: &'static str,
    sections: &'static [&'static str],
    /// Values that are not the default: TOML path without list numbers, and the literal.
    values: &'static [(&'static str, &'static str)],
}

/// What stands in the place of something else that an example has.
const INSTEAD: &str = "cluster.workers";

const CLUSTER: [(&str, &str); 8] = [
    ("cluster.coordinators", "[\"http://coordinator-0:9500\"]"),
    ("cluster.secret_file", "\"/etc/verbs3/cluster.secret\""),
    ("cluster.workers.id", "\"gpu-01\""),
    ("cluster.workers.address", "\"10.0.0.1:9400\""),
    ("ufs.name", "\"ceph\""),
    ("ufs.endpoint", "\"https://rgw.example:8443\""),
    ("mount.name", "\"*\""),
    ("mount.ufs", "\"ceph\""),
];

const EXAMPLES: [Example; 4] = [
    Example {
        file: "dev.toml",
        role: ProcessRole::Dev,
        intro: "verbs3 dev --config dev.toml: gateway, workers and a store over a folder, in one \
            process.",
        sections: &["dev", "gateway", "worker", "cluster", "process", "log", "telemetry"],
        values: &[],
    },
    Example {
        file: "gateway.toml",
        role: ProcessRole::Gateway,
        intro: "verbs3 gateway --config gateway.toml: the S3 endpoint of a node.",
        sections: &[
            "cluster",
            "ufs",
            "mount",
            "gateway",
            "tcp",
            "verbs",
            "process",
            "log",
            "telemetry",
        ],
        values: &[("gateway.identities", "\"/etc/verbs3/identities.toml\"")],
    },
    Example {
        file: "worker.toml",
        role: ProcessRole::Worker,
        intro: "verbs3 worker --config worker.toml: a node's share of the cache.",
        sections: &["cluster", "ufs", "worker", "tcp", "verbs", "process", "log", "telemetry"],
        values: &[
            ("worker.id", "\"gpu-01\""),
            ("worker.disk.folders.path", "\"/var/lib/verbs3/cache\""),
            ("worker.disk.volumes.volume", "\"ceph/scratch\""),
        ],
    },
    Example {
        file: "coordinator.toml",
        role: ProcessRole::Coordinator,
        intro: "verbs3 coordinator --config coordinator.toml: membership, the placement map, and \
            preload jobs.",
        sections: &["cluster", "ufs", "mount", "coordinator", "tcp", "verbs", "process", "log"],
        values: &[],
    },
];

/// What a setting without a default could be, where the example leaves it out.
const SAMPLES: [(&str, &str); 37] = [
    ("coordinator.notification_token_file", "\"/etc/verbs3/notification.token\""),
    ("coordinator.advertise", "\"http://coordinator-0:9500\""),
    ("store.certificate", "\"/etc/verbs3/tls.crt\""),
    ("store.key", "\"/etc/verbs3/tls.key\""),
    ("store.user", "\"verbs3\""),
    ("store.password_file", "\"/etc/verbs3/etcd.secret\""),
    ("worker.advertise", "\"10.0.0.1:9400\""),
    ("cluster.secret_file", "\"/etc/verbs3/cluster.secret\""),
    ("cluster.secret", "\"at least 16 characters\""),
    ("ca_file", "\"/etc/verbs3/store-ca.pem\""),
    ("profile_file", "\"/etc/verbs3/aws-credentials\""),
    ("tcp.bind_device", "\"ib0\""),
    ("tcp.bind_address", "\"10.0.0.1\""),
    ("gateway.bind_device", "\"eth0\""),
    ("admin_bind_device", "\"eth0\""),
    ("verbs.path_mtu_max", "1024"),
    ("verbs.tos", "104"),
    ("worker.shm.socket", "\"/run/verbs3/gpu-01.sock\""),
    ("read.bytes_in_flight_max", "\"512MiB\""),
    ("ufs.path", "\"/var/lib/verbs3/store\""),
    ("access_key_id", "\"AKIA…\""),
    ("secret_access_key", "\"…\""),
    ("secret_access_key_file", "\"/etc/verbs3/ufs.secret\""),
    ("session_token", "\"…\""),
    ("profile", "\"training\""),
    ("role_arn", "\"arn:aws:iam::123456789012:role/verbs3\""),
    ("session_name", "\"verbs3\""),
    ("external_id", "\"…\""),
    ("token_file", "\"/var/run/secrets/token\""),
    ("sts_endpoint", "\"https://sts.example\""),
    ("metadata_endpoint", "\"http://169.254.169.254\""),
    ("mount.bucket", "\"training-data\""),
    ("gateway.identities", "\"/etc/verbs3/identities.toml\""),
    ("tls.certificate", "\"/etc/verbs3/tls.crt\""),
    ("tls.key", "\"/etc/verbs3/tls.key\""),
    ("worker.id", "\"gpu-01\""),
    ("telemetry.otlp.endpoint", "\"http://127.0.0.1:4318\""),
];

fn value_of(example: &Example, path: &str, setting: &Setting) -> String {
    let listed =
        example.values.iter().chain(CLUSTER.iter().filter(|_| example.role != ProcessRole::Dev));
    if let Some((_, value)) = listed.clone().find(|(at, _)| *at == path) {
        return format!("{} = {value}", setting.name);
    }
    match &setting.default {
        Some(default) => format!("{} = {default}", setting.name),
        None => {
            let sample =
                SAMPLES.iter().find(|(at, _)| path == *at || path.ends_with(&format!(".{at}")));
            let (_, sample) =
                sample.unwrap_or_else(|| panic!("{path} has no default and no sample"));
            format!("# {} = {sample}", setting.name)
        }
    }
}

/// The text of one example file.
fn write_example(structs: &Structs, example: &Example) -> String {
    let mut text = format!(
        "# {}\n# Every setting is here, with what it means. `verbs3 config check FILE` says what is wrong with a file, `verbs3 config show FILE`\n\
         # what is in effect. VERBS3_SECTION__SETTING=value in the environment overrides the file.\n",
        example.intro
    );
    for section in example.sections {
        let setting =
            structs.of("RootSettings").iter().find(|setting| setting.name == *section).unwrap();
        write_table(structs, example, section, setting, &mut text);
    }
    text
}

fn write_table(
    structs: &Structs,
    example: &Example,
    path: &str,
    table: &Setting,
    text: &mut String,
) {
    let header = if table.is_list { format!("[[{path}]]") } else { format!("[{path}]") };
    let mark = if path == INSTEAD { "# " } else { "" };
    text.push_str(&format!("\n# {}\n{mark}{header}\n", table.meaning));
    let (tables, plain): (Vec<&Setting>, Vec<&Setting>) =
        structs.of(&table.kind).iter().partition(|setting| structs.has(&setting.kind));
    for setting in plain {
        for line in documented::wrap(&setting.documentation, 118) {
            text.push_str(&format!("# {line}\n"));
        }
        text.push_str(&format!(
            "{mark}{}\n",
            value_of(example, &format!("{path}.{}", setting.name), setting)
        ));
    }
    for setting in tables {
        if setting.is_list && example.role == ProcessRole::Dev {
            continue;
        }
        write_table(structs, example, &format!("{path}.{}", setting.name), setting, text);
    }
}

fn example_path(example: &Example) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example.file)
}

#[test]
fn examples_have_every_setting_with_its_documentation() {
    let structs = Structs::read();
    for example in &EXAMPLES {
        let (path, wanted) = (example_path(example), write_example(&structs, example));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(
            found == wanted,
            "{} is not what the code documents; run this test with BLESS=1",
            path.display()
        );
    }
}

/// Loads an example with the files it names put in place.
fn load_example(example: &Example, text: &str) -> Result<Vec<String>, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let mut text = text.to_owned();
    for name in
        ["cluster.secret", "identities.toml", "tls.crt", "tls.key", "ufs.secret", "etcd.secret"]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, "0123456789abcdef").unwrap();
        text = text.replace(&format!("/etc/verbs3/{name}"), file.to_str().unwrap());
    }
    let file = folder.path().join(example.file);
    std::fs::write(&file, text).unwrap();
    let layers =
        ConfigLayers { file: Some(file), environment: EnvironmentLayer::default(), flags: vec![] };
    let lines = |problems: &[verbs3_config::ConfigProblem]| {
        problems.iter().map(ToString::to_string).collect()
    };
    load_config(&layers, &[example.role])
        .map(|loaded| lines(&loaded.warnings))
        .map_err(|problems| lines(&problems.0))
}

#[test]
fn examples_can_be_started_as_they_are() {
    for example in &EXAMPLES {
        let text = std::fs::read_to_string(example_path(example)).unwrap();
        assert_eq!(load_example(example, &text), Ok(vec![]), "{}", example.file);
    }
}

#[test]
fn settings_that_examples_leave_out_exist() {
    for example in &EXAMPLES {
        let text = std::fs::read_to_string(example_path(example)).unwrap();
        let setting = |line: &str| {
            line.strip_prefix("# ").and_then(|rest| rest.split_once(" = ")).is_some_and(
                |(name, _)| {
                    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                },
            ) || line == format!("# [[{INSTEAD}]]")
        };
        let all: String = text
            .lines()
            .map(|line| format!("{}\n", if setting(line) { &line[2..] } else { line }))
            .collect();
        let problems = load_example(example, &all).err().unwrap_or_default();
        let misfits: Vec<&String> = problems
            .iter()
            .filter(|line| line.contains("no such setting") || line.contains(": wants "))
            .collect();
        assert_eq!(misfits, [""; 0], "{}", example.file);
    }
}

/// The defaults of a struct as the code has them.
fn defaults_of(path: &[&str]) -> toml::Value {
    let mut value = match path {
        ["ufs", ..] => toml::Value::try_from(UfsSettings::default()).unwrap(),
        ["mount", ..] => toml::Value::try_from(MountSettings::default()).unwrap(),
        ["cluster", "workers", ..] => {
            return toml::Value::try_from(ClusterWorkerSettings::default()).unwrap();
        }
        ["worker", "disk", "folders"] => {
            return toml::Value::try_from(DiskFolderSettings::default()).unwrap();
        }
        ["worker", "disk", "volumes"] => {
            return toml::Value::try_from(DiskVolumeSettings::default()).unwrap();
        }
        _ => toml::Value::try_from(RootSettings::default()).unwrap(),
    };
    let skip = usize::from(matches!(path, ["ufs" | "mount", ..]));
    for step in &path[skip..] {
        value = value.get(step).unwrap().clone();
    }
    value
}

/// Calls `visit` for every plain setting with the path of its table.
fn walk(
    structs: &Structs,
    kind: &str,
    path: &mut Vec<String>,
    visit: &mut impl FnMut(&[String], &Setting),
) {
    for setting in structs.of(kind) {
        if structs.has(&setting.kind) {
            path.push(setting.name.clone());
            walk(structs, &setting.kind, path, visit);
            path.pop();
        } else {
            visit(path, setting);
        }
    }
}

#[test]
fn documented_defaults_are_the_defaults_of_the_code() {
    let structs = Structs::read();
    let mut seen = 0;
    walk(&structs, "RootSettings", &mut Vec::new(), &mut |path, setting| {
        let steps: Vec<&str> = path.iter().map(String::as_str).collect();
        let code = defaults_of(&steps).get(&setting.name).cloned();
        let at = format!("{}.{}", path.join("."), setting.name);
        match (&setting.default, setting.required) {
            (Some(text), false) => assert_eq!(code, Some(documented::literal(text)), "{at}"),
            (None, false) => assert_eq!(code, None, "{at} is documented to have no default"),
            (None, true) => {
                assert!(code.is_none_or(|code| code.as_str() == Some("")), "{at} is required")
            }
            (Some(_), true) => panic!("{at} is required and has a default"),
        }
        seen += 1;
    });
    assert!(seen > 60, "only {seen} settings were found");
}

/// The literals just outside and just inside one end of a range. `None` where nothing lies outside.
fn around(end: &str, up: bool) -> (Option<String>, String) {
    let step =
        |number: u64, by: u64| if up { number.checked_add(by) } else { number.checked_sub(by) };
    match documented::literal(end) {
        toml::Value::Integer(number) => {
            let number = u64::try_from(number).unwrap();
            (step(number, 1).map(|n| n.to_string()), number.to_string())
        }
        toml::Value::Float(number) => {
            let outside = if up { number * 2.0 } else { number / 2.0 - 0.0005 };
            (Some(format!("{outside:?}")), format!("{number:?}"))
        }
        toml::Value::String(text) => match (text.parse::<ByteSize>(), text.parse::<TimePeriod>()) {
            (Ok(size), _) => (step(size.0, 1).map(|bytes| ByteSize(bytes).to_string()), text),
            (_, Ok(period)) => {
                let ms = u64::try_from(period.0.as_millis()).unwrap();
                (step(ms, 1).map(|ms| TimePeriod::from_millis(ms).to_string()), text)
            }
            _ => panic!("{text} is neither a size nor a duration"),
        },
        other => panic!("{other} is not the end of a range"),
    }
}

#[test]
fn documented_ranges_are_enforced() {
    let structs = Structs::read();
    let mut seen = 0;
    walk(&structs, "RootSettings", &mut Vec::new(), &mut |path, setting| {
        let Some((low, high)) = &setting.range else { return };
        let mut steps = path.to_vec();
        const LISTS: [&str; 5] =
            ["ufs", "mount", "cluster.workers", "worker.disk.folders", "worker.disk.volumes"];
        let list =
            (1..=steps.len()).find(|&list| LISTS.contains(&steps[..list].join(".").as_str()));
        if let Some(list) = list {
            steps[list - 1].push_str("[0]");
        }
        let path = format!("{}.{}", steps.join("."), setting.name);
        let refused = |value: &str| {
            let flags =
                vec![CommandFlag { name: "test".into(), path: path.clone(), value: value.into() }];
            let problems = load_config(&ConfigLayers { flags, ..ConfigLayers::default() }, &[])
                .err()
                .map(|p| p.0)
                .unwrap_or_default();
            problems
                .iter()
                .any(|problem| problem.path == path && problem.message.contains("is not between"))
        };
        for (end, up) in [(low, false), (high, true)] {
            let (outside, inside) = around(end, up);
            assert!(!refused(&inside), "{path} = {inside} is documented to be allowed");
            assert!(
                outside.is_none_or(|outside| refused(&outside)),
                "{path} is not held to its documented range at {end}"
            );
        }
        seen += 1;
    });
    assert!(seen > 35, "only {seen} ranges were found");
}
