//! Chooses which headers of a `prepare` are the object's: those that a PUT over HTTP has for it. So
//! its promises are held, and its conditions, whichever way its body goes.

use http::{HeaderMap, HeaderName, header};

use super::hipobj_question::QuestionFault;

/// Headers of the object, and conditions, besides those whose names begin with `x-amz-`.
const OF_OBJECT: [HeaderName; 9] = [
    HeaderName::from_static("content-md5"),
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::EXPIRES,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
];
/// Headers of the `prepare` itself: its signature.
const OF_REQUEST: [&str; 3] = ["x-amz-content-sha256", "x-amz-date", "x-amz-security-token"];
/// Headers that speak of a body that is encoded, or of a part of an object.
const OF_BODY: [&str; 3] =
    ["x-amz-decoded-content-length", "x-amz-trailer", "x-amz-write-offset-bytes"];

/// Returns whether a header changes what is stored, or whether. Those of `x-amz-` do, besides.
pub(super) fn is_of_object(name: &HeaderName) -> bool {
    OF_OBJECT.contains(name)
}

/// Returns the headers that the object is put with. Their signatures have been checked.
pub(crate) fn upload_headers(asked: &HeaderMap) -> Result<HeaderMap, QuestionFault> {
    let mut headers = HeaderMap::new();
    for (name, value) in asked {
        let text = name.as_str();
        // What is read is the object, whole and as it is; and no copy of another one.
        if text.starts_with("x-amz-copy-source") || OF_BODY.contains(&text) {
            return Err(QuestionFault::Unsupported);
        }
        let is_amz = text.starts_with("x-amz-")
            && !text.starts_with("x-amz-rdma-")
            && !OF_REQUEST.contains(&text);
        if is_amz || is_of_object(name) {
            // One that comes twice is judged as over HTTP.
            headers.append(name.clone(), value.clone());
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::HeaderValue;

    use super::*;

    fn headers(names: &[&'static str]) -> HeaderMap {
        let value = HeaderValue::from_static("v");
        names.iter().map(|name| (HeaderName::from_static(name), value.clone())).collect()
    }

    #[test]
    fn only_what_is_of_the_object_goes_with_it() {
        let object = ["content-md5", "content-type", "if-none-match", "x-amz-checksum-crc32"];
        let own = ["host", "content-length", "x-amz-date", "x-amz-content-sha256", "authorization"];
        let dialect = ["x-amz-rdma-op", "x-amz-rdma-token", "connection", "transfer-encoding"];
        let asked = headers(&[&object[..], &own, &dialect].concat());
        assert_eq!(upload_headers(&asked), Ok(headers(&object)));
    }

    #[test]
    fn header_that_comes_twice_stays_so() {
        let mut asked = headers(&["content-md5"]);
        asked.append("content-md5", HeaderValue::from_static("another"));
        assert_eq!(upload_headers(&asked), Ok(asked));
    }

    #[test]
    fn what_is_no_whole_object_of_the_client_is_no_upload() {
        let copies = ["x-amz-copy-source", "x-amz-copy-source-range"];
        for name in copies.into_iter().chain(OF_BODY) {
            assert_eq!(upload_headers(&headers(&[name])), Err(QuestionFault::Unsupported));
        }
    }
}
