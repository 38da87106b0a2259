//! Owns what preload jobs are run by: their settings, and the pace that only tests change.

use std::time::Duration;

use crate::settings::CoordinatorPreloadSettings;

/// Bounds and rates of preload jobs.
#[derive(Debug, Clone)]
pub struct PreloadOptions {
    pub settings: CoordinatorPreloadSettings,
    /// Keys in one page of a listing; progress is persisted after each.
    pub page_keys: i32,
    /// First pause before a question is repeated; doubles up to `pause_max`.
    pub pause_min: Duration,
    pub pause_max: Duration,
}

impl PreloadOptions {
    /// The pace of the product.
    pub fn new(settings: CoordinatorPreloadSettings) -> Self {
        Self {
            settings,
            page_keys: 1000,
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
        }
    }
}
