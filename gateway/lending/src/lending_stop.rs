//! How a server and its sessions are told to end.

use tokio_util::sync::CancellationToken;

/// How a server ends.
#[derive(Debug, Clone)]
pub struct LendingStop {
    /// No more clients and reads. Reads under way end.
    pub stop: CancellationToken,
    /// Everything ends.
    pub cut: CancellationToken,
}
