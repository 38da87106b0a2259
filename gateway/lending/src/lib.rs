//! The gateway's side of lent memory: the unix socket, who may lend, the memory that clients pass,
//! their rings, the landing of answers in it, and bodies of writes out of it. Knows no S3: who a
//! client is, what it may do and what the answer is, is its host's to say.
#![deny(unsafe_code)]

mod body_landing;
mod head_list_landing;
mod lending_handshake;
mod lending_host;
mod lending_metrics;
mod lending_server;
mod lending_session;
mod lending_socket;
mod lending_stop;
mod lent_memory;
mod lent_source;
mod memory_offer;
mod page_loans;
mod request_landing;
#[allow(unsafe_code, reason = "says that memory stays mapped while bodies are received into it")]
mod session_memory;
mod session_rings;

pub use lending_host::{HeadListSink, LendingGuest, LendingHost};
pub use lending_metrics::LendingMetrics;
pub use lending_server::{LendingLimits, LendingServer};
pub use lending_socket::{LendingListener, LendingSocketError, LendingSocketOptions, SocketAccess};
pub use lending_stop::LendingStop;
pub use lent_source::{LentSource, SourceClosed};

#[cfg(test)]
mod tests;
