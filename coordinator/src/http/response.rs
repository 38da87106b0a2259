//! The answer of a route, and the refusals that several routes give.

use bytes::Bytes;
use futures::stream::BoxStream;
use http::StatusCode;
use verbs3_coordinator_client::api::{CoordinatorRefusal, CoordinatorRefusalKind};

/// Answer of a route.
pub(crate) struct CoordinatorResponse {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    /// Replaces the body: a stream of JSON documents.
    pub(super) lines: Option<BoxStream<'static, Bytes>>,
}

/// Result of a handler. Both are answers; the second one ends the handler early.
pub(super) type HandlerResult = Result<CoordinatorResponse, CoordinatorResponse>;

impl CoordinatorResponse {
    pub(super) fn from_json(status: StatusCode, value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::from_encoded(status, body.into()),
            Err(error) => {
                unavailable_response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            }
        }
    }

    pub(super) fn from_encoded(status: StatusCode, body: Bytes) -> Self {
        Self { status, body, lines: None }
    }

    pub(super) fn no_content() -> Self {
        Self::from_encoded(StatusCode::NO_CONTENT, Bytes::new())
    }

    pub(super) fn from_lines(lines: BoxStream<'static, Bytes>) -> Self {
        Self { status: StatusCode::OK, body: Bytes::new(), lines: Some(lines) }
    }

    pub(super) fn from_refusal(status: StatusCode, refused: &CoordinatorRefusal) -> Self {
        Self::from_encoded(status, serde_json::to_vec(refused).unwrap_or_default().into())
    }

    pub(super) fn refuse_request(
        status: StatusCode,
        kind: CoordinatorRefusalKind,
        reason: impl Into<String>,
    ) -> Self {
        Self::from_refusal(status, &CoordinatorRefusal::new(kind, reason))
    }
}

pub(super) fn malformed_response(
    status: StatusCode,
    reason: impl Into<String>,
) -> CoordinatorResponse {
    CoordinatorResponse::refuse_request(status, CoordinatorRefusalKind::Malformed, reason)
}

pub(super) fn forbidden_response(reason: impl Into<String>) -> CoordinatorResponse {
    CoordinatorResponse::refuse_request(
        StatusCode::FORBIDDEN,
        CoordinatorRefusalKind::Forbidden,
        reason,
    )
}

pub(super) fn unavailable_response(
    status: StatusCode,
    reason: impl Into<String>,
) -> CoordinatorResponse {
    CoordinatorResponse::refuse_request(status, CoordinatorRefusalKind::Unavailable, reason)
}
