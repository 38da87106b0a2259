//! How long to wait before something is tried again, and how much may be taken in a second. Pure:
//! time and chance are the caller's. Every crate may use it. Owns no rests: each thing that rests
//! has rules of its own (docs/decisions/pacing.md).
#![forbid(unsafe_code)]

mod growing_pause;
mod token_bucket;

pub use growing_pause::{GrowingPause, doubled_pause, jitter_pause};
pub use token_bucket::TokenBucket;
