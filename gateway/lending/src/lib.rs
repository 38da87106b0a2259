//! The gateway's side of lent memory: the unix socket, who may lend, the memory that clients pass,
//! their rings, and the landing of answers in it. Knows no S3: who a client is, what it may read and
//! what the answer is, is its host's to say.
#![forbid(unsafe_code)]

mod head_list_landing;
mod lending_handshake;
mod lending_host;
mod lending_metrics;
mod lending_server;
mod lending_session;
mod lending_socket;
mod lending_stop;
mod lent_memory;
mod memory_offer;
mod read_landing;
mod session_rings;

pub use lending_host::{HeadListSink, LendingGuest, LendingHost};
pub use lending_metrics::LendingMetrics;
pub use lending_server::{LendingLimits, LendingServer};
pub use lending_socket::{LendingListener, LendingSocketError, LendingSocketOptions, SocketAccess};
pub use lending_stop::LendingStop;

#[cfg(test)]
mod tests;
