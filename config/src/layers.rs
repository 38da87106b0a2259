//! Defaults, under the file, under the environment, under flags: merged, read, checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::providers::Serialized;
use figment::value::{Dict, Tag, Value};
use figment::{Figment, Profile, Provider};

use crate::check;
use crate::environment::{EnvironmentLayer, SettingOverride};
use crate::process_role::ProcessRole;
use crate::root::RootSettings;
use crate::schema;
use verbs3_settings::{ConfigError, ConfigProblem, ProblemSeverity, SettingOrigin};

/// Where the settings of a process come from; each layer wins over those before it.
#[derive(Debug, Clone, Default)]
pub struct ConfigLayers {
    pub file: Option<PathBuf>,
    pub environment: EnvironmentLayer,
    pub flags: Vec<CommandFlag>,
}

/// A setting from the command line.
#[derive(Debug, Clone)]
pub struct CommandFlag {
    /// As the user wrote it, for messages: `--listen`.
    pub name: String,
    /// TOML path: `gateway.listen`, `ufs[0].endpoint`.
    pub path: String,
    pub value: String,
}

/// A configuration that can be started.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    pub config: RootSettings,
    pub warnings: Vec<ConfigProblem>,
    pub(crate) origins: BTreeMap<String, SettingOrigin>,
}

/// Merges the layers, reads them and checks the result for `roles`. Without a role it may be
/// incomplete, and no file that it names is looked at: for commands, which need a section or two of
/// it.
pub fn load_config(
    layers: &ConfigLayers,
    roles: &[ProcessRole],
) -> Result<LoadedConfig, ConfigError> {
    let mut problems = Vec::new();
    let mut origins = BTreeMap::new();
    let file = match &layers.file {
        Some(path) => read_file(path).map_err(|problem| ConfigError(vec![problem]))?,
        None => toml::Table::new(),
    };
    let mut tree = merge_layers(&file);
    if let Some(path) = &layers.file {
        let file_tree =
            Value::serialize(&file).expect("TOML is made of texts, numbers, lists and tables");
        note_origins(&file_tree, &mut Vec::new(), &SettingOrigin::File(path.clone()), &mut origins);
    }
    let flags = layers.flags.iter().map(|flag| SettingOverride {
        steps: path_steps(&flag.path),
        text: flag.value.clone(),
        origin: SettingOrigin::Flag(flag.name.clone()),
    });
    for setting in layers.environment.setting_overrides().chain(flags) {
        let path = schema::show_path(&setting.steps);
        match set_value(&mut tree, &setting) {
            Ok(()) => drop(origins.insert(path, setting.origin)),
            Err(message) => {
                problems.push(ConfigProblem {
                    origin: Some(setting.origin),
                    ..ConfigProblem::new_error(path, message)
                });
            }
        }
    }
    let (config, misfits) = schema::read(tree);
    problems.extend(misfits);
    if let Some(config) = &config {
        let unreadable: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
        // What could not be read has its default in `config`: a second message about it would
        // mislead.
        let found = check::check_config(config, roles, &layers.environment);
        problems.extend(found.into_iter().filter(|found| !unreadable.contains(&found.path)));
    }
    for problem in &mut problems {
        problem.origin = problem.origin.take().or_else(|| origins.get(&problem.path).cloned());
    }
    match config {
        Some(config)
            if problems.iter().all(|problem| problem.severity == ProblemSeverity::Warning) =>
        {
            Ok(LoadedConfig { config, warnings: problems, origins })
        }
        _ => Err(ConfigError(problems)),
    }
}

fn read_file(path: &Path) -> Result<toml::Table, ConfigProblem> {
    let text = std::fs::read_to_string(path).map_err(|source| {
        ConfigProblem::new_error("", format!("can't read {}: {source}", path.display()))
    })?;
    text.parse::<toml::Table>().map_err(|error| {
        let before = &text[..error.span().map_or(0, |span| span.start.min(text.len()))];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        // Not the line itself: it may hold a secret.
        ConfigProblem::new_error(
            "",
            format!("{}:{line}:{column}: not TOML: {}", path.display(), error.message().trim()),
        )
    })
}

fn merge_layers(file: &toml::Table) -> Value {
    let merged = Figment::from(Serialized::defaults(RootSettings::default()))
        .merge(Serialized::defaults(file));
    let mut profiles =
        merged.data().expect("defaults and TOML are made of texts, numbers, lists and tables");
    Value::Dict(Tag::Default, profiles.remove(&Profile::Default).unwrap_or_default())
}

fn path_steps(path: &str) -> Vec<String> {
    path.replace('[', ".").replace(']', "").split('.').map(str::to_owned).collect()
}

/// Sets one value, read as its default's type says, or its example's where it has no default: a text
/// stays a text, even when it looks like a number.
fn set_value(tree: &mut Value, setting: &SettingOverride) -> Result<(), String> {
    let kind = || {
        let default = schema::default_at(&setting.steps);
        default
            .filter(|default| !matches!(default, Value::Empty(..)))
            .or_else(|| schema::example_at(&setting.steps))
    };
    let value = match kind() {
        Some(Value::Bool(..) | Value::Num(..) | Value::Array(..) | Value::Dict(..)) => {
            let Ok(value) = setting.text.parse::<Value>();
            value
        }
        _ => Value::String(Tag::Default, setting.text.clone()),
    };
    let (last, parents) = setting.steps.split_last().ok_or("no setting is named")?;
    let mut at = tree;
    for step in parents {
        at = child_value(at, step)?;
    }
    match at {
        Value::Dict(_, dict) => drop(dict.insert(last.clone(), value)),
        other => *child_value(other, last)? = value,
    }
    Ok(())
}

/// The table at `step`, made where it is missing; in a list, the entry after the last may be made.
fn child_value<'a>(value: &'a mut Value, step: &str) -> Result<&'a mut Value, String> {
    let empty = || Value::Dict(Tag::Default, Dict::new());
    match value {
        Value::Dict(_, dict) => Ok(dict.entry(step.to_owned()).or_insert_with(empty)),
        Value::Array(_, list) => {
            let index: usize =
                step.parse().map_err(|_| format!("{step:?} is not the number of a list entry"))?;
            if index == list.len() {
                list.push(empty());
            }
            let length = list.len();
            list.get_mut(index)
                .ok_or_else(|| format!("the list has {length} entries; set entry {length} first"))
        }
        _ => Err(format!("no such setting: what is above {step:?} is a plain value")),
    }
}

fn note_origins(
    value: &Value,
    at: &mut Vec<String>,
    origin: &SettingOrigin,
    origins: &mut BTreeMap<String, SettingOrigin>,
) {
    let children: Vec<(String, &Value)> = match value {
        Value::Dict(_, dict) => dict.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(_, list) => {
            list.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    origins.insert(schema::show_path(at), origin.clone());
    for (step, value) in children {
        at.push(step);
        note_origins(value, at, origin, origins);
        at.pop();
    }
}

/// The roles whose sections a file has.
pub fn roles_in(file: &Path) -> Result<Vec<ProcessRole>, ConfigError> {
    let table = read_file(file).map_err(|problem| ConfigError(vec![problem]))?;
    let roles = [
        ProcessRole::Gateway,
        ProcessRole::Worker,
        ProcessRole::Coordinator,
        ProcessRole::Dev,
        ProcessRole::Webhook,
        ProcessRole::Controller,
    ];
    Ok(roles.into_iter().filter(|role| table.contains_key(&role.to_string())).collect())
}

#[cfg(test)]
mod tests;
