//! How many workers each hot block has: raised at once when more is read of it than one worker is
//! to serve, lowered when that has been over for a while. Pure: takes what workers report, and the
//! time.
//!
//! Soft state: it ends with the leadership, and the next leader hears everything again within some
//! seconds. Which workers they are is nobody's decision but the map's
//! ([`verbs3_protocol::Placement::spread`]).

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use verbs3_coordinator_client::hot_blocks::{
    HotBlockRate, HotBlockView, HotList, HotView, HotWish,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{BlockHash, BlockIndex, ObjectKey, WorkerId};

/// Hot blocks that people are shown.
const SHOWN_MAX: usize = 5;
/// Longest name that is reported: S3's keys have 1,024 bytes.
const NAME_BYTES_MAX: usize = 2048;

/// When a block counts as hot, how many workers it may have, and how long lists are good for.
#[derive(Debug, Clone)]
pub struct HotOptions {
    /// Bytes of one block in a second that one worker is to serve.
    pub rate_per_worker: u64,
    /// Workers of one block, its owner included; 1: no block has replicas.
    pub workers_max: u16,
    /// Blocks that have replicas at once.
    pub blocks_max: usize,
    /// Blocks that one worker reports.
    pub reported_max: usize,
    pub report_every: Duration,
    /// How long a block must have had more workers than it needs.
    pub cool_for: Duration,
    /// How long gateways may go by the list when no coordinator answers.
    pub good_for: Duration,
}

struct WorkerHotReport {
    at: LeaseInstant,
    blocks: Vec<(BlockHash, HotBlockRate)>,
}

struct HotBlockState {
    name: (ObjectKey, BlockIndex),
    workers: u16,
    rate: u64,
    /// Since when it needs fewer, and the most that it has needed since.
    calm: Option<(LeaseInstant, u16)>,
}

/// What the leader knows of hot blocks.
pub struct HotBlockTable {
    options: HotOptions,
    /// Of each worker, the last one.
    reports: BTreeMap<WorkerId, WorkerHotReport>,
    /// How long a report says something of its worker.
    kept_for: Duration,
    hot: BTreeMap<BlockHash, HotBlockState>,
    /// Hot blocks for which there was no place.
    left_out: usize,
    version: u64,
    /// Nothing is told before: the list that gateways have is better than an empty one.
    heard_at: LeaseInstant,
}

impl HotBlockTable {
    /// Of a leader that was elected at `now`. Workers renew their leases, and report with that,
    /// each `renewed_every`.
    pub fn new(options: HotOptions, renewed_every: Duration, now: LeaseInstant) -> Self {
        let reports_come = options.report_every + renewed_every;
        Self {
            kept_for: 3 * reports_come,
            heard_at: now.saturating_add(2 * reports_come),
            options,
            reports: BTreeMap::new(),
            hot: BTreeMap::new(),
            left_out: 0,
            // Another leader's must not be taken for this one's.
            version: rand::random::<u64>() >> 1,
        }
    }

    /// What workers are to report. `None`: nothing.
    pub fn report_wish(options: &HotOptions) -> Option<HotWish> {
        (options.workers_max > 1).then(|| HotWish {
            every_ms: u64::try_from(options.report_every.as_millis()).unwrap_or(u64::MAX),
            // A block keeps two workers down to half a worker's rate, of which one may have no more
            // than a quarter.
            rate_min: (options.rate_per_worker / 8).max(1),
            blocks_max: options.reported_max as u64,
        })
    }

    /// A worker says what it serves most: all of it, in place of what it said before.
    pub fn record_report(
        &mut self,
        worker: &WorkerId,
        blocks: Vec<HotBlockRate>,
        now: LeaseInstant,
    ) {
        let fits =
            |hot: &HotBlockRate| hot.object.key.len() + hot.object.volume.0.len() <= NAME_BYTES_MAX;
        let blocks = blocks.into_iter().take(self.options.reported_max).filter(fits);
        let blocks = blocks.map(|hot| (hot.object.block_hash(hot.block), hot)).collect();
        self.reports.insert(worker.clone(), WorkerHotReport { at: now, blocks });
    }

    /// Weighs what was reported. Also where no block is to have replicas: followers may know of
    /// another leader's. `workers`: how many there are in the map. A list that followers have not
    /// been told yet.
    pub fn weigh_reports(&mut self, workers: usize, now: LeaseInstant) -> Option<HotList> {
        let kept_for = self.kept_for;
        self.reports.retain(|_, report| now.saturating_duration_since(report.at) <= kept_for);
        let rates = sum_rates(&self.reports);
        let most = self.options.workers_max.min(u16::try_from(workers).unwrap_or(u16::MAX)).max(1);
        let before = self.list_blocks();
        for (hash, hot) in &mut self.hot {
            hot.rate = rates.get(hash).map_or(0, |(rate, _)| *rate);
            hot.adjust_workers(&self.options, most, now);
        }
        self.hot.retain(|_, hot| hot.workers > 1);
        let mut new: Vec<(u64, BlockHash, (ObjectKey, BlockIndex))> = rates
            .iter()
            .filter(|(hash, (rate, _))| {
                *rate > self.options.rate_per_worker && !self.hot.contains_key(hash)
            })
            .map(|(hash, (rate, hot))| (*rate, *hash, (hot.object.clone(), hot.block)))
            .collect();
        if most <= 1 {
            new.clear();
        }
        new.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let places = self.options.blocks_max.saturating_sub(self.hot.len());
        self.left_out = new.len().saturating_sub(places);
        for (rate, hash, name) in new.into_iter().take(places) {
            let mut hot = HotBlockState { name, workers: 1, rate, calm: None };
            hot.adjust_workers(&self.options, most, now);
            self.hot.insert(hash, hot);
        }
        let blocks = self.list_blocks();
        let is_first = self.heard_at != LeaseInstant::default() && now >= self.heard_at;
        if now < self.heard_at || (blocks == before && !is_first) {
            return None;
        }
        self.heard_at = LeaseInstant::default();
        self.version += 1;
        let good_for_ms = u64::try_from(self.options.good_for.as_millis()).unwrap_or(u64::MAX);
        Some(HotList { version: self.version, good_for_ms, blocks })
    }

    fn list_blocks(&self) -> Vec<(BlockHash, u16)> {
        self.hot.iter().map(|(hash, hot)| (*hash, hot.workers)).collect()
    }

    /// Blocks with several workers, all those workers but the owners, and blocks for which there
    /// was no place.
    pub fn block_counts(&self) -> (usize, usize, usize) {
        let replicas = self.hot.values().map(|hot| usize::from(hot.workers) - 1).sum();
        (self.hot.len(), replicas, self.left_out)
    }

    /// The number of hot blocks, and the hottest five of them.
    pub fn hot_view(&self) -> HotView {
        let mut hottest: Vec<&HotBlockState> = self.hot.values().collect();
        hottest.sort_by_key(|hot| std::cmp::Reverse(hot.rate));
        let shown = hottest.into_iter().take(SHOWN_MAX).map(|hot| HotBlockView {
            volume: hot.name.0.volume.0.clone(),
            key: hot.name.0.key.clone(),
            block: hot.name.1.0,
            workers: hot.workers,
            bytes_per_second: hot.rate,
        });
        HotView { blocks: self.hot.len() as u64, hottest: shown.collect() }
    }
}

/// Bytes a second of each block that was reported, of all its workers together.
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
    /// More workers at once; fewer after a while, and then as many as leave each no more than half
    /// of what it is to serve: else they would be back with the next report.
    fn adjust_workers(&mut self, options: &HotOptions, most: u16, now: LeaseInstant) {
        let share = options.rate_per_worker.max(1);
        let of = |share: u64| {
            u16::try_from(self.rate.div_ceil(share.max(1))).unwrap_or(u16::MAX).clamp(1, most)
        };
        let (wanted, enough) = (of(share), of(share / 2));
        // Workers have gone.
        self.workers = self.workers.min(most);
        if wanted > self.workers {
            (self.workers, self.calm) = (wanted, None);
        } else if enough < self.workers {
            let (since, highest) = self.calm.unwrap_or((now, enough));
            let highest = highest.max(enough);
            self.calm = Some((since, highest));
            if now.saturating_duration_since(since) >= options.cool_for {
                (self.workers, self.calm) = (highest, None);
            }
        } else {
            self.calm = None;
        }
    }
}

#[cfg(test)]
mod tests;
