//! The file of an acceptance run. It is made before the first step and written after the last.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use super::{read_host_name, unix_seconds};

/// A file that is still empty.
pub struct AcceptanceFile {
    path: PathBuf,
    file: File,
}

impl AcceptanceFile {
    /// Makes the file at `path`, or else at verbs3-acceptance-HOST-TIME.json in this folder. An
    /// earlier file of this name is an error: it may be the only one of its run.
    pub fn create(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = path.unwrap_or_else(|| {
            let plain = |char: char| {
                if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' }
            };
            let host: String = read_host_name().chars().map(plain).collect();
            format!("verbs3-acceptance-{host}-{}.json", unix_seconds()).into()
        });
        let file = File::create_new(&path)
            .with_context(|| format!("can't make {}; --out FILE names another", path.display()))?;
        Ok(Self { path, file })
    }

    /// Writes the document, and gives the file's path.
    pub fn write_document(mut self, document: &Value) -> anyhow::Result<PathBuf> {
        self.file
            .write_all(format!("{document:#}\n").as_bytes())
            .with_context(|| format!("can't write {}", self.path.display()))?;
        Ok(self.path)
    }
}
