//! Handles CopyObject and UploadPartCopy, whose source has a mount and a right of its own. Owns the
//! source's check and rewriting.

use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopySource, UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::operation_core::{AuthorizedRequest, OperationCore};
use crate::operation_table::AccessRight;
use crate::s3_errors::no_such_bucket;

pub(super) async fn copy_object(
    core: &OperationCore,
    mut request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let entry = core.authorize_request(&mut request)?;
    rewrite_source(core, &entry, &mut request.input.copy_source)?;
    core.forward_authorized(&entry, request).await
}

pub(super) async fn upload_part_copy(
    core: &OperationCore,
    mut request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let entry = core.authorize_request(&mut request)?;
    rewrite_source(core, &entry, &mut request.input.copy_source)?;
    core.forward_authorized(&entry, request).await
}

fn rewrite_source(
    core: &OperationCore,
    entry: &AuthorizedRequest,
    source: &mut CopySource,
) -> S3Result<()> {
    let CopySource::Bucket { bucket, key, .. } = source else {
        // An ARN names a bucket that no rule here covers.
        let message = "the copy source is an access point or an outpost; name its bucket and key";
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
    };
    let mount = core.mounts.resolve_bucket(bucket).ok_or_else(no_such_bucket)?;
    core.rights.require_right(&entry.identity, &mount, key, AccessRight::read)?;
    if mount.ufs.ufs_name() != entry.mount.ufs.ufs_name() {
        let message = format!(
            "{} and {} lie in different stores: copy by reading and writing",
            mount.name, entry.mount.name
        );
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
    }
    *bucket = mount.bucket.as_str().into();
    *key = mount.ufs_key(key).into();
    Ok(())
}
