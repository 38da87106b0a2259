//! What a setting is: where it is declared, in which notation, and what can be wrong with it. Each
//! crate declares its own settings with this. Reads no environment, and of files those of secrets
//! alone: see `verbs3-config`.
#![forbid(unsafe_code)]

// The code that `#[derive(SettingsTable)]` writes names this crate.
extern crate self as verbs3_settings;

mod findings;
mod literal;
mod memory;
mod problem;
mod quantity;
mod secret;
mod setting_origin;
mod settings_table;

pub use findings::CheckFindings;
pub use literal::toml_literal;
pub use memory::MemorySettings;
pub use problem::{ConfigError, ConfigProblem, ProblemSeverity, suggest_name};
pub use quantity::{ByteSize, QuantityError, TimePeriod};
pub use secret::{ConfigSecret, REDACTED, SecretError, read_bounded_text};
pub use setting_origin::SettingOrigin;
pub use settings_table::{
    PlainSetting, SettingContent, SettingDescription, SettingsTable, TableDescription, join_path,
    read_literal, write_default, write_literal, write_tree,
};
pub use verbs3_settings_derive::SettingsTable;
