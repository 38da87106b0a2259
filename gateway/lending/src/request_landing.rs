//! Takes one request from its submission to its completion: copies it out, has the host answer it,
//! and lands head and body. The completion is the last thing that is written.

use bytes::Buf as _;
use http::{Method, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use tracing::debug;
use verbs3_lending_protocol::{
    AnswerHead, LentCompletion, LentOutcome, LentReadMethod, LentReadRequest, LentRequest,
    LentSubmission, LentWriteRequest, REQUEST_BYTES_MAX,
};

use crate::body_landing::{BodyLanding, BodyTarget};
use crate::head_list_landing::land_head_list;
use crate::lending_host::LendingGuest;
use crate::lent_source::LentSource;
use crate::page_loans::LoanPlace;
use crate::session_rings::LentTicket;

/// Answers one request.
pub(crate) async fn land_request<G: LendingGuest>(
    guest: &G,
    submission: LentSubmission,
    mut ticket: LentTicket,
) {
    let Some(request) = copy_request(&submission, &ticket) else {
        ticket.settle_without(LentOutcome::Malformed);
        return;
    };
    let landed = match request {
        LentRequest::Read(read) => land_read(guest, read, &submission, &mut ticket).await,
        LentRequest::HeadList(list) => land_head_list(guest, list, &submission, &ticket).await,
        LentRequest::Write(write) => land_write(guest, write, &submission, &ticket).await,
    };
    match landed {
        Ok(completion) => ticket.settle_read(completion),
        Err(outcome) => ticket.settle_without(outcome),
    }
}

async fn land_read<G: LendingGuest>(
    guest: &G,
    request: LentReadRequest,
    submission: &LentSubmission,
    ticket: &mut LentTicket,
) -> Result<LentCompletion, LentOutcome> {
    let (method, place) = match request.method {
        LentReadMethod::Get => {
            let place = ticket.place_body(submission.body_offset, submission.body_bytes_max);
            (Method::GET, place)
        }
        LentReadMethod::Head => (Method::HEAD, None),
    };
    let take_place = |bytes| guest.take_pages(bytes).map(|place| Box::new(place) as LoanPlace);
    let takes_pages = submission.takes_pages && method == Method::GET;
    let pages = takes_pages.then(|| ticket.rings.loans.begin_loan(&take_place)).flatten();
    let answer = guest.answer_read(request, place.clone()).await;
    let target = BodyTarget { place: place.as_deref(), pages };
    let landed = land_answer(answer, &method, submission, ticket, target).await;
    if let Some(place) = place {
        place.close_place().await;
    }
    landed
}

/// Answers one write. Its body is closed before the answer is told: the bytes are the client's again
/// then, whoever still holds the body.
async fn land_write<G: LendingGuest>(
    guest: &G,
    request: LentWriteRequest,
    submission: &LentSubmission,
    ticket: &LentTicket,
) -> Result<LentCompletion, LentOutcome> {
    let (offset, bytes) = (submission.source_offset, submission.source_bytes);
    let taken = ticket.rings.metrics.bytes_taken.clone();
    let (source, lease) = LentSource::open_source(ticket.rings.clone(), offset, bytes, taken);
    let answer = guest.answer_write(request, source).await;
    drop(lease);
    land_answer(answer, &Method::PUT, submission, ticket, BodyTarget::default()).await
}

/// Copies the request out, and checks where its body lies and where its answer is to go. `None`:
/// something is not in the memory, or no request.
fn copy_request(submission: &LentSubmission, ticket: &LentTicket) -> Option<LentRequest> {
    let memory = ticket.rings.mapping();
    if u32::from(submission.request_bytes) > REQUEST_BYTES_MAX {
        return None;
    }
    memory.locate_range(submission.head_offset, submission.head_bytes_max.into()).ok()?;
    memory.locate_range(submission.body_offset, submission.body_bytes_max).ok()?;
    memory.locate_range(submission.source_offset, submission.source_bytes).ok()?;
    let bytes = memory.take_bytes(submission.request_offset, submission.request_bytes.into());
    LentRequest::decode_request(&bytes.ok()?).ok()
}

/// Writes head and body of an answer where the client has room for them. Pieces of the body that
/// are where they may stay are not copied.
async fn land_answer<B>(
    answer: Response<B>,
    method: &Method,
    submission: &LentSubmission,
    ticket: &LentTicket,
    target: BodyTarget<'_>,
) -> Result<LentCompletion, LentOutcome>
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
        .ok_or(LentOutcome::HeadTooLong)?;
    let memory = ticket.rings.mapping();
    memory.write_bytes(submission.head_offset, &head).map_err(|_| LentOutcome::Failed)?;
    let mut completion = LentCompletion {
        token: ticket.read_token(),
        outcome: LentOutcome::Answered,
        head_bytes: u32::try_from(head.len()).map_err(|_| LentOutcome::HeadTooLong)?,
        body_bytes: 0,
        content_bytes: content_bytes.unwrap_or_default(),
        page_loan: None,
    };
    let mut landing =
        BodyLanding::begin_body(memory, submission, head.len() as u64, content_bytes, target);
    if content_bytes.is_some_and(|bytes| bytes > submission.body_bytes_max) {
        completion.outcome = LentOutcome::BodyTooLong;
        return Ok(completion);
    }
    let mut copied = 0;
    while has_body && let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            debug!("a body that lands in lent memory is cut");
            return Err(LentOutcome::BodyCut);
        };
        let Ok(mut data) = frame.into_data() else { continue };
        while data.has_remaining() {
            let piece = data.split_to(data.len().min(COPY_BYTES_MAX as usize));
            let end = landing.landed_bytes().checked_add(piece.len() as u64);
            if end.is_none_or(|end| end > submission.body_bytes_max) {
                completion.outcome = LentOutcome::BodyTooLong;
                return Ok(completion);
            }
            if copied + piece.len() as u64 > COPY_BYTES_MAX {
                // Others have their turn on this thread.
                tokio::task::yield_now().await;
                copied = 0;
            }
            if landing.land_piece(&piece).await? {
                copied += piece.len() as u64;
            }
        }
    }
    if content_bytes.is_some_and(|bytes| bytes != landing.landed_bytes()) {
        return Err(LentOutcome::BodyCut);
    }
    completion.body_bytes = landing.landed_bytes();
    completion.content_bytes = completion.body_bytes;
    completion.page_loan = landing.end_body(&ticket.rings.metrics)?;
    Ok(completion)
}

/// Most bytes that are copied at once: some 100 µs of a core.
pub(crate) const COPY_BYTES_MAX: u64 = 1 << 20;
