//! Which request is the nth: a pure function of scenario, round and number, so that memory does not
//! grow with objects or requests, both sides of a comparison get the same, and a run can be
//! repeated.
//!
//! Deliberately not here: when requests start (`schedule`), and how they are sent (`client`).

mod permutation;
#[cfg(test)]
mod tests;
mod zipf;

use permutation::Permutation;
use zipf::Zipf;

use crate::content::Content;
use crate::random::{Random, hash};
use crate::scenario::{Access, Range, Scenario};

/// What an exchange is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Get,
    Head,
    Footer,
    Chunk,
    Put,
    Multipart,
    /// Reading what was just written, to compare it: checked, and kept out of the sums.
    ReadBack,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Get,
        Self::Head,
        Self::Footer,
        Self::Chunk,
        Self::Put,
        Self::Multipart,
        Self::ReadBack,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Footer => "footer",
            Self::Chunk => "chunk",
            Self::Put => "put",
            Self::Multipart => "multipart",
            Self::ReadBack => "read back",
        }
    }
}

/// Round of a run: rounds of fresh objects have objects of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    WarmUp,
    Measured(u32),
}

/// Who asks: a stream is a connection (closed loop) or a residue of the number (open loop).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Number among all operations of the round.
    pub index: u64,
    pub stream: u64,
    /// Number within the stream.
    pub turn: u64,
}

/// One exchange, or for `Multipart` one upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    pub kind: Kind,
    pub object: u64,
    pub version: u64,
    pub first: u64,
    pub bytes: u64,
    /// The whole object, asked without a Range header.
    pub whole: bool,
}

pub struct Plan<'a> {
    scenario: &'a Scenario,
    round: Round,
    zipf: Option<Zipf>,
}

impl<'a> Plan<'a> {
    pub fn new(scenario: &'a Scenario, round: Round) -> Self {
        let zipf = match scenario.access {
            Access::Zipf { exponent, .. } => Some(Zipf::new(scenario.objects.count, exponent)),
            _ => None,
        };
        Self { scenario, round, zipf }
    }

    /// Appends the steps of one operation; `false` where fresh objects are used up.
    pub fn operation(&self, turn: Turn, steps: &mut Vec<Step>) -> bool {
        let count = self.scenario.objects.count;
        let mut random = Random::new(hash(&[self.scenario.seed, self.number(), turn.index]));
        match &self.scenario.access {
            Access::Uniform { range } => {
                steps.push(self.get(random.below(count), *range, &mut random))
            }
            Access::Zipf { range, .. } => {
                let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.draw(&mut random));
                // Ranks are scattered over the names: neighbours in a listing are not alike hot.
                let object = Permutation::new(self.scenario.seed, count).of(rank);
                steps.push(self.get(object, *range, &mut random));
            }
            Access::Shuffle => match self.shuffled(turn.index) {
                Some(object) => steps.push(self.whole(Kind::Get, object)),
                None => return false,
            },
            Access::Head => steps.push(self.whole(Kind::Head, random.below(count))),
            Access::Sequential { range_bytes } => {
                return self.sequential(turn, *range_bytes, steps);
            }
            Access::Parquet { .. } => match self.shuffled(turn.index) {
                Some(object) => self.parquet(object, &mut random, steps),
                None => return false,
            },
            Access::Write { part_bytes, read_back } => {
                let kind = if part_bytes.is_some() { Kind::Multipart } else { Kind::Put };
                let version = hash(&[self.number(), turn.index]);
                // Streams write keys of their own, so that no write of a key overlaps another of
                // it.
                let object =
                    (turn.stream + turn.turn * self.scenario.load.connections as u64) % count;
                let write = Step { version, ..self.whole(kind, object) };
                steps.push(write);
                if *read_back {
                    steps.push(Step { kind: Kind::ReadBack, ..write });
                }
            }
        }
        true
    }

    /// The object that the nth operation of an epoch reads.
    fn shuffled(&self, index: u64) -> Option<u64> {
        let count = self.scenario.objects.count;
        let epoch = index / count;
        (epoch == 0 || !self.scenario.objects.fresh).then(|| {
            Permutation::new(hash(&[self.scenario.seed, self.number(), epoch]), count)
                .of(index % count)
        })
    }

    fn sequential(&self, turn: Turn, range_bytes: u64, steps: &mut Vec<Step>) -> bool {
        let objects = &self.scenario.objects;
        let chunks = objects.bytes_to.div_ceil(range_bytes);
        let shard = turn.stream + (turn.turn / chunks) * self.scenario.load.connections as u64;
        if objects.fresh && shard >= objects.count {
            return false;
        }
        let object = shard % objects.count;
        let first = (turn.turn % chunks) * range_bytes;
        let bytes = range_bytes.min(objects.bytes_to - first);
        steps.push(Step { first, bytes, whole: chunks == 1, ..self.whole(Kind::Get, object) });
        true
    }

    /// Columns are as long as each other; the last row group ends where the footer begins.
    fn parquet(&self, object: u64, random: &mut Random, steps: &mut Vec<Step>) {
        let Access::Parquet { footer_bytes, row_groups, columns, columns_read } =
            self.scenario.access
        else {
            return;
        };
        let bytes = self.scenario.objects.bytes_to;
        let footer = bytes - footer_bytes;
        let ranged =
            |kind, first, bytes| Step { first, bytes, whole: false, ..self.whole(kind, object) };
        steps.push(ranged(Kind::Footer, footer, footer_bytes));
        let chunk = footer / (row_groups * columns);
        let wanted = Permutation::new(random.next(), columns);
        let mut chosen: Vec<u64> = (0..columns_read).map(|column| wanted.of(column)).collect();
        chosen.sort_unstable();
        for group in 0..row_groups {
            steps.extend(
                chosen
                    .iter()
                    .map(|column| ranged(Kind::Chunk, (group * columns + column) * chunk, chunk)),
            );
        }
    }

    fn get(&self, object: u64, range: Option<Range>, random: &mut Random) -> Step {
        let whole = self.whole(Kind::Get, object);
        match range {
            Some(range) => {
                let places = (whole.bytes - range.bytes) / range.align + 1;
                Step {
                    first: random.below(places) * range.align,
                    bytes: range.bytes,
                    whole: false,
                    ..whole
                }
            }
            None => whole,
        }
    }

    pub fn whole(&self, kind: Kind, object: u64) -> Step {
        Step { kind, object, version: 0, first: 0, bytes: self.length(object), whole: true }
    }

    /// Lengths are spread evenly over doublings.
    pub fn length(&self, object: u64) -> u64 {
        let objects = &self.scenario.objects;
        let (from, to) = (objects.bytes_from as f64, objects.bytes_to as f64);
        if objects.bytes_from == objects.bytes_to {
            return objects.bytes_to;
        }
        let at = Random::new(hash(&[self.scenario.seed, 1, object])).unit();
        ((from * (to / from).powf(at)) as u64).clamp(objects.bytes_from, objects.bytes_to)
    }

    /// The key within the bucket, without the endpoint's own prefix.
    pub fn key(&self, object: u64) -> String {
        let Scenario { name, seed, objects, .. } = self.scenario;
        let set = match self.round {
            _ if !objects.fresh => "all".to_owned(),
            Round::WarmUp => "warm".to_owned(),
            Round::Measured(round) => format!("{round:03}"),
        };
        // Lengths are in the name: a changed scenario has other objects, not wrong ones.
        format!(
            "loadtest/{name}-{seed}-{}-{}/{set}/{object:08}",
            objects.bytes_from, objects.bytes_to
        )
    }

    /// Of uploads in parts.
    pub fn part_bytes(&self) -> u64 {
        match self.scenario.access {
            Access::Write { part_bytes: Some(part_bytes), .. } => part_bytes,
            _ => self.scenario.objects.part_bytes,
        }
    }

    pub fn content(&self, object: u64, version: u64) -> Content {
        Content::new(self.scenario.seed, &self.key(object), version)
    }

    /// Rounds ask different things, also of the same objects.
    fn number(&self) -> u64 {
        match self.round {
            Round::WarmUp => 0,
            Round::Measured(round) => u64::from(round) + 1,
        }
    }
}
