//! Owns the document that answers GetObjectAttributes: the UFS's own, or s3s's corrected. s3s
//! writes the ETag in quotes, which no S3 does, and its types hold only a part of the document. It
//! names no bucket or key.

use std::any::Any;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use s3s::S3Response;
use s3s::dto::{ETag, GetObjectAttributesOutput, TimestampFormat};
use s3s::xml::{Serialize as _, Serializer};
use verbs3_ufs::RawAnswer;

/// Returns the answer to send instead of the typed one; `None` for all other operations.
pub(super) fn whole_answer<T: Any>(
    response: &S3Response<T>,
    raw: Option<RawAnswer>,
) -> Option<RawAnswer> {
    let output = (&response.output as &dyn Any).downcast_ref::<GetObjectAttributesOutput>()?;
    match raw {
        Some(raw) => Some(raw).filter(|raw| !raw.body.is_empty()),
        None => write_document(output, &response.headers),
    }
}

/// Writes the document of a store within this process.
fn write_document(output: &GetObjectAttributesOutput, headers: &HeaderMap) -> Option<RawAnswer> {
    let mut document = Vec::with_capacity(256);
    let mut writer = Serializer::new(&mut document);
    writer.decl().ok()?;
    output.serialize(&mut writer).ok()?;
    let mut document = String::from_utf8(document).ok()?;
    if let Some(ETag::Strong(tag)) = &output.e_tag {
        for quote in ["&quot;", "\""] {
            document = document.replace(
                &format!("<ETag>{quote}{tag}{quote}</ETag>"),
                &format!("<ETag>{tag}</ETag>"),
            );
        }
    }
    let mut headers = headers.clone();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    let mut add = |name: &'static str, value: Option<String>| {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    };
    let modified = output.last_modified.as_ref().and_then(|moment| {
        let mut text = Vec::new();
        moment.format(TimestampFormat::HttpDate, &mut text).ok()?;
        String::from_utf8(text).ok()
    });
    add("last-modified", modified);
    add("x-amz-version-id", output.version_id.clone());
    add("x-amz-delete-marker", output.delete_marker.map(|marker| marker.to_string()));
    Some(RawAnswer { status: StatusCode::OK, headers, body: Bytes::from(document) })
}
