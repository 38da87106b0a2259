//! `--set PATH=VALUE`, which every command takes that reads a configuration.

use verbs3_config::CommandFlag;

/// One flag for each pair of `--set`: a TOML path and the raw text of its value.
pub fn set_flags(set: &[(String, String)]) -> impl Iterator<Item = CommandFlag> + '_ {
    set.iter().map(|(path, value)| CommandFlag {
        name: "--set".to_owned(),
        path: path.clone(),
        value: value.clone(),
    })
}

/// Splits `path=value` at the first `=`. Errors when there is none.
pub fn path_and_value(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("write it as section.setting=value")?;
    Ok((path.trim().to_owned(), value.to_owned()))
}
