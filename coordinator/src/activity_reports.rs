//! Takes the reports of gateways and workers for the console, where there is one.

use std::time::Duration;

use parking_lot::Mutex;
use verbs3_coordinator_client::api::{ActivityWish, NodeActivity};
use verbs3_coordinator_client::lease_clock::{LeaseInstant, SharedLeaseClock};

use crate::activity_board::{ActivityBoard, ReportRefusal};

/// What gateways and workers report, for the console.
pub(crate) struct ActivityReports {
    board: Mutex<ActivityBoard>,
    clock: SharedLeaseClock,
    /// How often reports are wanted. `None`: there is no console, and they are not.
    report_every: Option<Duration>,
}

impl ActivityReports {
    pub(crate) fn new(report_every: Option<Duration>, clock: SharedLeaseClock) -> Self {
        let board = Mutex::new(ActivityBoard::new(report_every.unwrap_or_default()));
        Self { board, clock, report_every }
    }

    /// Forgets everything.
    pub(crate) fn begin_anew(&self) {
        self.board.lock().begin_anew();
    }

    /// Takes a report of whoever has this certificate, where there is a console.
    pub(crate) fn record_report(
        &self,
        certificate: &str,
        report: NodeActivity,
    ) -> Result<(), ReportRefusal> {
        if self.report_every.is_none() {
            return Ok(());
        }
        self.board.lock().record_report(certificate, report, self.clock.now())
    }

    /// Returns how often reports are wanted.
    pub(crate) fn report_wish(&self) -> ActivityWish {
        let every = self.report_every.map(|every| every.as_millis());
        ActivityWish { every_ms: every.map_or(0, |ms| u64::try_from(ms).unwrap_or(u64::MAX)) }
    }

    /// Returns how many processes report.
    pub(crate) fn reporter_count(&self) -> usize {
        self.board.lock().reporter_count(self.clock.now())
    }

    /// Runs `read` with the reports as they are at one moment.
    pub(crate) fn read_board<T>(&self, read: impl FnOnce(&ActivityBoard, LeaseInstant) -> T) -> T {
        let (board, now) = (self.board.lock(), self.clock.now());
        read(&board, now)
    }
}
