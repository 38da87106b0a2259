//! Owns the types of the table's columns, and the trait that gives all inputs one shape. Owns no
//! behaviour.

use async_trait::async_trait;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::rewrite::{MountNamePair, NamedDestination};

/// A right that an identity may have.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessRight {
    read,
    write,
    list,
    delete,
    /// May grant others access to an object.
    acl,
    /// May forbid changes of an object until a date.
    lock,
    /// May administer the whole bucket. Includes `acl` and `lock`.
    admin,
    /// Any right on the mount.
    seen,
}

/// The subject of a right.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessScope {
    object,
    listing,
    bucket,
    settings,
    service,
}

/// The keys that are announced to their homes.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HomeNoticeScope {
    nothing,
    key,
    /// Each key of the batch.
    keys,
}

/// The way an operation takes.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationRoute {
    bypass,
    cached,
    verified,
    listed,
    copied,
    batch,
    mounts,
    refused,
}

/// A row of the table: one operation.
#[derive(Debug)]
pub(crate) struct OperationRow {
    /// Name in s3s's trait.
    pub method: &'static str,
    /// Name in S3.
    pub name: &'static str,
    pub right: AccessRight,
    pub scope: AccessScope,
    pub announces: HomeNoticeScope,
    /// The table's expansion uses it. The field is kept for the tests, which check the columns
    /// against each other and make `COMPATIBILITY.md`.
    #[cfg_attr(not(test), allow(dead_code))]
    pub way: OperationRoute,
}

/// Returns the operation of an input: `GetObjectInput` → `GetObject`.
pub(super) const fn operation_name(input: &'static str) -> &'static str {
    input.split_at(input.len() - "Input".len()).0
}

/// An operation's input, with what the table knows of it.
#[async_trait]
pub(crate) trait TableOperation: Sized + Send + 'static {
    /// Index in the table.
    const INDEX: usize;
    type Output: Send + 'static;

    fn table_row() -> &'static OperationRow {
        &super::TABLE[Self::INDEX]
    }

    /// Returns the bucket that the client named. `None`: the operation is about no bucket.
    fn bucket_field(&mut self) -> Option<&mut String>;
    fn key_field(&mut self) -> Option<&mut String>;
    /// Returns the prefix of a listing.
    fn listing_prefix(&self) -> &str;
    /// Returns the buckets that the input has the store write to, besides its own.
    fn find_destinations(&mut self) -> Vec<NamedDestination<'_>>;
    /// Rewrites names other than bucket and key from the client's to the UFS's.
    fn rewrite_inward(&mut self, names: &MountNamePair<'_>);
    /// Rewrites names in the answer from the UFS's to the client's.
    fn rewrite_outward(output: &mut Self::Output, names: &MountNamePair<'_>);
    async fn send_request(
        store: &dyn S3,
        request: S3Request<Self>,
    ) -> S3Result<S3Response<Self::Output>>;
}
