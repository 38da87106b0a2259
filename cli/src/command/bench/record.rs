//! What one run found: figures by size and way, over its rounds, and what could not be measured.
//! Owns their JSON.

use serde_json::{Value, json};
use verbs3_rdma::bench::{Bandwidth, Direction, LeftOut, RoundTrips, Usage};

/// All figures of one size over one way. One entry for each round.
#[derive(Debug, Default)]
pub struct Cell {
    pub echo: Vec<RoundTrips>,
    pub read_trips: Vec<RoundTrips>,
    pub read: Vec<Bandwidth>,
    pub write: Vec<Bandwidth>,
    pub both: Vec<Bandwidth>,
    /// Why there are no (further) figures.
    pub failed: Option<String>,
}

/// One size.
#[derive(Debug, Default)]
pub struct Row {
    pub bytes: u64,
    /// By way, in the order of the ways.
    pub cells: Vec<Cell>,
    /// Plain streams, MiB/s of each round.
    pub plain: Vec<f64>,
}

#[derive(Debug, Default)]
pub struct Record {
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
    pub rows: Vec<Row>,
}

impl Cell {
    pub fn of(&mut self, direction: Direction) -> &mut Vec<Bandwidth> {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
            Direction::Both => &mut self.both,
        }
    }
}

impl Row {
    /// What a way reads, divided by what plain streams read in the same round; the median of the
    /// rounds.
    pub fn over_plain(&self, cell: &Cell) -> Option<f64> {
        let pairs = cell.read.iter().zip(&self.plain).filter(|(_, plain)| **plain > 0.0);
        median(pairs.map(|(read, plain)| read.mib_per_second() / plain))
    }
}

/// The middle of some figures; the lower of two.
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().checked_sub(1)? / 2).copied()
}

pub fn mib_per_second(rounds: &[Bandwidth]) -> Option<f64> {
    median(rounds.iter().map(Bandwidth::mib_per_second))
}

pub fn micros(
    rounds: &[RoundTrips],
    of: impl Fn(&RoundTrips) -> std::time::Duration,
) -> Option<f64> {
    median(rounds.iter().map(|trips| of(trips).as_secs_f64() * 1e6))
}

/// A count of `usage` for each MiB: here, or on the host if that is another process.
pub fn per_mib(rounds: &[Bandwidth], of: impl Fn(&Usage) -> u64) -> (Option<f64>, Option<f64>) {
    let here = median(rounds.iter().map(|round| round.per_mib(of(&round.here))));
    let there =
        median(rounds.iter().filter_map(|round| Some(round.per_mib(of(round.there.as_ref()?)))));
    (here, there)
}

impl Record {
    pub fn json(&self) -> Value {
        let left_out = self.left_out.iter().map(
            |left| json!({"transport": left.kind.as_str(), "way": left.way, "reason": left.reason}),
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
            "figures": self.rows.iter().flat_map(|row| self.figures(row)).collect::<Vec<_>>(),
            "plain_streams": self.rows.iter().filter(|row| !row.plain.is_empty())
                .map(|row| json!({"bytes": row.bytes, "mib_per_s": row.plain})).collect::<Vec<_>>(),
        })
    }

    fn figures<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = Value> + 'a {
        self.ways.iter().zip(&row.cells).map(|((name, kind), cell)| {
            json!({
                "way": name,
                "transport": kind,
                "bytes": row.bytes,
                "echo": cell.echo.iter().map(trips).collect::<Vec<_>>(),
                "read_round_trip": cell.read_trips.iter().map(trips).collect::<Vec<_>>(),
                "read": cell.read.iter().map(moved).collect::<Vec<_>>(),
                "write": cell.write.iter().map(moved).collect::<Vec<_>>(),
                "both": cell.both.iter().map(moved).collect::<Vec<_>>(),
                "read_over_plain": row.over_plain(cell),
                "failed": cell.failed,
            })
        })
    }
}

fn trips(trips: &RoundTrips) -> Value {
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    json!({"calls": trips.calls, "us_p50": micros(trips.p50), "us_p99": micros(trips.p99),
        "us_max": micros(trips.max)})
}

fn moved(moved: &Bandwidth) -> Value {
    let cost = |usage: &Usage| {
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
