//! What a process of this host and its gateway say to each other when the process lends memory:
//! the handshake, requests and answers in lent memory, the two rings, and the mapping that both
//! sides have. Opens no socket, waits for nothing, and knows no key.

mod answer_head;
mod handshake;
mod head_list;
mod lent_mapping;
mod page_mapping;
mod page_messages;
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
pub use page_mapping::PageMapping;
pub use page_messages::{GatewayMessage, GatewayMessages, PAGE_DESCRIPTORS_MAX, PassedSource};
pub use proof_text::{ProofText, SIGNED_TERMINATION};
pub use read_request::{
    FORWARDED_HEADERS, LentReadMethod, LentReadRequest, REQUEST_BYTES_MAX, RequestProblem,
};
pub use ring_entries::{
    BodySegment, ENTRY_BYTES, LENT_SOURCE, LentCompletion, LentOutcome, LentSubmission,
    PageLoanEntry, SEGMENT_BYTES,
};
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
/// The first byte of a message that passes memory whose pages may be read where they lie.
pub(crate) const BELL_PASSED: u8 = 5;
/// The first byte of a message that says that such memory is not used by further answers.
pub(crate) const BELL_RETIRED: u8 = 6;
