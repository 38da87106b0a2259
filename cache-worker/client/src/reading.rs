//! Reads objects: opens them at their homes or by a lease, and reads spans from replicas and
//! owners.
//!
//! Who returns what of an open, from the outside in:
//! - `open_object` gives [`OpenOutcome`](opened_object::OpenOutcome): found, absent, an error of
//!   the UFS, or a bypass. It asks the two below.
//! - `open_leased` gives `LeaseAnswer`: what a lease says, or what to ask the home for.
//! - `open_at_home` gives `OpenOutcome`. It goes over maps until the home has the same one.
//! - `open_under_map` gives `OpenOutcome`, or the epoch of the other map that the home has.
//! - `try_open_once` gives `OpenOutcome`, or `OpenTryError`: why another try may help.

pub(crate) mod bypass_reason;
pub(crate) mod head_list;
pub(crate) mod held_lease;
pub(crate) mod kept_pages;
pub(crate) mod lease_table;
pub(crate) mod leased_open;
pub(crate) mod map_agreement;
pub(crate) mod memory_wait;
pub(crate) mod object_landing;
pub(crate) mod open;
pub(crate) mod open_patience;
pub(crate) mod open_request;
pub(crate) mod open_silence;
pub(crate) mod opened_object;
pub(crate) mod piece_slices;
pub(crate) mod recalls;
pub(crate) mod small_objects;
pub(crate) mod span_draw;
pub(crate) mod span_read;
pub(crate) mod span_reader;
pub(crate) mod span_request;
