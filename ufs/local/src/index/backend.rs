//! Owns the opening of the index file, with or without `fsync`. Knows nothing of its content.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use redb::{Builder, Database, DatabaseError, StorageBackend};

/// Opens or makes the index file. `cache_bytes` bounds redb's page cache. Without `sync` no commit
/// waits for the disk.
pub fn open_database(
    path: &Path,
    cache_bytes: usize,
    sync: bool,
) -> Result<Database, DatabaseError> {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    if sync {
        return builder.create(path);
    }
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    builder.create_with_backend(UnsyncedFile(file))
}

/// A file whose writes reach only the page cache. They outlive the process, but not the machine.
#[derive(Debug)]
struct UnsyncedFile(File);

impl StorageBackend for UnsyncedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
