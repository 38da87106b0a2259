//! The credentials of the development process: made once, kept in the folder, readable by its user
//! alone.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, ensure};
use rand::RngExt;

/// An access key that the demonstration, and the user, sign with.
#[derive(Clone)]
pub struct DevAccessKey {
    pub access_key: String,
    pub secret_key: String,
}

/// Letters that need no quoting anywhere: not in TOML, not in a shell, not in a URL.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The key in `file`, which is made with a new key where it is not there.
pub fn load_or_create_key(file: &Path) -> anyhow::Result<DevAccessKey> {
    let key = DevAccessKey {
        access_key: format!("VERBS3{}", random_letters(14).to_uppercase()),
        secret_key: random_letters(40),
    };
    let text = format!(
        "# Access keys and what they may do. Read again when it changes.\n\
         [[identity]]\nname = \"dev\"\naccess_key = \"{}\"\nsecret_key = \"{}\"\n\
         allow = [{{ mount = \"*\", rights = [\"read\", \"write\", \"list\", \"delete\", \"warm\", \
             \"admin\"] }}]\n",
        key.access_key, key.secret_key
    );
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Ok(mut new) => {
            new.write_all(text.as_bytes())
                .and_then(|()| new.sync_all())
                .with_context(|| cant_write(file))?;
            Ok(key)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let key = first_key(file);
            ensure!(
                key.is_some(),
                "{} has no [[identity]] with access_key and secret_key; remove it to get a new one",
                file.display()
            );
            key.context("checked above")
        }
        Err(error) => Err(error).with_context(|| cant_write(file)),
    }
}

/// The first identity of a file that has its secret in plain text. What else the file says is the
/// gateway's to check.
pub fn first_key(file: &Path) -> Option<DevAccessKey> {
    let table: toml::Table = std::fs::read_to_string(file).ok()?.parse().ok()?;
    table.get("identity")?.as_array()?.iter().find_map(|identity| {
        let text = |name: &str| identity.get(name)?.as_str().map(str::to_owned);
        Some(DevAccessKey { access_key: text("access_key")?, secret_key: text("secret_key")? })
    })
}

pub(super) fn random_letters(length: usize) -> String {
    let mut random = rand::rng();
    (0..length).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}

fn cant_write(file: &Path) -> String {
    format!("can't write {}", file.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn credentials_are_made_once_and_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("identities.toml");
        let made = load_or_create_key(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = load_or_create_key(&file).unwrap();
        assert_eq!((made.access_key, made.secret_key), (again.access_key, again.secret_key));
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("identities.toml");
        std::fs::write(&file, "# mine\n").unwrap();
        assert!(load_or_create_key(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# mine\n");
    }
}
