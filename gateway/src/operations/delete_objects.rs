//! Handles DeleteObjects: checks the right for each key, and deletes the allowed ones. Denied keys
//! are answered one by one, as S3 does. Owns the split.

use std::collections::HashMap;

use s3s::dto::{DeleteObjectsInput, DeleteObjectsOutput, Error, ObjectIdentifier};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use verbs3_protocol::WriteOutcome;

use super::operation_core::OperationCore;
use crate::operation_table::AccessRight;
use crate::write::home_notifier::WriteEnd;

/// Most keys in a batch, by S3.
const KEYS_MAX: usize = 1000;

pub(super) async fn delete_objects(
    core: &OperationCore,
    mut request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let entry = core.authorize_request(&mut request)?;
    if request.input.delete.objects.len() > KEYS_MAX {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    let asked = std::mem::take(&mut request.input.delete.objects);
    let may = |object: &ObjectIdentifier| {
        core.rights
            .require_right(&entry.identity, &entry.mount, &object.key, AccessRight::delete)
            .is_ok()
    };
    let (allowed, denied): (Vec<_>, Vec<_>) = asked.into_iter().partition(may);
    let mut response = if allowed.is_empty() && !denied.is_empty() {
        S3Response::new(DeleteObjectsOutput::default())
    } else {
        request.input.delete.objects = allowed;
        core.rewrite_names(&entry, &mut request)?;
        let keys: Vec<String> =
            request.input.delete.objects.iter().map(|object| object.key.clone()).collect();
        let quiet = request.input.delete.quiet == Some(true);
        core.send_announced(&entry, request, keys.clone(), move |output| {
            batch_write_end(output, &keys, quiet)
        })
        .await?
    };
    if !denied.is_empty() {
        response.output.errors.get_or_insert_default().extend(denied.into_iter().map(denial_entry));
    }
    Ok(response)
}

/// Decides how the writes of a batch ended.
///
/// A key on which the UFS itself failed is unknown: it may be deleted, or an attempt may go on
/// after the answer. Stores also answer `SlowDown` for a key that some of their disks have deleted.
/// One key's failure says nothing of the others. `quiet`: the UFS was asked to name errors alone;
/// otherwise a key that the answer does not name is unknown, too.
fn batch_write_end(output: &DeleteObjectsOutput, keys: &[String], quiet: bool) -> WriteEnd {
    let refused = |error: &Error| {
        let code = error.code.as_ref().and_then(|code| S3ErrorCode::from_bytes(code.as_bytes()));
        // S3's time-out is a 400.
        let code = code.filter(|code| *code != S3ErrorCode::RequestTimeout);
        code.and_then(|code| code.status_code()).is_some_and(|status| status.is_client_error())
    };
    let stumbled = output.errors.iter().flatten().filter(|error| !refused(error));
    let unknown: Option<Vec<String>> =
        stumbled.map(|error| error.key.clone().filter(|key| keys.contains(key))).collect();
    // The failure may concern any of the keys.
    let Some(mut unknown) = unknown else { return WriteEnd::Whole(WriteOutcome::Unknown) };
    if !quiet {
        let errors = output.errors.iter().flatten().filter_map(|error| error.key.as_deref());
        let deleted = output.deleted.iter().flatten().filter_map(|entry| entry.key.as_deref());
        // A key that was asked for with several versions is named as often.
        let mut named: HashMap<&str, usize> = HashMap::new();
        errors.chain(deleted).for_each(|key| *named.entry(key).or_default() += 1);
        let is_unnamed = |key: &&String| match named.get_mut(key.as_str()) {
            Some(times) if *times > 0 => {
                *times -= 1;
                false
            }
            _ => true,
        };
        unknown.extend(keys.iter().filter(is_unnamed).cloned());
    }
    if unknown.is_empty() { WriteEnd::Whole(WriteOutcome::Done) } else { WriteEnd::AllBut(unknown) }
}

fn denial_entry(object: ObjectIdentifier) -> Error {
    Error {
        code: Some("AccessDenied".to_owned()),
        key: Some(object.key),
        message: Some("Access Denied".to_owned()),
        version_id: object.version_id,
    }
}

#[cfg(test)]
mod tests {
    use s3s::dto::DeletedObject;

    use super::*;

    #[test]
    fn a_key_that_the_ufs_stumbled_over_is_unknown_and_no_other() {
        let keys: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let ends = |errors: &[(Option<&str>, Option<&str>)]| {
            let error = |&(key, code): &(Option<&str>, Option<&str>)| Error {
                key: key.map(str::to_owned),
                code: code.map(str::to_owned),
                ..Error::default()
            };
            super::batch_write_end(
                &DeleteObjectsOutput {
                    errors: Some(errors.iter().map(error).collect()),
                    ..Default::default()
                },
                &keys,
                true,
            )
        };
        let done = WriteEnd::Whole(WriteOutcome::Done);
        let unknown =
            |keys: &[&str]| WriteEnd::AllBut(keys.iter().map(|&key| key.to_owned()).collect());
        assert_eq!(ends(&[]), done);
        assert_eq!(ends(&[(Some("a"), Some("AccessDenied")), (None, Some("NoSuchVersion"))]), done);
        assert_eq!(
            ends(&[(Some("a"), Some("AccessDenied")), (Some("b"), Some("InternalError"))]),
            unknown(&["b"])
        );
        for code in [
            Some("ServiceUnavailable"),
            Some("SlowDown"),
            Some("RequestTimeout"),
            Some("SomethingOdd"),
            None,
        ] {
            assert_eq!(ends(&[(Some("c"), code)]), unknown(&["c"]), "{code:?}");
            for other in [None, Some("d")] {
                assert_eq!(
                    ends(&[(other, code)]),
                    WriteEnd::Whole(WriteOutcome::Unknown),
                    "{code:?} of {other:?}"
                );
            }
        }
    }

    #[test]
    fn a_key_that_a_full_answer_does_not_name_is_unknown() {
        let keys: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let deleted = |key: &str| DeletedObject { key: Some(key.to_owned()), ..Default::default() };
        let refused = Error {
            key: Some("b".to_owned()),
            code: Some("AccessDenied".to_owned()),
            ..Default::default()
        };
        let output = |deleted| DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(vec![refused.clone()]),
            ..Default::default()
        };
        let partial = output(vec![deleted("a")]);
        assert_eq!(batch_write_end(&partial, &keys, false), WriteEnd::AllBut(vec!["c".to_owned()]));
        assert_eq!(batch_write_end(&partial, &keys, true), WriteEnd::Whole(WriteOutcome::Done));
        // Two versions of "a" were asked for, and one is named.
        let versions: Vec<String> = ["a", "a", "b"].map(str::to_owned).into();
        let end = batch_write_end(&partial, &versions, false);
        assert_eq!(end, WriteEnd::AllBut(vec!["a".to_owned()]));
        let whole = output(vec![deleted("a"), deleted("c")]);
        assert_eq!(batch_write_end(&whole, &keys, false), WriteEnd::Whole(WriteOutcome::Done));
    }
}
