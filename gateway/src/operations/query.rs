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

/// What a URL may have of signatures of version 4, and of what changes neither the object nor who may
/// write it: clients that trace requests, or choose how a body is verified, add these to every URL.
const OF_SIGNATURES: [&str; 12] = [
    "algorithm",
    "content-sha256",
    "credential",
    "date",
    "expected-bucket-owner",
    "expires",
    "request-payer",
    "sdk-checksum-algorithm",
    "security-token",
    "signature",
    "signedheaders",
    "user-agent",
];

/// Returns whether every operation may have this parameter: its name, signatures of both versions,
/// and checksums, which the JavaScript SDK signs into each URL, of a body that it does not have yet.
fn is_common(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let of_amz = lower.strip_prefix("x-amz-");
    matches!(name, "x-id" | "AWSAccessKeyId" | "Signature" | "Expires")
        || of_amz.is_some_and(|rest| OF_SIGNATURES.contains(&rest) || rest.starts_with("checksum-"))
        || lower.starts_with("response-")
}

/// Says why a parameter is refused.
fn refuse_parameter(operation: &str, name: &str) -> S3Error {
    let message = if name.to_ascii_lowercase().starts_with("x-amz-") {
        format!(
            "{name} in the URL is not read here, and would be lost; send it as a header, and sign \
            that (in the JavaScript SDK: unhoistableHeaders)"
        )
    } else {
        format!(
            "{operation} has no parameter {name:?}, and no operation of that name is known here"
        )
    };
    S3Error::with_message(S3ErrorCode::NotImplemented, message)
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
        Some(name) => Err(refuse_parameter(operation, name)),
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
            // Headers that a client has moved into the URL: nobody would obey them.
            ("PutObject", "x-amz-copy-source=%2Fdata%2Fa"),
            ("PutObject", "X-Amz-Signature=a&x-amz-object-lock-mode=COMPLIANCE"),
            ("PutObject", "X-Amz-Signature=a&X-Amz-Date=b&x-amz-meta-colour=blue"),
            ("PutObject", "x-amz-acl=public-read"),
            ("PutObject", "X-AMZ-TAGGING=a%3Db"),
            ("DeleteObject", "x-amz-bypass-governance-retention=true"),
        ] {
            assert!(check_parameters(operation, query).is_err(), "{operation} {query}");
        }
    }

    #[test]
    fn signed_urls_and_the_operations_own_parameters_pass() {
        for (operation, query) in [
            ("PutObject", ""),
            ("PutObject", "x-id=PutObject"),
            (
                "PutObject",
                "X-Amz-Algorithm=a&X-Amz-Content-Sha256=b&X-Amz-Credential=c&X-Amz-Date=d&\
                X-Amz-Expires=1&X-Amz-Signature=e&X-Amz-SignedHeaders=host&x-id=PutObject&\
                x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32",
            ),
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
