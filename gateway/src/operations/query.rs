//! Owns which query parameters a write may carry, and refuses unknown ones. s3s ignores a
//! sub-resource that it does not know, and would treat the request as one for the object or bucket
//! itself. `PUT /b/k?encryption` would then store the document in place of the object, and `DELETE
//! /b?abac` would delete the bucket.

use s3s::{S3Error, S3ErrorCode, S3Result};

/// Returns the parameters of operations that s3s falls back to, or whose input is an object's
/// bytes. `None`: other operations are chosen by their sub-resource, and change nothing else.
fn known_parameters(operation: &str) -> Option<&'static [&'static str]> {
    Some(match operation {
        "PutObject" | "CopyObject" | "PostObject" | "CreateBucket" | "DeleteBucket" => &[],
        "DeleteObject" => &["versionId"],
        "UploadPart" | "UploadPartCopy" => &["partNumber", "uploadId"],
        "AbortMultipartUpload" | "CompleteMultipartUpload" => &["uploadId"],
        "CreateMultipartUpload" => &["uploads"],
        "DeleteObjects" => &["delete"],
        _ => return None,
    })
}

/// Returns whether every operation may have this parameter: its name, signatures of both versions,
/// and headers that were signed into a URL.
fn is_common(name: &str) -> bool {
    let starts = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    matches!(name, "x-id" | "AWSAccessKeyId" | "Signature" | "Expires")
        || starts("x-amz-")
        || starts("response-")
}

/// Refuses a write with a parameter it does not have. Names are compared without decoding: no
/// client encodes the allowed ones.
pub(crate) fn check_parameters(operation: &str, query: &str) -> S3Result<()> {
    let Some(known) = known_parameters(operation) else { return Ok(()) };
    let names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    match names
        .filter(|name| !name.is_empty())
        .find(|name| !known.contains(name) && !is_common(name))
    {
        None => Ok(()),
        Some(name) => {
            let message = format!(
                "{operation} has no parameter {name:?}, and no operation of that name is known here"
            );
            Err(S3Error::with_message(S3ErrorCode::NotImplemented, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_with_an_unknown_parameter_is_refused() {
        for (operation, query) in [
            ("PutObject", "encryption"),
            ("PutObject", "encryption="),
            ("PutObject", "x-id=PutObject&append&position=0"),
            ("PutObject", "partNumber=1"),
            ("PutObject", "versionId=7"),
            ("PutObject", "%61ppend"),
            ("DeleteObject", "acl"),
            ("DeleteObject", "versionId=7&retention"),
            ("DeleteBucket", "abac"),
            ("CreateBucket", "abac"),
            ("UploadPart", "partNumber=1&uploadId=u&acl"),
        ] {
            assert!(check_parameters(operation, query).is_err(), "{operation} {query}");
        }
    }

    #[test]
    fn signed_urls_and_the_operations_own_parameters_pass() {
        for (operation, query) in [
            ("PutObject", ""),
            ("PutObject", "x-id=PutObject"),
            ("PutObject", "X-Amz-Signature=a&X-Amz-Date=b&x-amz-meta-colour=blue"),
            ("PutObject", "AWSAccessKeyId=a&Signature=b&Expires=1&x-amz-security-token=t"),
            ("DeleteObject", "versionId=7&x-id=DeleteObject"),
            ("UploadPart", "partNumber=1&uploadId=u&x-id=UploadPart"),
            ("DeleteObjects", "delete"),
            ("PutObjectAcl", "acl&versionId=7"),
        ] {
            assert!(check_parameters(operation, query).is_ok(), "{operation} {query}");
        }
    }
}
