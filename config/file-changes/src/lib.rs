//! Files that are read again when they change: identities, secrets, certificates.
//!
//! Owns the rule of when they may be read. Whoever follows them owns the clock, and what they mean.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Time between two looks at the files. One stat for each: cheap, and works on every file system.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Modification time, length and inode. The inode, because files are often changed by moving a
/// link. `None`: the file can't be looked at.
type FileStamp = Option<(SystemTime, u64, u64)>;

/// All files of one reader, by path.
type FileStamps = Vec<(PathBuf, FileStamp)>;

/// Decides when files are to be read again. The default knows nothing yet, and has them read.
///
/// A file that is written in place is short, or empty, for a moment; certificate and key don't
/// change at the same moment. So files are taken only at rest: two looks before the reading, and
/// one after it, find the same.
#[derive(Debug, Clone, Default)]
pub struct FileChanges {
    /// The state that was read and taken last.
    taken: Option<FileStamps>,
    /// The state that was refused last.
    refused: Option<FileStamps>,
    /// What the look before found.
    before: Option<FileStamps>,
}

impl FileChanges {
    /// Takes the files as they are now for known. To be called before they are first read: a change
    /// in between is then read again.
    pub fn since_now(paths: &[PathBuf]) -> Self {
        Self { taken: Some(stamp_files(paths)), ..Self::default() }
    }

    /// Looks at the files, and reads them if they have changed and are at rest.
    ///
    /// A failure is returned once for each state of the files. They are tried again with each look,
    /// because a file may become readable without a change.
    pub fn read_changed<T, E>(
        &mut self,
        paths: &[PathBuf],
        read: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let now = Some(stamp_files(paths));
        let is_at_rest = std::mem::replace(&mut self.before, now.clone()) == now;
        if now == self.taken || !is_at_rest {
            return None;
        }
        let content = read();
        if Some(stamp_files(paths)) != now {
            return None;
        }
        match content {
            Ok(_) => (self.taken, self.refused) = (now, None),
            Err(_) if self.refused == now => return None,
            Err(_) => self.refused = now,
        }
        Some(content)
    }
}

fn stamp_files(paths: &[PathBuf]) -> FileStamps {
    let stamp = |path: &PathBuf| {
        let state = fs::metadata(path).ok()?;
        Some((state.modified().ok()?, state.len(), state.ino()))
    };
    paths.iter().map(|path| (path.clone(), stamp(path))).collect()
}

#[cfg(test)]
mod tests;
