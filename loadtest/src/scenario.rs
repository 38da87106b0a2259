//! Describes load: objects, operations on them, their rate and number. Reads it from TOML and
//! reports all problems at once.
//!
//! Owns the meaning of the files in `scenarios/` and their checks. `request_plan` decides which
//! request is the nth.

mod fields;
mod shipped_scenarios;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use fields::{ScenarioFields, ScenarioProblemList};

pub use fields::ScenarioProblem;
pub use shipped_scenarios::{SHIPPED, shipped_scenario};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// S3's smallest part except the last one (Amazon S3 user guide, "Multipart upload limits").
const PART_BYTES_MIN: u64 = 5 * MIB;
/// Most parts of one upload in S3 (the same page).
const PARTS_MAX: u64 = 10_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Description of load, read from TOML and checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchScenario {
    /// Goes into the keys: lower-case letters, digits, hyphens.
    pub name: String,
    pub description: String,
    pub seed: u64,
    pub objects: ScenarioObjects,
    pub access: ScenarioAccess,
    pub load: ScenarioLoad,
    pub rounds: ScenarioRounds,
    /// Part of the bodies that are checked, 0 to 1. Lengths are always checked.
    pub verify: f64,
    /// Which of several processes this one is. No file has it.
    #[serde(skip)]
    pub share: LoadShare,
}

/// The place of one process among those that run a scenario together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadShare {
    /// From 0.
    pub number: u64,
    pub count: u64,
}

impl Default for LoadShare {
    fn default() -> Self {
        Self { number: 0, count: 1 }
    }
}

/// Number of objects, their lengths, and how they are written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioObjects {
    pub count: u64,
    /// Lengths lie between the two; each doubling is equally likely.
    pub bytes_from: u64,
    pub bytes_to: u64,
    /// Every round has other objects, which nobody has read before.
    pub fresh: bool,
    /// Objects above this length are written in parts of this length.
    pub part_bytes: u64,
}

/// Random range within an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScenarioRange {
    pub bytes: u64,
    /// Offsets are multiples of this.
    pub align: u64,
}

/// What one operation does, and with which object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum ScenarioAccess {
    /// All objects are equally likely.
    Uniform { range: Option<ScenarioRange> },
    /// Few objects often: P(rank) ∝ rank^-exponent.
    Zipf { exponent: f64, range: Option<ScenarioRange> },
    /// Each epoch reads every object once, in its own order.
    Shuffle,
    /// Each connection reads shards of its own from their start to their end.
    Sequential { range_bytes: u64 },
    /// Reads files of row groups: the footer, then the chunks of some columns.
    Parquet { footer_bytes: u64, row_groups: u64, columns: u64, columns_read: u64 },
    /// Writes objects; with `read_back`, reads and compares them afterwards.
    Write { part_bytes: Option<u64>, read_back: bool },
    /// Only sends HEAD. `absent` is the part of them, 0 to 1, whose object was never there.
    Head { absent: f64 },
}

/// What starts an operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "pace", rename_all = "kebab-case")]
pub enum ScenarioPace {
    /// Each connection starts the next operation after the last answer.
    Closed,
    /// Requests start when they are due, whatever became of earlier ones.
    Open { requests_per_second: f64, poisson: bool },
}

/// Rate of the operations and number of connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioLoad {
    #[serde(flatten)]
    pub pace: ScenarioPace,
    pub connections: usize,
    /// Number of operations that end a round before its time does.
    pub operations: Option<u64>,
    pub timeout: Duration,
}

/// Number and length of measured rounds, and what precedes them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioRounds {
    pub count: u32,
    pub time: Duration,
    pub warm_up: Duration,
    /// Reads every object once before the first round.
    pub prime: bool,
}

impl BenchScenario {
    /// Parses a document. Fails with all of its problems.
    pub fn parse(text: &str) -> Result<Self, Vec<ScenarioProblem>> {
        let problems = ScenarioProblemList::default();
        let table = text.parse::<toml::Table>().map_err(|error| {
            problems.add_problem("", format!("is not TOML: {}", error.to_string().trim_end()));
        });
        let Ok(table) = table else { return Err(problems.into_inner()) };
        let mut root = ScenarioFields::new(table, &problems);
        let scenario = Self {
            name: root.read_text("name", None),
            description: root.read_text("description", Some("")),
            seed: root.read_count("seed", Some(1), 0..=u64::MAX >> 1),
            verify: root.read_number("verify", Some(1.0), 0.0..=1.0),
            objects: read_objects(root.take_section("objects")),
            access: read_access(root.take_section("access")),
            load: read_load(root.take_section("load")),
            rounds: read_rounds(root.take_section("rounds")),
            share: LoadShare::default(),
        };
        root.reject_unknown();
        scenario.check_consistency(&problems);
        let found = problems.into_inner();
        if found.is_empty() { Ok(scenario) } else { Err(found) }
    }

    /// Returns fields that contradict each other, after some were changed.
    pub fn find_contradictions(&self) -> Vec<ScenarioProblem> {
        let problems = ScenarioProblemList::default();
        self.check_consistency(&problems);
        problems.into_inner()
    }

    fn check_consistency(&self, problems: &ScenarioProblemList) {
        let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || self.name.len() > 60 || !self.name.bytes().all(named) {
            problems.add_problem(
                "name",
                "must be 1 to 60 lower-case letters, digits and hyphens: it is part of the keys",
            );
        }
        if self.objects.bytes_to.div_ceil(self.objects.part_bytes) > PARTS_MAX {
            problems.add_problem(
                "objects.part_bytes",
                format!("gives more than {PARTS_MAX} parts; raise it"),
            );
        }
        let exact = self.objects.bytes_from == self.objects.bytes_to;
        let smallest = self.objects.bytes_from;
        match &self.access {
            ScenarioAccess::Uniform { range: Some(range) }
            | ScenarioAccess::Zipf { range: Some(range), .. }
                if range.bytes > smallest =>
            {
                problems.add_problem("access.range_bytes", "is longer than the smallest object");
            }
            ScenarioAccess::Sequential { .. } | ScenarioAccess::Parquet { .. } if !exact => {
                problems.add_problem("objects.bytes", "must be one length for this pattern");
            }
            ScenarioAccess::Parquet { footer_bytes, row_groups, columns, columns_read } => {
                if columns_read > columns {
                    problems.add_problem("access.columns_read", "must not be above access.columns");
                }
                if footer_bytes + row_groups * columns > smallest {
                    problems.add_problem(
                        "objects.bytes",
                        "has no room for the footer and one byte of each column chunk",
                    );
                }
            }
            ScenarioAccess::Write { part_bytes, read_back } => {
                self.writes_together(*part_bytes, *read_back, problems)
            }
            _ => {}
        }
        let every_once = matches!(
            self.access,
            ScenarioAccess::Shuffle
                | ScenarioAccess::Sequential { .. }
                | ScenarioAccess::Parquet { .. }
        );
        if self.objects.fresh && !every_once {
            problems.add_problem(
                "objects.fresh",
                "needs a pattern that reads every object once: shuffle, sequential, parquet",
            );
        }
        if self.objects.fresh && self.rounds.prime {
            problems
                .add_problem("rounds.prime", "reads the objects that objects.fresh wants unread");
        }
        if self.rounds.time.is_zero() {
            problems.add_problem("rounds.time", "must be above 0");
        }
        if self.load.timeout.is_zero() {
            problems.add_problem("load.timeout", "must be above 0");
        }
    }

    fn writes_together(
        &self,
        part_bytes: Option<u64>,
        read_back: bool,
        problems: &ScenarioProblemList,
    ) {
        if part_bytes.is_some_and(|part| self.objects.bytes_to.div_ceil(part) > PARTS_MAX) {
            problems.add_problem(
                "access.part_bytes",
                format!("gives more than {PARTS_MAX} parts; raise it"),
            );
        }
        if read_back && self.load.pace != ScenarioPace::Closed {
            problems.add_problem(
                "access.read_back",
                "needs load.pace = \"closed\": else writes of one key may overlap",
            );
        }
        if !self.objects.count.is_multiple_of(self.connections_in_all()) {
            problems.add_problem(
                "objects.count",
                "must be a multiple of load.connections, times the agents: each connection writes \
                keys of its own",
            );
        }
        if self.rounds.prime {
            problems.add_problem("rounds.prime", "has nothing to read where objects are written");
        }
    }

    /// Returns how many different objects a run needs, over all rounds and the warm-up.
    pub fn objects_in_all(&self) -> u64 {
        let sets = if self.objects.fresh {
            u64::from(self.rounds.count) + u64::from(self.warms_up())
        } else {
            1
        };
        self.objects.count.saturating_mul(sets)
    }

    /// Returns the number of connections of all processes that run the scenario together.
    pub fn connections_in_all(&self) -> u64 {
        (self.load.connections as u64).saturating_mul(self.share.count)
    }

    /// Returns whether a warm-up precedes the first round.
    pub fn warms_up(&self) -> bool {
        !self.rounds.warm_up.is_zero()
    }

    /// Returns whether operations write. Then no objects need to be written before.
    pub fn writes_objects(&self) -> bool {
        matches!(self.access, ScenarioAccess::Write { .. })
    }
}

fn read_objects(mut fields: ScenarioFields<'_>) -> ScenarioObjects {
    let count = fields.read_count("count", None, 1..=100_000_000);
    let (bytes_from, bytes_to) = fields.read_length_range("bytes", 1..=1024 * GIB);
    let part_bytes = fields.read_length("part_bytes", Some(64 * MIB), PART_BYTES_MIN..=5 * GIB);
    let fresh = fields.read_flag("fresh", false);
    fields.reject_unknown();
    ScenarioObjects { count, bytes_from, bytes_to, fresh, part_bytes }
}

fn read_access(mut fields: ScenarioFields<'_>) -> ScenarioAccess {
    let patterns = ["uniform", "zipf", "shuffle", "sequential", "parquet", "write", "head"];
    let access = match fields.read_choice("pattern", None, &patterns) {
        "zipf" => ScenarioAccess::Zipf {
            exponent: fields.read_number("exponent", Some(1.0), 0.01..=5.0),
            range: read_range(&mut fields),
        },
        "shuffle" => ScenarioAccess::Shuffle,
        "sequential" => ScenarioAccess::Sequential {
            range_bytes: fields.read_length("range_bytes", None, 1..=1024 * GIB),
        },
        "parquet" => ScenarioAccess::Parquet {
            footer_bytes: fields.read_length("footer_bytes", Some(64 << 10), 1..=GIB),
            row_groups: fields.read_count("row_groups", None, 1..=10_000),
            columns: fields.read_count("columns", None, 1..=10_000),
            columns_read: fields.read_count("columns_read", None, 1..=10_000),
        },
        "write" => ScenarioAccess::Write {
            part_bytes: fields.optional_length("part_bytes", PART_BYTES_MIN..=5 * GIB),
            read_back: fields.read_flag("read_back", true),
        },
        "head" => {
            ScenarioAccess::Head { absent: fields.read_number("absent", Some(0.0), 0.0..=1.0) }
        }
        _ => ScenarioAccess::Uniform { range: read_range(&mut fields) },
    };
    fields.reject_unknown();
    access
}

fn read_range(fields: &mut ScenarioFields<'_>) -> Option<ScenarioRange> {
    let bytes = fields.optional_length("range_bytes", 1..=1024 * GIB);
    let align = fields.optional_length("align", 1..=GIB);
    if align.is_some() && bytes.is_none() {
        fields.report_problem("align", "has no meaning without range_bytes");
    }
    bytes.map(|bytes| ScenarioRange { bytes, align: align.unwrap_or(1) })
}

fn read_load(mut fields: ScenarioFields<'_>) -> ScenarioLoad {
    let pace = match fields.read_choice("pace", Some("closed"), &["closed", "open"]) {
        "open" => ScenarioPace::Open {
            requests_per_second: fields.read_number(
                "requests_per_second",
                None,
                0.01..=10_000_000.0,
            ),
            poisson: fields.read_choice("arrivals", Some("poisson"), &["poisson", "even"])
                == "poisson",
        },
        _ => ScenarioPace::Closed,
    };
    let connections = fields.read_count("connections", Some(8), 1..=4096) as usize;
    let operations = fields.optional_count("operations", 1..=1_000_000_000);
    let timeout =
        fields.read_time("timeout", Some(Duration::from_secs(30)), Duration::from_secs(3600));
    fields.reject_unknown();
    ScenarioLoad { pace, connections, operations, timeout }
}

fn read_rounds(mut fields: ScenarioFields<'_>) -> ScenarioRounds {
    let count = fields.read_count("count", Some(5), 1..=1000) as u32;
    let time = fields.read_time("time", Some(Duration::from_secs(5)), DAY);
    let warm_up = fields.read_time("warm_up", Some(Duration::from_secs(2)), DAY);
    let prime = fields.read_flag("prime", false);
    fields.reject_unknown();
    ScenarioRounds { count, time, warm_up, prime }
}
