//! Asks workers: whom, how long, and what came of it.
//!
//! `worker_map` says whom to ask, `placement` which map is in force, `health` whether a worker is
//! asked now. A GET's questions are sent by `reading/open` and `reading/span_read`; `attempt` is one
//! of them under way, whose answer comes with bytes. `single_answer` is every other question: it has
//! one answer, without bytes. `delivery` repeats news until a worker has them.

pub(crate) mod attempt;
pub(crate) mod delivery;
pub(crate) mod health;
pub(crate) mod home_batches;
pub(crate) mod hot_blocks;
pub(crate) mod piece_check;
pub(crate) mod placement;
pub(crate) mod single_answer;
pub(crate) mod worker;
pub(crate) mod worker_asker;
pub(crate) mod worker_map;
