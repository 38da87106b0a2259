//! Owns a UFS's own HTTP answer: status, headers, and an error's body. The typed S3 interface drops
//! it.
//!
//! [`observe_answer`] returns the raw answer of a call on a remote store. [`answer_of`] returns one
//! form for errors of remote and local stores. `s3::answer_interceptor` listens to the SDK. A
//! gateway decides what it makes of an answer.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use s3s::S3Error;

use crate::answer_defect::AnswerDefect;
use crate::error::{NoAnswerCause, RawAnswer, UfsError};

/// Bound on an error's body. It is an XML document of a few hundred bytes; a longer one is cut.
pub(crate) const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Marks a request (in its extensions) whose caller looks at the raw answer, not at typed fields. A
/// remote store then fills in the body alone, and an error's code fits its status.
#[derive(Debug, Clone, Copy)]
pub struct RawAnswerOnly;

type RawAnswerSlot = Arc<Mutex<Option<RawAnswer>>>;

tokio::task_local! {
    static SLOT: RawAnswerSlot;
}

/// Runs a call on a store and returns the UFS's answer to its last attempt, as sent. Returns `None`
/// if no answer came (local store, broken connection). On success the body is empty: it is in the
/// output.
///
/// The requests must run within `call` itself: an answer to a task that `call` spawned is not seen.
pub async fn observe_answer<F: Future>(call: F) -> (F::Output, Option<RawAnswer>) {
    let slot = RawAnswerSlot::default();
    let output = SLOT.scope(slot.clone(), call).await;
    let answer = slot.lock().take();
    // Observers nest: a wrapper's use of `observe_answer` must not hide the answer from its caller.
    if let (Some(answer), Ok(outer)) = (&answer, SLOT.try_with(Arc::clone)) {
        *outer.lock() = Some(answer.clone());
    }
    (output, answer)
}

/// Records the latest answer for the observer. `None` begins an attempt and clears an older answer.
pub(crate) fn record_answer(answer: Option<RawAnswer>) {
    // Does nothing where nobody observes.
    let _ = SLOT.try_with(|slot| *slot.lock() = answer);
}

/// Adds an error's body to the answer recorded last.
pub(crate) fn note_body(body: &[u8]) {
    let _ = SLOT.try_with(|slot| {
        if let Some(answer) = slot.lock().as_mut() {
            answer.body = Bytes::copy_from_slice(&body[..body.len().min(ERROR_BODY_BYTES_MAX)]);
        }
    });
}

/// The failure that a remote store attaches to an [`S3Error`] as its source.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RemoteFailure {
    /// The UFS answered with an error.
    #[error("the ufs answered {}", .0.status)]
    Answer(RawAnswer),
    /// No answer came. A write may or may not have taken effect.
    #[error("{0}")]
    NoAnswer(String),
    /// An answer came that is not S3. A write may or may not have taken effect.
    #[error("{0}")]
    Unintelligible(String),
}

/// Returns one form for the errors of all stores. It is the raw answer where there is one.
/// Otherwise it has the error's own status and headers, and an S3 error document made from its code
/// and message.
pub fn answer_of(error: &S3Error, raw: Option<RawAnswer>) -> RawAnswer {
    let from_remote = match remote_failure(error) {
        Some(RemoteFailure::Answer(answer)) => Some(answer.clone()),
        // The raw answer, if any, is not an error answer. Passing it on would turn a failure into a
        // success.
        Some(RemoteFailure::NoAnswer(_) | RemoteFailure::Unintelligible(_)) => {
            return synthesize_answer(error);
        }
        None => None,
    };
    from_remote.or(raw.filter(is_error)).unwrap_or_else(|| synthesize_answer(error))
}

/// Returns why a remote store failed, if `error` came from one.
pub fn remote_failure(error: &S3Error) -> Option<&RemoteFailure> {
    error.source().and_then(|source| {
        let source: &(dyn StdError + 'static) = source;
        source.downcast_ref::<RemoteFailure>()
    })
}

/// Returns true for an error answer. CompleteMultipartUpload and CopyObject may answer 200 and
/// still carry an error document.
pub(crate) fn is_error(answer: &RawAnswer) -> bool {
    !answer.status.is_success() || is_error_document(&answer.body)
}

/// Returns true if the root of a document is `Error`. White space may come first, which stores send
/// to keep a connection alive.
fn is_error_document(document: &[u8]) -> bool {
    let mut rest = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document).trim_ascii_start();
    if rest.starts_with(b"<?xml") {
        let end = rest.iter().position(|&byte| byte == b'>').map_or(rest.len(), |at| at + 1);
        rest = rest[end..].trim_ascii_start();
    }
    let after = rest.strip_prefix(b"<Error").and_then(<[u8]>::first);
    after.is_some_and(|&byte| byte == b'>' || byte.is_ascii_whitespace())
}

fn synthesize_answer(error: &S3Error) -> RawAnswer {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut headers = error.headers().cloned().unwrap_or_default();
    let bodiless = status == StatusCode::NOT_MODIFIED || status == StatusCode::NO_CONTENT;
    let body = if bodiless { Bytes::new() } else { error_document(error, &mut headers) };
    RawAnswer { status, headers, body }
}

fn error_document(error: &S3Error, headers: &mut HeaderMap) -> Bytes {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    let mut element = |name: &str, text: &str| {
        xml.push_str(&format!("<{name}>"));
        for c in text.chars() {
            match c {
                '<' => xml.push_str("&lt;"),
                '>' => xml.push_str("&gt;"),
                '&' => xml.push_str("&amp;"),
                // XML 1.0 knows no other control characters, not even escaped.
                c if c.is_control() && !matches!(c, '\t' | '\n' | '\r') => xml.push('\u{fffd}'),
                c => xml.push(c),
            }
        }
        xml.push_str(&format!("</{name}>"));
    };
    element("Code", error.code().as_str());
    if let Some(message) = error.message() {
        element("Message", message);
    }
    if let Some(id) = error.request_id() {
        element("RequestId", id);
    }
    xml.push_str("</Error>");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Bytes::from(xml)
}

impl UfsError {
    /// Makes the error that an [`S3Error`] of the store behind `ufs` means.
    pub fn from_s3(ufs: &str, error: &S3Error, raw: Option<RawAnswer>) -> Self {
        let ufs = ufs.to_owned();
        match remote_failure(error) {
            Some(RemoteFailure::NoAnswer(reason)) => {
                Self::Unreachable { ufs, cause: NoAnswerCause::Client(reason.clone()) }
            }
            Some(RemoteFailure::Unintelligible(reason)) => {
                Self::Untrusted { ufs, defect: AnswerDefect::Unintelligible(reason.clone()) }
            }
            Some(RemoteFailure::Answer(_)) | None => {
                Self::Answer { ufs, answer: Box::new(answer_of(error, raw)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use s3s::{S3ErrorCode, s3_error};

    fn raw(status: u16, body: &'static str) -> RawAnswer {
        RawAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    #[tokio::test]
    async fn an_inner_observer_leaves_the_answer_to_the_outer_one() {
        let call = async {
            let ((), inner) = observe_answer(async { record_answer(Some(raw(412, ""))) }).await;
            inner.unwrap().status
        };
        let (inner, outer) = observe_answer(call).await;
        assert_eq!((inner.as_u16(), outer.unwrap().status.as_u16()), (412, 412));
    }

    #[tokio::test]
    async fn an_attempt_without_an_answer_keeps_none_of_an_earlier_one() {
        let ((), answer) = observe_answer(async {
            record_answer(Some(raw(503, "")));
            record_answer(None);
        })
        .await;
        assert!(answer.is_none());
    }

    #[test]
    fn a_local_stores_error_becomes_status_headers_and_a_document() {
        let mut error = s3_error!(NoSuchKey, "no key <a&b>");
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
        error.set_headers(headers);
        let answer = answer_of(&error, None);
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert_eq!(answer.headers["x-amz-delete-marker"], "true");
        let body = std::str::from_utf8(&answer.body).unwrap();
        assert!(
            body.contains("<Code>NoSuchKey</Code><Message>no key &lt;a&amp;b&gt;</Message>"),
            "{body}"
        );
    }

    #[test]
    fn a_304_has_no_document() {
        let mut error = S3Error::new(S3ErrorCode::NotModified);
        error.set_status_code(StatusCode::NOT_MODIFIED);
        assert!(answer_of(&error, None).body.is_empty());
    }

    #[test]
    fn a_success_is_never_taken_for_the_answer_to_a_failed_call() {
        let error = s3_error!(InternalError, "body could not be parsed");
        assert_eq!(answer_of(&error, Some(raw(200, ""))).status, StatusCode::INTERNAL_SERVER_ERROR);
        let said_so =
            answer_of(&error, Some(raw(200, "<?xml?><Error><Code>SlowDown</Code></Error>")));
        assert_eq!(said_so.status, StatusCode::OK);
    }

    #[test]
    fn a_success_is_an_error_only_if_its_document_is_one() {
        for (body, error) in [
            ("<Error><Code>SlowDown</Code></Error>", true),
            ("  \n<?xml version=\"1.0\"?>\n<Error xmlns=\"x\"><Code>SlowDown</Code></Error>", true),
            ("\u{feff}<Error>", true),
            ("<DeleteResult><Error><Key>k</Key></Error></DeleteResult>", false),
            ("an object that speaks of <Error>", false),
            ("<Errors/>", false),
            ("<?xml", false),
            ("", false),
        ] {
            assert_eq!(is_error(&raw(200, body)), error, "{body}");
            assert!(is_error(&raw(404, body)), "{body}");
        }
    }

    #[test]
    fn silence_is_unreachable_and_not_an_answer() {
        let failure = RemoteFailure::NoAnswer("connect timed out".into());
        let error = S3Error::with_source(S3ErrorCode::ServiceUnavailable, Box::new(failure));
        assert!(matches!(UfsError::from_s3("main", &error, None), UfsError::Unreachable { .. }));
        assert_eq!(answer_of(&error, None).status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
