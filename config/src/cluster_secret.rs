//! The secrets of a cluster as files and settings give them, and how strong they have to be.

use std::path::{Path, PathBuf};

use verbs3_settings::{ConfigSecret, SecretError, read_bounded_text};

use crate::cluster::ClusterSettings;

/// Shortest secret, in bytes. One recorded handshake is enough to try guesses off line, so a secret
/// has to be random and long. 32 bytes of text hold 128 bits even as hexadecimal digits.
pub const SECRET_BYTES_MIN: usize = 32;
/// Fewest different characters of a secret. Random digits have more; `aaaa…` and `changeme…` don't.
const DIFFERENT_CHARS_MIN: usize = 8;
/// Most secrets that are accepted beside the used one. A rotation needs two.
const ACCEPTED_MAX: usize = 4;
/// Most bytes of the file with them.
const ACCEPTED_BYTES_MAX: u64 = 64 << 10;

/// The secrets of a cluster: the one that proofs are made with, and those accepted besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSecretTexts {
    pub used: ConfigSecret,
    pub accepted: Vec<ConfigSecret>,
}

/// Why a secret can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeakSecret {
    #[error(
        "is shorter than {SECRET_BYTES_MIN} characters; `openssl rand -hex 32` makes a good one"
    )]
    Short,
    #[error("repeats a few characters; `openssl rand -hex 32` makes a good one")]
    Monotonous,
}

/// Why a cluster's secrets can't be had. [`ClusterSecretError::setting`] says where.
#[derive(Debug, thiserror::Error)]
pub enum ClusterSecretError {
    #[error(
        "gateways and workers prove a shared secret to each other; set cluster.secret_file, or \
        VERBS3_CLUSTER__SECRET"
    )]
    Missing,
    #[error(transparent)]
    Unreadable(SecretError),
    #[error("can't read the accepted secrets in {path}", path = path.display())]
    AcceptedUnreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{weak}")]
    Weak { setting: &'static str, weak: WeakSecret },
    #[error("line {line} {weak}")]
    AcceptedWeak { line: usize, weak: WeakSecret },
    #[error("has more than {ACCEPTED_MAX} secrets; take out those that nobody uses any more")]
    AcceptedMany,
}

impl ClusterSecretError {
    /// Path of the setting to correct.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Missing => "cluster.secret",
            Self::Unreadable(_) => "cluster.secret_file",
            Self::Weak { setting, .. } => setting,
            Self::AcceptedUnreadable { .. } | Self::AcceptedWeak { .. } | Self::AcceptedMany => {
                "cluster.secret_accepted_file"
            }
        }
    }
}

/// Checks that a secret can't be guessed off line.
pub fn check_strength(secret: &str) -> Result<(), WeakSecret> {
    if secret.len() < SECRET_BYTES_MIN {
        return Err(WeakSecret::Short);
    }
    let different: std::collections::BTreeSet<char> = secret.chars().collect();
    if different.len() < DIFFERENT_CHARS_MIN { Err(WeakSecret::Monotonous) } else { Ok(()) }
}

impl ClusterSettings {
    /// Reads the secrets that hold now, from wherever they are given. Errors when there is none,
    /// when one is weak, or when a file can't be read.
    pub fn read_secrets(&self) -> Result<ClusterSecretTexts, ClusterSecretError> {
        let used = self.resolve_secret().map_err(ClusterSecretError::Unreadable)?;
        let used = used.ok_or(ClusterSecretError::Missing)?;
        let setting = if self.secret.is_some() { "cluster.secret" } else { "cluster.secret_file" };
        check_strength(used.reveal_text())
            .map_err(|weak| ClusterSecretError::Weak { setting, weak })?;
        let accepted = self.secret_accepted_file.as_deref().map(read_accepted).transpose()?;
        Ok(ClusterSecretTexts { used, accepted: accepted.unwrap_or_default() })
    }

    /// Files that [`ClusterSettings::read_secrets`] reads.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let used = self.secret_file.iter().filter(|_| self.secret.is_none());
        used.chain(&self.secret_accepted_file).cloned().collect()
    }
}

fn read_accepted(path: &Path) -> Result<Vec<ConfigSecret>, ClusterSecretError> {
    let text = read_bounded_text(path, ACCEPTED_BYTES_MAX).map_err(|source| {
        ClusterSecretError::AcceptedUnreadable { path: path.to_owned(), source }
    })?;
    let mut accepted = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        check_strength(line)
            .map_err(|weak| ClusterSecretError::AcceptedWeak { line: index + 1, weak })?;
        accepted.push(ConfigSecret::new(line));
    }
    if accepted.len() > ACCEPTED_MAX { Err(ClusterSecretError::AcceptedMany) } else { Ok(accepted) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As `openssl rand -hex 32` prints.
    const GOOD: &str = "5ee7cbe4d98f6e32bd3ec4f8ef0aa3e05d45b6cb1adf8f5b2c88f1e1b1eb46c1";

    #[test]
    fn a_secret_that_can_be_guessed_is_refused() {
        assert_eq!(check_strength(GOOD), Ok(()));
        assert_eq!(check_strength(&GOOD[..32]), Ok(()));
        assert_eq!(check_strength(&GOOD[..31]), Err(WeakSecret::Short));
        for weak in ["a".repeat(64), "changeme".repeat(8), "0123456".repeat(5)] {
            assert_eq!(check_strength(&weak), Err(WeakSecret::Monotonous), "{weak}");
        }
    }

    #[test]
    fn accepted_secrets_stand_a_line_each() {
        let folder = tempfile::tempdir().unwrap();
        let (used, accepted) = (folder.path().join("used"), folder.path().join("accepted"));
        let cluster = ClusterSettings {
            secret_file: Some(used.clone()),
            secret_accepted_file: Some(accepted.clone()),
            ..ClusterSettings::default()
        };
        std::fs::write(&used, format!("{GOOD}\n")).unwrap();
        let error = cluster.read_secrets().unwrap_err();
        assert!(matches!(error, ClusterSecretError::AcceptedUnreadable { .. }));
        let other = GOOD.replace('5', "6");
        std::fs::write(&accepted, "").unwrap();
        assert!(cluster.read_secrets().unwrap().accepted.is_empty());
        std::fs::write(&accepted, format!("\n{GOOD}\n{other} \n")).unwrap();
        let read = cluster.read_secrets().unwrap();
        let texts: Vec<_> = read.accepted.iter().map(ConfigSecret::reveal_text).collect();
        assert_eq!(texts, [GOOD, &other]);
        std::fs::write(&accepted, format!("{GOOD}\nshort\n")).unwrap();
        let error = cluster.read_secrets().unwrap_err();
        assert_eq!(error.setting(), "cluster.secret_accepted_file");
        assert!(error.to_string().starts_with("line 2 is shorter than 32"), "{error}");
        std::fs::write(&accepted, format!("{GOOD}\n").repeat(5)).unwrap();
        assert!(matches!(cluster.read_secrets(), Err(ClusterSecretError::AcceptedMany)));
    }
}
