//! A text that must not appear in a log, an error or `config show`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

/// Shown in place of a secret.
pub const REDACTED: &str = "(redacted)";

/// A secret. `Debug`, `Display` by way of serialisation, and every error leave its text out;
/// [`ConfigSecret::reveal_text`] is the only way to it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ConfigSecret(String);

/// Most bytes of a file with one secret.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Reads a text from a regular file of at most `bytes_max` bytes. A pipe would make its reader wait
/// for ever, and a device may never end.
pub fn read_bounded_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // At once: one that grows would leave copies of a secret in memory that was freed.
    let mut text = String::with_capacity(found.len().min(bytes_max) as usize + 1);
    let read = File::open(path)?.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
    if read as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(text)
}

/// Why a secret can't be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("can't read the secret in {path}; check that the file exists and that this user may \
        read it", path = path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the secret in {path} is empty", path = path.display())]
    Empty { path: PathBuf },
}

impl ConfigSecret {
    /// Keeps the text as it is. White space is not removed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Reads a secret from a file; white space at the end is not part of it.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let text = read_bounded_text(path, SECRET_BYTES_MAX)
            .map_err(|source| SecretError::Unreadable { path: path.to_owned(), source })?;
        let text = text.trim_end();
        if text.is_empty() {
            return Err(SecretError::Empty { path: path.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }

    /// The text itself. Keep it out of logs and errors.
    pub fn reveal_text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ConfigSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for ConfigSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = ConfigSecret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "(redacted)");
        assert_eq!(toml::Value::try_from(&secret).unwrap().as_str(), Some("(redacted)"));
    }

    #[test]
    fn a_secret_file_may_end_in_a_newline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "hunter2\n").unwrap();
        assert_eq!(ConfigSecret::read(&path).unwrap().reveal_text(), "hunter2");
        std::fs::write(&path, "\n").unwrap();
        assert!(matches!(ConfigSecret::read(&path), Err(SecretError::Empty { .. })));
        assert!(matches!(ConfigSecret::read(folder.path()), Err(SecretError::Unreadable { .. })));
        assert!(matches!(
            ConfigSecret::read(Path::new("/dev/zero")),
            Err(SecretError::Unreadable { .. })
        ));
        std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
        let error = ConfigSecret::read(&path).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("it is longer than 65536 bytes"));
    }
}
