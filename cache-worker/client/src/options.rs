//! Owns the deadlines and bounds of the tier's client.

use std::time::Duration;

use verbs3_protocol::BlockGeometry;

use crate::asking::health::HealthOptions;

/// Options of the tier's client.
#[derive(Debug, Clone)]
pub struct TierOptions {
    /// Block and page size; the same in the whole cluster.
    pub geometry: BlockGeometry,
    /// Memory lent with the first request for an object, whose length is not known yet. Larger
    /// objects still come in one round trip; smaller ones waste memory for the length of a call.
    pub open_landing_bytes: u32,
    /// Longest wait for the first sign of life of a call: bytes, an answer, or news of a live fill.
    pub first_progress: Duration,
    /// Longest silence of a call that has shown life.
    pub idle: Duration,
    /// How long a worker may be silent before a replica is asked as well, or the UFS beside a home.
    pub hedge_after: Duration,
    /// How long reads of an announced key ask the UFS if no report follows.
    pub uncertain: Duration,
    /// Longest wait for a home's acknowledgement of an announcement.
    pub announce_deadline: Duration,
    /// How long a report is tried before the writer is told that it failed.
    pub report_deadline: Duration,
    /// How long an open waits for the maps to agree, where its worker has another placement map. 0:
    /// not at all.
    pub map_wait: Duration,
    /// Objects whose attributes may be held by leases; objects with long headers count as several.
    /// 0: no leases.
    pub leases_max: usize,
    /// Longest object whose bytes are held beside the lease on its attributes. 0: none is.
    pub small_object_bytes_max: u64,
    /// Memory of all of them.
    pub small_memory_bytes_max: u64,
    /// When a worker rests after failures, and for how long.
    pub health: HealthOptions,
    /// The map comes from a coordinator, and may change. A worker that disagrees about it is asked
    /// again, until the deadlines.
    pub coordinated: bool,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            geometry: BlockGeometry::DEFAULT,
            open_landing_bytes: 1 << 20,
            // Workers send a sign of life 100 ms after a request came, and then every 500 ms,
            // however slow the UFS is.
            first_progress: Duration::from_secs(2),
            idle: Duration::from_secs(15),
            hedge_after: Duration::from_millis(250),
            uncertain: Duration::from_secs(60),
            announce_deadline: Duration::from_secs(5),
            report_deadline: Duration::from_secs(15),
            map_wait: Duration::from_millis(500),
            leases_max: 100_000,
            small_object_bytes_max: 64 << 10,
            small_memory_bytes_max: 64 << 20,
            health: HealthOptions::default(),
            coordinated: false,
        }
    }
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
        let mut problems = Vec::new();
        if !(page_bytes..=block_bytes).contains(&self.open_landing_bytes) {
            problems.push(TierOptionsError::OpenLanding {
                bytes: self.open_landing_bytes,
                page_bytes,
                block_bytes,
            });
        }
        let times = [
            ("first_progress", self.first_progress),
            ("idle", self.idle),
            ("hedge_after", self.hedge_after),
            ("uncertain", self.uncertain),
            ("announce_deadline", self.announce_deadline),
            ("report_deadline", self.report_deadline),
        ];
        problems.extend(
            times
                .iter()
                .filter(|(_, time)| time.is_zero())
                .map(|(name, _)| TierOptionsError::Zero(name)),
        );
        if self.hedge_after >= self.first_progress {
            problems.push(TierOptionsError::Hedge {
                hedge: self.hedge_after,
                first: self.first_progress,
            });
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_work() {
        assert_eq!(TierOptions::default().find_problems(), []);
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let options = TierOptions {
            open_landing_bytes: 1,
            idle: Duration::ZERO,
            hedge_after: Duration::from_secs(99),
            ..TierOptions::default()
        };
        assert_eq!(options.find_problems().len(), 3);
    }
}
