//! Owns blobs, the plain files that hold bytes. They are written once, read by position, and
//! removed when nothing refers to them. Knows neither keys nor buckets.

mod pins;
mod read;
mod reclaimer;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{fs, io};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use pins::{BlobPins, PinGuard};
pub use read::{ExtentReader, ObjectBody};
pub use reclaimer::{BlobReclaimer, ReclaimSignal, sweep_generation};
pub use write::{BlobWriter, UnfinishedBlob};

/// Bits of a [`BlobId`] that count blobs within one generation: 10^12 of them. The other bits allow
/// 16 million starts.
const COUNT_BITS: u32 = 40;
/// Blobs in one folder, as a power of two. 4096 keeps a folder's own file small on every common
/// file system.
const FOLDER_BITS: u32 = 12;

/// The id of a blob file: the generation (which start of the store wrote it) and a count within it.
/// Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlobId(pub u64);

/// A piece of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobExtent {
    pub blob: BlobId,
    pub offset: u64,
    pub len: u64,
}

/// The folder of blob files, and the ids that this start of the store gives out.
#[derive(Debug)]
pub struct BlobDir {
    root: PathBuf,
    generation: u64,
    next: AtomicU64,
    sync: bool,
    /// Blobs that do not belong to the index yet.
    unfinished: AtomicUsize,
    /// The folder number up to which folders exist, durably.
    made: Mutex<Option<u64>>,
}

impl BlobDir {
    /// Takes the folder `root` for the blobs of this `generation`. With `sync`, finished blobs
    /// survive a power loss.
    pub fn new(root: PathBuf, generation: u64, sync: bool) -> Arc<Self> {
        let (next, unfinished, made) = (AtomicU64::new(0), AtomicUsize::new(0), Mutex::new(None));
        Arc::new(BlobDir { root, generation, next, sync, unfinished, made })
    }

    /// Returns the count of blobs that are being written, or written and not committed.
    pub fn unfinished_blobs(&self) -> usize {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// Returns the file of a blob: generation folder, subfolder, counter, all in hexadecimal.
    pub fn blob_path(&self, id: BlobId) -> PathBuf {
        let count = id.0 & ((1 << COUNT_BITS) - 1);
        let mut path = self.generation_path(id.0 >> COUNT_BITS);
        path.push(format!("{:07x}", count >> FOLDER_BITS));
        path.push(format!("{count:010x}"));
        path
    }

    /// Returns the folder of all blobs that one run of the process wrote.
    pub fn generation_path(&self, generation: u64) -> PathBuf {
        self.root.join(format!("{generation:06x}"))
    }

    /// Returns the blob id of a file in a generation's folder, if the file is a blob's.
    pub fn id_of(generation: u64, file_name: &str) -> Option<BlobId> {
        let count = u64::from_str_radix(file_name, 16).ok().filter(|_| file_name.len() == 10)?;
        Some(BlobId(generation << COUNT_BITS | count))
    }

    fn next_id(&self) -> io::Result<BlobId> {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        self.make_folder(count >> FOLDER_BITS)?;
        Ok(BlobId(self.generation << COUNT_BITS | count))
    }

    fn make_folder(&self, folder: u64) -> io::Result<()> {
        let mut made = self.made.lock();
        if made.is_some_and(|m| m >= folder) {
            return Ok(());
        }
        let generation = self.generation_path(self.generation);
        for folder in made.map_or(0, |m| m + 1)..=folder {
            fs::create_dir_all(generation.join(format!("{folder:07x}")))?;
        }
        if self.sync {
            sync_dir(&self.root)?;
            sync_dir(&generation)?;
        }
        *made = Some(folder);
        Ok(())
    }
}

/// Makes a folder's entries durable.
pub fn sync_dir(path: &std::path::Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}
