//! The example files and the reference of the settings, held against their declarations.
//!
//! `config/examples/*.toml` and `docs/configuration/*.md` are written from the declarations:
//! `BLESS=1 cargo test -p verbs3-config --test examples` writes them again after a change.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use verbs3_config::{
    ByteSize, CommandFlag, ConfigLayers, EnvironmentLayer, ProcessRole, RootSettings, TimePeriod,
    load_config,
};
use verbs3_settings::{
    PlainSetting, SettingContent, SettingDescription, SettingsTable, TableDescription, join_path,
};

struct Example {
    file: &'static str,
    role: ProcessRole,
    intro: &'static str,
    sections: &'static [&'static str],
    /// Values that are neither the default nor the example of a required setting: TOML path
    /// without list numbers, and the literal.
    values: &'static [(&'static str, &'static str)],
}

/// What stands in the place of something else that an example has.
const INSTEAD: &str = "cluster.workers";

const CLUSTER: [(&str, &str); 3] = [
    ("cluster.coordinators", "[\"http://coordinator-0:9500\"]"),
    ("cluster.secret_file", "\"/etc/verbs3/cluster.secret\""),
    ("ufs.endpoint", "\"https://rgw.example:8443\""),
];

const EXAMPLES: [Example; 6] = [
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
        values: &[],
    },
    Example {
        file: "coordinator.toml",
        role: ProcessRole::Coordinator,
        intro: "verbs3 coordinator --config coordinator.toml: membership, the placement map, and \
            preload jobs.",
        sections: &["cluster", "ufs", "mount", "coordinator", "tcp", "verbs", "process", "log"],
        values: &[],
    },
    Example {
        file: "webhook.toml",
        role: ProcessRole::Webhook,
        intro: "verbs3 webhook --config webhook.toml: in Kubernetes, variables for pods.",
        sections: &["webhook", "process", "log"],
        values: &[],
    },
    Example {
        file: "controller.toml",
        role: ProcessRole::Controller,
        intro: "verbs3 controller --config controller.toml: in Kubernetes, preload jobs as \
            resources.",
        sections: &["controller", "process", "log"],
        values: &[],
    },
];

fn value_of(example: &Example, path: &str, name: &str, plain: &PlainSetting) -> String {
    let has_cluster = example.role != ProcessRole::Dev;
    let mut listed = example.values.iter().chain(CLUSTER.iter().filter(|_| has_cluster));
    let sample = plain.example.as_deref();
    match (listed.find(|(at, _)| *at == path), &plain.default) {
        (Some((_, value)), _) => format!("{name} = {value}"),
        (None, Some(default)) => format!("{name} = {default}"),
        (None, None) => {
            let sample = sample.unwrap_or_else(|| panic!("{path} has no default and no example"));
            let mark = if plain.required && has_cluster { "" } else { "# " };
            format!("{mark}{name} = {sample}")
        }
    }
}

/// The text of one example file.
fn write_example(example: &Example) -> String {
    let mut text = format!(
        "# {}\n# Every setting is here, with what it means. `verbs3 config check FILE` says what is\n\
         # wrong with a file, `verbs3 config show FILE` what is in effect.\n\
         # VERBS3_SECTION__SETTING=value in the environment overrides the file.\n",
        example.intro
    );
    let root = RootSettings::describe_table();
    for section in example.sections {
        let setting = root.settings.iter().find(|setting| setting.name == *section).unwrap();
        write_table(example, section, setting, &mut text);
    }
    text
}

/// The table that a setting is, and whether it is a list of such tables.
fn table_of(setting: &SettingDescription) -> Option<(&TableDescription, bool)> {
    match &setting.content {
        SettingContent::Plain(_) => None,
        SettingContent::Table(table) => Some((table, false)),
        SettingContent::List(table) => Some((table, true)),
    }
}

fn write_table(example: &Example, path: &str, setting: &SettingDescription, text: &mut String) {
    let (table, is_list) = table_of(setting).unwrap();
    let header = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
    let mark = if path == INSTEAD { "# " } else { "" };
    let meaning = setting.documentation.split_inclusive(". ").next().unwrap().trim();
    text.push_str(&format!("\n# {}\n{mark}{header}\n", meaning.replace('`', "")));
    for setting in &table.settings {
        let SettingContent::Plain(plain) = &setting.content else { continue };
        for line in wrap_text(&setting.explain_setting().replace('`', ""), 98) {
            text.push_str(&format!("# {line}\n"));
        }
        let path = format!("{path}.{}", setting.name);
        text.push_str(&format!("{mark}{}\n", value_of(example, &path, setting.name, plain)));
    }
    for setting in &table.settings {
        match table_of(setting) {
            Some((_, true)) if example.role == ProcessRole::Dev => {}
            Some(_) => write_table(example, &format!("{path}.{}", setting.name), setting, text),
            None => {}
        }
    }
}

/// Breaks a text into lines.
fn wrap_text(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > columns {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn example_path(example: &Example) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example.file)
}

/// Holds a file against what the declarations say, or writes it.
fn hold_file(path: &Path, wanted: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "{} is not what the declarations say; run this test with BLESS=1",
        path.display()
    );
}

#[test]
fn examples_have_every_setting_with_its_documentation() {
    for example in &EXAMPLES {
        hold_file(&example_path(example), &write_example(example));
    }
}

fn write_reference(section: &SettingDescription) -> String {
    let mut text = format!(
        "# `{0}`\n\n<!-- Written from the declarations by the test `examples` of config. -->\n",
        section.name
    );
    write_reference_table(section.name, section, &mut text);
    text
}

fn write_reference_table(path: &str, setting: &SettingDescription, text: &mut String) {
    let (table, is_list) = table_of(setting).unwrap();
    let header = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
    text.push_str(&format!("\n## `{header}`\n\n"));
    for documentation in [setting.documentation, rest_of(table.documentation)] {
        for line in wrap_text(documentation, 100).iter().filter(|line| !line.is_empty()) {
            text.push_str(&format!("{line}\n"));
        }
    }
    text.push_str("\n| setting | default | range | what it means |\n|---|---|---|---|\n");
    for setting in &table.settings {
        let SettingContent::Plain(plain) = &setting.content else { continue };
        let default = match &plain.default {
            Some(default) => format!("`{default}`"),
            None if plain.required => "required".to_owned(),
            None => String::new(),
        };
        let range = plain.range.as_ref();
        let range = range.map(|(low, high)| format!("`{low}` to `{high}`")).unwrap_or_default();
        text.push_str(&format!(
            "| `{}` | {default} | {range} | {} |\n",
            setting.name,
            setting.documentation.replace('|', "\\|")
        ));
    }
    for setting in table.settings.iter().filter(|setting| table_of(setting).is_some()) {
        write_reference_table(&format!("{path}.{}", setting.name), setting, text);
    }
}

/// A table's documentation without its first sentence, which names it.
fn rest_of(documentation: &str) -> &str {
    documentation
        .split_once("`. ")
        .or_else(|| documentation.split_once(". "))
        .map_or("", |(_, rest)| rest)
}

#[test]
fn the_reference_has_every_setting() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration");
    let root = RootSettings::describe_table();
    for section in &root.settings {
        hold_file(&docs.join(format!("{}.md", section.name)), &write_reference(section));
    }
    let mut list = String::from(
        "# Configuration\n\n<!-- Written from the declarations by the test `examples` of config. -->\n\n\
         Every section of the file, with every setting of it.\n\
         [Operations](../operations.md) says how the file, the environment and flags go together.\n\n\
         | section | what it is about |\n|---|---|\n",
    );
    for section in &root.settings {
        list.push_str(&format!("| [`{0}`]({0}.md) | {1} |\n", section.name, section.documentation));
    }
    hold_file(&docs.join("index.md"), &list);
}

/// Loads an example with the files it names put in place.
fn load_example(example: &Example, text: &str) -> Result<Vec<String>, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let mut text = text.to_owned();
    for name in [
        "cluster.secrets-accepted",
        "cluster.secret",
        "identities.toml",
        "ufs.secret",
        "etcd.secret",
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
        text = text.replace(&format!("/etc/verbs3/{name}"), file.to_str().unwrap());
    }
    // These are looked into.
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    for (name, content) in
        [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, content).unwrap();
        text = text.replace(&format!("/etc/verbs3/{name}"), file.to_str().unwrap());
    }
    for name in ["ca.crt", "token"] {
        let account = "/var/run/secrets/kubernetes.io/serviceaccount";
        let file = folder.path().join(name);
        std::fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
        text = text.replace(&format!("{account}/{name}"), file.to_str().unwrap());
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

/// Calls `visit` for every plain setting with its path; the first entry of each list has one.
fn walk_settings(
    table: &TableDescription,
    path: &str,
    visit: &mut impl FnMut(&str, &PlainSetting),
) {
    for setting in &table.settings {
        let path = join_path(path, setting.name);
        match &setting.content {
            SettingContent::Plain(plain) => visit(&path, plain),
            SettingContent::Table(table) => walk_settings(table, &path, visit),
            SettingContent::List(table) => walk_settings(table, &format!("{path}[0]"), visit),
        }
    }
}

/// A TOML literal as a value.
fn read_toml(text: &str) -> toml::Value {
    let mut table: toml::Table =
        format!("x = {text}").parse().unwrap_or_else(|_| panic!("{text} is not TOML"));
    table.remove("x").unwrap()
}

#[test]
fn whatever_is_counted_has_a_range() {
    let mut seen = 0;
    walk_settings(&RootSettings::describe_table(), "", &mut |path, setting| {
        let Some(default) = setting.default.as_deref().map(read_toml) else { return };
        let is_quantity = match &default {
            toml::Value::Integer(_) | toml::Value::Float(_) => true,
            toml::Value::String(text) => {
                text.parse::<ByteSize>().is_ok() || text.parse::<TimePeriod>().is_ok()
            }
            _ => false,
        };
        let is_bounded = setting.range.is_some() || path == "mount[0].attributes_ttl";
        assert!(!is_quantity || is_bounded, "{path} has no range");
        seen += usize::from(is_quantity);
    });
    assert!(seen > 150, "only {seen} quantities were found");
}

/// The literals just outside and just inside one end of a range. `None` where nothing lies outside.
fn around(end: &str, up: bool) -> (Option<String>, String) {
    let step =
        |number: u64, by: u64| if up { number.checked_add(by) } else { number.checked_sub(by) };
    match read_toml(end) {
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
    let mut seen = 0;
    walk_settings(&RootSettings::describe_table(), "", &mut |path, setting| {
        let Some((low, high)) = &setting.range else { return };
        let refused = |value: &str| {
            let flags =
                vec![CommandFlag { name: "test".into(), path: path.into(), value: value.into() }];
            let problems = load_config(&ConfigLayers { flags, ..ConfigLayers::default() }, &[])
                .err()
                .map(|p| p.0)
                .unwrap_or_default();
            // Beyond the end of its type, a value is refused before its range is looked at.
            problems.iter().any(|problem| {
                problem.path == path
                    && ["is not between", "wants a whole number"]
                        .iter()
                        .any(|why| problem.message.contains(why))
            })
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
    assert!(seen > 150, "only {seen} ranges were found");
}
