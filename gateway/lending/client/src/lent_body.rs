//! Owns an answer that has landed. Its part of the memory is given back when the body is dropped,
//! and used for nothing else before. So are the pages of a worker that it lies in.

use std::fmt;
use std::iter;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use verbs3_lending_protocol::AnswerHead;

use crate::client_options::ClientLendingError;
use crate::lent_connection::{LandedPages, LentConnection};
use crate::memory_space::{SplitLanding, split_landing};

/// An answer: status, headers, body.
#[derive(Debug)]
pub struct LentAnswer {
    pub head: AnswerHead,
    pub body: LentBody,
}

/// The bytes of an answer, in the memory that they landed in. A forked child does not have them.
pub struct LentBody {
    connection: Arc<LentConnection>,
    /// Its place in the lent memory, from the first byte on.
    start: u64,
    /// The parts of it that are used.
    kept: Vec<Range<u64>>,
    bytes: u64,
    pages: Option<LandedPages>,
    /// All bytes in one piece, once somebody has wanted a body of several segments so.
    gathered: OnceLock<Box<[u8]>>,
}

impl LentBody {
    /// Takes a landed range over, and gives back at once what the body has left of it: a body that
    /// is kept must not hold the place of the longest one that was expected.
    pub(crate) fn new(
        connection: Arc<LentConnection>,
        range: Range<u64>,
        bytes: u64,
        pages: Option<LandedPages>,
    ) -> Self {
        let start = range.start;
        let (bytes, used): (u64, Vec<_>) = match &pages {
            None => {
                let bytes = bytes.min(range.end - range.start);
                (bytes, iter::once(0..bytes.max(1)).collect())
            }
            Some(pages) => {
                let own = pages.segments.iter().filter(|segment| segment.source.is_none());
                (bytes, own.map(|own| own.offset..own.offset + own.bytes).collect())
            }
        };
        let SplitLanding { kept, rest } = split_landing(range, &used);
        rest.into_iter().for_each(|rest| connection.return_range(rest));
        Self { connection, start, kept, bytes, pages, gathered: OnceLock::new() }
    }

    /// Returns the number of bytes.
    pub fn body_bytes(&self) -> usize {
        // It lies in this process's memory.
        self.bytes as usize
    }

    /// Returns where the bytes are, in one piece. They stay, unchanged by the gateway, until this is
    /// dropped. A body of several segments is copied together the first time.
    pub fn body_address(&self) -> Result<NonNull<u8>, ClientLendingError> {
        if self.segment_count() == 1 {
            return Ok(self.locate_segment(0)?.0);
        }
        self.check_process()?;
        let gathered = self.gathered.get_or_init(|| self.to_vec().into());
        Ok(NonNull::from(&**gathered).cast())
    }

    /// Returns how many segments the body has. One that is in one piece has one.
    pub fn segment_count(&self) -> usize {
        self.pages.as_ref().map_or(1, |pages| pages.segments.len())
    }

    /// Returns where a segment is, and its length. They are in the body's order. It stays, unchanged,
    /// until this is dropped.
    ///
    /// # Panics
    ///
    /// If there is no such segment.
    pub fn locate_segment(&self, index: usize) -> Result<(NonNull<u8>, usize), ClientLendingError> {
        self.check_process()?;
        let memory = self.connection.lent_memory();
        let Some(pages) = &self.pages else {
            assert_eq!(index, 0, "a body in one piece has one segment");
            return Ok((memory.locate_range(self.start, self.bytes)?, self.body_bytes()));
        };
        let segment = &pages.segments[index];
        let address = match &segment.source {
            Some(source) => source.pages.locate_range(segment.offset, segment.bytes)?,
            None => memory.locate_range(self.start + segment.offset, segment.bytes)?,
        };
        Ok((address, segment.bytes as usize))
    }

    /// Returns whether some of the body lies in pages of a worker.
    pub fn is_in_pages(&self) -> bool {
        self.pages.is_some()
    }

    /// Copies the bytes; `target` has to be as long.
    pub fn copy_body(&self, target: &mut [u8]) -> Result<(), ClientLendingError> {
        self.check_process()?;
        assert_eq!(target.len(), self.body_bytes(), "a body is copied whole");
        let memory = self.connection.lent_memory();
        let Some(pages) = &self.pages else {
            return Ok(memory.copy_bytes(self.start, target)?);
        };
        let mut rest = target;
        for segment in &pages.segments {
            let (part, behind) = rest.split_at_mut(segment.bytes as usize);
            rest = behind;
            match &segment.source {
                Some(source) => source.pages.copy_bytes(segment.offset, part)?,
                None => memory.copy_bytes(self.start + segment.offset, part)?,
            }
        }
        Ok(())
    }

    /// Returns a copy of the bytes.
    ///
    /// # Panics
    ///
    /// In a forked child.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.body_bytes()];
        self.copy_body(&mut bytes).expect("this process has read it");
        bytes
    }

    fn check_process(&self) -> Result<(), ClientLendingError> {
        if self.connection.is_own() { Ok(()) } else { Err(ClientLendingError::OtherProcess) }
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            self.connection.return_pages(pages.loan);
        }
        for kept in self.kept.drain(..) {
            self.connection.return_range(kept);
        }
        self.connection.leave_alone();
    }
}

impl fmt::Debug for LentBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
