//! From a tree of values to a [`RootSettings`], collecting every value that does not fit instead of
//! stopping at the first.

use std::fmt::Write as _;

use figment::error::{Actual, Kind};
use figment::value::{Dict, Tag, Value};
use serde::Deserialize;

use crate::root::RootSettings;
use verbs3_settings::{ConfigProblem, SettingContent, SettingsTable, suggest_name, write_tree};

/// The tree of all defaults.
pub(crate) fn default_tree() -> Value {
    write_tree(&RootSettings::default())
}

/// The default of the setting at `steps`, entries of lists included; `None` where there is no such
/// setting.
pub(crate) fn default_at(steps: &[String]) -> Option<Value> {
    let mut value = default_tree();
    let mut at = Vec::new();
    for step in steps {
        value = match value {
            Value::Dict(_, mut dict) => dict.remove(step)?,
            Value::Array(..) if step.parse::<usize>().is_ok() => default_entry(&at)?,
            _ => return None,
        };
        if step.parse::<usize>().is_err() {
            at.push(step.as_str());
        }
    }
    Some(value)
}

/// What the setting at `steps` could be, entries of lists included; `None` where there is no such
/// setting, or it has no example.
pub(crate) fn example_at(steps: &[String]) -> Option<Value> {
    let mut table = RootSettings::describe_table();
    for step in steps.iter().filter(|step| step.parse::<usize>().is_err()) {
        let setting = table.settings.into_iter().find(|setting| setting.name == *step)?;
        table = match setting.content {
            SettingContent::Table(table) | SettingContent::List(table) => table,
            SettingContent::Plain(plain) => {
                let Ok(example) = plain.example?.parse::<Value>();
                return Some(example);
            }
        };
    }
    None
}

/// What an entry of the list at `path` is before anything is set; `None` where the entries are
/// plain values.
fn default_entry(path: &[&str]) -> Option<Value> {
    let mut table = RootSettings::describe_table();
    for (index, step) in path.iter().enumerate() {
        let setting = table.settings.into_iter().find(|setting| setting.name == *step)?;
        table = match setting.content {
            SettingContent::List(entry) if index + 1 == path.len() => {
                return Some((entry.default_tree)());
            }
            SettingContent::Table(table) | SettingContent::List(table) => table,
            SettingContent::Plain(_) => return None,
        };
    }
    None
}

/// Reads the tree. What does not fit is reported and taken out (its default then stands in), until
/// the rest fits.
pub(crate) fn read(mut tree: Value) -> (Option<RootSettings>, Vec<ConfigProblem>) {
    let mut problems = Vec::new();
    loop {
        let error = match RootSettings::deserialize(&tree) {
            Ok(config) => return (Some(config), problems),
            Err(error) => error,
        };
        problems.push(ConfigProblem::new_error(
            show_path(&error.path),
            describe_misfit(&error.kind, &error.path),
        ));
        if !take_out(&mut tree, &error.path) {
            return (None, problems);
        }
    }
}

/// `["mount", "2", "ufs"]` → `mount[2].ufs`.
pub(crate) fn show_path(steps: &[String]) -> String {
    let mut path = String::new();
    for step in steps {
        if step.parse::<usize>().is_ok() {
            write!(path, "[{step}]").expect("writing to a string can't fail");
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(step);
        }
    }
    path
}

fn take_out(tree: &mut Value, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    let mut value = tree;
    for step in parents {
        let next = match value {
            Value::Dict(_, dict) => dict.get_mut(step),
            Value::Array(_, list) => step.parse().ok().and_then(|index: usize| list.get_mut(index)),
            _ => None,
        };
        let Some(next) = next else { return false };
        value = next;
    }
    match value {
        Value::Dict(_, dict) => dict.remove(last).is_some(),
        // The others keep their number: an entry that fits anywhere takes its place.
        Value::Array(_, list) => {
            let Some(slot) = last.parse().ok().and_then(|index: usize| list.get_mut(index)) else {
                return false;
            };
            let steps: Vec<&str> = parents.iter().map(String::as_str).collect();
            let fits = match default_entry(&steps) {
                Some(_) => Value::Dict(Tag::Default, Dict::new()),
                None => Value::String(Tag::Default, String::new()),
            };
            let changed = *slot != fits;
            *slot = fits;
            changed
        }
        _ => false,
    }
}

/// What a setting's path says where a secret belongs into it or beside it.
const SECRET_STEPS: [&str; 5] = ["secret", "token", "password", "credential", "key"];

/// Returns whether a value at this path may be a secret, if only by mistake.
fn may_hold_secret(path: &[String]) -> bool {
    path.iter().any(|step| SECRET_STEPS.iter().any(|word| step.contains(word)))
}

/// The message of a value that does not fit. Values that may be secrets stay out of it. Text where
/// a table or a list is wanted has no value to show: whoever wrote it meant another setting, maybe
/// a secret one.
fn describe_misfit(kind: &Kind, path: &[String]) -> String {
    let is_secret = may_hold_secret(path);
    let got = |actual: &Actual, is_hidden: bool| match actual {
        _ if is_secret => "another type of value".to_owned(),
        Actual::Bool(_) if is_hidden => "a boolean".to_owned(),
        Actual::Signed(_) | Actual::Unsigned(_) | Actual::Float(_) if is_hidden => {
            "a number".to_owned()
        }
        Actual::Str(_) if is_hidden => "a text".to_owned(),
        Actual::Signed(number) => number.to_string(),
        Actual::Unsigned(number) => number.to_string(),
        Actual::Float(number) => number.to_string(),
        Actual::Bool(value) => value.to_string(),
        Actual::Str(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    match kind {
        Kind::UnknownField(name, known) => {
            let close = suggest_name(name, known.iter().copied());
            if close.is_empty() {
                format!("no such setting; there are {}", known.join(", "))
            } else {
                format!("no such setting{close}")
            }
        }
        Kind::UnknownVariant(name, known) => {
            let list = known.iter().map(|k| format!("{k:?}")).collect::<Vec<_>>().join(", ");
            if is_secret {
                return format!("is not one of {list}");
            }
            format!("{name:?} is not one of {list}{}", suggest_name(name, known.iter().copied()))
        }
        Kind::InvalidType(actual, wanted) | Kind::InvalidValue(actual, wanted) => {
            let wanted = expected_type(wanted);
            let is_hidden = wanted == TABLE || wanted == LIST;
            format!("wants {wanted}, got {}", got(actual, is_hidden))
        }
        Kind::InvalidLength(length, wanted) => format!("wants {wanted}, got {length} entries"),
        Kind::ISizeOutOfRange(number) => format!("{number} is out of range"),
        Kind::USizeOutOfRange(number) => format!("{number} is out of range"),
        Kind::MissingField(name) => format!("{name} is missing"),
        Kind::DuplicateField(name) => format!("{name} is set twice"),
        Kind::Unsupported(actual) | Kind::UnsupportedKey(actual, _) => {
            format!("wants another type of value, got {}", got(actual, true))
        }
        // The standard library's word for it.
        Kind::Message(text) if text == "invalid socket address syntax" => {
            "is no IP address with a port, such as \"0.0.0.0:9000\"".to_owned()
        }
        Kind::Message(text) => text.clone(),
    }
}

/// What is wanted where no plain value is.
const TABLE: &str = "a table";
const LIST: &str = "a list, such as [\"one\", \"two\"]";

/// serde's name of a type, as a user knows it.
fn expected_type(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f64" => "a number",
        "a sequence" | "sequence" => LIST,
        other if other.starts_with("struct ") => TABLE,
        other => other,
    }
}
