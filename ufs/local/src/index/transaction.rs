//! Owns the changes that an operation may make inside a commit, and the reference counting of blobs
//! that goes with them. Does not decide when to commit.

use redb::{ReadableTable, WriteTransaction};
use s3s::S3Error;

use super::records::encode_record;
use super::{
    BLOBS, BUCKETS, BucketId, BucketRecord, GARBAGE, IndexError, IndexTable, LAYOUTS, LayoutRecord,
    META, OBJECTS, ObjectLayout, ObjectRecord, ObjectSeq, PARTS, PartRecord, RecordError,
    UPLOAD_ID_LEN, UPLOADS, UploadRecord, decode_record, get, object_key, part_key, part_number_of,
    upload_key,
};
use crate::blob::{BlobExtent, BlobId};

/// Reason why an operation changed nothing.
#[derive(Debug)]
pub enum TxError {
    /// S3's rules refuse it; other operations of the same commit go on.
    Refused(S3Error),
    /// The index failed; the whole commit is aborted.
    Index(IndexError),
}

impl From<S3Error> for TxError {
    fn from(e: S3Error) -> Self {
        TxError::Refused(e)
    }
}

macro_rules! from_index {
    ($($error:ty),*) => {$(
        impl From<$error> for TxError {
            fn from(e: $error) -> Self {
                TxError::Index(e.into())
            }
        }
    )*};
}
from_index!(IndexError, RecordError, redb::StorageError, redb::TableError);

/// One operation's access to the current commit.
///
/// An operation must finish its checks before its first change: a refusal after a change would
/// leave half of it behind. In that case [`has_changed`](Self::has_changed) makes the committer
/// abort the whole commit.
pub struct IndexTransaction<'a> {
    write: &'a WriteTransaction,
    changed: bool,
    freed: bool,
}

impl<'a> IndexTransaction<'a> {
    /// Begins one operation within the current commit.
    pub fn new(write: &'a WriteTransaction) -> Self {
        IndexTransaction { write, changed: false, freed: false }
    }

    /// Returns true if this operation has changed the index already.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Returns true if this operation left blobs without a reference.
    pub fn has_freed(&self) -> bool {
        self.freed
    }

    /// Adds one to a counter and returns its value before.
    pub fn increment_counter(&mut self, name: &'static str) -> Result<u64, TxError> {
        self.changed = true;
        let mut table = self.write.open_table(META)?;
        let old = table.get(name)?.map_or(0, |v| v.value());
        table.insert(name, old + 1)?;
        Ok(old)
    }

    /// Returns a counter of the meta table; 0 where it was never set.
    pub fn meta_value(&self, name: &'static str) -> Result<u64, TxError> {
        Ok(self.write.open_table(META)?.get(name)?.map_or(0, |v| v.value()))
    }

    /// Sets a counter of the meta table.
    pub fn set_meta(&mut self, name: &'static str, value: u64) -> Result<(), TxError> {
        self.changed = true;
        self.write.open_table(META)?.insert(name, value)?;
        Ok(())
    }

    /// Returns a bucket by its name, with the changes of this commit. `None` where there is none.
    pub fn bucket_record(&self, name: &str) -> Result<Option<BucketRecord>, TxError> {
        Ok(get(&self.write.open_table(BUCKETS)?, "bucket", name.as_bytes())?)
    }

    /// Makes or replaces a bucket.
    pub fn put_bucket(&mut self, name: &str, record: &BucketRecord) -> Result<(), TxError> {
        self.insert_row(BUCKETS, name.as_bytes(), &encode_record(record))
    }

    /// Returns true if the bucket has no object. Open uploads do not count.
    pub fn bucket_is_empty(&self, bucket: BucketId) -> Result<bool, TxError> {
        let table = self.write.open_table(OBJECTS)?;
        let (from, to) = (object_key(bucket, b""), object_key(BucketId(bucket.0 + 1), b""));
        Ok(table.range::<&[u8]>(from.as_slice()..to.as_slice())?.next().is_none())
    }

    /// Removes an empty bucket, and its unfinished uploads with it.
    pub fn remove_bucket(&mut self, name: &str, bucket: BucketId) -> Result<(), TxError> {
        for (key, upload_id) in self.uploads_of(bucket)? {
            self.remove_upload(bucket, &key, &upload_id)?;
            self.remove_parts(&upload_id, &[])?;
        }
        self.remove_row(BUCKETS, name.as_bytes())
    }

    /// Returns key and id of every unfinished upload of a bucket.
    pub fn uploads_of(&self, bucket: BucketId) -> Result<Vec<(Vec<u8>, String)>, TxError> {
        let table = self.write.open_table(UPLOADS)?;
        let (from, to) = (object_key(bucket, b""), object_key(BucketId(bucket.0 + 1), b""));
        let mut out = Vec::new();
        for row in table.range::<&[u8]>(from.as_slice()..to.as_slice())? {
            let (key, _) = row?;
            let (_, key, id) = super::split_upload_key(key.value())?;
            out.push((key.to_vec(), id.to_owned()));
        }
        Ok(out)
    }

    /// Aborts every upload that began before a time. Returns how many.
    pub fn remove_uploads_before(&mut self, before_ms: i64) -> Result<usize, TxError> {
        let mut old = Vec::new();
        for row in self.write.open_table(UPLOADS)?.iter()? {
            let (key, value) = row?;
            if decode_record::<UploadRecord>("upload", value.value())?.initiated_ms < before_ms {
                let (bucket, key, id) = super::split_upload_key(key.value())?;
                old.push((bucket, key.to_vec(), id.to_owned()));
            }
        }
        for (bucket, key, id) in &old {
            self.remove_upload(*bucket, key, id)?;
            self.remove_parts(id, &[])?;
        }
        Ok(old.len())
    }

    /// Returns an object by bucket and key, with the changes of this commit. `None` where there is
    /// none.
    pub fn object_record(
        &self,
        bucket: BucketId,
        key: &str,
    ) -> Result<Option<ObjectRecord>, TxError> {
        Ok(get(&self.write.open_table(OBJECTS)?, "object", &object_key(bucket, key.as_bytes()))?)
    }

    /// Puts an object in the place of any earlier one. The extents' blobs must already be counted
    /// for it.
    pub fn put_object(
        &mut self,
        bucket: BucketId,
        key: &str,
        mut record: ObjectRecord,
        layout: &LayoutRecord,
    ) -> Result<ObjectRecord, TxError> {
        self.remove_object(bucket, key)?;
        record.seq = ObjectSeq(self.increment_counter("object-seq")?);
        record.layout = match layout.extents.as_slice() {
            [] if layout.parts.is_empty() => ObjectLayout::Empty,
            [extent] if layout.parts.is_empty() => ObjectLayout::One(*extent),
            _ => {
                let value = encode_record(layout);
                self.write.open_table(LAYOUTS)?.insert(record.seq.0, value.as_slice())?;
                ObjectLayout::Many
            }
        };
        self.insert_row(OBJECTS, &object_key(bucket, key.as_bytes()), &encode_record(&record))?;
        Ok(record)
    }

    /// Changes an object's record without touching its bytes.
    pub fn update_object(
        &mut self,
        bucket: BucketId,
        key: &str,
        record: &ObjectRecord,
    ) -> Result<(), TxError> {
        self.insert_row(OBJECTS, &object_key(bucket, key.as_bytes()), &encode_record(record))
    }

    /// Removes an object and releases its blobs. Does nothing where there is none.
    pub fn remove_object(&mut self, bucket: BucketId, key: &str) -> Result<(), TxError> {
        let Some(old) = self.object_record(bucket, key)? else { return Ok(()) };
        match old.layout {
            ObjectLayout::Empty => {}
            ObjectLayout::One(extent) => self.release_references(&[extent])?,
            ObjectLayout::Many => {
                let value = {
                    let mut table = self.write.open_table(LAYOUTS)?;
                    table.remove(old.seq.0)?.map(|v| v.value().to_vec())
                };
                let value = value.ok_or_else(|| RecordError::missing_record("layout"))?;
                let layout: LayoutRecord = decode_record("layout", &value)?;
                self.release_references(&layout.extents)?;
            }
        }
        self.remove_row(OBJECTS, &object_key(bucket, key.as_bytes()))
    }

    /// Returns a multipart upload by its id. An id of a wrong length finds none.
    pub fn upload_record(
        &self,
        bucket: BucketId,
        key: &str,
        id: &str,
    ) -> Result<Option<UploadRecord>, TxError> {
        if id.len() != UPLOAD_ID_LEN {
            return Ok(None);
        }
        Ok(get(
            &self.write.open_table(UPLOADS)?,
            "upload",
            &upload_key(bucket, key.as_bytes(), id),
        )?)
    }

    /// Makes or replaces a multipart upload.
    pub fn put_upload(
        &mut self,
        bucket: BucketId,
        key: &str,
        id: &str,
        record: &UploadRecord,
    ) -> Result<(), TxError> {
        self.insert_row(UPLOADS, &upload_key(bucket, key.as_bytes(), id), &encode_record(record))
    }

    /// Removes a multipart upload. Its parts stay.
    pub fn remove_upload(&mut self, bucket: BucketId, key: &[u8], id: &str) -> Result<(), TxError> {
        self.remove_row(UPLOADS, &upload_key(bucket, key, id))
    }

    /// Returns a part of a multipart upload by its number. `None` where there is none.
    pub fn part_record(&self, upload_id: &str, number: u16) -> Result<Option<PartRecord>, TxError> {
        Ok(get(&self.write.open_table(PARTS)?, "part", &part_key(upload_id, number))?)
    }

    /// Puts a part in the place of any earlier one of its number. Its blobs must already be counted
    /// for it.
    pub fn put_part(
        &mut self,
        upload_id: &str,
        number: u16,
        record: &PartRecord,
    ) -> Result<(), TxError> {
        if let Some(old) = self.part_record(upload_id, number)? {
            self.release_references(&old.extents)?;
        }
        self.insert_row(PARTS, &part_key(upload_id, number), &encode_record(record))
    }

    /// Removes an upload's parts. The blobs of parts in `kept` (in ascending order) stay counted:
    /// they now belong to an object.
    pub fn remove_parts(&mut self, upload_id: &str, kept: &[u16]) -> Result<(), TxError> {
        self.changed = true;
        let mut unkept = Vec::new();
        {
            let mut table = self.write.open_table(PARTS)?;
            let (from, to) = (part_key(upload_id, 0), part_key(upload_id, u16::MAX));
            for row in
                table.extract_from_if::<&[u8], _>(from.as_slice()..=to.as_slice(), |_, _| true)?
            {
                let (key, value) = row?;
                if kept.binary_search(&part_number_of(key.value())).is_err() {
                    unkept.push(decode_record::<PartRecord>("part", value.value())?);
                }
            }
        }
        for part in unkept {
            self.release_references(&part.extents)?;
        }
        Ok(())
    }

    /// Counts one more reference to each extent's blob.
    pub fn add_references(&mut self, extents: &[BlobExtent]) -> Result<(), TxError> {
        self.changed = true;
        let mut table = self.write.open_table(BLOBS)?;
        for extent in extents {
            let refs = table.get(extent.blob.0)?.map_or(0, |v| v.value());
            table.insert(extent.blob.0, refs + 1)?;
        }
        Ok(())
    }

    /// Counts one reference less to each extent's blob. A blob without any becomes garbage.
    fn release_references(&mut self, extents: &[BlobExtent]) -> Result<(), TxError> {
        self.changed = true;
        let mut blobs = self.write.open_table(BLOBS)?;
        let mut garbage = self.write.open_table(GARBAGE)?;
        for extent in extents {
            let refs = blobs.get(extent.blob.0)?.map_or(0, |v| v.value());
            if refs > 1 {
                blobs.insert(extent.blob.0, refs - 1)?;
            } else {
                blobs.remove(extent.blob.0)?;
                garbage.insert(extent.blob.0, ())?;
                self.freed = true;
            }
        }
        Ok(())
    }

    /// Removes the rows of garbage whose files are gone.
    pub fn forget_garbage(&mut self, ids: &[BlobId]) -> Result<(), TxError> {
        self.changed = true;
        let mut table = self.write.open_table(GARBAGE)?;
        for id in ids {
            table.remove(id.0)?;
        }
        Ok(())
    }

    /// Makes every table, so that readers never meet an absent one.
    pub fn create_tables(&mut self) -> Result<(), TxError> {
        for table in [BUCKETS, OBJECTS, UPLOADS, PARTS] {
            self.write.open_table(table)?;
        }
        self.write.open_table(LAYOUTS)?;
        self.write.open_table(BLOBS)?;
        self.write.open_table(GARBAGE)?;
        self.write.open_table(META)?;
        Ok(())
    }

    fn insert_row(
        &mut self,
        table: IndexTable<'static>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxError> {
        self.changed = true;
        self.write.open_table(table)?.insert(key, value)?;
        Ok(())
    }

    fn remove_row(&mut self, table: IndexTable<'static>, key: &[u8]) -> Result<(), TxError> {
        self.changed = true;
        self.write.open_table(table)?.remove(key)?;
        Ok(())
    }
}
