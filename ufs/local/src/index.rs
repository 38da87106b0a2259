//! Owns the index: ordered tables in one ACID file, their keys, and the reads that need no change.
//! Opens no blob.
//!
//! Reads take a snapshot and block nobody. Every change goes through [`IndexCommitter`], which
//! applies many in one commit. It also checks conditions, so nothing can slip in between check and
//! change.

mod backend;
mod committer;
mod records;
mod transaction;

use std::ops::Bound;

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, TableError};

pub use backend::open_database;
pub use committer::{CommitLimits, IndexCommitter};
pub use records::{
    BucketId, BucketRecord, LayoutRecord, ObjectLayout, ObjectRecord, ObjectSeq, PartRecord,
    PartSummary, RecordError, StoredAttributes, UploadRecord,
};
pub use transaction::{IndexTransaction, TxError};

use records::decode_record;

/// A table from key bytes to record bytes.
pub type IndexTable<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// Bucket name → [`BucketRecord`].
pub const BUCKETS: IndexTable<'_> = TableDefinition::new("buckets");
/// [`object_key`] → [`ObjectRecord`].
pub const OBJECTS: IndexTable<'_> = TableDefinition::new("objects");
/// [`ObjectSeq`] → [`LayoutRecord`].
pub const LAYOUTS: TableDefinition<'_, u64, &'static [u8]> = TableDefinition::new("layouts");
/// [`upload_key`] → [`UploadRecord`].
pub const UPLOADS: IndexTable<'_> = TableDefinition::new("uploads");
/// Upload id and big-endian part number → [`PartRecord`].
pub const PARTS: IndexTable<'_> = TableDefinition::new("parts");
/// Blob id → how many extents refer to it.
pub const BLOBS: TableDefinition<'_, u64, u32> = TableDefinition::new("blobs");
/// Blobs that nothing refers to any more, until their files are gone.
pub const GARBAGE: TableDefinition<'_, u64, ()> = TableDefinition::new("garbage");
/// Counters by name.
pub const META: TableDefinition<'_, &'static str, u64> = TableDefinition::new("meta");

/// Length of an upload id in hex digits; fixed, so that the id can stand at the end of a key.
pub const UPLOAD_ID_LEN: usize = 32;
/// Bytes behind the key in an [`upload_key`]: a NUL and the upload id.
pub const UPLOAD_TAIL: usize = UPLOAD_ID_LEN + 1;
/// Bytes before the key in [`object_key`] and [`upload_key`].
pub const BUCKET_HEAD: usize = 8;

/// Makes a table key that sorts by bucket, then by the key's UTF-8 bytes, which is S3's order.
pub fn object_key(bucket: BucketId, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(BUCKET_HEAD + key.len());
    out.extend_from_slice(&bucket.0.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// Makes a table key that sorts by bucket, key, and time of creation (upload ids begin with it).
pub fn upload_key(bucket: BucketId, key: &[u8], upload_id: &str) -> Vec<u8> {
    let mut out = object_key(bucket, key);
    out.push(0);
    out.extend_from_slice(upload_id.as_bytes());
    out
}

/// Makes the key of a part: the upload's id, then the number in big-endian order. Parts sort by
/// number.
pub fn part_key(upload_id: &str, number: u16) -> Vec<u8> {
    let mut out = upload_id.as_bytes().to_vec();
    out.extend_from_slice(&number.to_be_bytes());
    out
}

/// Splits an [`upload_key`] into bucket, key and upload id.
pub fn split_upload_key(bytes: &[u8]) -> Result<(BucketId, &[u8], &str), RecordError> {
    let damaged = || RecordError::missing_record("upload key");
    let (head, rest) = bytes.split_first_chunk::<BUCKET_HEAD>().ok_or_else(damaged)?;
    let at = rest.len().checked_sub(UPLOAD_TAIL).ok_or_else(damaged)?;
    let id = std::str::from_utf8(&rest[at + 1..]).map_err(|_| damaged())?;
    Ok((BucketId(u64::from_be_bytes(*head)), &rest[..at], id))
}

/// Reads the part number back from a key. A key that is too short gives 0.
pub fn part_number_of(key: &[u8]) -> u16 {
    match key {
        [.., hi, lo] => u16::from_be_bytes([*hi, *lo]),
        _ => 0,
    }
}

/// Reason why the index could not answer.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the index file failed")]
    Store(#[source] Box<redb::Error>),
    #[error(transparent)]
    Record(#[from] RecordError),
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for IndexError {
            fn from(e: $error) -> Self {
                IndexError::Store(Box::new(redb::Error::from(e)))
            }
        }
    )*};
}
from_redb!(redb::StorageError, redb::TableError, redb::TransactionError, redb::CommitError);

/// Count of rows by table.
pub struct RowCounts {
    pub objects: u64,
    pub uploads: u64,
    pub parts: u64,
    pub blobs: u64,
    pub garbage: u64,
}

/// A consistent view of the index at one moment.
pub struct IndexView(ReadTransaction);

impl IndexView {
    /// Reads from a snapshot that was begun before. Later commits are not seen.
    pub fn new(tx: ReadTransaction) -> Self {
        IndexView(tx)
    }

    /// Returns a bucket by its name. `None` where there is none.
    pub fn bucket_record(&self, name: &str) -> Result<Option<BucketRecord>, IndexError> {
        get(&self.open_table(BUCKETS)?, "bucket", name.as_bytes())
    }

    /// Returns buckets by name, from a bound on. Their rows are decoded lazily.
    pub fn buckets_from(
        &self,
        after: Bound<&[u8]>,
    ) -> Result<IndexRowCursor<BucketRecord>, IndexError> {
        let range = self.open_table(BUCKETS)?.range::<&[u8]>((after, Bound::Unbounded))?;
        Ok(IndexRowCursor::new("bucket", range))
    }

    /// Returns an object by bucket and key. `None` where there is none.
    pub fn object_record(
        &self,
        bucket: BucketId,
        key: &str,
    ) -> Result<Option<ObjectRecord>, IndexError> {
        get(&self.open_table(OBJECTS)?, "object", &object_key(bucket, key.as_bytes()))
    }

    /// Returns the place of an object's bytes. Fails when a long layout has no row of its own.
    pub fn layout_record(&self, record: &ObjectRecord) -> Result<LayoutRecord, IndexError> {
        let extents = match &record.layout {
            ObjectLayout::Empty => Vec::new(),
            ObjectLayout::One(extent) => vec![*extent],
            ObjectLayout::Many => {
                let table = self.0.open_table(LAYOUTS)?;
                let Some(value) = table.get(record.seq.0)? else {
                    return Err(RecordError::missing_record("layout").into());
                };
                return Ok(decode_record("layout", value.value())?);
            }
        };
        Ok(LayoutRecord { extents, parts: Vec::new() })
    }

    /// Returns a multipart upload by its id. An id of a wrong length finds none.
    pub fn upload_record(
        &self,
        bucket: BucketId,
        key: &str,
        id: &str,
    ) -> Result<Option<UploadRecord>, IndexError> {
        if id.len() != UPLOAD_ID_LEN {
            return Ok(None);
        }
        get(&self.open_table(UPLOADS)?, "upload", &upload_key(bucket, key.as_bytes(), id))
    }

    /// Returns an upload's parts with numbers above `after`, in order.
    pub fn parts_after(
        &self,
        upload_id: &str,
        after: u16,
    ) -> Result<IndexRowCursor<PartRecord>, IndexError> {
        let from = part_key(upload_id, after);
        let to = part_key(upload_id, u16::MAX);
        let bounds = (Bound::Excluded(from.as_slice()), Bound::Included(to.as_slice()));
        Ok(IndexRowCursor::new("part", self.open_table(PARTS)?.range::<&[u8]>(bounds)?))
    }

    /// Returns all rows of `table` that belong to `bucket`, from `from` (a whole table key) on.
    pub fn scan_bucket<T>(
        &self,
        table: IndexTable<'static>,
        what: &'static str,
        bucket: BucketId,
        from: Bound<&[u8]>,
    ) -> Result<IndexRowCursor<T>, IndexError> {
        let end = object_key(BucketId(bucket.0 + 1), b"");
        let range =
            self.open_table(table)?.range::<&[u8]>((from, Bound::Excluded(end.as_slice())))?;
        Ok(IndexRowCursor::new(what, range))
    }

    /// Returns up to `max` garbage blobs above `after`, in order.
    pub fn garbage_page(&self, after: Option<u64>, max: usize) -> Result<Vec<u64>, IndexError> {
        let table = self.0.open_table(GARBAGE)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = table
            .range::<u64>((from, Bound::Unbounded))?
            .take(max)
            .map(|row| row.map(|(k, _)| k.value()));
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// Returns how many rows the tables have. Costs a look at each table's root.
    pub fn count_rows(&self) -> Result<RowCounts, IndexError> {
        Ok(RowCounts {
            objects: self.open_table(OBJECTS)?.len()?,
            uploads: self.open_table(UPLOADS)?.len()?,
            parts: self.open_table(PARTS)?.len()?,
            blobs: self.0.open_table(BLOBS)?.len()?,
            garbage: self.0.open_table(GARBAGE)?.len()?,
        })
    }

    /// Returns true if an object or a part refers to the blob.
    pub fn blob_is_referenced(&self, id: u64) -> Result<bool, IndexError> {
        Ok(self.0.open_table(BLOBS)?.get(id)?.is_some())
    }

    fn open_table(
        &self,
        table: IndexTable<'static>,
    ) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, TableError> {
        self.0.open_table(table)
    }
}

/// A cursor over rows in key order. Each row is decoded only when asked for.
pub struct IndexRowCursor<T> {
    what: &'static str,
    range: redb::Range<'static, &'static [u8], &'static [u8]>,
    record: std::marker::PhantomData<fn() -> T>,
}

/// A row whose value has not been decoded yet.
pub struct UndecodedRow {
    what: &'static str,
    pub key: Vec<u8>,
    value: redb::AccessGuard<'static, &'static [u8]>,
}

impl UndecodedRow {
    /// Reads the record. Fails when its version or form is unknown.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, IndexError> {
        Ok(decode_record(self.what, self.value.value())?)
    }
}

impl<T> IndexRowCursor<T> {
    fn new(what: &'static str, range: redb::Range<'static, &'static [u8], &'static [u8]>) -> Self {
        IndexRowCursor { what, range, record: std::marker::PhantomData }
    }

    /// Returns the next row in key order. `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<UndecodedRow>, IndexError> {
        match self.range.next() {
            None => Ok(None),
            Some(Err(e)) => Err(e.into()),
            Some(Ok((key, value))) => {
                Ok(Some(UndecodedRow { what: self.what, key: key.value().to_vec(), value }))
            }
        }
    }
}

fn get<T: serde::de::DeserializeOwned>(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    what: &'static str,
    key: &[u8],
) -> Result<Option<T>, IndexError> {
    match table.get(key)? {
        None => Ok(None),
        Some(value) => Ok(Some(decode_record(what, value.value())?)),
    }
}
