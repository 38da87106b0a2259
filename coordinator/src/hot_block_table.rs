//! Decides how many workers each hot block has. The number rises at once when readers want more of
//! a block than one worker should serve. It falls when demand has stayed lower for a while. Pure:
//! takes workers' reports and the time.
//!
//! Soft state: it ends with the leadership. The next leader hears all reports again within seconds.
//! The map alone decides which workers serve a block
//! ([`verbs3_protocol::PlacementMap::spread_workers`]).

mod settings;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use verbs3_coordinator_client::hot_blocks::{
    HotBlockRate, HotBlockView, HotList, HotView, HotWish,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{BlockHash, BlockIndex, ObjectKey, WorkerId};

pub use settings::CoordinatorHotSettings;

/// Number of hot blocks that the view for people lists.
const SHOWN_MAX: usize = 5;
/// Longest name that is reported, in bytes. S3's keys have up to 1,024.
const NAME_BYTES_MAX: usize = 2048;

struct WorkerHotReport {
    at: LeaseInstant,
    blocks: Vec<(BlockHash, HotBlockRate)>,
}

struct HotBlockState {
    name: (ObjectKey, BlockIndex),
    workers: u16,
    rate: u64,
    /// Since when it needs fewer workers, and the most that it has needed since then.
    calm: Option<(LeaseInstant, u16)>,
}

/// The leader's knowledge of hot blocks.
pub struct HotBlockTable {
    settings: CoordinatorHotSettings,
    /// Last report of each worker.
    reports: BTreeMap<WorkerId, WorkerHotReport>,
    /// How long a report stays valid.
    kept_for: Duration,
    hot: BTreeMap<BlockHash, HotBlockState>,
    /// Number of hot blocks that exceed `blocks_max`.
    left_out: usize,
    version: u64,
    /// No list is sent before this moment: gateways' present list is better than an empty one.
    heard_at: LeaseInstant,
}

impl HotBlockTable {
    /// Creates the table of a leader that was elected at `now`. Workers renew their leases, and
    /// report with each renewal, every `renewed_every`.
    pub fn new(
        settings: CoordinatorHotSettings,
        renewed_every: Duration,
        now: LeaseInstant,
    ) -> Self {
        let reports_come = settings.report_every.0 + renewed_every;
        Self {
            kept_for: 3 * reports_come,
            heard_at: now.saturating_add(2 * reports_come),
            settings,
            reports: BTreeMap::new(),
            hot: BTreeMap::new(),
            left_out: 0,
            // Random, so that no follower takes another leader's version for this leader's.
            version: rand::random::<u64>() >> 1,
        }
    }

    /// Returns what workers should report. `None`: nothing.
    pub fn report_wish(settings: &CoordinatorHotSettings) -> Option<HotWish> {
        (settings.workers_max > 1).then(|| HotWish {
            every_ms: u64::try_from(settings.report_every.0.as_millis()).unwrap_or(u64::MAX),
            // A block keeps two workers until its rate falls to half of one worker's. One of the
            // two may then serve no more than a quarter.
            rate_min: (settings.rate.0 / 8).max(1),
            blocks_max: u64::from(settings.reported_max),
        })
    }

    /// Replaces a worker's report of the blocks that it serves most.
    pub fn record_report(
        &mut self,
        worker: &WorkerId,
        blocks: Vec<HotBlockRate>,
        now: LeaseInstant,
    ) {
        let fits =
            |hot: &HotBlockRate| hot.object.key.len() + hot.object.volume.0.len() <= NAME_BYTES_MAX;
        let blocks = blocks.into_iter().take(self.settings.reported_max as usize).filter(fits);
        let blocks = blocks.map(|hot| (hot.object.block_hash(hot.block), hot)).collect();
        self.reports.insert(worker.clone(), WorkerHotReport { at: now, blocks });
    }

    /// Weighs the reports. Returns a list if followers have not received it yet. `workers` is the
    /// number of workers in the map. Runs also where no block may have replicas: followers may hold
    /// another leader's list.
    pub fn weigh_reports(&mut self, workers: usize, now: LeaseInstant) -> Option<HotList> {
        let kept_for = self.kept_for;
        self.reports.retain(|_, report| now.saturating_duration_since(report.at) <= kept_for);
        let rates = sum_rates(&self.reports);
        let most = self.settings.workers_max.min(u16::try_from(workers).unwrap_or(u16::MAX)).max(1);
        let before = self.list_blocks();
        for (hash, hot) in &mut self.hot {
            hot.rate = rates.get(hash).map_or(0, |(rate, _)| *rate);
            hot.adjust_workers(&self.settings, most, now);
        }
        self.hot.retain(|_, hot| hot.workers > 1);
        let mut new: Vec<(u64, BlockHash, (ObjectKey, BlockIndex))> = rates
            .iter()
            .filter(|(hash, (rate, _))| {
                *rate > self.settings.rate.0 && !self.hot.contains_key(hash)
            })
            .map(|(hash, (rate, hot))| (*rate, *hash, (hot.object.clone(), hot.block)))
            .collect();
        if most <= 1 {
            new.clear();
        }
        new.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let places = (self.settings.blocks_max as usize).saturating_sub(self.hot.len());
        self.left_out = new.len().saturating_sub(places);
        for (rate, hash, name) in new.into_iter().take(places) {
            let mut hot = HotBlockState { name, workers: 1, rate, calm: None };
            hot.adjust_workers(&self.settings, most, now);
            self.hot.insert(hash, hot);
        }
        let blocks = self.list_blocks();
        let is_first = self.heard_at != LeaseInstant::default() && now >= self.heard_at;
        if now < self.heard_at || (blocks == before && !is_first) {
            return None;
        }
        self.heard_at = LeaseInstant::default();
        self.version += 1;
        let good_for_ms = u64::try_from(self.settings.good_for.0.as_millis()).unwrap_or(u64::MAX);
        Some(HotList { version: self.version, good_for_ms, blocks })
    }

    fn list_blocks(&self) -> Vec<(BlockHash, u16)> {
        self.hot.iter().map(|(hash, hot)| (*hash, hot.workers)).collect()
    }

    /// Returns three counts: blocks with several workers, their workers other than the owners, and
    /// blocks beyond `blocks_max`.
    pub fn block_counts(&self) -> (usize, usize, usize) {
        let replicas = self.hot.values().map(|hot| usize::from(hot.workers) - 1).sum();
        (self.hot.len(), replicas, self.left_out)
    }

    /// Returns the number of hot blocks, and the hottest five.
    pub fn hot_view(&self) -> HotView {
        let mut hottest: Vec<&HotBlockState> = self.hot.values().collect();
        hottest.sort_by_key(|hot| std::cmp::Reverse(hot.rate));
        let shown = hottest.into_iter().take(SHOWN_MAX).map(|hot| HotBlockView {
            volume: hot.name.0.volume.to_string(),
            key: hot.name.0.key.clone(),
            block: hot.name.1.0,
            workers: hot.workers,
            bytes_per_second: hot.rate,
        });
        HotView { blocks: self.hot.len() as u64, hottest: shown.collect() }
    }
}

/// Returns the rate of each reported block in bytes a second, summed over its workers.
fn sum_rates(
    reports: &BTreeMap<WorkerId, WorkerHotReport>,
) -> HashMap<BlockHash, (u64, &HotBlockRate)> {
    let mut rates: HashMap<BlockHash, (u64, &HotBlockRate)> = HashMap::new();
    for (hash, hot) in reports.values().flat_map(|report| &report.blocks) {
        let (rate, _) = rates.entry(*hash).or_insert((0, hot));
        *rate = rate.saturating_add(hot.bytes_per_second);
    }
    rates
}

impl HotBlockState {
    /// Adds workers at once and removes them after a while. After a removal each worker serves no
    /// more than half of its limit; otherwise the next report would bring the workers back.
    fn adjust_workers(&mut self, settings: &CoordinatorHotSettings, most: u16, now: LeaseInstant) {
        let share = settings.rate.0.max(1);
        let of = |share: u64| {
            u16::try_from(self.rate.div_ceil(share.max(1))).unwrap_or(u16::MAX).clamp(1, most)
        };
        let (wanted, enough) = (of(share), of(share / 2));
        // The map may have lost workers.
        self.workers = self.workers.min(most);
        if wanted > self.workers {
            (self.workers, self.calm) = (wanted, None);
        } else if enough < self.workers {
            let (since, highest) = self.calm.unwrap_or((now, enough));
            let highest = highest.max(enough);
            self.calm = Some((since, highest));
            if now.saturating_duration_since(since) >= settings.cool_for.0 {
                (self.workers, self.calm) = (highest, None);
            }
        } else {
            self.calm = None;
        }
    }
}

#[cfg(test)]
mod tests;
