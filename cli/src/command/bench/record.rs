//! What one run found: figures by size and way, over its rounds, and what could not be measured.
//! Owns their JSON.

use serde_json::{Value, json};
use verbs3_fabric_bench::{BandwidthResult, LeftOut, RoundTrips, TransferCost, TransferDirection};

/// All figures of one size over one way. One entry for each round.
#[derive(Debug, Default)]
pub struct FabricCell {
    pub echo: Vec<RoundTrips>,
    pub read_trips: Vec<RoundTrips>,
    pub read: Vec<BandwidthResult>,
    pub write: Vec<BandwidthResult>,
    pub both: Vec<BandwidthResult>,
    /// Why there are no (further) figures.
    pub failed: Option<String>,
}

/// One size.
#[derive(Debug, Default)]
pub struct FabricRow {
    pub bytes: u64,
    /// By way, in the order of the ways.
    pub cells: Vec<FabricCell>,
    /// Plain streams, MiB/s of each round.
    pub plain: Vec<f64>,
}

/// Everything that one run of `verbs3 bench fabric` measured, with its parameters.
#[derive(Debug, Default)]
pub struct FabricRecord {
    pub host: String,
    /// Name and transport of each way.
    pub ways: Vec<(String, &'static str)>,
    pub left_out: Vec<LeftOut>,
    pub depth: usize,
    pub connections: usize,
    pub page_bytes: usize,
    pub seconds: f64,
    pub whole: bool,
    pub in_process: bool,
    pub rows: Vec<FabricRow>,
}

impl FabricCell {
    /// The rounds of one direction.
    pub fn bandwidths_mut(&mut self, direction: TransferDirection) -> &mut Vec<BandwidthResult> {
        match direction {
            TransferDirection::Read => &mut self.read,
            TransferDirection::Write => &mut self.write,
            TransferDirection::Both => &mut self.both,
        }
    }
}

impl FabricRow {
    /// What a way reads, divided by what plain streams read in the same round; the median of the
    /// rounds.
    pub fn over_plain(&self, cell: &FabricCell) -> Option<f64> {
        let pairs = cell.read.iter().zip(&self.plain).filter(|(_, plain)| **plain > 0.0);
        median_figure(pairs.map(|(read, plain)| read.mib_per_second() / plain))
    }
}

/// The middle of some figures; the lower of two.
pub fn median_figure(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().checked_sub(1)? / 2).copied()
}

/// The median over all rounds in MiB/s. `None` without a round.
pub fn mib_per_second(rounds: &[BandwidthResult]) -> Option<f64> {
    median_figure(rounds.iter().map(BandwidthResult::mib_per_second))
}

/// The median over all rounds in microseconds. `of` picks the figure, such as p50.
pub fn median_micros(
    rounds: &[RoundTrips],
    of: impl Fn(&RoundTrips) -> std::time::Duration,
) -> Option<f64> {
    median_figure(rounds.iter().map(|trips| of(trips).as_secs_f64() * 1e6))
}

/// A count of `usage` for each MiB: here, or on the host if that is another process.
pub fn per_mib(
    rounds: &[BandwidthResult],
    of: impl Fn(&TransferCost) -> u64,
) -> (Option<f64>, Option<f64>) {
    let here = median_figure(rounds.iter().map(|round| round.per_mib(of(&round.here))));
    let there = median_figure(
        rounds.iter().filter_map(|round| Some(round.per_mib(of(round.there.as_ref()?)))),
    );
    (here, there)
}

impl FabricRecord {
    /// The record as the document that `--json` prints.
    pub fn to_json(&self) -> Value {
        let left_out = self.left_out.iter().map(
            |left| json!({"transport": left.kind.as_str(), "way": left.way, "reason": left.cause.to_string()}),
        );
        json!({
            "host": self.host,
            "ways": self.ways.iter().map(|(name, kind)| json!({"way": name, "transport": kind})).collect::<Vec<_>>(),
            "left_out": left_out.collect::<Vec<_>>(),
            "depth": self.depth,
            "connections": self.connections,
            "page_bytes": self.page_bytes,
            "seconds": self.seconds,
            "every_byte_compared": self.whole,
            "in_process": self.in_process,
            "figures": self.rows.iter().flat_map(|row| self.row_figures(row)).collect::<Vec<_>>(),
            "plain_streams": self.rows.iter().filter(|row| !row.plain.is_empty())
                .map(|row| json!({"bytes": row.bytes, "mib_per_s": row.plain})).collect::<Vec<_>>(),
        })
    }

    fn row_figures<'a>(&'a self, row: &'a FabricRow) -> impl Iterator<Item = Value> + 'a {
        self.ways.iter().zip(&row.cells).map(|((name, kind), cell)| {
            json!({
                "way": name,
                "transport": kind,
                "bytes": row.bytes,
                "echo": cell.echo.iter().map(round_trips_json).collect::<Vec<_>>(),
                "read_round_trip": cell.read_trips.iter().map(round_trips_json).collect::<Vec<_>>(),
                "read": cell.read.iter().map(bandwidth_json).collect::<Vec<_>>(),
                "write": cell.write.iter().map(bandwidth_json).collect::<Vec<_>>(),
                "both": cell.both.iter().map(bandwidth_json).collect::<Vec<_>>(),
                "read_over_plain": row.over_plain(cell),
                "failed": cell.failed,
            })
        })
    }
}

fn round_trips_json(trips: &RoundTrips) -> Value {
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    json!({"calls": trips.calls, "us_p50": micros(trips.p50), "us_p99": micros(trips.p99),
        "us_max": micros(trips.max)})
}

fn bandwidth_json(moved: &BandwidthResult) -> Value {
    let cost = |usage: &TransferCost| {
        json!({
            "cpu_us_per_mib": moved.per_mib(usage.cpu_micros),
            "work_requests_per_mib": moved.per_mib(usage.work_requests),
            "completions_per_mib": moved.per_mib(usage.completions),
            "copied_bytes_per_mib": moved.per_mib(usage.copied_bytes),
        })
    };
    json!({
        "mib_per_s": moved.mib_per_second(),
        "calls": moved.calls,
        "seconds": moved.took.as_secs_f64(),
        "here": cost(&moved.here),
        "there": moved.there.as_ref().map(cost),
    })
}
