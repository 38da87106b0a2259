//! The process environment, read here alone.
//!
//! `VERBS3_SECTION__SETTING=value` sets `section.setting`; a number names a list entry
//! (`VERBS3_UFS__0__ENDPOINT`). Names without a double underscore are not settings. `RUST_LOG` sets
//! `log.level`.

use std::ffi::OsString;

use verbs3_settings::SettingOrigin;

/// Settings as an environment gives them.
#[derive(Debug, Clone, Default)]
pub struct EnvironmentLayer {
    variables: Vec<(String, String)>,
    /// Those of [`STORE_KEYS`] that are set. Not what they say: that is for who speaks with the
    /// store.
    store_keys: Vec<&'static str>,
}

/// One setting of a layer above the file: its path as steps, and its raw text.
#[derive(Debug, Clone)]
pub(crate) struct SettingOverride {
    pub steps: Vec<String>,
    pub text: String,
    pub origin: SettingOrigin,
}

const PREFIX: &str = "VERBS3_";

/// What `credentials = { kind = "environment" }` can't do without.
const STORE_KEYS: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

impl EnvironmentLayer {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self::from_variables(std::env::vars_os())
    }

    /// An environment made of `variables`. Those that are not UTF-8 can't be settings and are left
    /// out.
    pub fn from_variables(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut variables: Vec<(String, String)> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let is_set =
            |key: &str| variables.iter().any(|(name, value)| name == key && !value.is_empty());
        let store_keys = STORE_KEYS.into_iter().filter(|key| is_set(key)).collect();
        variables.retain(|(name, _)| {
            name == "RUST_LOG" || (name.starts_with(PREFIX) && name.contains("__"))
        });
        // RUST_LOG first: the name of our own wins. Entries of a list in order, so that they can be
        // made one after the other.
        variables.sort_by(|a, b| (a.0 != "RUST_LOG", &a.0).cmp(&(b.0 != "RUST_LOG", &b.0)));
        Self { variables, store_keys }
    }

    /// Names of the variables that a store's keys are taken from, and that are not set.
    pub(crate) fn missing_store_keys(&self) -> Vec<&'static str> {
        STORE_KEYS.into_iter().filter(|key| !self.store_keys.contains(key)).collect()
    }

    pub(crate) fn setting_overrides(&self) -> impl Iterator<Item = SettingOverride> + '_ {
        self.variables.iter().map(|(name, text)| {
            let steps = match name.strip_prefix(PREFIX) {
                Some(path) => path.to_ascii_lowercase().split("__").map(str::to_owned).collect(),
                None => vec!["log".to_owned(), "level".to_owned()],
            };
            SettingOverride {
                steps,
                text: text.clone(),
                origin: SettingOrigin::Environment(name.clone()),
            }
        })
    }
}
