//! What a connection does with answers that lie in pages of a worker: it finds them, and tells the
//! gateway when they are not used any more.

use std::io;
use std::sync::atomic::Ordering;

use verbs3_lending_protocol::{LentCompletion, SEGMENT_BYTES};

use super::{ConnectionReads, HEAD_BYTES_MAX, LentConnection, ReadUnderWay};
use crate::client_options::ClientLendingError;
use crate::passed_pages::{LandedSegment, ReceivedBytes};

/// The parts of a body of which some lie in pages of a worker.
#[derive(Debug)]
pub(crate) struct LandedPages {
    /// What the gateway knows them by. It is told when they are not used any more.
    pub(crate) loan: u32,
    pub(crate) segments: Vec<LandedSegment>,
}

/// Where a body lies.
pub(super) enum FoundPages {
    /// In its place in the lent memory.
    None,
    /// In memory whose message has not been read.
    Missing,
    /// In memory that this process does not have.
    Unusable,
    All(LandedPages),
}

impl LentConnection {
    /// Finds the pages that an answer lies in.
    pub(super) fn find_pages(
        &self,
        state: &mut ConnectionReads,
        completion: &LentCompletion,
    ) -> Result<FoundPages, ClientLendingError> {
        let read = state.under_way.get(&completion.token).filter(|read| read.landed.is_none());
        let Some((entry, read)) = completion.page_loan.zip(read) else {
            return Ok(FoundPages::None);
        };
        let head_bytes = completion.head_bytes.min(HEAD_BYTES_MAX);
        let list_bytes = (entry.segments as usize).saturating_mul(SEGMENT_BYTES);
        let place_bytes = read.range.end - read.range.start;
        let found = if list_bytes > (HEAD_BYTES_MAX - head_bytes) as usize {
            Err(io::ErrorKind::InvalidData.into())
        } else {
            let at = self.head_offset(read.slot) + u64::from(head_bytes);
            let list = self.memory.take_bytes(at, list_bytes)?;
            state.passed.find_segments(&list, completion.body_bytes, place_bytes)
        };
        match found {
            Ok(Some(segments)) => Ok(FoundPages::All(LandedPages { loan: entry.loan, segments })),
            Ok(None) => Ok(FoundPages::Missing),
            Err(_) => {
                // It is read again, and copied.
                self.refuses_pages.store(true, Ordering::Relaxed);
                self.return_pages(entry.loan);
                Ok(FoundPages::Unusable)
            }
        }
    }

    /// Takes what has come over the socket. What this process can't have is copied from then on.
    pub(super) fn take_received(&self, state: &mut ConnectionReads, received: ReceivedBytes) {
        state.passed.take_received(received);
        if state.passed.refuses_more {
            self.refuses_pages.store(true, Ordering::Relaxed);
        }
    }

    /// Gives back what a read has that nobody waits for any more, and which is over.
    pub(super) fn give_up(&self, state: &mut ConnectionReads, read: Option<ReadUnderWay>) {
        let Some(ReadUnderWay { range, landed, .. }) = read else { return };
        state.give_back(range);
        if let Some(pages) = landed.and_then(|landed| landed.pages) {
            self.return_pages(pages.loan);
        }
    }

    /// Tells the gateway that the pages of an answer are not used any more.
    pub(crate) fn return_pages(&self, loan: u32) {
        if self.is_own()
            && let Some(flag) = self.layout.page_loan_flag(loan)
        {
            // The layout was checked, so this can't fail.
            let _ = self.memory.store_cursor(flag, 1);
        }
    }
}
