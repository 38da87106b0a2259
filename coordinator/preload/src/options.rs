//! Owns what preload jobs are run by: their settings, and the pace that only tests change.

use std::time::Duration;

use verbs3_pacing::GrowingPause;

use crate::settings::CoordinatorPreloadSettings;

/// Bounds and rates of preload jobs.
#[derive(Debug, Clone)]
pub struct PreloadOptions {
    pub settings: CoordinatorPreloadSettings,
    /// Keys in one page of a listing; progress is persisted after each.
    pub page_keys: i32,
    /// Pauses before a question is repeated.
    pub pauses: GrowingPause,
}

impl PreloadOptions {
    /// The pace of the product.
    pub fn new(settings: CoordinatorPreloadSettings) -> Self {
        Self {
            settings,
            page_keys: 1000,
            pauses: GrowingPause::new(Duration::from_millis(50), Duration::from_secs(2)),
        }
    }
}
