//! Keeps the cache as it should be: loads pages, looks what is there, drops what is wrong.

pub(crate) mod block_tending;
pub(crate) mod gone_version;
pub(crate) mod listing_report;
pub(crate) mod object_look;
pub(crate) mod page_warming;
