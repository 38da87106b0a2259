//! Decides which requests carry a document (XML, JSON) in their body rather than an object's bytes.
//! s3s reads documents whole and checks neither Content-MD5 nor checksums; here they are checked as
//! they come in. The bytes of objects are checked on their way to the UFS (`write::verified_body`).

use http::{HeaderMap, Method, Uri};
use s3s::S3Result;

use crate::write::checks::BodyChecks;

/// Query names of a PUT that name the place of an object's bytes, not a sub-resource.
const OF_UPLOADS: [&str; 3] = ["partNumber", "uploadId", "x-id"];

/// Returns the checks that a document's headers promise. `None`: no document, or nothing promised.
pub(super) fn promised_checks(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> S3Result<Option<BodyChecks>> {
    let promises = headers
        .keys()
        .any(|name| name == "content-md5" || name.as_str().starts_with("x-amz-checksum-"));
    // A trailer comes after aws-chunked framing, which is not unwrapped here.
    let chunked = headers.contains_key("x-amz-trailer")
        || headers.contains_key("x-amz-decoded-content-length");
    if !promises || chunked || !is_document(method, uri.query().unwrap_or_default()) {
        return Ok(None);
    }
    let length =
        headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    length.map(|length| BodyChecks::from_headers(length, headers, None)).transpose()
}

/// Returns whether a body is an object's, or a part's.
pub(super) fn is_upload(method: &Method, uri: &Uri) -> bool {
    *method == Method::PUT && !is_document(method, uri.query().unwrap_or_default())
}

fn is_document(method: &Method, query: &str) -> bool {
    let mut names =
        query.split('&').filter_map(|pair| pair.split('=').next()).filter(|name| !name.is_empty());
    match *method {
        // POSTs of completed uploads carry the checksum of the object, not of the document.
        Method::POST => names.any(|name| matches!(name, "delete" | "restore" | "select")),
        Method::PUT => names.any(|name| {
            !OF_UPLOADS.contains(&name) && !name.starts_with("X-Amz-") && is_subresource(name)
        }),
        _ => false,
    }
}

/// Returns whether S3 has a sub-resource of this name that is put with a document.
fn is_subresource(name: &str) -> bool {
    const PUT: [&str; 23] = [
        "accelerate",
        "acl",
        "analytics",
        "cors",
        "encryption",
        "intelligent-tiering",
        "inventory",
        "legal-hold",
        "lifecycle",
        "logging",
        "metadataTable",
        "metrics",
        "notification",
        "object-lock",
        "ownershipControls",
        "policy",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "retention",
        "tagging",
        "versioning",
        "website",
    ];
    PUT.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_from_documents() {
        for (method, query, document) in [
            (Method::POST, "delete=", true),
            (Method::POST, "delete", true),
            (Method::POST, "uploads", false),
            (Method::POST, "uploadId=delete", false),
            (Method::PUT, "tagging&versionId=1", true),
            (Method::PUT, "x-id=PutObject", false),
            (Method::PUT, "partNumber=1&uploadId=x", false),
            (Method::PUT, "X-Amz-Signature=1&tagged=1", false),
            (Method::PUT, "", false),
            (Method::GET, "policy", false),
        ] {
            assert_eq!(is_document(&method, query), document, "{method} {query}");
        }
    }
}
