//! Takes PUTs whose payload is read out of a client's memory: looks at `prepare` whether it may be
//! stored, and writes at `ready` what is read, as a PUT over HTTP would be written.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Either};
use percent_encoding::percent_decode_str;
use s3s::path::{S3Path, parse_path_style};
use s3s::{HttpResponse, S3Error, S3ErrorCode, S3Result};

use super::gateway_front::GatewayFront;
use super::lent_request::LentRequestBody;
use super::rdma_object_request::{error_status, object_request};
use crate::auth::AuthIdentity;
use crate::http_exchange::HttpExchange;
use crate::s3_rdma::{
    ControlSender, MoveOrder, PrepareQuestion, PreparedTransfer, PulledBody, ReadyQuestion,
    TakenSession, TransferOutcome, UploadOrder, fault_answer, make_pulled_body, outcome_answer,
    status_answer, upload_headers,
};
use crate::tenant_places::TenantPlace;
use crate::write::checks::BodyChecks;

/// An upload whose turn has come.
pub(super) struct ReadyUpload {
    pub asked: ReadyQuestion,
    pub taken: TakenSession,
    pub turn: TenantPlace,
}

impl GatewayFront {
    /// Looks whether the object may be put, and makes this side of the connection.
    pub(super) async fn prepare_upload(
        &self,
        question: PrepareQuestion,
        sender: ControlSender,
        asked: &HeaderMap,
    ) -> HttpResponse {
        let ControlSender { access_key, identity, .. } = sender;
        let headers = match upload_headers(asked) {
            Ok(headers) => headers,
            Err(fault) => return fault_answer(fault),
        };
        if let Err(refused) = self.judge_upload(&question, &identity, &headers) {
            let status = refused.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return status_answer(status);
        }
        let transfer = PreparedTransfer { question, etag: None, headers };
        self.prepare_session(access_key, &identity, transfer).await
    }

    /// Checks what the write will check again, so that nothing is read for a write that may not be.
    fn judge_upload(
        &self,
        question: &PrepareQuestion,
        identity: &AuthIdentity,
        headers: &HeaderMap,
    ) -> S3Result<()> {
        let path = percent_decode_str(&question.path).decode_utf8();
        let path = path.ok().and_then(|path| parse_path_style(&path).ok());
        let Some(S3Path::Object { bucket, key }) = path else {
            return Err(S3Error::from(S3ErrorCode::InvalidURI));
        };
        self.rdma.core.authorize_put(identity, &bucket, &key, headers)?;
        BodyChecks::from_headers(question.bytes, headers, None).map(drop)
    }

    /// Has the payload read, and writes it. Answers once nothing of it is read any more, and the
    /// write has its end.
    pub(super) async fn move_upload(
        &self,
        upload: ReadyUpload,
        identity: &Arc<AuthIdentity>,
        exchange: &HttpExchange,
    ) -> HttpResponse {
        let ReadyUpload { asked, taken, turn } = upload;
        let transfer = taken.transfer.clone();
        let question = &transfer.question;
        let (feed, body) = make_pulled_body(question.bytes);
        let Some(put) = put_request(&transfer, body) else {
            taken.give_up().await;
            return status_answer(StatusCode::BAD_REQUEST);
        };
        let client = question.client_end(asked.pair_number);
        let (place, bytes) = (asked.place, question.bytes);
        let order = MoveOrder::Upload(UploadOrder { client, place, bytes, feed });
        // Whichever fails ends the other: a feed that is dropped breaks the body off, and a body
        // that is dropped takes no more.
        let writing = async {
            let (parts, body) = self.ask_object(put, identity, exchange).await.into_parts();
            // Read to its end, or the log has an answer that was cut.
            let _ = body.collect().await;
            parts
        };
        let (answer, outcome) = tokio::join!(writing, taken.move_transfer(order, turn));
        let is_read = outcome == TransferOutcome::Done;
        // Only the write knows why it stored nothing of what was read.
        match outcome == TransferOutcome::Unstored || (is_read && answer.status != StatusCode::OK) {
            true => status_answer(error_status(answer.status)),
            false => outcome_answer(outcome, question, &answer.headers),
        }
    }
}

fn put_request(transfer: &PreparedTransfer, body: PulledBody) -> Option<Request<LentRequestBody>> {
    let question = &transfer.question;
    let mut request = object_request(Method::PUT, &question.path)?;
    request.headers_mut().extend(transfer.headers.clone());
    request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(question.bytes));
    *request.body_mut() = Some(Either::Right(body));
    Some(request)
}
