//! Tells homes of writes: announcements and reports, directly or by way of the coordinators.

pub(crate) mod coherence_error;
pub(crate) mod relay_fallback;
pub(crate) mod write_announcement;
