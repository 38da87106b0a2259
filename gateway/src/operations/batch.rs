//! DeleteObjects: the right is asked for each key. Keys that may not be deleted are answered one by one, as S3 does; the others
//! are deleted. Owns the split.

use s3s::dto::{DeleteObjectsInput, DeleteObjectsOutput, Error, ObjectIdentifier};
use s3s::{S3Request, S3Response, S3Result};

use super::{Core, Right};

/// S3's own bound on a batch.
const KEYS_MAX: usize = 1000;

pub(super) async fn delete_objects(
    core: &Core,
    mut request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let entry = core.enter(&mut request)?;
    if request.input.delete.objects.len() > KEYS_MAX {
        return Err(s3s::S3ErrorCode::MalformedXML.into());
    }
    let asked = std::mem::take(&mut request.input.delete.objects);
    let may = |object: &ObjectIdentifier| core.allow(&entry.identity, &entry.mount, &object.key, Right::delete).is_ok();
    let (allowed, denied): (Vec<_>, Vec<_>) = asked.into_iter().partition(may);
    let mut response = if allowed.is_empty() && !denied.is_empty() {
        S3Response::new(DeleteObjectsOutput::default())
    } else {
        request.input.delete.objects = allowed;
        core.rewrite(&entry, &mut request)?;
        let keys = request.input.delete.objects.iter().map(|object| object.key.clone()).collect();
        core.announced(&entry, request, keys).await?
    };
    if !denied.is_empty() {
        response.output.errors.get_or_insert_default().extend(denied.into_iter().map(refusal));
    }
    Ok(response)
}

fn refusal(object: ObjectIdentifier) -> Error {
    Error {
        code: Some("AccessDenied".to_owned()),
        key: Some(object.key),
        message: Some("Access Denied".to_owned()),
        version_id: object.version_id,
    }
}
