//! The index: ordered tables in one ACID file, their keys, and the reads that need no change. Opens
//! no blob.
//!
//! Reads take a snapshot and block nobody. Every change goes through [`Committer`], which applies
//! many in one commit; conditions are checked there, so nothing can slip in between check and
//! change.

mod backend;
mod commit;
mod records;
mod tx;

use std::ops::Bound;

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, TableError};

pub use backend::open_database;
pub use commit::{CommitLimits, Committer};
pub use records::{
    Attributes, BucketId, BucketRecord, Layout, LayoutRecord, ObjectRecord, ObjectSeq, PartRecord,
    PartSummary, RecordError, UploadRecord,
};
pub use tx::{Tx, TxError};

use records::decode;

pub type Table<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// Bucket name → [`BucketRecord`].
pub const BUCKETS: Table<'_> = TableDefinition::new("buckets");
/// [`object_key`] → [`ObjectRecord`].
pub const OBJECTS: Table<'_> = TableDefinition::new("objects");
/// [`ObjectSeq`] → [`LayoutRecord`].
pub const LAYOUTS: TableDefinition<'_, u64, &'static [u8]> = TableDefinition::new("layouts");
/// [`upload_key`] → [`UploadRecord`].
pub const UPLOADS: Table<'_> = TableDefinition::new("uploads");
/// Upload id and big-endian part number → [`PartRecord`].
pub const PARTS: Table<'_> = TableDefinition::new("parts");
/// Blob id → how many extents refer to it.
pub const BLOBS: TableDefinition<'_, u64, u32> = TableDefinition::new("blobs");
/// Blobs that nothing refers to any more, until their files are gone.
pub const GARBAGE: TableDefinition<'_, u64, ()> = TableDefinition::new("garbage");
/// Counters by name.
pub const META: TableDefinition<'_, &'static str, u64> = TableDefinition::new("meta");

/// Upload ids are 32 hex digits, so that they can stand at the end of a key.
pub const UPLOAD_ID_LEN: usize = 32;
/// The bytes behind the key in an [`upload_key`]: a NUL and the upload id.
pub const UPLOAD_TAIL: usize = UPLOAD_ID_LEN + 1;
/// The bytes before the key in [`object_key`] and [`upload_key`].
pub const BUCKET_HEAD: usize = 8;

/// Sorts by bucket, then by the key's UTF-8 bytes, which is S3's order.
pub fn object_key(bucket: BucketId, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(BUCKET_HEAD + key.len());
    out.extend_from_slice(&bucket.0.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// Sorts by bucket, key, and time of creation (upload ids begin with it).
pub fn upload_key(bucket: BucketId, key: &[u8], upload_id: &str) -> Vec<u8> {
    let mut out = object_key(bucket, key);
    out.push(0);
    out.extend_from_slice(upload_id.as_bytes());
    out
}

pub fn part_key(upload_id: &str, number: u16) -> Vec<u8> {
    let mut out = upload_id.as_bytes().to_vec();
    out.extend_from_slice(&number.to_be_bytes());
    out
}

/// Takes an [`upload_key`] apart: bucket, key, upload id.
pub fn split_upload_key(bytes: &[u8]) -> Result<(BucketId, &[u8], &str), RecordError> {
    let damaged = || RecordError::missing("upload key");
    let (head, rest) = bytes.split_first_chunk::<BUCKET_HEAD>().ok_or_else(damaged)?;
    let at = rest.len().checked_sub(UPLOAD_TAIL).ok_or_else(damaged)?;
    let id = std::str::from_utf8(&rest[at + 1..]).map_err(|_| damaged())?;
    Ok((BucketId(u64::from_be_bytes(*head)), &rest[..at], id))
}

pub fn part_number_of(key: &[u8]) -> u16 {
    match key {
        [.., hi, lo] => u16::from_be_bytes([*hi, *lo]),
        _ => 0,
    }
}

/// Why the index could not answer.
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

/// Rows by table.
pub struct RowCounts {
    pub objects: u64,
    pub uploads: u64,
    pub parts: u64,
    pub blobs: u64,
    pub garbage: u64,
}

/// A consistent view of the index at one moment.
pub struct View(ReadTransaction);

impl View {
    pub fn new(tx: ReadTransaction) -> Self {
        View(tx)
    }

    pub fn bucket(&self, name: &str) -> Result<Option<BucketRecord>, IndexError> {
        get(&self.table(BUCKETS)?, "bucket", name.as_bytes())
    }

    pub fn buckets_from(&self, after: Bound<&[u8]>) -> Result<Entries<BucketRecord>, IndexError> {
        let range = self.table(BUCKETS)?.range::<&[u8]>((after, Bound::Unbounded))?;
        Ok(Entries::new("bucket", range))
    }

    pub fn object(&self, bucket: BucketId, key: &str) -> Result<Option<ObjectRecord>, IndexError> {
        get(&self.table(OBJECTS)?, "object", &object_key(bucket, key.as_bytes()))
    }

    pub fn layout(&self, record: &ObjectRecord) -> Result<LayoutRecord, IndexError> {
        let extents = match &record.layout {
            Layout::Empty => Vec::new(),
            Layout::One(extent) => vec![*extent],
            Layout::Many => {
                let table = self.0.open_table(LAYOUTS)?;
                let Some(value) = table.get(record.seq.0)? else {
                    return Err(RecordError::missing("layout").into());
                };
                return Ok(decode("layout", value.value())?);
            }
        };
        Ok(LayoutRecord { extents, parts: Vec::new() })
    }

    pub fn upload(
        &self,
        bucket: BucketId,
        key: &str,
        id: &str,
    ) -> Result<Option<UploadRecord>, IndexError> {
        if id.len() != UPLOAD_ID_LEN {
            return Ok(None);
        }
        get(&self.table(UPLOADS)?, "upload", &upload_key(bucket, key.as_bytes(), id))
    }

    /// An upload's parts with numbers above `after`, in order.
    pub fn parts_after(
        &self,
        upload_id: &str,
        after: u16,
    ) -> Result<Entries<PartRecord>, IndexError> {
        let from = part_key(upload_id, after);
        let to = part_key(upload_id, u16::MAX);
        let bounds = (Bound::Excluded(from.as_slice()), Bound::Included(to.as_slice()));
        Ok(Entries::new("part", self.table(PARTS)?.range::<&[u8]>(bounds)?))
    }

    /// Everything in `table` that belongs to `bucket`, from `from` (a whole table key) on.
    pub fn scan<T>(
        &self,
        table: Table<'static>,
        what: &'static str,
        bucket: BucketId,
        from: Bound<&[u8]>,
    ) -> Result<Entries<T>, IndexError> {
        let end = object_key(BucketId(bucket.0 + 1), b"");
        let range = self.table(table)?.range::<&[u8]>((from, Bound::Excluded(end.as_slice())))?;
        Ok(Entries::new(what, range))
    }

    /// Up to `max` garbage blobs above `after`, in order.
    pub fn garbage(&self, after: Option<u64>, max: usize) -> Result<Vec<u64>, IndexError> {
        let table = self.0.open_table(GARBAGE)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = table
            .range::<u64>((from, Bound::Unbounded))?
            .take(max)
            .map(|row| row.map(|(k, _)| k.value()));
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// How many rows the tables have. Costs a look at each table's root.
    pub fn rows(&self) -> Result<RowCounts, IndexError> {
        Ok(RowCounts {
            objects: self.table(OBJECTS)?.len()?,
            uploads: self.table(UPLOADS)?.len()?,
            parts: self.table(PARTS)?.len()?,
            blobs: self.0.open_table(BLOBS)?.len()?,
            garbage: self.0.open_table(GARBAGE)?.len()?,
        })
    }

    pub fn blob_is_referenced(&self, id: u64) -> Result<bool, IndexError> {
        Ok(self.0.open_table(BLOBS)?.get(id)?.is_some())
    }

    fn table(
        &self,
        table: Table<'static>,
    ) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, TableError> {
        self.0.open_table(table)
    }
}

/// Rows in key order, each decoded only when asked for.
pub struct Entries<T> {
    what: &'static str,
    range: redb::Range<'static, &'static [u8], &'static [u8]>,
    record: std::marker::PhantomData<fn() -> T>,
}

/// A row whose value has not been decoded yet.
pub struct Entry {
    what: &'static str,
    pub key: Vec<u8>,
    value: redb::AccessGuard<'static, &'static [u8]>,
}

impl Entry {
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, IndexError> {
        Ok(decode(self.what, self.value.value())?)
    }
}

impl<T> Entries<T> {
    fn new(what: &'static str, range: redb::Range<'static, &'static [u8], &'static [u8]>) -> Self {
        Entries { what, range, record: std::marker::PhantomData }
    }

    pub fn next_entry(&mut self) -> Result<Option<Entry>, IndexError> {
        match self.range.next() {
            None => Ok(None),
            Some(Err(e)) => Err(e.into()),
            Some(Ok((key, value))) => {
                Ok(Some(Entry { what: self.what, key: key.value().to_vec(), value }))
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
        Some(value) => Ok(Some(decode(what, value.value())?)),
    }
}
