//! What is declared of a setting, once, where it is declared: its default, its range, its meaning.
//!
//! Owns the trait that `#[derive(SettingsTable)]` implements, and what its code calls. Checks of
//! ranges, example files and the reference come out of it. What must hold between settings is
//! in `verbs3-config`.

use figment::value::Value;
use serde::Serialize;
use serde::de::value::{Error as LiteralError, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::findings::CheckFindings;
use crate::literal::toml_literal;

/// A table of settings.
pub trait SettingsTable: Default {
    /// Notes each value of this table, and of the tables in it, that is out of its range. `path`:
    /// the table's own in the file, such as `gateway.limits`; empty for the whole file.
    fn check_ranges(&self, path: &str, findings: &mut CheckFindings);

    /// What is declared of its settings.
    fn describe_table() -> TableDescription;
}

/// A table, as it is declared.
#[derive(Debug, Clone)]
pub struct TableDescription {
    /// Its doc comment as one line of Markdown.
    pub documentation: &'static str,
    /// Makes the tree of its defaults.
    pub default_tree: fn() -> Value,
    /// In the order in which they are declared.
    pub settings: Vec<SettingDescription>,
}

/// A setting, as it is declared.
#[derive(Debug, Clone)]
pub struct SettingDescription {
    /// Its name in the file.
    pub name: &'static str,
    /// Its doc comment as one line of Markdown.
    pub documentation: &'static str,
    pub content: SettingContent,
}

/// What a setting holds.
#[derive(Debug, Clone)]
pub enum SettingContent {
    Plain(PlainSetting),
    Table(TableDescription),
    /// A list of tables (`[[ufs]]`).
    List(TableDescription),
}

/// One value, in TOML's notation throughout.
#[derive(Debug, Clone)]
pub struct PlainSetting {
    /// `None` where there is none.
    pub default: Option<String>,
    /// Its least and its greatest value.
    pub range: Option<(String, String)>,
    /// The user has to write it.
    pub required: bool,
    /// What it could be, where it has no default.
    pub example: Option<String>,
}

impl SettingDescription {
    /// Its documentation with what follows from its declaration: `… Default: 8. Range: 1 to 64.`
    pub fn explain_setting(&self) -> String {
        let mut text = self.documentation.to_owned();
        if let SettingContent::Plain(plain) = &self.content {
            match &plain.default {
                Some(default) => text.push_str(&format!(" Default: `{default}`.")),
                None if plain.required => text.push_str(" Required."),
                None => text.push_str(" Default: none."),
            }
            if let Some((low, high)) = &plain.range {
                text.push_str(&format!(" Range: `{low}` to `{high}`."));
            }
        }
        text
    }
}

/// The value that a file means by a quoted `text`.
///
/// # Panics
///
/// Where `text` is not a value of the setting: a mistake in a declaration, found by every test.
pub fn read_literal<T: DeserializeOwned>(text: &str) -> T {
    let source: StrDeserializer<'_, LiteralError> = text.into_deserializer();
    T::deserialize(source)
        .unwrap_or_else(|error| panic!("a setting is declared with {text:?}, and {error}"))
}

/// A value as a file has it.
pub fn write_literal(value: &impl Serialize) -> String {
    toml_literal(&Value::serialize(value).expect("what a declaration holds can be written"))
}

/// A default as a file has it; `None` where there is none.
pub fn write_default(value: &impl Serialize, required: bool) -> Option<String> {
    match Value::serialize(value).expect("a default can be written") {
        _ if required => None,
        Value::Empty(..) => None,
        value => Some(toml_literal(&value)),
    }
}

/// A table as a tree of values.
///
/// # Panics
///
/// Where a value of it is none of TOML's: a mistake in a declaration.
pub fn write_tree(table: &impl Serialize) -> Value {
    Value::serialize(table).expect("settings are texts, numbers, lists and tables")
}

/// `gateway` and `listen` → `gateway.listen`.
pub fn join_path(table: &str, name: &str) -> String {
    if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") }
}
