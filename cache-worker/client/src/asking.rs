//! Asks workers: whom, how long, and what came of it.
//!
//! `worker_map` says whom to ask, `current_map` which map is in force, `health` whether a worker is
//! asked now. A GET's questions are sent by `reading/open` and `reading/span_read`;
//! `piecewise_answer` is one of them under way, whose answer comes with bytes. `single_answer` is
//! every other question: it has one answer, without bytes. `news_delivery` repeats news until a
//! worker has them.

pub(crate) mod current_map;
pub(crate) mod health;
pub(crate) mod home_batches;
pub(crate) mod hot_blocks;
pub(crate) mod news_delivery;
pub(crate) mod piece_check;
pub(crate) mod piecewise_answer;
pub(crate) mod single_answer;
pub(crate) mod worker;
pub(crate) mod worker_asker;
pub(crate) mod worker_map;
