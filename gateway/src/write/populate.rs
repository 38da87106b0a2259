//! Populate on write: a body goes to the store as ever, and its pages to the owners of their blocks
//! at the same time. They are read once the store has answered and the home has acknowledged.
//!
//! `populated_write` decides whether a write is copied, `copied_body` copies its frames on their
//! way, `staged_body` sends their pages to the owners, `write_populator` settles them at the end.
//!
//! Owns the copy: its memory, its questions, and its end. Best effort in everything: it never slows,
//! fails or changes the write. Does not touch attributes, and tells no home anything.

mod body_subject;
mod copied_body;
mod metrics;
mod page_cutter;
mod populate_memory;
mod populate_settings;
mod populate_shared;
mod populate_tier;
mod populated_write;
mod staged_body;
mod upload_memory;
mod write_populator;

pub(crate) use body_subject::{AnsweredVersion, BodySubject, PartName};
pub(crate) use copied_body::CopiedBody;
pub(crate) use metrics::PopulateMetrics;
pub use populate_settings::GatewayPopulateSettings;
pub use populate_tier::PopulateTier;
pub(crate) use populated_write::PopulatedWrite;
pub(crate) use write_populator::WritePopulator;

#[cfg(test)]
mod tests;
