//! Owns the trait that gives the inputs of all operations one shape. Owns no behaviour.

use async_trait::async_trait;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::rewrite::NamedDestination;
use crate::mount::MountNamePair;
use crate::operation_table::{OperationRow, TABLE};

/// An operation's input, with what the table knows of it.
#[async_trait]
pub(crate) trait TableOperation: Sized + Send + 'static {
    /// Index in the table.
    const INDEX: usize;
    type Output: Send + 'static;

    fn table_row() -> &'static OperationRow {
        &TABLE[Self::INDEX]
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
