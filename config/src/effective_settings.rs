//! The effective configuration as text: every value, where it came from, and no secret.

use std::fmt::Write as _;

use figment::value::Value;
use verbs3_settings::{SettingOrigin, toml_literal};

use crate::layers::LoadedConfig;
use crate::schema;

impl LoadedConfig {
    /// One line per setting: `gateway.listen = "127.0.0.1:9000"  # default`.
    pub fn show_settings(&self) -> String {
        let tree = Value::serialize(&self.config)
            .expect("configuration is made of texts, numbers, lists and tables");
        let mut lines = Vec::new();
        self.collect_lines(&tree, &mut Vec::new(), &mut lines);
        let width = lines
            .iter()
            .map(|(setting, _)| setting.chars().count())
            .filter(|w| *w <= 72)
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for (setting, origin) in lines {
            writeln!(text, "{setting:width$}  # {origin}").expect("writing to a string can't fail");
        }
        text
    }

    fn collect_lines(
        &self,
        value: &Value,
        at: &mut Vec<String>,
        lines: &mut Vec<(String, SettingOrigin)>,
    ) {
        let path = schema::show_path(at);
        match value {
            Value::Dict(_, dict) => {
                for (name, value) in dict {
                    at.push(name.clone());
                    self.collect_lines(value, at, lines);
                    at.pop();
                }
                return;
            }
            Value::Array(_, list) if list.iter().any(|entry| matches!(entry, Value::Dict(..))) => {
                for (index, entry) in list.iter().enumerate() {
                    at.push(index.to_string());
                    self.collect_lines(entry, at, lines);
                    at.pop();
                }
                return;
            }
            _ => {}
        }
        let origin = self.origins.get(&path).cloned().unwrap_or(SettingOrigin::Default);
        lines.push((format!("{path} = {}", toml_literal(value)), origin));
    }
}
