//! Keeps entries as files: a line with revision and checksum, then the value.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::{ClusterStoreEntry, ClusterStoreRevision, EntryDamage};

const MAGIC: &str = "verbs3-store-1";
/// Suffix of files that were never renamed, because of a crash.
const UNFINISHED: &str = ".new";
/// Characters that a file name holds unencoded. The dot is not one of them, so that no name is a
/// folder's or ends like an unfinished file's.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
/// Most bytes of an encoded name. A file's name may have 255 bytes; longer names are cut, and made
/// unique by a checksum.
const NAME_BYTES_MAX: usize = 200;

/// Writes an entry. After the return it stays there, whole, whatever happens.
pub(super) fn write_entry(folder: &Path, entry: &ClusterStoreEntry) -> io::Result<()> {
    let key = entry.key.as_bytes();
    let mut text = format!(
        "{MAGIC} {} {} {:016x}\n",
        entry.revision.0,
        key.len(),
        entry_checksum(key, &entry.value)
    )
    .into_bytes();
    text.extend_from_slice(key);
    text.extend_from_slice(&entry.value);
    replace_file(&entry_path(folder, &entry.key), &text, folder)
}

pub(super) fn remove_entry(folder: &Path, key: &str) -> io::Result<()> {
    match fs::remove_file(entry_path(folder, key)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::open(folder)?.sync_all()
}

/// Reads every entry. Drops unfinished ones and fails on damaged ones.
pub(super) fn read_all(folder: &Path) -> Result<BTreeMap<String, ClusterStoreEntry>, EntryDamage> {
    let mut map = BTreeMap::new();
    let failed = |path: &Path, error| EntryDamage::Unreadable {
        path: path.to_owned(),
        error: Arc::new(error),
    };
    for file in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = file.map_err(|error| failed(folder, error))?.path();
        if path.to_string_lossy().ends_with(UNFINISHED) {
            fs::remove_file(&path).map_err(|error| failed(&path, error))?;
            continue;
        }
        let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
        let entry = decode_entry(bytes).ok_or(EntryDamage::Torn { path })?;
        map.insert(entry.key.clone(), entry);
    }
    Ok(map)
}

/// Returns one more than the last count, which `file` keeps.
pub(super) fn count_opening(file: &Path, folder: &Path) -> io::Result<u64> {
    // Kept beside the lock, which must stay the same file.
    let file = file.with_extension("openings");
    let before = match fs::read_to_string(&file) {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| io::Error::other(format!("{} is no number", file.display())))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0u64,
        Err(error) => return Err(error),
    };
    replace_file(&file, format!("{}\n", before + 1).as_bytes(), folder)?;
    Ok(before + 1)
}

fn replace_file(path: &Path, bytes: &[u8], folder: &Path) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(UNFINISHED);
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

fn entry_path(folder: &Path, key: &str) -> PathBuf {
    let mut name = utf8_percent_encode(key, ENCODED).to_string();
    if name.len() > NAME_BYTES_MAX {
        name.truncate(NAME_BYTES_MAX);
        name.push_str(&format!("~{:016x}", checksum(CrcAlgorithm::Crc64Nvme, key.as_bytes())));
    }
    folder.join(name)
}

fn entry_checksum(key: &[u8], value: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, &[key, value].concat())
}

fn decode_entry(bytes: Vec<u8>) -> Option<ClusterStoreEntry> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let [magic, revision, key_bytes, expected] =
        head.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let (revision, key_bytes): (u64, usize) = (revision.parse().ok()?, key_bytes.parse().ok()?);
    let rest = &bytes[end + 1..];
    let (key, value) = rest.split_at_checked(key_bytes)?;
    if magic != MAGIC || expected != format!("{:016x}", entry_checksum(key, value)) {
        return None;
    }
    let key = String::from_utf8(key.to_vec()).ok()?;
    Some(ClusterStoreEntry {
        key,
        value: Bytes::copy_from_slice(value),
        revision: ClusterStoreRevision(revision),
    })
}
