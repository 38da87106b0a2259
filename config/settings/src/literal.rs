//! Values in the notation of a configuration file.

use figment::value::Value;

/// A plain value as TOML would have it; `none` for what is not set.
pub fn toml_literal(value: &Value) -> String {
    match value {
        Value::String(_, text) => toml::Value::String(text.clone()).to_string(),
        Value::Char(_, char) => toml::Value::String(char.to_string()).to_string(),
        Value::Bool(_, bool) => bool.to_string(),
        Value::Num(_, number) => match number.to_actual() {
            figment::error::Actual::Float(float) => toml::Value::Float(float).to_string(),
            figment::error::Actual::Unsigned(number) => number.to_string(),
            figment::error::Actual::Signed(number) => number.to_string(),
            other => other.to_string(),
        },
        Value::Empty(..) => "none".to_owned(),
        Value::Array(_, list) => {
            format!("[{}]", list.iter().map(toml_literal).collect::<Vec<_>>().join(", "))
        }
        Value::Dict(..) => "{…}".to_owned(),
    }
}
