//! Owns where the pieces of one body end up: each stays where it may, or is copied into its place in
//! the lent memory.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tracing::error;
use verbs3_lending_protocol::{LentMapping, LentOutcome, LentSubmission, PageLoanEntry};
use verbs3_rdma::foreign_memory::{BodyPlace, PiecePosition};

use crate::lending_metrics::LendingMetrics;
use crate::page_loans::{OpenLoan, PieceEnd};

/// Longest wait for a landing that came to nothing. Its call is cancelled by then, and its connection
/// cut. The client then tries again elsewhere.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Where a body may stay without a copy.
#[derive(Default)]
pub(crate) struct BodyTarget<'a> {
    /// It may be received in its place.
    pub(crate) place: Option<&'a BodyPlace>,
    /// The client reads it in pages of a worker.
    pub(crate) pages: Option<OpenLoan<'a>>,
}

/// A body that is on its way.
pub(crate) struct BodyLanding<'a> {
    memory: &'a LentMapping,
    body_offset: u64,
    /// Where the list of segments goes.
    list_offset: u64,
    target: BodyTarget<'a>,
    landed: u64,
    copied: u64,
    kept: u64,
}

impl<'a> BodyLanding<'a> {
    /// Begins behind a head of so many bytes. A body whose length is not known leaves nothing in
    /// pages.
    pub(crate) fn begin_body(
        memory: &'a LentMapping,
        submission: &LentSubmission,
        head_bytes: u64,
        content_bytes: Option<u64>,
        mut target: BodyTarget<'a>,
    ) -> Self {
        let list_bytes = u64::from(submission.head_bytes_max).saturating_sub(head_bytes);
        if let (Some(pages), Some(bytes)) = (&mut target.pages, content_bytes) {
            pages.announce_body(bytes, list_bytes);
        }
        Self {
            memory,
            body_offset: submission.body_offset,
            list_offset: submission.head_offset.saturating_add(head_bytes),
            target,
            landed: 0,
            copied: 0,
            kept: 0,
        }
    }

    /// Returns how many bytes are where they belong.
    pub(crate) fn landed_bytes(&self) -> u64 {
        self.landed
    }

    /// Lands the next piece, which fits. Returns whether it was copied.
    pub(crate) async fn land_piece(&mut self, piece: &Bytes) -> Result<bool, LentOutcome> {
        let at = self.landed;
        let bytes = piece.len() as u64;
        let end = match &mut self.target.pages {
            Some(pages) => pages.keep_piece(at, piece),
            None => PieceEnd::Copied,
        };
        let is_copied = match end {
            PieceEnd::Kept => {
                self.kept += bytes;
                false
            }
            PieceEnd::Copied => self.place_piece(at, piece).await?,
            PieceEnd::AllCopied(before) => {
                for (at, piece) in before {
                    self.copy_piece(at, &piece).await?;
                    // Others have their turn on this thread.
                    tokio::task::yield_now().await;
                }
                self.kept = 0;
                self.place_piece(at, piece).await?
            }
        };
        self.landed += bytes;
        if let Some(place) = self.target.place {
            place.note_landed(self.landed);
        }
        Ok(is_copied)
    }

    /// Ends a body that is whole. Returns the loan, where some of it stays in pages.
    pub(crate) fn end_body(
        self,
        metrics: &LendingMetrics,
    ) -> Result<Option<PageLoanEntry>, LentOutcome> {
        metrics.bytes_in_pages.inc_by(self.kept);
        metrics.bytes_landed.inc_by(self.copied);
        metrics.bytes_placed.inc_by(self.landed - self.copied - self.kept);
        let Some(pages) = self.target.pages else { return Ok(None) };
        pages.lend_pieces(self.memory, self.list_offset).map_err(|_| LentOutcome::Failed)
    }

    /// Copies a piece, unless it was received where it belongs.
    async fn place_piece(&mut self, at: u64, piece: &Bytes) -> Result<bool, LentOutcome> {
        match self.target.place.map(|place| place.locate_piece(at, piece)) {
            Some(PiecePosition::InPlace) => Ok(false),
            Some(PiecePosition::Elsewhere) | None => {
                self.copy_piece(at, piece).await?;
                Ok(true)
            }
            Some(PiecePosition::Astray) => {
                error!(at, bytes = piece.len(), "a piece was received in the wrong place");
                Err(LentOutcome::Failed)
            }
        }
    }

    async fn copy_piece(&mut self, at: u64, piece: &Bytes) -> Result<(), LentOutcome> {
        let bytes = piece.len() as u64;
        if let Some(place) = self.target.place {
            // A landing that came to nothing may still be written to.
            let freed = timeout(PLACE_WAIT_MAX, place.await_free(at..at + bytes)).await;
            freed.map_err(|_| LentOutcome::BodyCut)?;
        }
        let offset = self.body_offset.checked_add(at).ok_or(LentOutcome::Failed)?;
        self.memory.write_bytes(offset, piece).map_err(|_| LentOutcome::Failed)?;
        self.copied += bytes;
        Ok(())
    }
}
