//! DeleteObjects: the right is asked for each key. Keys that may not be deleted are answered one by one, as S3 does; the others
//! are deleted. Owns the split.

use s3s::dto::{DeleteObjectsInput, DeleteObjectsOutput, Error, ObjectIdentifier};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use verbs3_protocol::WriteOutcome;

use super::{Core, Right};

/// S3's own bound on a batch.
const KEYS_MAX: usize = 1000;

pub(super) async fn delete_objects(
    core: &Core,
    mut request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let entry = core.enter(&mut request)?;
    if request.input.delete.objects.len() > KEYS_MAX {
        return Err(S3ErrorCode::MalformedXML.into());
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
        core.announced(&entry, request, keys, outcome).await?
    };
    if !denied.is_empty() {
        response.output.errors.get_or_insert_default().extend(denied.into_iter().map(refusal));
    }
    Ok(response)
}

/// A key that the UFS itself stumbled over may be deleted yet, or has been: an attempt may go on behind its answer.
fn outcome(output: &DeleteObjectsOutput) -> WriteOutcome {
    let refused = |error: &Error| {
        let code = error.code.as_ref().and_then(|code| S3ErrorCode::from_bytes(code.as_bytes()));
        // S3's time-out is a 400.
        let code = code.filter(|code| *code != S3ErrorCode::RequestTimeout);
        code.and_then(|code| code.status_code()).is_some_and(|status| status.is_client_error())
    };
    match output.errors.iter().flatten().all(refused) {
        true => WriteOutcome::Done,
        false => WriteOutcome::Unknown,
    }
}

fn refusal(object: ObjectIdentifier) -> Error {
    Error {
        code: Some("AccessDenied".to_owned()),
        key: Some(object.key),
        message: Some("Access Denied".to_owned()),
        version_id: object.version_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_the_ufs_stumbled_over_leaves_the_outcome_unknown() {
        for (codes, wanted) in [
            (&[][..], WriteOutcome::Done),
            (&[Some("AccessDenied"), Some("NoSuchVersion")], WriteOutcome::Done),
            (&[Some("AccessDenied"), Some("InternalError")], WriteOutcome::Unknown),
            (&[Some("ServiceUnavailable")], WriteOutcome::Unknown),
            (&[Some("SlowDown")], WriteOutcome::Unknown),
            (&[Some("RequestTimeout")], WriteOutcome::Unknown),
            (&[Some("SomethingOdd")], WriteOutcome::Unknown),
            (&[None], WriteOutcome::Unknown),
        ] {
            let error = |code: &Option<&str>| Error { code: code.map(str::to_owned), ..Error::default() };
            let output = DeleteObjectsOutput { errors: Some(codes.iter().map(error).collect()), ..Default::default() };
            assert_eq!(outcome(&output), wanted, "{codes:?}");
        }
    }
}
