//! Handles GetObject and HeadObject: authorises them, and reads through the cache tier. `read`
//! passes on what the tier can't serve.

use http::Method;
use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::operation_core::OperationCore;
use crate::read::if_range::{IfRange, ask_store};

pub(super) async fn get_object(
    core: &OperationCore,
    mut request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let entry = core.authorize_request(&mut request)?;
    // s3s has no field for it.
    let if_range = IfRange::from_headers(&request.headers);
    match &core.reader {
        Some(reader) => reader.get(&entry.exchange.cx, &entry.mount, request.input, if_range).await,
        None => {
            let forward =
                |input| core.forward_authorized(&entry, verbs3_ufs::s3_request(Method::GET, input));
            ask_store(&entry.exchange.cx, if_range.as_ref(), request.input, forward).await
        }
    }
}

pub(super) async fn head_object(
    core: &OperationCore,
    mut request: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let entry = core.authorize_request(&mut request)?;
    match &core.reader {
        Some(reader) => reader.head_object(&entry.exchange.cx, &entry.mount, request.input).await,
        None => core.forward_authorized(&entry, request).await,
    }
}
