//! Reads objects: opens them at their homes or by a lease, and reads spans from owners and replicas.

pub(crate) mod bypass;
pub(crate) mod head_list;
pub(crate) mod lease_table;
pub(crate) mod leased_open;
pub(crate) mod leased_opening;
pub(crate) mod map_agreement;
pub(crate) mod open;
pub(crate) mod open_patience;
pub(crate) mod open_request;
pub(crate) mod open_silence;
pub(crate) mod opened_object;
pub(crate) mod recalls;
pub(crate) mod small_objects;
pub(crate) mod span_read;
