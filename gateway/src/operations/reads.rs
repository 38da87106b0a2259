//! GetObject and HeadObject: authorised here, read through the cache tier. What the tier has no part in, `read` passes on.

use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::Core;

pub(super) async fn get_object(
    core: &Core,
    mut request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let entry = core.enter(&mut request)?;
    match &core.reader {
        Some(reader) => reader.get(&entry.exchange.cx, &entry.mount, request.input).await,
        None => core.forward(&entry, request).await,
    }
}

pub(super) async fn head_object(
    core: &Core,
    mut request: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let entry = core.enter(&mut request)?;
    match &core.reader {
        Some(reader) => reader.head(&entry.exchange.cx, &entry.mount, request.input).await,
        None => core.forward(&entry, request).await,
    }
}
