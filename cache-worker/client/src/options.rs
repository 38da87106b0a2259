//! What the tier's client is told besides its settings, and what has to hold between the two.

use std::time::Duration;

use verbs3_protocol::BlockGeometry;

use crate::settings::TierSettings;

/// Options of the tier's client.
#[derive(Debug, Clone)]
pub struct TierOptions {
    pub settings: TierSettings,
    /// Block and page size; the same in the whole cluster.
    pub geometry: BlockGeometry,
    /// The map comes from a coordinator, and may change. A worker that disagrees about it is asked
    /// again, until the deadlines.
    pub coordinated: bool,
    /// All workers are of this process, and end with it.
    pub in_process: bool,
}

/// Reason why the client can't run with its options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierOptionsError {
    #[error(
        "open landing of {bytes} bytes is not between one page ({page_bytes} bytes) and one block \
        ({block_bytes} bytes)"
    )]
    OpenLanding { bytes: u32, page_bytes: u32, block_bytes: u32 },
    #[error("{0} is 0; a call needs time")]
    Zero(&'static str),
    #[error(
        "hedge_after of {hedge:?} is not below first_progress of {first:?}; a hedge would come too \
        late"
    )]
    Hedge { hedge: Duration, first: Duration },
}

impl TierOptions {
    /// Returns every value that can't work.
    pub fn find_problems(&self) -> Vec<TierOptionsError> {
        let BlockGeometry { block_bytes, page_bytes } = self.geometry;
        let settings = &self.settings;
        let (bytes, mut problems) = (settings.open_landing_bytes(), Vec::new());
        if !(page_bytes..=block_bytes).contains(&bytes) {
            problems.push(TierOptionsError::OpenLanding { bytes, page_bytes, block_bytes });
        }
        let times = [
            ("first_progress", settings.first_progress),
            ("idle", settings.idle),
            ("hedge_after", settings.hedge_after),
            ("write_uncertain_for", settings.write_uncertain_for),
            ("announce_deadline", settings.announce_deadline),
            ("report_deadline", settings.report_deadline),
        ];
        let zero = times.iter().filter(|(_, time)| time.0.is_zero());
        problems.extend(zero.map(|(name, _)| TierOptionsError::Zero(name)));
        let (hedge, first) = (settings.hedge_after.0, settings.first_progress.0);
        if hedge >= first {
            problems.push(TierOptionsError::Hedge { hedge, first });
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs3_settings::{ByteSize, TimePeriod};

    fn options(settings: TierSettings) -> TierOptions {
        TierOptions {
            settings,
            geometry: BlockGeometry::DEFAULT,
            coordinated: false,
            in_process: false,
        }
    }

    #[test]
    fn the_defaults_can_work() {
        assert_eq!(options(TierSettings::default()).find_problems(), []);
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let settings = TierSettings {
            open_landing: ByteSize(1),
            idle: TimePeriod(Duration::ZERO),
            hedge_after: TimePeriod::from_seconds(99),
            ..TierSettings::default()
        };
        assert_eq!(options(settings).find_problems().len(), 3);
    }
}
