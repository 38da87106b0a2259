//! Takes one list of HEADs from its request to its completion: has the host answer it, and lands each
//! answer as it comes, one behind the other. So no answer waits in the gateway's memory for another.

use http::Response;
use http_body::Body;
use verbs3_lending_protocol::{
    AnswerHead, HeadDetail, LentCompletion, LentHeadList, LentOutcome, LentSubmission,
    encode_listed,
};

use crate::lending_host::{HeadListSink, LendingGuest};
use crate::session_rings::LentTicket;

/// The status of a list that was answered, whatever the answers in it are.
const LIST_STATUS: u16 = 200;

/// Lands answers where a submission wants them.
struct HeadListLanding<'a> {
    detail: HeadDetail,
    submission: &'a LentSubmission,
    ticket: &'a LentTicket,
    /// Length of all answers so far. Those beyond the landing are counted alone.
    bytes: u64,
    count: usize,
    failure: Option<LentOutcome>,
}

/// Answers one list. `Err`: nothing of it is to be used.
pub(crate) async fn land_head_list<G: LendingGuest>(
    guest: &G,
    list: LentHeadList,
    submission: &LentSubmission,
    ticket: &LentTicket,
) -> Result<LentCompletion, LentOutcome> {
    let (detail, count) = (list.detail, list.keys.len());
    let mut landing =
        HeadListLanding { detail, submission, ticket, bytes: 0, count: 0, failure: None };
    guest.answer_heads(list, &mut landing).await;
    landing.complete_list(count)
}

impl HeadListLanding<'_> {
    fn land_head<B>(&mut self, index: usize, answer: Response<B>) -> Result<(), LentOutcome> {
        // A HEAD has no body. Dropping it ends the request.
        let (parts, _) = answer.into_parts();
        let status = parts.status.as_u16();
        let head = match self.detail {
            HeadDetail::Status => None,
            HeadDetail::Head => {
                let pairs =
                    parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                let head = AnswerHead::encode_head(status, pairs);
                Some(head.ok_or(LentOutcome::HeadTooLong)?)
            }
        };
        let index = u8::try_from(index).map_err(|_| LentOutcome::Failed)?;
        let listed = encode_listed(index, status, head.as_deref());
        let listed = listed.ok_or(LentOutcome::HeadTooLong)?;
        let place = self.submission.body_offset.checked_add(self.bytes);
        self.bytes += listed.len() as u64;
        self.count += 1;
        if self.bytes > self.submission.body_bytes_max {
            return Ok(());
        }
        let memory = self.ticket.rings.mapping();
        let landed = place.map(|place| memory.write_bytes(place, &listed));
        landed.and_then(Result::ok).ok_or(LentOutcome::Failed)
    }

    fn complete_list(self, count: usize) -> Result<LentCompletion, LentOutcome> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let head = AnswerHead::encode_head(LIST_STATUS, std::iter::empty());
        let head = head
            .filter(|head| head.len() <= self.submission.head_bytes_max as usize)
            .ok_or(LentOutcome::HeadTooLong)?;
        let rings = &self.ticket.rings;
        let written = rings.mapping().write_bytes(self.submission.head_offset, &head);
        written.map_err(|_| LentOutcome::Failed)?;
        if self.count != count {
            return Err(LentOutcome::Failed);
        }
        let is_whole = self.bytes <= self.submission.body_bytes_max;
        let body_bytes = if is_whole { self.bytes } else { 0 };
        rings.metrics.bytes_landed.inc_by(body_bytes);
        Ok(LentCompletion {
            token: self.ticket.read_token(),
            outcome: if is_whole { LentOutcome::Answered } else { LentOutcome::BodyTooLong },
            head_bytes: u32::try_from(head.len()).map_err(|_| LentOutcome::HeadTooLong)?,
            body_bytes,
            content_bytes: self.bytes,
            page_loan: None,
        })
    }
}

impl<B: Body> HeadListSink<B> for HeadListLanding<'_> {
    fn take_head(&mut self, index: usize, answer: Response<B>) {
        if self.failure.is_none() {
            self.failure = self.land_head(index, answer).err();
        }
    }
}
