//! Handles the ends of multipart uploads, CompleteMultipartUpload and AbortMultipartUpload: they pass
//! on like any other operation, and settle the copies of parts at the workers (populate on write).

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, ETag,
};
use s3s::{S3Request, S3Response, S3Result};

use super::operation_core::OperationCore;
use crate::write::populate::AnsweredVersion;

pub(super) async fn complete_multipart_upload(
    core: &OperationCore,
    mut request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let entry = core.authorize_request(&mut request)?;
    let object = entry.mount.object_key(&request.input.key);
    let upload = request.input.upload_id.clone();
    let listed = core.populator.as_ref().and_then(|_| list_parts(&request.input));
    let response = core.forward_authorized(&entry, request).await?;
    if let (Some(populator), Some(listed)) = (&core.populator, listed) {
        let CompleteMultipartUploadOutput { e_tag, version_id, .. } = &response.output;
        let answered = AnsweredVersion { etag: e_tag.clone(), version_id: version_id.clone() };
        populator.finish_upload(&entry.mount, object, upload, &listed, answered).await;
    }
    Ok(response)
}

pub(super) async fn abort_multipart_upload(
    core: &OperationCore,
    mut request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let entry = core.authorize_request(&mut request)?;
    let object = entry.mount.object_key(&request.input.key);
    let upload = request.input.upload_id.clone();
    let response = core.forward_authorized(&entry, request).await?;
    if let Some(populator) = &core.populator {
        populator.forget_upload(object, upload);
    }
    Ok(response)
}

/// Returns the parts that the client lists, in order. `None`: one of them has no number or ETag.
fn list_parts(input: &CompleteMultipartUploadInput) -> Option<Vec<(i32, ETag)>> {
    let parts = input.multipart_upload.as_ref()?.parts.as_ref()?;
    parts.iter().map(|part| Some((part.part_number?, part.e_tag.clone()?))).collect()
}
