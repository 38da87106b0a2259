//! Answers what requests ask of RDMA before anything else looks at them: the endpoints of
//! `hipobj-rc-v2`, and tokens on requests for objects. Who asks at an endpoint is proven here.
//! `rdma_object_request` asks for the object, and `rdma_uploads` takes PUTs.

use std::sync::atomic::Ordering;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body::Body as _;
use s3s::{HttpResponse, S3ErrorCode};

use super::gateway_front::{GatewayFront, answer_of};
use super::hyper_body::HttpRequestBody;
use super::lent_request::LentRequestBody;
use super::rdma_object_request::{error_status, object_request};
use super::rdma_uploads::ReadyUpload;
use crate::auth::AuthIdentity;
use crate::http_exchange::HttpExchange;
use crate::metrics::DenialReason;
use crate::s3_rdma::{
    ControlSender, MoveOrder, PrepareQuestion, PreparedTransfer, QuestionFault, RdmaWish,
    ReadyQuestion, TransferOperation, TransferOrder, control_step, fault_answer,
    order_refusal_answer, outcome_answer, prepared_answer, prove_sender, read_cancel, read_prepare,
    read_ready, refusal_answer, status_answer, unsupported_dialect,
};

impl GatewayFront {
    /// Answers a request that must not go on: one to an endpoint of S3 over RDMA, or an upload
    /// without its payload. `None`: it is like any other.
    pub(super) async fn answer_rdma(
        &self,
        wish: RdmaWish,
        request: &Request<HttpRequestBody>,
        exchange: &HttpExchange,
    ) -> Option<HttpResponse> {
        if wish == RdmaWish::Control {
            let step = control_step(request)?;
            return Some(Box::pin(self.answer_step(step, request, exchange)).await);
        }
        wish.check_body().err().map(answer_of)
    }

    /// Says in the answer of a request that wanted a payload by RDMA that it did not come so.
    pub(super) fn note_rdma(&self, wish: RdmaWish, response: &mut HttpResponse) {
        if wish.note_decline(response.headers_mut()) {
            self.metrics.rdma_declines.inc();
        }
    }

    async fn answer_step(
        &self,
        step: &str,
        request: &Request<HttpRequestBody>,
        exchange: &HttpExchange,
    ) -> HttpResponse {
        let headers = request.headers();
        if !self.rdma.sessions.is_open() {
            return unsupported_dialect();
        }
        if !request.body().is_end_stream() {
            return status_answer(StatusCode::BAD_REQUEST);
        }
        let sender = match prove_sender(&self.rdma.identities, request, self.clock_skew_max) {
            Ok(sender) => sender,
            Err(reason) => return self.deny_sender(reason, exchange),
        };
        exchange.note_identity(sender.identity.clone());
        let answered = match step {
            "prepare" => match read_prepare(headers) {
                Ok(question) if question.bytes > self.rdma.sessions.transfer_bytes_max() => {
                    Err(QuestionFault::TooLarge)
                }
                Ok(question) if question.operation != TransferOperation::Get => {
                    if !sender.signs_object {
                        return self.deny_sender(DenialReason::Signature, exchange);
                    }
                    Ok(self.prepare_upload(question, sender, headers).await)
                }
                Ok(question) => Ok(self.prepare_transfer(question, sender, exchange).await),
                Err(fault) => Err(fault),
            },
            "ready" => match read_ready(headers) {
                Ok(question) => Ok(self.move_transfer(question, sender, exchange).await),
                Err(fault) => Err(fault),
            },
            "cancel" => match read_cancel(headers) {
                Ok(session) => {
                    self.rdma.sessions.cancel_session(session, &sender.access_key).await;
                    Ok(status_answer(StatusCode::NO_CONTENT))
                }
                Err(fault) => Err(fault),
            },
            _ => Err(QuestionFault::Unsupported),
        };
        answered.unwrap_or_else(fault_answer)
    }

    fn deny_sender(&self, reason: DenialReason, exchange: &HttpExchange) -> HttpResponse {
        self.metrics.count_denial(reason);
        exchange.counted.store(true, Ordering::Relaxed);
        answer_of(S3ErrorCode::AccessDenied.into())
    }

    /// Looks the object up, and makes this side of the connection.
    async fn prepare_transfer(
        &self,
        question: PrepareQuestion,
        sender: ControlSender,
        exchange: &HttpExchange,
    ) -> HttpResponse {
        let ControlSender { access_key, identity, .. } = sender;
        let Some(head) = object_request(Method::HEAD, &question.path) else {
            return fault_answer(QuestionFault::Malformed("x-amz-rdma-target"));
        };
        let found = self.ask_object(head, &identity, exchange).await;
        if found.status() != StatusCode::OK {
            return status_answer(error_status(found.status()));
        }
        let length = found.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_none_or(|length| question.offset + question.bytes > length) {
            return status_answer(StatusCode::RANGE_NOT_SATISFIABLE);
        }
        let etag = found.headers().get(header::ETAG).cloned();
        let transfer = PreparedTransfer { question, etag, headers: HeaderMap::new() };
        self.prepare_session(access_key, &identity, transfer).await
    }

    /// Makes this side of the connection for a transfer that may be.
    pub(super) async fn prepare_session(
        &self,
        access_key: String,
        identity: &AuthIdentity,
        transfer: PreparedTransfer,
    ) -> HttpResponse {
        let (sessions, tenant) = (&self.rdma.sessions, identity.tenant());
        match sessions.prepare_session(access_key, tenant, transfer).await {
            Ok((id, end)) => prepared_answer(id, &end),
            Err(refusal) => refusal_answer(refusal),
        }
    }

    /// Reads the object and has it moved, or has it read and writes it. Answers once nothing of it
    /// is moved any more.
    async fn move_transfer(
        &self,
        asked: ReadyQuestion,
        sender: ControlSender,
        exchange: &HttpExchange,
    ) -> HttpResponse {
        let ControlSender { access_key, identity, .. } = sender;
        let sessions = &self.rdma.sessions;
        let taken = match sessions.take_session(asked.session, &access_key, asked.cookie) {
            Ok(taken) => taken,
            Err(refusal) => return order_refusal_answer(refusal),
        };
        let transfer = taken.transfer.clone();
        let Some(turn) = sessions.take_turn(identity.tenant()).await else {
            taken.give_up().await;
            return status_answer(StatusCode::SERVICE_UNAVAILABLE);
        };
        let question = &transfer.question;
        if question.operation != TransferOperation::Get {
            let upload = ReadyUpload { asked, taken, turn };
            return self.move_upload(upload, &identity, exchange).await;
        }
        let Some(get) = transfer_request(&transfer) else {
            taken.give_up().await;
            return status_answer(StatusCode::BAD_REQUEST);
        };
        let (parts, body) = self.ask_object(get, &identity, exchange).await.into_parts();
        if parts.status != StatusCode::PARTIAL_CONTENT {
            drop(body);
            taken.give_up().await;
            return status_answer(error_status(parts.status));
        }
        let client = question.client_end(asked.pair_number);
        let (cookie, bytes) = (question.cookie, question.bytes);
        let order = TransferOrder { client, place: asked.place, cookie, bytes, body };
        let outcome = taken.move_transfer(MoveOrder::Download(order), turn).await;
        outcome_answer(outcome, question, &parts.headers)
    }
}

/// Builds the read of what was prepared: of that version, where it has a name.
fn transfer_request(transfer: &PreparedTransfer) -> Option<Request<LentRequestBody>> {
    let question = &transfer.question;
    let mut request = object_request(Method::GET, &question.path)?;
    let last = question.offset + question.bytes - 1;
    let range = HeaderValue::try_from(format!("bytes={}-{last}", question.offset)).ok()?;
    request.headers_mut().insert(header::RANGE, range);
    if let Some(etag) = transfer.etag.clone().filter(|etag| !etag.as_bytes().starts_with(b"W/")) {
        request.headers_mut().insert(header::IF_MATCH, etag);
    }
    Some(request)
}
