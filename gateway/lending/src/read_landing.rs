//! Takes one read from its submission to its completion: copies the request out, has the host
//! answer it, and lands head and body. The completion is the last thing that is written.

use bytes::Buf as _;
use http::{Method, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use tracing::debug;
use verbs3_lending_protocol::{
    AnswerHead, LentReadMethod, LentReadRequest, LentRequest, REQUEST_BYTES_MAX, ReadCompletion,
    ReadOutcome, ReadSubmission,
};

use crate::head_list_landing::land_head_list;
use crate::lending_host::LendingGuest;
use crate::session_rings::ReadTicket;

/// Answers one read.
pub(crate) async fn land_read<G: LendingGuest>(
    guest: &G,
    submission: ReadSubmission,
    ticket: ReadTicket<G::MemoryPlace>,
) {
    let Some(request) = copy_request(&submission, &ticket) else {
        ticket.settle_without(ReadOutcome::Malformed);
        return;
    };
    let landed = match request {
        LentRequest::Read(read) => land_one(guest, read, &submission, &ticket).await,
        LentRequest::HeadList(list) => land_head_list(guest, list, &submission, &ticket).await,
    };
    match landed {
        Ok(completion) => ticket.settle_read(completion),
        Err(outcome) => ticket.settle_without(outcome),
    }
}

async fn land_one<G: LendingGuest>(
    guest: &G,
    request: LentReadRequest,
    submission: &ReadSubmission,
    ticket: &ReadTicket<G::MemoryPlace>,
) -> Result<ReadCompletion, ReadOutcome> {
    let method = match request.method {
        LentReadMethod::Get => Method::GET,
        LentReadMethod::Head => Method::HEAD,
    };
    let answer = guest.answer_read(request).await;
    land_answer(answer, &method, submission, ticket).await
}

/// Copies the request out, and checks where its answer is to go. `None`: something is not in the
/// memory, or no request.
fn copy_request<P>(submission: &ReadSubmission, ticket: &ReadTicket<P>) -> Option<LentRequest> {
    let memory = &ticket.rings.memory;
    if submission.request_bytes > REQUEST_BYTES_MAX {
        return None;
    }
    memory.locate_range(submission.head_offset, submission.head_bytes_max.into()).ok()?;
    memory.locate_range(submission.body_offset, submission.body_bytes_max).ok()?;
    let bytes = memory.take_bytes(submission.request_offset, submission.request_bytes as usize);
    LentRequest::decode_request(&bytes.ok()?).ok()
}

async fn land_answer<B, P>(
    answer: Response<B>,
    method: &Method,
    submission: &ReadSubmission,
    ticket: &ReadTicket<P>,
) -> Result<ReadCompletion, ReadOutcome>
where
    B: Body<Data = bytes::Bytes> + Unpin,
{
    let (mut parts, mut body) = answer.into_parts();
    let has_body = *method != Method::HEAD && parts.status != StatusCode::NOT_MODIFIED;
    let stated = parts.headers.get(header::CONTENT_LENGTH);
    let stated: Option<u64> = stated.and_then(|length| length.to_str().ok()?.parse().ok());
    let content_bytes = if has_body { body.size_hint().exact().or(stated) } else { Some(0) };
    if let (true, None, Some(length)) = (has_body, stated, content_bytes) {
        // A server of HTTP adds it, too.
        parts.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let pairs = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let head = AnswerHead::encode_head(parts.status.as_u16(), pairs)
        .filter(|head| head.len() <= submission.head_bytes_max as usize)
        .ok_or(ReadOutcome::HeadTooLong)?;
    let memory = &ticket.rings.memory;
    memory.write_bytes(submission.head_offset, &head).map_err(|_| ReadOutcome::Failed)?;
    let mut completion = ReadCompletion {
        token: ticket.read_token(),
        outcome: ReadOutcome::Answered,
        head_bytes: u32::try_from(head.len()).map_err(|_| ReadOutcome::HeadTooLong)?,
        body_bytes: 0,
        content_bytes: content_bytes.unwrap_or_default(),
    };
    if content_bytes.is_some_and(|bytes| bytes > submission.body_bytes_max) {
        completion.outcome = ReadOutcome::BodyTooLong;
        return Ok(completion);
    }
    while has_body && let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            debug!("a body that lands in lent memory is cut");
            return Err(ReadOutcome::BodyCut);
        };
        let Ok(mut data) = frame.into_data() else { continue };
        while data.has_remaining() {
            let piece = data.split_to(data.len().min(COPY_BYTES_MAX));
            let landed = completion.body_bytes;
            let end = landed.checked_add(piece.len() as u64);
            if end.is_none_or(|end| end > submission.body_bytes_max) {
                completion.outcome = ReadOutcome::BodyTooLong;
                completion.body_bytes = 0;
                return Ok(completion);
            }
            let place = submission.body_offset.checked_add(landed).ok_or(ReadOutcome::Failed)?;
            memory.write_bytes(place, &piece).map_err(|_| ReadOutcome::Failed)?;
            completion.body_bytes += piece.len() as u64;
            if data.has_remaining() {
                // Others have their turn on this thread.
                tokio::task::yield_now().await;
            }
        }
    }
    if content_bytes.is_some_and(|bytes| bytes != completion.body_bytes) {
        return Err(ReadOutcome::BodyCut);
    }
    completion.content_bytes = completion.body_bytes;
    ticket.rings.metrics.bytes_landed.inc_by(completion.body_bytes);
    Ok(completion)
}

/// Most bytes that are copied at once: some 100 µs of a core.
const COPY_BYTES_MAX: usize = 1 << 20;
