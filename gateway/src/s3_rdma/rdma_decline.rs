//! Says no to payloads by RDMA, in the words of the wire: `x-amz-rdma-reply: 501`. A GET is then
//! answered with its body. An upload is refused: its payload is in the client's memory, so its
//! empty body would become an empty object. Knows no dialect and reads no token.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use s3s::{Body, HttpResponse, S3Error, S3ErrorCode};

const TOKEN: &str = "x-amz-rdma-token";
const REPLY: HeaderName = HeaderName::from_static("x-amz-rdma-reply");
/// What the header says where nothing came by RDMA.
const DECLINED: HeaderValue = HeaderValue::from_static("501");

/// Paths below it are endpoints of the dialect `hipobj-rc-v2`. No bucket's name begins with a dot.
const CONTROL_PREFIX: &str = "/.hipobj-rc/";
const PROTOCOL_STATUS: HeaderName = HeaderName::from_static("x-amz-rdma-protocol-status");
/// Tells a client of that dialect that it may go on over HTTP.
const UNSUPPORTED: HeaderValue = HeaderValue::from_static("unsupported");

/// What a request wants of RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RdmaWish {
    Nothing,
    /// Its payload is to go into memory of the client.
    Download,
    /// Its payload is in memory of the client, and not in its body.
    Upload,
    /// It is for an endpoint of the dialect.
    Control,
}

impl RdmaWish {
    pub(crate) fn of_request<B>(request: &Request<B>) -> Self {
        if control_step(request).is_some() {
            return Self::Control;
        }
        match (request.headers().contains_key(TOKEN), request.method()) {
            (false, _) => Self::Nothing,
            (true, &Method::PUT | &Method::POST) => Self::Upload,
            (true, _) => Self::Download,
        }
    }

    /// Refuses a request whose body is not what it wants stored. `Ok`: it is answered as ever.
    pub(crate) fn check_body(self) -> Result<(), S3Error> {
        match self {
            Self::Nothing | Self::Download | Self::Control => Ok(()),
            Self::Upload => Err(S3Error::with_message(
                S3ErrorCode::NotImplemented,
                "no payload is taken by RDMA here; send it in the body, without x-amz-rdma-token",
            )),
        }
    }

    /// Says in an answer that nothing of it came by RDMA, if it was to. Returns whether it was.
    pub(crate) fn note_decline(self, answer: &mut HeaderMap) -> bool {
        let is_declined = matches!(self, Self::Download | Self::Upload);
        if is_declined {
            answer.insert(REPLY, DECLINED);
        }
        is_declined
    }
}

/// Returns which step of the dialect a request is. `None`: it is no request to its endpoints. With a
/// query it is none: where the host names the bucket, such keys are S3's, and each POST to a key has
/// a query.
pub(crate) fn control_step<B>(request: &Request<B>) -> Option<&str> {
    if *request.method() != Method::POST || request.uri().query().is_some() {
        return None;
    }
    request.uri().path().strip_prefix(CONTROL_PREFIX)
}

/// Answers a request of a dialect that is not served here, or a part of one: its client may go on
/// over HTTP.
pub(crate) fn unsupported_dialect() -> HttpResponse {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    response.headers_mut().insert(PROTOCOL_STATUS, UNSUPPORTED);
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Where the host names the bucket, such keys are objects.
    #[test]
    fn posts_to_keys_of_that_name_are_s3s() {
        let step_of = |target: &str| {
            let request = Request::post(target).body(()).unwrap();
            control_step(&request).map(str::to_owned)
        };
        assert_eq!(step_of("/.hipobj-rc/prepare").as_deref(), Some("prepare"));
        for query in ["uploads", "uploadId=a", "select&select-type=2", "restore", ""] {
            assert_eq!(step_of(&format!("/.hipobj-rc/prepare?{query}")), None, "{query}");
        }
    }
}
