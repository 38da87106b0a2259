//! Puts the pages of a warm-up on disk: offers them, waits for them, and pins them there.

use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::{Instant, sleep};
use verbs3_protocol::{WarmMessage, WarmTier};

use super::PageServer;
use crate::fill::{FillTarget, PageFillError};
use crate::serve_refusal::ServeRefusal;

/// How long the writes of pages and pins may take before the caller is told to retry.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
/// How often the writes are checked, and how often missing pages are offered again. The queue may
/// have been full.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const OFFER_EVERY: Duration = Duration::from_secs(1);

impl PageServer {
    /// Checks whether this worker's disk can do what the request asks.
    pub(crate) fn check_tier(&self, warm: &WarmMessage) -> Result<(), ServeRefusal> {
        match (warm.tier, self.filler.disk_tier()) {
            (WarmTier::Memory, _) if warm.pin_until_ms > 0 => Err(ServeRefusal::PinInMemory),
            (WarmTier::Disk, None) => Err(ServeRefusal::NoDiskTier),
            (WarmTier::Memory, _) | (WarmTier::Disk, Some(_)) => Ok(()),
        }
    }

    /// Waits until the pages, which are in memory or on disk already, are on disk. Then pins them
    /// on request, and waits until the pins would survive a restart.
    pub(crate) async fn settle_on_disk(
        &self,
        target: &FillTarget,
        warm: &WarmMessage,
        pages: Range<u16>,
    ) -> Result<(), PageFillError> {
        let Some(disk) = self.filler.disk_tier().filter(|_| warm.tier == WarmTier::Disk) else {
            return Ok(());
        };
        let keys = || pages.clone().map(|page| target.digest.page_key(warm.block, page));
        let began = Instant::now();
        let mut offered: Option<Instant> = None;
        while !keys().all(|key| disk.holds_page(key)) {
            if began.elapsed() > WRITTEN_WITHIN {
                return Err(PageFillError::Busy(
                    "the disk tier does not take the pages: it is full, slow, or resting",
                ));
            }
            if offered.is_none_or(|at| at.elapsed() >= OFFER_EVERY) {
                offered = Some(Instant::now());
                for page in pages.clone() {
                    self.filler.send_to_disk(target, warm.block, page);
                }
            }
            sleep(LOOK_EVERY).await;
        }
        if warm.pin_until_ms > 0 {
            let until = UNIX_EPOCH + Duration::from_millis(warm.pin_until_ms);
            let (pins, wanted) =
                (disk.pin_pages(keys(), Some(until)), u64::from(pages.end - pages.start));
            if pins.accepted_pages() < wanted {
                return Err(PageFillError::Busy("pages were given up before they could be pinned"));
            }
            if pins.wait_until_written(WRITTEN_WITHIN.saturating_sub(began.elapsed())).await
                < wanted
            {
                return Err(PageFillError::Busy(
                    "the disk tier does not write the pins: it fails, is slow, or rests",
                ));
            }
        }
        Ok(())
    }
}
