//! What a process of this host and its gateway say to each other when the process lends memory:
//! the handshake, requests and answers in lent memory, the two rings, and the mapping that both
//! sides have. Opens no socket, waits for nothing, and knows no key.

mod answer_head;
mod handshake;
mod head_list;
mod lent_mapping;
mod proof_text;
mod read_request;
mod ring_entries;
mod ring_layout;
mod wire_text;
mod write_request;

pub use answer_head::{AnswerHead, HeadProblem};
pub use handshake::{
    CLAIM_BYTES_MAX, HandshakeProblem, IdentityClaim, LENDING_MAGIC, LendingHello, LendingRefusal,
    LendingVerdict, MemoryOffer,
};
pub use head_list::{
    HeadDetail, LISTED_NAMES_MAX, LentHeadList, LentRequest, decode_heads, decode_statuses,
    encode_listed,
};
pub use lent_mapping::{LentMapping, OutsideMemory};
pub use proof_text::{ProofText, SIGNED_TERMINATION};
pub use read_request::{
    FORWARDED_HEADERS, LentReadMethod, LentReadRequest, REQUEST_BYTES_MAX, RequestProblem,
};
pub use ring_entries::{ENTRY_BYTES, LentCompletion, LentOutcome, LentSubmission};
pub use ring_layout::{LayoutProblem, RING_ENTRIES_MAX, RingLayout};
pub use write_request::{LentPart, LentWriteRequest, WRITE_HEADERS, is_write_header};

/// A byte over the socket that says: look at the rings.
pub const BELL_LOOK: u8 = 1;
/// The gateway's last byte where the identity may no longer read.
pub const BELL_REVOKED: u8 = 2;
/// The gateway's last byte where it ends in good order.
pub const BELL_SHUTDOWN: u8 = 3;
/// The gateway's last byte where the rings said what can't be.
pub const BELL_BROKEN: u8 = 4;
