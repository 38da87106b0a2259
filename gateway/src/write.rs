//! The write path: verifies bodies on their way, and tells the homes before and after a write. Owns
//! the order of these steps. Does not hold bodies, does not retry, and knows the cache only as
//! somebody to copy a body to (`populate`).

pub(crate) mod body_budget;
pub(crate) mod body_fault;
pub(crate) mod checks;
pub(crate) mod chunk_scanner;
mod chunk_signing;
pub(crate) mod chunked;
pub(crate) mod decoders;
pub(crate) mod home_notifier;
pub(crate) mod populate;
pub(crate) mod verified_body;

pub use home_notifier::{HomeNotifier, HomeUnreachable, NoticeRoute, WriteAnnouncement};
pub use populate::{GatewayPopulateSettings, PopulateTier};
