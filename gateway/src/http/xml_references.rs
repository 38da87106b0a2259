//! Writes what XML 1.0 has no letter for as references (`&#x1;`), as S3 does, and carriage returns,
//! which every parser would take for a line feed: a listing would name another key. Errors may be the
//! store's own documents, whose lines may end with them: there they stay. Lenient parsers
//! read such a listing; strict ones (expat) refuse references to what XML forbids as well, and have
//! `encoding-type=url`. Touches documents alone, never the bytes of an object.

use http::{HeaderValue, header};
use s3s::{Body, HttpResponse};

/// Operations whose answers are documents that name keys.
const NAMING_KEYS: [&str; 8] = [
    "CompleteMultipartUpload",
    "CreateMultipartUpload",
    "DeleteObjects",
    "ListMultipartUploads",
    "ListObjectVersions",
    "ListObjects",
    "ListObjectsV2",
    "ListParts",
];

/// Rewrites the document of an answer, if it is one and needs it. `operation`: by its name in the
/// table of operations.
pub(super) fn write_references(response: &mut HttpResponse, operation: Option<&str>) {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error && !operation.is_some_and(|name| NAMING_KEYS.contains(&name)) {
        return;
    }
    let bytes = response.body().bytes();
    let Some(written) = bytes.and_then(|bytes| rewrite_document(&bytes, is_error)) else { return };
    if response.headers().contains_key(header::CONTENT_LENGTH) {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(written.len()));
    }
    *response.body_mut() = Body::from(written);
}

/// Returns a document of this gateway's with references; `None`: it needs none.
pub(super) fn with_references(document: &[u8]) -> Option<Vec<u8>> {
    rewrite_document(document, false)
}

/// Returns the document with references; `None`: it needs none. `keeps_returns`: carriage returns may
/// be ends of lines, also where no reference may stand.
fn rewrite_document(document: &[u8], keeps_returns: bool) -> Option<Vec<u8>> {
    let mut written: Option<Vec<u8>> = None;
    let (mut done, mut at) = (0, 0);
    while at < document.len() {
        let found = reference_at(&document[at..]);
        let is_kept = keeps_returns && document[at] == b'\r';
        let Some((reference, bytes)) = found.filter(|_| !is_kept) else {
            at += 1;
            continue;
        };
        let out = written.get_or_insert_with(|| Vec::with_capacity(document.len() + 64));
        out.extend_from_slice(&document[done..at]);
        out.extend_from_slice(format!("&#x{reference:x};").as_bytes());
        at += bytes;
        done = at;
    }
    let mut written = written?;
    written.extend_from_slice(&document[done..]);
    Some(written)
}

/// Returns the number of a character that XML forbids (<https://www.w3.org/TR/xml/#charsets>) or
/// reads as another (<https://www.w3.org/TR/xml/#sec-line-ends>), and how many bytes of UTF-8 it
/// has. UTF-8 has no surrogates.
fn reference_at(text: &[u8]) -> Option<(u32, usize)> {
    match text {
        [b'\t' | b'\n', ..] => None,
        [control @ 0..=0x1f, ..] => Some((u32::from(*control), 1)),
        [0xef, 0xbf, last @ (0xbe | 0xbf), ..] => Some((0xff00 + u32::from(last | 0x40), 3)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::operation_table::TABLE;

    fn answer(status: u16, document: &str) -> HttpResponse {
        let body = Body::from(document.to_owned());
        http::Response::builder().status(status).body(body).unwrap()
    }

    #[test]
    fn forbidden_characters_become_references_and_others_stay() {
        let text = |document: &str| {
            with_references(document.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(text("<Key>a\t\né ￭ \u{7f}\u{85}</Key>"), None);
        assert_eq!(text("a\rb\r\n").unwrap(), "a&#xd;b&#xd;\n");
        assert_eq!(text("\u{1}a\0\u{1f}").unwrap(), "&#x1;a&#x0;&#x1f;");
        assert_eq!(text("x\u{fffe}\u{ffff}y\u{fffd}").unwrap(), "x&#xfffe;&#xffff;y\u{fffd}");
    }

    #[test]
    fn operations_that_name_keys_are_in_the_table() {
        for name in NAMING_KEYS {
            assert!(TABLE.iter().any(|row| row.name == name), "{name}");
        }
    }

    #[test]
    fn objects_keep_their_bytes() {
        for operation in [Some("GetObject"), Some("SelectObjectContent"), None] {
            let mut object = answer(200, "\u{1}");
            write_references(&mut object, operation);
            assert_eq!(object.body().bytes().unwrap(), "\u{1}");
        }
        // A reference before the root would make the store's own document unreadable.
        let mut of_store = answer(404, "<?xml version=\"1.0\"?>\r\n<Error>\u{1}</Error>\r\n");
        write_references(&mut of_store, Some("GetObject"));
        let written = "<?xml version=\"1.0\"?>\r\n<Error>&#x1;</Error>\r\n";
        assert_eq!(of_store.body().bytes().unwrap(), written);
        for (status, operation) in [(200, Some("ListObjectsV2")), (404, Some("GetObject"))] {
            let mut document = answer(status, "\u{1}");
            document.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(1));
            write_references(&mut document, operation);
            assert_eq!(document.body().bytes().unwrap(), "&#x1;");
            assert_eq!(document.headers()[header::CONTENT_LENGTH], "5");
        }
    }
}
