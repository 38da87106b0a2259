//! Builds the answers of `hipobj-rc-v2`: a status and headers, never a body.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use s3s::{Body, HttpResponse};
use verbs3_rdma::client_memory::OwnEnd;

use super::hipobj_question::{PROTOCOL, PrepareQuestion, QuestionFault, RdmaSessionId};
use super::hipobj_token::write_token;
use super::rdma_decline::unsupported_dialect;
use super::rdma_sessions::{OrderRefusal, PrepareRefusal};
use super::s3_rdma_metrics::TransferOutcome;

const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// Answers by a status alone.
pub(crate) fn status_answer(status: StatusCode) -> HttpResponse {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Answers a question that is not one of this dialect, or is malformed.
pub(crate) fn fault_answer(fault: QuestionFault) -> HttpResponse {
    match fault {
        QuestionFault::Unsupported => unsupported_dialect(),
        QuestionFault::Malformed(_) | QuestionFault::TooLarge => {
            let mut response = status_answer(fault.status_code());
            if let QuestionFault::Malformed(name) = fault {
                set_field(&mut response, "x-amz-rdma-malformed", name);
            }
            response
        }
    }
}

/// Says that nothing was prepared.
pub(crate) fn refusal_answer(refusal: PrepareRefusal) -> HttpResponse {
    match refusal {
        PrepareRefusal::NoRoom => status_answer(StatusCode::SERVICE_UNAVAILABLE),
        // HTTP reaches it.
        PrepareRefusal::NoRail => unsupported_dialect(),
        PrepareRefusal::Device => status_answer(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Says that a session is not moved.
pub(crate) fn order_refusal_answer(refusal: OrderRefusal) -> HttpResponse {
    status_answer(match refusal {
        OrderRefusal::Unknown => StatusCode::CONFLICT,
        OrderRefusal::WrongCookie => StatusCode::FORBIDDEN,
    })
}

/// Tells a client how to make its side of the connection.
pub(crate) fn prepared_answer(id: RdmaSessionId, end: &OwnEnd) -> HttpResponse {
    let mut response = status_answer(StatusCode::OK);
    let reply = format!("200:{}", write_token(end));
    for (name, value) in [
        ("x-amz-rdma-protocol", PROTOCOL),
        ("x-amz-rdma-reply", &reply),
        ("x-amz-rdma-session", &id.hex_digits()),
        ("x-amz-rdma-psn", &format!("{:06x}", end.first_packet)),
        ("x-amz-rdma-qpn", &format!("{:x}", end.pair_number)),
    ] {
        set_field(&mut response, name, value);
    }
    response
}

/// Tells a client what became of its transfer. `object`: headers of the object's own answer.
pub(crate) fn outcome_answer(
    outcome: TransferOutcome,
    question: &PrepareQuestion,
    object: &HeaderMap,
) -> HttpResponse {
    let status = match outcome {
        TransferOutcome::Done => StatusCode::OK,
        TransferOutcome::Expired | TransferOutcome::Cancelled => StatusCode::CONFLICT,
        TransferOutcome::Late => StatusCode::REQUEST_TIMEOUT,
        TransferOutcome::Unread
        | TransferOutcome::Unstored
        | TransferOutcome::Refused
        | TransferOutcome::RailLost => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = status_answer(status);
    if outcome != TransferOutcome::Done {
        return response;
    }
    let all = format!("/{}", question.bytes);
    let range = object.get(header::CONTENT_RANGE).and_then(|range| range.to_str().ok());
    let is_all = range.is_none_or(|range| range.ends_with(&all));
    for (name, value) in [
        ("x-amz-rdma-protocol", PROTOCOL),
        ("x-amz-rdma-reply", if is_all { "200" } else { "206" }),
        ("x-amz-rdma-cookie", &format!("{:08x}", question.cookie)),
        ("x-amz-rdma-bytes-transferred", &question.bytes.to_string()),
    ] {
        set_field(&mut response, name, value);
    }
    let of_object = [("x-amz-rdma-etag", header::ETAG), ("x-amz-rdma-version-id", VERSION_ID)];
    for (name, from) in of_object {
        if let Some(value) = object.get(from) {
            response.headers_mut().insert(HeaderName::from_static(name), value.clone());
        }
    }
    response
}

fn set_field(response: &mut HttpResponse, name: &'static str, value: &str) {
    // All of them are digits and names.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}
