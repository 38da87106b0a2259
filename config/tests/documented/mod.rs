//! Reads the settings' documentation out of the crate's own source.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

/// One field of a configuration struct.
pub struct Setting {
    pub name: String,
    /// Type, without `Option` and `Vec`.
    pub kind: String,
    pub is_list: bool,
    /// The whole doc comment, without "Default" and "Range" in code quotes.
    pub documentation: String,
    /// Its first sentence.
    pub meaning: String,
    /// TOML literal; `None` where it says "none" or "Required".
    pub default: Option<String>,
    pub required: bool,
    /// TOML literals.
    pub range: Option<(String, String)>,
}

pub struct Structs(BTreeMap<String, Vec<Setting>>);

impl Structs {
    pub fn read() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut structs = BTreeMap::new();
        for file in [
            "root",
            "cluster",
            "coordinator",
            "preload",
            "hot",
            "ufs",
            "mount",
            "gateway",
            "worker",
            "disk",
            "dev",
            "tcp",
            "verbs",
            "process",
            "telemetry",
        ] {
            read_source(
                &std::fs::read_to_string(source.join(file).with_extension("rs")).unwrap(),
                &mut structs,
            );
        }
        Self(structs)
    }

    pub fn of(&self, name: &str) -> &[Setting] {
        self.0.get(name).unwrap_or_else(|| panic!("no struct {name}"))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// A TOML literal as a value.
pub fn literal(text: &str) -> toml::Value {
    let mut table: toml::Table =
        format!("x = {text}").parse().unwrap_or_else(|_| panic!("{text} is not TOML"));
    table.remove("x").unwrap()
}

/// Breaks a text into lines.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
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

fn read_source(source: &str, structs: &mut BTreeMap<String, Vec<Setting>>) {
    let mut current: Option<(String, Vec<Setting>)> = None;
    let mut doc = String::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(' ');
            doc.push_str(text.trim());
        } else if let Some(name) =
            line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {"))
        {
            current = Some((name.to_owned(), Vec::new()));
            doc.clear();
        } else if line == "}" {
            if let Some((name, settings)) = current.take() {
                structs.insert(name, settings);
            }
        } else if let Some((of, settings)) = &mut current {
            if let Some((name, kind)) =
                line.strip_prefix("pub ").and_then(|rest| rest.split_once(": "))
            {
                settings.push(setting(
                    of,
                    name,
                    kind.trim_end_matches(','),
                    std::mem::take(&mut doc).trim(),
                ));
            }
        } else {
            doc.clear();
        }
    }
}

fn setting(of: &str, name: &str, kind: &str, doc: &str) -> Setting {
    let inner = |wrapper: &str| kind.strip_prefix(wrapper).and_then(|rest| rest.strip_suffix('>'));
    let (is_list, kind) = match (inner("Vec<"), inner("Option<")) {
        (Some(inner), _) => (true, inner),
        (_, Some(inner)) => (false, inner),
        _ => (false, kind),
    };
    assert!(!doc.is_empty(), "{of}.{name} has no documentation");
    let quoted = |label: &str| {
        let (_, rest) = doc.split_once(label)?;
        rest.strip_prefix('`')?
            .split_once('`')
            .map(|(literal, rest)| (literal.to_owned(), rest.to_owned()))
    };
    let default = quoted("Default: ").map(|(literal, _)| literal);
    let required = doc.contains("Required.");
    let range = quoted("Range: ").map(|(low, rest)| {
        let high = rest
            .strip_prefix(" to `")
            .and_then(|rest| rest.split_once('`'))
            .unwrap_or_else(|| panic!("{of}.{name}: {rest}"));
        (low, high.0.to_owned())
    });
    let table = kind.chars().next().is_some_and(char::is_uppercase)
        && default.is_none()
        && !doc.contains("Default: none.");
    assert!(
        table || required || default.is_some() || doc.contains("Default: none."),
        "{of}.{name} documents no default"
    );
    Setting {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_list,
        documentation: doc.replace('`', ""),
        meaning: doc.split_inclusive(". ").next().unwrap_or(doc).trim().replace('`', ""),
        default,
        required,
        range,
    }
}
