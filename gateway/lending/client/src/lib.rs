//! Reads objects into this process's own memory, and writes them out of it, through its gateway and
//! without HTTP. Owns the memory, who uses which part of it, and coming back after the gateway was
//! gone. Starts no thread and needs no runtime. A process that forks has a connection of its own in
//! the child.
#![forbid(unsafe_code)]

mod answer_polling;
mod client_options;
mod client_signature;
mod head_list;
mod lending_client;
mod lent_body;
mod lent_connection;
mod lent_write;
mod memory_file;
mod memory_lending;
mod memory_pinner;
mod memory_space;
mod passed_pages;
mod read_batch;

pub use client_options::{ClientLendingError, LendingClientOptions};
pub use lending_client::LendingClient;
pub use lent_body::{LentAnswer, LentBody};
pub use lent_write::{LentWriter, WriteWait};
pub use memory_pinner::{MemoryPin, MemoryPinner};
pub use read_batch::{BatchAnswer, ReadBatch};
pub use verbs3_lending_protocol::{
    AnswerHead, FORWARDED_HEADERS, LendingRefusal, LentPart, LentReadMethod, LentReadRequest,
    LentWriteRequest, RING_ENTRIES_MAX, is_write_header,
};
