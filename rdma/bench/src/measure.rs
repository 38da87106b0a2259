//! Owns the measured calls and their results.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;

use super::checked_call::{await_answer, last_part, parse_answer};
use super::message::{MeasureOperation, MeasureRequest};
use super::pattern_pages::borrow_landing;
use super::plain_server::{self, PlainLoad};
use super::{BenchError, BenchRequester, ECHO_BYTES_MAX, MeasuredWay, TransferCost};
use verbs3_rdma::landing::Landing;
use verbs3_rdma::transport::{CallEvent, PeerConnection};

/// Least and most calls of a latency measurement, whatever the time.
const SAMPLES_MIN: usize = 10;
const SAMPLES_MAX: usize = 1_000_000;

/// Longest wait for memory of calls that are over, and the pause between two looks.
const ROOM_WAIT: Duration = Duration::from_secs(1);
const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// The direction of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferDirection {
    /// From the host into landings of this side, like a gateway's reads.
    Read,
    /// Into landings of the host, like a gateway's writes.
    Write,
    /// Both directions at once, with as many calls each.
    Both,
}

impl TransferDirection {
    /// Returns the name in print and in records: `read`, `write` or `both`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Both => "both",
        }
    }
}

/// The load of many calls at once.
#[derive(Debug, Clone, Copy)]
pub struct TransferLoad {
    pub bytes: u64,
    pub direction: TransferDirection,
    /// Calls in flight in each direction, over all connections of the way; for each of its rails.
    pub depth: usize,
    pub time: Duration,
    /// Compares every byte, not only the ends of pages.
    pub whole: bool,
}

/// The result of calls one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrips {
    pub calls: u64,
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
}

/// The result of many calls at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandwidthResult {
    pub calls: u64,
    pub bytes: u64,
    pub took: Duration,
    /// Cost to this process.
    pub here: TransferCost,
    /// Cost to the host, if that is another process.
    pub there: Option<TransferCost>,
}

const MIB: f64 = (1 << 20) as f64;

impl BandwidthResult {
    /// Returns the bytes moved over the elapsed time, in MiB/s (2^20 bytes).
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / MIB / self.took.as_secs_f64().max(1e-9)
    }

    /// Returns `count` for each MiB that was moved.
    pub fn per_mib(&self, count: u64) -> f64 {
        count as f64 / (self.bytes as f64 / MIB).max(1e-9)
    }
}

impl BenchRequester {
    /// Measures how long a message of `bytes` takes there and back.
    pub async fn measure_echo(
        &self,
        way: &MeasuredWay,
        bytes: u64,
        time: Duration,
    ) -> Result<RoundTrips, BenchError> {
        let payload = self.source.slice_pages(0, bytes.min(ECHO_BYTES_MAX)).concat();
        let message = MeasureRequest::from_operation(MeasureOperation::Echo).encode(&payload);
        let connection = way.connections[0].as_ref();
        let (message, payload) = (&message, &payload);
        let once = || async move {
            let back = await_answer(&mut connection.start_call(message.clone(), None)).await?;
            if back == *payload { Ok(()) } else { Err(self.corrupt_error(way, 0, bytes)) }
        };
        self.round_trips(time, once).await
    }

    /// Measures how long a read of `bytes` takes, from the call to the checked bytes.
    pub async fn read(
        &self,
        way: &MeasuredWay,
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

    /// Measures how much `load` moves.
    pub async fn measure_bandwidth(
        &self,
        way: &MeasuredWay,
        load: &TransferLoad,
    ) -> Result<BandwidthResult, BenchError> {
        let lanes: Vec<(usize, bool)> = (0..load.depth * way.rails)
            .flat_map(|lane| match load.direction {
                TransferDirection::Read => vec![(lane, true)],
                TransferDirection::Write => vec![(lane, false)],
                TransferDirection::Both => vec![(lane, true), (lane, false)],
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
        // One round first: slow starts and first touches must not count.
        try_join_all(lanes.iter().map(|&(lane, reads)| once(lane, reads))).await?;
        let (here, there) = (TransferCost::read_counters(), self.fetch_host_cost(way).await?);
        let began = Instant::now();
        let once = &once;
        // Each lane is woken by its own reply. All are in one task, like the spans of one body.
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
        let here = TransferCost::read_counters() - here;
        let there = self.fetch_host_cost(way).await?.zip(there).map(|(now, before)| now - before);
        Ok(BandwidthResult { calls, bytes: calls * load.bytes, took, here, there })
    }

    /// Measures plain streams, one for each connection, for `load.time`. Returns MiB/s, the
    /// reference for tcp.
    pub async fn measure_plain_tcp(&self, load: &TransferLoad) -> Result<f64, BenchError> {
        let page_bytes = self.source.page_bytes() as u64;
        let plain = PlainLoad {
            address: std::net::SocketAddr::new(self.host.ip(), self.about.plain_port),
            word: self.about.plain_word,
            streams: self.connections,
            bytes: load.bytes.min(page_bytes),
            memory_bytes: load.bytes * load.depth.div_ceil(self.connections) as u64,
            time: load.time,
        };
        let read = tokio::task::spawn_blocking(move || plain_server::read(&plain)).await;
        let read = read.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked)));
        let (bytes, took) = read.map_err(BenchError::io_error("read plain streams"))?;
        Ok(bytes as f64 / MIB / took.as_secs_f64().max(1e-9))
    }

    async fn read_once(
        &self,
        way: &MeasuredWay,
        connection: &std::sync::Arc<dyn PeerConnection>,
        bytes: u64,
        whole: bool,
    ) -> Result<(), BenchError> {
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let landing = if connection.landing_use().wants_landing() {
            Some(self.wait_for_landing(bytes).await?)
        } else {
            None
        };
        let message = MeasureRequest { op: MeasureOperation::Read, whole, from, bytes }.encode(&[]);
        let part = last_part(&mut connection.start_call(message, landing)).await?;
        parse_answer(&part.message)?;
        if part.offset != 0 {
            return Err(self.corrupt_error(way, part.offset, bytes));
        }
        self.source
            .check_data(&part.data, from, bytes, whole)
            .map_err(|at| self.corrupt_error(way, at, bytes))
    }

    /// Loans a landing. That of a call that is over comes back a little later where its windows are
    /// closed first.
    async fn wait_for_landing(&self, bytes: u64) -> Result<Landing, BenchError> {
        let until = Instant::now() + ROOM_WAIT;
        loop {
            match borrow_landing(&self.arena, self.source.page_bytes(), bytes) {
                Some(landing) => return Ok(landing),
                None if Instant::now() >= until => return Err(BenchError::NoRoom { bytes }),
                None => tokio::time::sleep(ROOM_PAUSE).await,
            }
        }
    }

    async fn write_once(
        &self,
        connection: &std::sync::Arc<dyn PeerConnection>,
        bytes: u64,
        whole: bool,
    ) -> Result<(), BenchError> {
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let message =
            MeasureRequest { op: MeasureOperation::Write, whole, from, bytes }.encode(&[]);
        let mut call = connection.start_call(message, None);
        match call.next().await? {
            CallEvent::Wanted { bytes: wanted, .. } if wanted == bytes => {
                call.push_data(&self.source.slice_pages(from, bytes)).await?;
            }
            CallEvent::Wanted { bytes: wanted, .. } => {
                return Err(BenchError::Malformed(format!(
                    "that it wants {wanted} of {bytes} bytes"
                )));
            }
            CallEvent::Part(part) => {
                parse_answer(&part.message)?;
                return Err(BenchError::Malformed("that it has bytes that it never took".into()));
            }
        }
        await_answer(&mut call).await.map(drop)
    }

    async fn fetch_host_cost(&self, way: &MeasuredWay) -> Result<Option<TransferCost>, BenchError> {
        if self.in_process {
            return Ok(None);
        }
        let told =
            await_answer(&mut way.connections[0].start_call(
                MeasureRequest::from_operation(MeasureOperation::Usage).encode(&[]),
                None,
            ))
            .await?;
        TransferCost::decode(&told)
            .map(Some)
            .ok_or_else(|| BenchError::Malformed("no usage".into()))
    }

    fn corrupt_error(&self, way: &MeasuredWay, at: u64, bytes: u64) -> BenchError {
        BenchError::Corrupt { way: way.name.clone(), at, bytes }
    }
}
