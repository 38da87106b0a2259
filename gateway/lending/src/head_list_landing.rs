//! Takes one list of HEADs from its request to its completion: has the host answer it, and lands the
//! answers as one body.

use verbs3_lending_protocol::{
    AnswerHead, HeadDetail, LentHeadList, ReadCompletion, ReadOutcome, ReadSubmission, append_head,
    append_status,
};

use crate::lending_host::LendingGuest;
use crate::session_rings::ReadTicket;

/// The status of a list that was answered, whatever the answers in it are.
const LIST_STATUS: u16 = 200;

/// Answers one list. `Err`: nothing of it is to be used.
pub(crate) async fn land_head_list<G: LendingGuest>(
    guest: &G,
    list: LentHeadList,
    submission: &ReadSubmission,
    ticket: &ReadTicket<G::MemoryPlace>,
) -> Result<ReadCompletion, ReadOutcome> {
    let (detail, count) = (list.detail, list.keys.len());
    let answers = guest.answer_heads(list).await;
    if answers.len() != count {
        return Err(ReadOutcome::Failed);
    }
    let mut body = Vec::new();
    for answer in answers {
        // A HEAD has no body. Dropping it ends the request.
        let (parts, _) = answer.into_parts();
        let status = parts.status.as_u16();
        match detail {
            HeadDetail::Status => append_status(&mut body, status),
            HeadDetail::Head => {
                let pairs =
                    parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                AnswerHead::encode_head(status, pairs)
                    .and_then(|head| append_head(&mut body, &head))
                    .ok_or(ReadOutcome::HeadTooLong)?;
            }
        }
    }
    let head = AnswerHead::encode_head(LIST_STATUS, std::iter::empty());
    let head = head
        .filter(|head| head.len() <= submission.head_bytes_max as usize)
        .ok_or(ReadOutcome::HeadTooLong)?;
    let memory = &ticket.rings.memory;
    memory.write_bytes(submission.head_offset, &head).map_err(|_| ReadOutcome::Failed)?;
    let bytes = body.len() as u64;
    let mut completion = ReadCompletion {
        token: ticket.read_token(),
        outcome: ReadOutcome::Answered,
        head_bytes: u32::try_from(head.len()).map_err(|_| ReadOutcome::HeadTooLong)?,
        body_bytes: bytes,
        content_bytes: bytes,
    };
    if bytes > submission.body_bytes_max {
        completion.outcome = ReadOutcome::BodyTooLong;
        completion.body_bytes = 0;
        return Ok(completion);
    }
    memory.write_bytes(submission.body_offset, &body).map_err(|_| ReadOutcome::Failed)?;
    ticket.rings.metrics.bytes_landed.inc_by(bytes);
    Ok(completion)
}
