//! Decides which request is the nth: a pure function of scenario, round and number. So memory does
//! not grow with objects or requests, both sides of a comparison get the same requests, and a run
//! can be repeated.
//!
//! Does not decide when requests start (`schedule`), or how they are sent (`client`).

mod permutation;
#[cfg(test)]
mod tests;
mod zipf;

use permutation::FeistelPermutation;
use zipf::ZipfDistribution;

use crate::content::BenchContent;
use crate::random::{SplitMixRandom, hash};
use crate::scenario::{BenchScenario, ScenarioAccess, ScenarioRange};

/// Kind that an exchange is counted as.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum ExchangeKind {
    Get,
    Head,
    /// HEAD of an object that is not there, which has to be told.
    Absent,
    Footer,
    Chunk,
    Put,
    Multipart,
    /// Reads and compares what was just written: checked, and kept out of the sums.
    ReadBack,
}

impl ExchangeKind {
    /// All kinds, in the order in which reports list them.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::Head,
        Self::Absent,
        Self::Footer,
        Self::Chunk,
        Self::Put,
        Self::Multipart,
        Self::ReadBack,
    ];

    /// Returns the kind's name in reports and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Absent => "absent",
            Self::Footer => "footer",
            Self::Chunk => "chunk",
            Self::Put => "put",
            Self::Multipart => "multipart",
            Self::ReadBack => "read back",
        }
    }
}

/// Round of a run. Rounds of fresh objects have objects of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchRound {
    WarmUp,
    Measured(u32),
}

/// Position of an operation. A stream is a connection (closed loop) or a residue of the number
/// (open loop).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchOperationTurn {
    /// Number among all operations of the round.
    pub index: u64,
    pub stream: u64,
    /// Number within the stream.
    pub turn: u64,
}

/// One exchange; for `Multipart`, one upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BenchPlanStep {
    pub kind: ExchangeKind,
    pub object: u64,
    pub version: u64,
    pub first: u64,
    pub bytes: u64,
    /// The request is for the whole object, without a Range header.
    pub whole: bool,
}

/// All requests of one round, computed from their numbers on demand.
pub struct BenchRequestPlan<'a> {
    scenario: &'a BenchScenario,
    round: BenchRound,
    zipf: Option<ZipfDistribution>,
}

impl<'a> BenchRequestPlan<'a> {
    /// Creates the plan. `scenario` must be free of contradictions.
    pub fn new(scenario: &'a BenchScenario, round: BenchRound) -> Self {
        let zipf = match scenario.access {
            ScenarioAccess::Zipf { exponent, .. } => {
                Some(ZipfDistribution::new(scenario.objects.count, exponent))
            }
            _ => None,
        };
        Self { scenario, round, zipf }
    }

    /// Appends the steps of one operation. Returns `false` if fresh objects are used up. `turn` is
    /// this process's own; its place among those of all processes follows from `scenario.share`.
    pub fn append_operation(
        &self,
        turn: BenchOperationTurn,
        steps: &mut Vec<BenchPlanStep>,
    ) -> bool {
        let turn = self.place_turn(turn);
        let count = self.scenario.objects.count;
        let mut random =
            SplitMixRandom::new(hash(&[self.scenario.seed, self.round_number(), turn.index]));
        match &self.scenario.access {
            ScenarioAccess::Uniform { range } => {
                steps.push(self.get_step(random.next_below(count), *range, &mut random))
            }
            ScenarioAccess::Zipf { range, .. } => {
                let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.draw_rank(&mut random));
                // Ranks are scattered over the names, so that neighbours in a listing are not
                // equally hot.
                let object = FeistelPermutation::new(self.scenario.seed, count).permute_index(rank);
                steps.push(self.get_step(object, *range, &mut random));
            }
            ScenarioAccess::Shuffle => match self.shuffled_object(turn.index) {
                Some(object) => steps.push(self.whole_object_step(ExchangeKind::Get, object)),
                None => return false,
            },
            ScenarioAccess::Head { absent } => {
                let object = random.next_below(count);
                steps.push(match random.next_unit() < *absent {
                    // Numbers behind the last are nobody's.
                    true => self.whole_object_step(ExchangeKind::Absent, count + object),
                    false => self.whole_object_step(ExchangeKind::Head, object),
                });
            }
            ScenarioAccess::Sequential { range_bytes } => {
                return self.append_sequential(turn, *range_bytes, steps);
            }
            ScenarioAccess::Parquet { .. } => match self.shuffled_object(turn.index) {
                Some(object) => self.append_parquet(object, &mut random, steps),
                None => return false,
            },
            ScenarioAccess::Write { part_bytes, read_back } => {
                let kind =
                    if part_bytes.is_some() { ExchangeKind::Multipart } else { ExchangeKind::Put };
                let version = hash(&[self.round_number(), turn.index]);
                // Streams write their own keys, so that writes of one key never overlap.
                let object = (turn.stream + turn.turn * self.scenario.connections_in_all()) % count;
                let write = BenchPlanStep { version, ..self.whole_object_step(kind, object) };
                steps.push(write);
                if *read_back {
                    steps.push(BenchPlanStep { kind: ExchangeKind::ReadBack, ..write });
                }
            }
        }
        true
    }

    /// Returns the place of an operation among those of all processes: they take turns.
    fn place_turn(&self, turn: BenchOperationTurn) -> BenchOperationTurn {
        let share = self.scenario.share;
        let among = |own: u64| own.saturating_mul(share.count).saturating_add(share.number);
        BenchOperationTurn { index: among(turn.index), stream: among(turn.stream), ..turn }
    }

    /// Returns the object that the nth operation of an epoch reads.
    fn shuffled_object(&self, index: u64) -> Option<u64> {
        let count = self.scenario.objects.count;
        let epoch = index / count;
        (epoch == 0 || !self.scenario.objects.fresh).then(|| {
            FeistelPermutation::new(hash(&[self.scenario.seed, self.round_number(), epoch]), count)
                .permute_index(index % count)
        })
    }

    fn append_sequential(
        &self,
        turn: BenchOperationTurn,
        range_bytes: u64,
        steps: &mut Vec<BenchPlanStep>,
    ) -> bool {
        let objects = &self.scenario.objects;
        let chunks = objects.bytes_to.div_ceil(range_bytes);
        let shard = turn.stream + (turn.turn / chunks) * self.scenario.connections_in_all();
        if objects.fresh && shard >= objects.count {
            return false;
        }
        let object = shard % objects.count;
        let first = (turn.turn % chunks) * range_bytes;
        let bytes = range_bytes.min(objects.bytes_to - first);
        steps.push(BenchPlanStep {
            first,
            bytes,
            whole: chunks == 1,
            ..self.whole_object_step(ExchangeKind::Get, object)
        });
        true
    }

    /// Appends a read of a Parquet file. All columns have the same length; the last row group ends
    /// where the footer begins.
    fn append_parquet(
        &self,
        object: u64,
        random: &mut SplitMixRandom,
        steps: &mut Vec<BenchPlanStep>,
    ) {
        let ScenarioAccess::Parquet { footer_bytes, row_groups, columns, columns_read } =
            self.scenario.access
        else {
            return;
        };
        let bytes = self.scenario.objects.bytes_to;
        let footer = bytes - footer_bytes;
        let ranged = |kind, first, bytes| BenchPlanStep {
            first,
            bytes,
            whole: false,
            ..self.whole_object_step(kind, object)
        };
        steps.push(ranged(ExchangeKind::Footer, footer, footer_bytes));
        let chunk = footer / (row_groups * columns);
        let wanted = FeistelPermutation::new(random.next(), columns);
        let mut chosen: Vec<u64> =
            (0..columns_read).map(|column| wanted.permute_index(column)).collect();
        chosen.sort_unstable();
        for group in 0..row_groups {
            steps.extend(chosen.iter().map(|column| {
                ranged(ExchangeKind::Chunk, (group * columns + column) * chunk, chunk)
            }));
        }
    }

    fn get_step(
        &self,
        object: u64,
        range: Option<ScenarioRange>,
        random: &mut SplitMixRandom,
    ) -> BenchPlanStep {
        let whole = self.whole_object_step(ExchangeKind::Get, object);
        match range {
            Some(range) => {
                let places = (whole.bytes - range.bytes) / range.align + 1;
                BenchPlanStep {
                    first: random.next_below(places) * range.align,
                    bytes: range.bytes,
                    whole: false,
                    ..whole
                }
            }
            None => whole,
        }
    }

    /// Returns a step of `kind` for all bytes of an object, in version 0.
    pub fn whole_object_step(&self, kind: ExchangeKind, object: u64) -> BenchPlanStep {
        BenchPlanStep {
            kind,
            object,
            version: 0,
            first: 0,
            bytes: self.object_bytes(object),
            whole: true,
        }
    }

    /// Returns an object's length. Lengths are spread evenly over doublings.
    pub fn object_bytes(&self, object: u64) -> u64 {
        let objects = &self.scenario.objects;
        let (from, to) = (objects.bytes_from as f64, objects.bytes_to as f64);
        if objects.bytes_from == objects.bytes_to {
            return objects.bytes_to;
        }
        let at = SplitMixRandom::new(hash(&[self.scenario.seed, 1, object])).next_unit();
        ((from * (to / from).powf(at)) as u64).clamp(objects.bytes_from, objects.bytes_to)
    }

    /// Returns the key within the bucket, without the endpoint's own prefix.
    pub fn object_key(&self, object: u64) -> String {
        let BenchScenario { name, seed, objects, .. } = self.scenario;
        let set = match self.round {
            _ if !objects.fresh => "all".to_owned(),
            BenchRound::WarmUp => "warm".to_owned(),
            BenchRound::Measured(round) => format!("{round:03}"),
        };
        // The name holds the length: a changed scenario has other objects, not wrong ones.
        format!(
            "loadtest/{name}-{seed}-{}-{}/{set}/{object:08}",
            objects.bytes_from, objects.bytes_to
        )
    }

    /// Returns the part length of multipart uploads.
    pub fn part_bytes(&self) -> u64 {
        match self.scenario.access {
            ScenarioAccess::Write { part_bytes: Some(part_bytes), .. } => part_bytes,
            _ => self.scenario.objects.part_bytes,
        }
    }

    /// Returns the object's content after its write number `version`; 0 is the object as first
    /// written.
    pub fn object_content(&self, object: u64, version: u64) -> BenchContent {
        BenchContent::new(self.scenario.seed, &self.object_key(object), version)
    }

    /// Returns a number for the round: rounds send different requests, even for the same objects.
    fn round_number(&self) -> u64 {
        match self.round {
            BenchRound::WarmUp => 0,
            BenchRound::Measured(round) => u64::from(round) + 1,
        }
    }
}
