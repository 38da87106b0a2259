//! Owns an answer that has landed. Its part of the memory is given back when the body is dropped,
//! and used for nothing else before.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs3_lending_protocol::AnswerHead;

use crate::client_options::ClientLendingError;
use crate::lent_connection::LentConnection;
use crate::memory_space::split_landing;

/// An answer: status, headers, body.
#[derive(Debug)]
pub struct LentAnswer {
    pub head: AnswerHead,
    pub body: LentBody,
}

/// The bytes of an answer, in the memory that they landed in. A forked child does not have them.
pub struct LentBody {
    connection: Arc<LentConnection>,
    range: Range<u64>,
    bytes: u64,
}

impl LentBody {
    /// Takes a landed range over, and gives back at once what the body has left of it: a body that
    /// is kept must not hold the place of the longest one that was expected.
    pub(crate) fn new(connection: Arc<LentConnection>, range: Range<u64>, bytes: u64) -> Self {
        let bytes = bytes.min(range.end - range.start);
        let (kept, rest) = split_landing(range, bytes);
        if !rest.is_empty() {
            connection.return_range(rest);
        }
        Self { connection, range: kept, bytes }
    }

    /// Returns the number of bytes.
    pub fn body_bytes(&self) -> usize {
        // It lies in this process's memory.
        self.bytes as usize
    }

    /// Returns where the bytes are. They stay, unchanged by the gateway, until this is dropped.
    pub fn body_address(&self) -> Result<NonNull<u8>, ClientLendingError> {
        self.check_process()?;
        let memory = self.connection.lent_memory();
        Ok(memory.locate_range(self.range.start, self.bytes)?)
    }

    /// Copies the bytes; `target` has to be as long.
    pub fn copy_body(&self, target: &mut [u8]) -> Result<(), ClientLendingError> {
        self.check_process()?;
        assert_eq!(target.len(), self.body_bytes(), "a body is copied whole");
        let memory = self.connection.lent_memory();
        Ok(memory.copy_bytes(self.range.start, target)?)
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
        self.connection.return_range(self.range.clone());
        self.connection.leave_alone();
    }
}

impl fmt::Debug for LentBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
