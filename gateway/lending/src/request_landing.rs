//! Takes one request from its submission to its completion: copies it out, has the host answer it,
//! and lands head and body. The completion is the last thing that is written.

use std::time::Duration;

use bytes::Buf as _;
use http::{Method, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use tracing::{debug, error};
use verbs3_lending_protocol::{
    AnswerHead, LentCompletion, LentOutcome, LentReadMethod, LentReadRequest, LentRequest,
    LentSubmission, LentWriteRequest, REQUEST_BYTES_MAX,
};
use verbs3_rdma::foreign_memory::{BodyPlace, PiecePosition};

use crate::head_list_landing::land_head_list;
use crate::lending_host::LendingGuest;
use crate::lent_source::LentSource;
use crate::page_loans::{LoanPlace, OpenLoan};
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

/// Where a body may stay without a copy. Otherwise it is copied into its place in the lent memory.
#[derive(Default)]
struct BodyTarget<'a> {
    /// It may be received in its place.
    place: Option<&'a BodyPlace>,
    /// The client reads it in pages of a worker.
    pages: Option<OpenLoan<'a>>,
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
    let BodyTarget { place, mut pages } = target;
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
    let list_offset = submission.head_offset.saturating_add(head.len() as u64);
    if let Some(pages) = &mut pages {
        pages.bound_list(u64::from(submission.head_bytes_max) - head.len() as u64);
    }
    if content_bytes.is_some_and(|bytes| bytes > submission.body_bytes_max) {
        completion.outcome = LentOutcome::BodyTooLong;
        return Ok(completion);
    }
    let (mut copied, mut kept) = (0, 0);
    while has_body && let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            debug!("a body that lands in lent memory is cut");
            return Err(LentOutcome::BodyCut);
        };
        let Ok(mut data) = frame.into_data() else { continue };
        while data.has_remaining() {
            let piece = data.split_to(data.len().min(COPY_BYTES_MAX));
            let landed = completion.body_bytes;
            let end = landed.checked_add(piece.len() as u64);
            let Some(end) = end.filter(|&end| end <= submission.body_bytes_max) else {
                completion.outcome = LentOutcome::BodyTooLong;
                completion.body_bytes = 0;
                return Ok(completion);
            };
            let is_kept = pages.as_mut().is_some_and(|pages| pages.keep_piece(landed, &piece));
            if is_kept {
                kept += piece.len() as u64;
            } else if !lies_in_place(place, landed, &piece)? {
                if let Some(place) = place {
                    // A landing that came to nothing may still be written to.
                    let freed = timeout(PLACE_WAIT_MAX, place.await_free(landed..end)).await;
                    freed.map_err(|_| LentOutcome::BodyCut)?;
                }
                let at = submission.body_offset.checked_add(landed).ok_or(LentOutcome::Failed)?;
                memory.write_bytes(at, &piece).map_err(|_| LentOutcome::Failed)?;
                copied += piece.len() as u64;
                if data.has_remaining() {
                    // Others have their turn on this thread.
                    tokio::task::yield_now().await;
                }
            }
            if let Some(place) = place {
                place.note_landed(end);
            }
            completion.body_bytes = end;
        }
    }
    if content_bytes.is_some_and(|bytes| bytes != completion.body_bytes) {
        return Err(LentOutcome::BodyCut);
    }
    completion.content_bytes = completion.body_bytes;
    if let Some(pages) = pages {
        let lent = pages.lend_pieces(memory, list_offset);
        completion.page_loan = lent.map_err(|_| LentOutcome::Failed)?;
    }
    ticket.rings.metrics.bytes_in_pages.inc_by(kept);
    ticket.rings.metrics.bytes_landed.inc_by(copied);
    ticket.rings.metrics.bytes_placed.inc_by(completion.body_bytes - copied - kept);
    Ok(completion)
}

/// Returns whether a piece, which begins at byte `at` of the body, was received where it belongs.
fn lies_in_place(place: Option<&BodyPlace>, at: u64, piece: &[u8]) -> Result<bool, LentOutcome> {
    match place.map(|place| place.locate_piece(at, piece)) {
        Some(PiecePosition::InPlace) => Ok(true),
        Some(PiecePosition::Elsewhere) | None => Ok(false),
        Some(PiecePosition::Astray) => {
            error!(at, bytes = piece.len(), "a piece was received in the wrong place");
            Err(LentOutcome::Failed)
        }
    }
}

/// Longest wait for a landing that came to nothing. Its call is cancelled by then, and its connection
/// cut. The client then tries again elsewhere.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Most bytes that are copied at once: some 100 µs of a core.
const COPY_BYTES_MAX: usize = 1 << 20;
