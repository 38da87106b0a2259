//! CopyObject and UploadPartCopy: the source has a mount and a right of its own. Owns the source's
//! check and rewriting.

use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopySource, UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::pass::{Entry, no_such_bucket};
use super::{Core, Right};

pub(super) async fn copy_object(
    core: &Core,
    mut request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let entry = core.enter(&mut request)?;
    source(core, &entry, &mut request.input.copy_source)?;
    core.forward(&entry, request).await
}

pub(super) async fn upload_part_copy(
    core: &Core,
    mut request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let entry = core.enter(&mut request)?;
    source(core, &entry, &mut request.input.copy_source)?;
    core.forward(&entry, request).await
}

fn source(core: &Core, entry: &Entry, source: &mut CopySource) -> S3Result<()> {
    let CopySource::Bucket { bucket, key, .. } = source else {
        // An ARN names a bucket that no rule here speaks of.
        let message = "the copy source is an access point or an outpost; name its bucket and key";
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
    };
    let mount = core.mounts.resolve(bucket).ok_or_else(no_such_bucket)?;
    core.allow(&entry.identity, &mount, key, Right::read)?;
    if mount.ufs.name() != entry.mount.ufs.name() {
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
