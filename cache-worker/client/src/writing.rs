//! Tells homes of writes: announcements and reports, directly or by way of the coordinators. Pushes
//! pages of writes to their owners.

pub(crate) mod coherence_error;
pub(crate) mod page_staging;
pub(crate) mod relay_fallback;
pub(crate) mod write_announcement;
