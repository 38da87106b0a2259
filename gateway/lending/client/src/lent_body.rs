//! Owns an answer that has landed. Its part of the memory is given back when the body is dropped,
//! and used for nothing else before.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs3_lending_protocol::AnswerHead;

use crate::lent_connection::LentConnection;

/// An answer: status, headers, body.
#[derive(Debug)]
pub struct LentAnswer {
    pub head: AnswerHead,
    pub body: LentBody,
}

/// The bytes of an answer, in the memory that they landed in.
pub struct LentBody {
    connection: Arc<LentConnection>,
    range: Range<u64>,
    bytes: u64,
}

impl LentBody {
    pub(crate) fn new(connection: Arc<LentConnection>, range: Range<u64>, bytes: u64) -> Self {
        let bytes = bytes.min(range.end - range.start);
        Self { connection, range, bytes }
    }

    /// Returns the number of bytes.
    pub fn body_bytes(&self) -> usize {
        // It lies in this process's memory.
        self.bytes as usize
    }

    /// Returns where the bytes are. They stay, unchanged by the gateway, until this is dropped.
    pub fn body_address(&self) -> NonNull<u8> {
        let memory = self.connection.lent_memory();
        memory.locate_range(self.range.start, self.bytes).expect("its range is of this memory")
    }

    /// Copies the bytes; `target` has to be as long.
    pub fn copy_body(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.body_bytes(), "a body is copied whole");
        let memory = self.connection.lent_memory();
        memory.copy_bytes(self.range.start, target).expect("its range is of this memory");
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.body_bytes()];
        self.copy_body(&mut bytes);
        bytes
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        self.connection.return_range(self.range.clone());
    }
}

impl fmt::Debug for LentBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
