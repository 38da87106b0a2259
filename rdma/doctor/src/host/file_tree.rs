//! Owns the read of small files below a root folder. Absent and unreadable are the same: sysfs
//! answers EINVAL for a feature that a device lacks.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bound on a file in bytes. It is far above the largest file of interest (`/proc/modules`, some 20
/// KiB), and far below a harmful size.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub(super) struct HostFileTree {
    root: PathBuf,
}

impl HostFileTree {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn resolve_path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a text, without white space at the ends.
    pub(super) fn read_text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.resolve_path(path))
            .ok()?
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(super) fn read_number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.read_text(path)?.parse().ok()
    }

    pub(super) fn path_exists(&self, path: &str) -> bool {
        self.resolve_path(path).exists()
    }

    /// Lists the names in a folder, `mlx5_2` before `mlx5_10`.
    pub(super) fn list_names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.resolve_path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_cached_key(|name| natural_sort_key(name));
        names
    }

    /// Returns the last part of a symbolic link's target: the name of a driver, a bond, a bus
    /// address.
    pub(super) fn link_target(&self, path: &str) -> Option<String> {
        Some(
            fs::read_link(self.resolve_path(path))
                .ok()?
                .file_name()?
                .to_string_lossy()
                .into_owned(),
        )
    }

    /// Returns the final target of a path: two paths to one folder are one device.
    pub(super) fn canonical_path(&self, path: &str) -> Option<PathBuf> {
        fs::canonicalize(self.resolve_path(path)).ok()
    }
}

/// Returns a sort key in which digits compare as numbers.
fn natural_sort_key(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        parts.push((word.to_owned(), number.parse().unwrap_or(0)));
        rest = tail;
    }
    parts
}
