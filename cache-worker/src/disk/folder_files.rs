//! A folder of segment files, and the lock that keeps a second process out of it.
//!
//! Whole pages bypass the page cache (`O_DIRECT`) where file system, length and memory allow it.
//! Headers, small pages and tails go through it. Never removes a file that it did not create.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::disk_error::DiskError;
use super::disk_headers::{FolderHeader, FolderId, NotOurs};
use super::segment_layout::ALIGN;
use super::segment_medium::SegmentMedium;
use crate::digest::DigestSecret;

const HEADER_NAME: &str = "verbs3-disk";
const HEADER_NEW_NAME: &str = "verbs3-disk.new";
const LOCK_NAME: &str = "verbs3-lock";
const SEGMENT_PREFIX: &str = "segment-";

/// The open files of one segment.
struct SegmentFiles {
    cached: File,
    /// Bypasses the page cache.
    direct: Option<File>,
}

pub(super) struct FolderFiles {
    folder: PathBuf,
    direct: bool,
    open: RwLock<HashMap<u32, Arc<SegmentFiles>>>,
    /// Held but not read: the lock ends with it.
    _lock: File,
}

/// A folder that is locked by this process.
pub(super) struct LockedFolder {
    pub(super) files: FolderFiles,
    /// `None`: the folder is new, or its header was damaged. `initialize_folder` then writes one.
    pub(super) header: Option<FolderHeader>,
    /// There was a header that can't be read.
    pub(super) damaged: bool,
}

impl FolderFiles {
    /// Creates the folder if there is none, and takes its lock.
    pub(super) fn lock_folder(folder: &Path, direct: bool) -> Result<LockedFolder, DiskError> {
        let io = |source| DiskError::Io { folder: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        // This comes before anything is created: a folder with other content is left unchanged.
        for entry in fs::read_dir(folder).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let known = name.to_str().is_some_and(is_ours);
            if !known {
                return Err(DiskError::Foreign {
                    folder: folder.to_owned(),
                    found: name.to_string_lossy().into_owned(),
                });
            }
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(folder.join(LOCK_NAME))
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DiskError::InUse { folder: folder.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let (header, damaged) = match fs::read(folder.join(HEADER_NAME)) {
            Ok(bytes) => match FolderHeader::decode(&bytes) {
                Ok(header) => (Some(header), false),
                Err(NotOurs::Damaged) => (None, true),
                Err(NotOurs::Foreign) => {
                    return Err(DiskError::Foreign {
                        folder: folder.to_owned(),
                        found: HEADER_NAME.into(),
                    });
                }
                Err(NotOurs::Newer(format)) => {
                    return Err(DiskError::Newer { folder: folder.to_owned(), format });
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, false),
            Err(error) => return Err(io(error)),
        };
        let files =
            Self { folder: folder.to_owned(), direct, open: RwLock::default(), _lock: lock };
        Ok(LockedFolder { files, header, damaged })
    }

    /// Removes the folder's segments and writes its header. The header is durable before any page
    /// is. Otherwise a crash could leave pages whose keys are unknown.
    pub(super) fn initialize_folder(&self, secret: DigestSecret) -> io::Result<FolderHeader> {
        for (segment, _) in self.list_segments()? {
            self.remove_segment(segment)?;
        }
        let header = FolderHeader { id: FolderId(rand::random()), secret };
        let (new, path) = (self.folder.join(HEADER_NEW_NAME), self.folder.join(HEADER_NAME));
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&header.encode())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(header)
    }

    fn segment_path(&self, segment: u32) -> PathBuf {
        self.folder.join(format!("{SEGMENT_PREFIX}{segment:08}"))
    }

    fn open_segment(&self, segment: u32) -> io::Result<Arc<SegmentFiles>> {
        if let Some(open) = self.open.read().get(&segment) {
            return Ok(open.clone());
        }
        let path = self.segment_path(segment);
        let cached = OpenOptions::new().read(true).write(true).open(&path)?;
        // Without this the kernel would read 128 KiB around each small page.
        let _ = rustix::fs::fadvise(&cached, 0, None, rustix::fs::Advice::Random);
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        // A file system without `O_DIRECT` (some versions of tmpfs, some network ones) refuses.
        // Then the page cache serves.
        let direct = self
            .direct
            .then(|| OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).ok())
            .flatten();
        let open = Arc::new(SegmentFiles { cached, direct });
        Ok(self.open.write().entry(segment).or_insert(open).clone())
    }
}

impl SegmentMedium for FolderFiles {
    fn list_segments(&self) -> io::Result<Vec<(u32, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(segment_number) {
                found.push((number, entry.metadata()?.len()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn create_segment(&self, segment: u32, bytes: u64) -> io::Result<()> {
        let path = self.segment_path(segment);
        let made = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .and_then(|file| {
                match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
                    // Not every file system can allocate ahead; a full disk then shows at a write.
                    Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                        file.set_len(bytes)
                    }
                    other => Ok(other?),
                }
            });
        if made.is_err() {
            let _ = fs::remove_file(&path);
        }
        made
    }

    fn remove_segment(&self, segment: u32) -> io::Result<()> {
        self.open.write().remove(&segment);
        fs::remove_file(self.segment_path(segment))
    }

    fn read(&self, segment: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        let open = self.open_segment(segment)?;
        match &open.direct {
            Some(direct) if goes_direct(at, into) => match direct.read_exact_at(into, at) {
                Err(error) if wants_other_alignment(&error) => open.cached.read_exact_at(into, at),
                other => other,
            },
            _ => open.cached.read_exact_at(into, at),
        }
    }

    fn write(&self, segment: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        let open = self.open_segment(segment)?;
        match &open.direct {
            Some(direct) if goes_direct(at, bytes) => match direct.write_all_at(bytes, at) {
                Err(error) if wants_other_alignment(&error) => open.cached.write_all_at(bytes, at),
                other => other,
            },
            _ => open.cached.write_all_at(bytes, at),
        }
    }
}

/// Pages of at least this size bypass the page cache. Measured (`docs/decisions/disk-tier.md`):
/// with 256 KiB, direct writes cost a fifth of the CPU, and direct reads a third. With 4 KiB,
/// direct writes cost eight times as much, and a wait for the device.
const DIRECT_BYTES_MIN: usize = 64 << 10;

fn goes_direct(at: u64, bytes: &[u8]) -> bool {
    let address = bytes.as_ptr().addr() as u64;
    let aligned =
        [at, address, bytes.len() as u64].iter().all(|number| number.is_multiple_of(ALIGN));
    aligned && bytes.len() >= DIRECT_BYTES_MIN
}

/// Returns whether the file system supports `O_DIRECT`, but not with this offset, length or memory.
fn wants_other_alignment(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error())
}

fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(SEGMENT_PREFIX)?;
    let number = digits.parse().ok().filter(|&number| number < SEGMENTS_MAX)?;
    (format!("{number:08}") == digits).then_some(number)
}

/// Bounds the list of segments, whatever numbers the files' names contain.
const SEGMENTS_MAX: u32 = 1 << 20;

/// `lost+found` is in the root of every ext file system.
fn is_ours(name: &str) -> bool {
    matches!(name, HEADER_NAME | HEADER_NEW_NAME | LOCK_NAME | "lost+found")
        || segment_number(name).is_some()
}
