//! Asks workers: whom, how long, and what came of it.
//!
//! `placement` says whom to ask, `health` whether. `question` has one answer; `attempt` is an open
//! or a read, whose answer comes in parts. `delivery` repeats news until a worker has them.

pub(crate) mod attempt;
pub(crate) mod delivery;
pub(crate) mod health;
pub(crate) mod home_batches;
pub(crate) mod hot_blocks;
pub(crate) mod piece_check;
pub(crate) mod placement;
pub(crate) mod question;
pub(crate) mod worker;
pub(crate) mod worker_asker;
pub(crate) mod worker_map;
