//! Makes the calls, and says what came of them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;

use super::message::{About, Answer, Ask, Op};
use super::plain::{self, PlainLoad};
use super::source::landing;
use super::{BenchError, Dialled, ECHO_BYTES_MAX, Usage, Way};
use crate::transport::{Call, Connection, Event, Part};

/// Calls that a latency is made of, whatever the time.
const SAMPLES_MIN: usize = 10;
const SAMPLES_MAX: usize = 1_000_000;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the host into landings of this side, as a gateway reads.
    Read,
    /// Into landings of the host, as a gateway stores.
    Write,
    /// Both at once, as many calls each.
    Both,
}

impl Direction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Both => "both",
        }
    }
}

/// Many calls at once.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub bytes: u64,
    pub direction: Direction,
    /// Calls in flight, over all connections of the way; of each direction.
    pub depth: usize,
    pub time: Duration,
    /// Compare every byte, not only the ends of pages.
    pub whole: bool,
}

/// One call after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrips {
    pub calls: u64,
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
}

/// What many calls at once moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidth {
    pub calls: u64,
    pub bytes: u64,
    pub took: Duration,
    /// What it cost this process.
    pub here: Usage,
    /// What it cost the host, if that is another process.
    pub there: Option<Usage>,
}

const MIB: f64 = (1 << 20) as f64;

impl Bandwidth {
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / MIB / self.took.as_secs_f64().max(1e-9)
    }

    /// `count` for each MiB that was moved.
    pub fn per_mib(&self, count: u64) -> f64 {
        count as f64 / (self.bytes as f64 / MIB).max(1e-9)
    }
}

impl Dialled {
    /// How long a message of `bytes` takes there and back.
    pub async fn echo(
        &self,
        way: &Way,
        bytes: u64,
        time: Duration,
    ) -> Result<RoundTrips, BenchError> {
        let payload = self.source.pieces(0, bytes.min(ECHO_BYTES_MAX)).concat();
        let message = Ask::of(Op::Echo).encode(&payload);
        let connection = way.connections[0].as_ref();
        let (message, payload) = (&message, &payload);
        let once = || async move {
            let back = answer(&mut connection.call(message.clone(), None)).await?;
            if back == *payload { Ok(()) } else { Err(self.corrupt(way, 0, bytes)) }
        };
        self.round_trips(time, once).await
    }

    /// How long a read of `bytes` takes, from the call to the checked bytes.
    pub async fn read(
        &self,
        way: &Way,
        bytes: u64,
        time: Duration,
        whole: bool,
    ) -> Result<RoundTrips, BenchError> {
        self.round_trips(time, || self.read_once(way, &way.connections[0], bytes, whole)).await
    }

    async fn round_trips<F>(
        &self,
        time: Duration,
        once: impl Fn() -> F,
    ) -> Result<RoundTrips, BenchError>
    where
        F: Future<Output = Result<(), BenchError>>,
    {
        once().await?;
        let began = Instant::now();
        let mut samples = Vec::new();
        while samples.len() < SAMPLES_MIN || (began.elapsed() < time && samples.len() < SAMPLES_MAX)
        {
            let asked = Instant::now();
            once().await?;
            samples.push(asked.elapsed());
        }
        samples.sort_unstable();
        let quantile = |of: f64| {
            samples[((samples.len() as f64 * of).ceil() as usize).clamp(1, samples.len()) - 1]
        };
        Ok(RoundTrips {
            calls: samples.len() as u64,
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: samples[samples.len() - 1],
        })
    }

    /// How much `load` moves.
    pub async fn bandwidth(&self, way: &Way, load: &Load) -> Result<Bandwidth, BenchError> {
        let lanes: Vec<(usize, bool)> = (0..load.depth)
            .flat_map(|lane| match load.direction {
                Direction::Read => vec![(lane, true)],
                Direction::Write => vec![(lane, false)],
                Direction::Both => vec![(lane, true), (lane, false)],
            })
            .collect();
        let once = |lane: usize, reads: bool| async move {
            let connection = &way.connections[lane % way.connections.len()];
            if reads {
                self.read_once(way, connection, load.bytes, load.whole).await
            } else {
                self.write_once(connection, load.bytes, load.whole).await
            }
        };
        // Slow starts and first touches are not what is asked about.
        try_join_all(lanes.iter().map(|&(lane, reads)| once(lane, reads))).await?;
        let (here, there) = (Usage::now(), self.there(way).await?);
        let began = Instant::now();
        let once = &once;
        // Each lane is woken by its own reply; all in one task, as the spans of one body are.
        let moving: FuturesUnordered<_> = lanes
            .iter()
            .map(|&(lane, reads)| async move {
                let mut calls = 0;
                while calls == 0 || began.elapsed() < load.time {
                    once(lane, reads).await?;
                    calls += 1;
                }
                Ok::<u64, BenchError>(calls)
            })
            .collect();
        let calls = moving.try_fold(0, async |sum, calls| Ok(sum + calls)).await?;
        let took = began.elapsed();
        let here = Usage::now() - here;
        let there = self.there(way).await?.zip(there).map(|(now, before)| now - before);
        Ok(Bandwidth { calls, bytes: calls * load.bytes, took, here, there })
    }

    /// Bytes that as many plain streams as there are connections read in `load.time`, in MiB/s:
    /// what tcp is held against.
    pub async fn plain(&self, load: &Load) -> Result<f64, BenchError> {
        let page_bytes = self.source.page_bytes() as u64;
        let plain = PlainLoad {
            address: std::net::SocketAddr::new(self.host.ip(), self.about.plain_port),
            word: self.about.plain_word,
            streams: self.connections,
            bytes: load.bytes.min(page_bytes),
            memory_bytes: load.bytes * load.depth.div_ceil(self.connections) as u64,
            time: load.time,
        };
        let read = tokio::task::spawn_blocking(move || plain::read(&plain)).await;
        let read = read.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked)));
        let (bytes, took) = read.map_err(BenchError::io("read plain streams"))?;
        Ok(bytes as f64 / MIB / took.as_secs_f64().max(1e-9))
    }

    async fn read_once(
        &self,
        way: &Way,
        connection: &std::sync::Arc<dyn Connection>,
        bytes: u64,
        whole: bool,
    ) -> Result<(), BenchError> {
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let landing = if connection.wants_landing() {
            let leased = landing(&self.arena, self.source.page_bytes(), bytes);
            Some(leased.ok_or(BenchError::NoRoom { bytes })?)
        } else {
            None
        };
        let message = Ask { op: Op::Read, whole, from, bytes }.encode(&[]);
        let part = last_part(&mut connection.call(message, landing)).await?;
        fine(&part.message)?;
        if part.offset != 0 {
            return Err(self.corrupt(way, part.offset, bytes));
        }
        self.source.check(&part.data, from, bytes, whole).map_err(|at| self.corrupt(way, at, bytes))
    }

    async fn write_once(
        &self,
        connection: &std::sync::Arc<dyn Connection>,
        bytes: u64,
        whole: bool,
    ) -> Result<(), BenchError> {
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let message = Ask { op: Op::Write, whole, from, bytes }.encode(&[]);
        let mut call = connection.call(message, None);
        match call.next().await? {
            Event::Wanted { bytes: wanted, .. } if wanted == bytes => {
                call.push(&self.source.pieces(from, bytes)).await?;
            }
            Event::Wanted { bytes: wanted, .. } => {
                return Err(BenchError::Malformed(format!(
                    "that it wants {wanted} of {bytes} bytes"
                )));
            }
            Event::Part(part) => {
                fine(&part.message)?;
                return Err(BenchError::Malformed("that it has bytes that it never took".into()));
            }
        }
        answer(&mut call).await.map(drop)
    }

    async fn there(&self, way: &Way) -> Result<Option<Usage>, BenchError> {
        if self.in_process {
            return Ok(None);
        }
        let told =
            answer(&mut way.connections[0].call(Ask::of(Op::Usage).encode(&[]), None)).await?;
        Usage::decode(&told).map(Some).ok_or_else(|| BenchError::Malformed("no usage".into()))
    }

    fn corrupt(&self, way: &Way, at: u64, bytes: u64) -> BenchError {
        BenchError::Corrupt { way: way.name.clone(), at, bytes }
    }
}

/// What the host has beside its ways.
pub(super) async fn about(connection: &dyn Connection) -> Result<About, BenchError> {
    let told = answer(&mut connection.call(Ask::of(Op::About).encode(&[]), None)).await?;
    About::decode(&told).ok_or_else(|| BenchError::Malformed("too little about itself".into()))
}

async fn answer(call: &mut Call) -> Result<Bytes, BenchError> {
    fine(&last_part(call).await?.message)
}

async fn last_part(call: &mut Call) -> Result<Part, BenchError> {
    match call.next().await? {
        Event::Part(part) if part.last => Ok(part),
        Event::Part(_) => Err(BenchError::Malformed("in parts".into())),
        Event::Wanted { .. } => Err(BenchError::Malformed("that it wants bytes, unasked".into())),
    }
}

fn fine(message: &Bytes) -> Result<Bytes, BenchError> {
    match Answer::decode(message) {
        Some(Answer::Fine(rest)) => Ok(rest),
        Some(Answer::Refused(reason)) => Err(BenchError::Refused(reason)),
        None => Err(BenchError::Malformed("in words that are not known here".into())),
    }
}
