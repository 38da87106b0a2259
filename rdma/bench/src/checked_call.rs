//! Owns one call of the bench to its host, and what counts as an answer to it. Measures nothing.

use bytes::Bytes;

use super::BenchError;
use super::message::{BenchHostInfo, MeasureOperation, MeasureRequest, MeasureResponse};
use verbs3_rdma::transport::{CallEvent, OutgoingCall, PeerConnection, ReplyPart};

/// Fetches the host's information beside its ways.
pub(super) async fn fetch_host_info(
    connection: &dyn PeerConnection,
) -> Result<BenchHostInfo, BenchError> {
    let told = await_answer(
        &mut connection
            .start_call(MeasureRequest::from_operation(MeasureOperation::About).encode(&[]), None),
    )
    .await?;
    BenchHostInfo::decode(&told)
        .ok_or_else(|| BenchError::Malformed("too little about itself".into()))
}

pub(super) async fn await_answer(call: &mut OutgoingCall) -> Result<Bytes, BenchError> {
    parse_answer(&last_part(call).await?.message)
}

pub(super) async fn last_part(call: &mut OutgoingCall) -> Result<ReplyPart, BenchError> {
    match call.next().await? {
        CallEvent::Part(part) if part.last => Ok(part),
        CallEvent::Part(_) => Err(BenchError::Malformed("in parts".into())),
        CallEvent::Wanted { .. } => {
            Err(BenchError::Malformed("that it wants bytes, unasked".into()))
        }
    }
}

pub(super) fn parse_answer(message: &Bytes) -> Result<Bytes, BenchError> {
    match MeasureResponse::decode(message) {
        Some(MeasureResponse::Fine(rest)) => Ok(rest),
        Some(MeasureResponse::Refused(reason)) => Err(BenchError::Refused(reason)),
        None => Err(BenchError::Malformed("in words that are not known here".into())),
    }
}
