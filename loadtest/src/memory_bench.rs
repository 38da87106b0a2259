//! Measures resident memory while many clients read large objects with constant eviction, and
//! others write. Checks every read.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;

use crate::connection::BenchConnection;
use crate::cpu_time;
use crate::sign::BenchSigner;

const MIB: u64 = 1 << 20;
/// Bytes of one read: a shard-sized ranged GET, large enough to span blocks.
const READ_BYTES: u64 = 64 * MIB;
/// Bytes of one write.
const WRITE_BYTES: u64 = 64 * MIB;

/// Command line of `verbs3-loadtest memory`.
#[derive(Args)]
pub struct MemoryBenchOptions {
    #[arg(long, default_value = "127.0.0.1:9000")]
    endpoint: SocketAddr,
    /// Processes whose resident memory is watched, together.
    #[arg(long, value_delimiter = ',', required = true)]
    pids: Vec<u32>,
    #[arg(long, env = "AWS_ACCESS_KEY_ID")]
    access_key: String,
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret_key: String,
    #[arg(long, default_value = "demo")]
    bucket: String,
    /// Objects of 1 GiB; together they should be larger than the arena.
    #[arg(long, default_value_t = 4)]
    objects: usize,
    #[arg(long, default_value_t = 64)]
    readers: usize,
    #[arg(long, default_value_t = 16)]
    writers: usize,
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// The promise, MiB: arenas + configured index + 256. Exit status 1 above it.
    #[arg(long)]
    bound_mib: u64,
}

/// Writes the objects, then reads and writes at once and samples resident memory every 100 ms.
/// Fails on wrong bytes, or if resident memory exceeds `bound_mib`.
pub fn run_memory_bench(options: &MemoryBenchOptions) -> anyhow::Result<()> {
    let signer = BenchSigner::with_key(
        &options.endpoint.to_string(),
        &options.access_key,
        &options.secret_key,
    );
    let (chunk, before) = (make_pattern(), total_resident_bytes(&options.pids)?);
    for object in 0..options.objects {
        let head = signer.streaming_put(&object_path(options, object), 1024 * MIB)?;
        let answer =
            BenchConnection::connect(options.endpoint)?.send_repeated(&head, &chunk, 1024)?;
        ensure!(answer.status == 200, "PUT answered {}", answer.head);
    }
    let stop = AtomicBool::new(false);
    let (read, written, peak) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let outcome: anyhow::Result<()> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for reader in 0..options.readers {
            let (signer, chunk, stop, read) = (&signer, &chunk, &stop, &read);
            threads
                .push(scope.spawn(move || run_reader(options, signer, chunk, reader, stop, read)));
        }
        for writer in 0..options.writers {
            let (signer, chunk, stop, written) = (&signer, &chunk, &stop, &written);
            threads.push(
                scope.spawn(move || run_writer(options, signer, chunk, writer, stop, written)),
            );
        }
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < options.seconds {
            peak.fetch_max(total_resident_bytes(&options.pids)?, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a client thread panicked"))?
        })
    });
    outcome?;
    let peak_mib = peak.load(Ordering::Relaxed) / MIB;
    println!(
        "resident: {} MiB before, {peak_mib} MiB at most, bound {} MiB; read {} MiB, wrote {} MiB \
        in {} s",
        before / MIB,
        options.bound_mib,
        read.load(Ordering::Relaxed) / MIB,
        written.load(Ordering::Relaxed) / MIB,
        options.seconds
    );
    ensure!(peak_mib <= options.bound_mib, "resident memory went over its bound");
    Ok(())
}

fn run_reader(
    options: &MemoryBenchOptions,
    signer: &BenchSigner,
    chunk: &[u8],
    reader: usize,
    stop: &AtomicBool,
    read: &AtomicU64,
) -> anyhow::Result<()> {
    let mut connection = BenchConnection::connect(options.endpoint)?;
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // Readers start at different places and move on, so that the arena soon evicts what the
        // next reader wants.
        let object = (reader + turn) % options.objects;
        let first = ((reader * 37 + turn * 5) as u64 % 16) * READ_BYTES;
        let request =
            signer.sign_range(&object_path(options, object), first, first + READ_BYTES - 1)?;
        let (mut at, mut wrong) = (first, None);
        let answer = connection.exchange_request(&request, b"", |part| {
            for (index, piece) in split_at_chunks(part, at, chunk.len()) {
                if wrong.is_none() && piece != &chunk[index..index + piece.len()] {
                    wrong = Some(at);
                }
            }
            at += part.len() as u64;
        })?;
        if answer.status == 503 {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        ensure!(
            answer.status == 206 && answer.body_bytes == READ_BYTES,
            "GET answered {}",
            answer.head
        );
        ensure!(wrong.is_none(), "wrong bytes near offset {wrong:?} of object {object}");
        read.fetch_add(answer.body_bytes, Ordering::Relaxed);
    }
    Ok(())
}

fn run_writer(
    options: &MemoryBenchOptions,
    signer: &BenchSigner,
    chunk: &[u8],
    writer: usize,
    stop: &AtomicBool,
    written: &AtomicU64,
) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let head = signer.streaming_put(
            &format!("/{}/loadtest-memory-write-{writer}", options.bucket),
            WRITE_BYTES,
        )?;
        let mut connection = BenchConnection::connect(options.endpoint)?;
        let answer =
            connection.send_repeated(&head, chunk, WRITE_BYTES / MIB).context("PUT failed")?;
        ensure!(answer.status == 200 || answer.status == 503, "PUT answered {}", answer.head);
        written.fetch_add(WRITE_BYTES, Ordering::Relaxed);
    }
    Ok(())
}

/// Splits `part`, which starts at object offset `at`, at the borders of the repeated chunk. Returns
/// pairs (offset in the chunk, piece).
fn split_at_chunks(part: &[u8], at: u64, chunk_bytes: usize) -> Vec<(usize, &[u8])> {
    let (mut rest, mut at, mut pieces) = (part, at as usize, Vec::new());
    while !rest.is_empty() {
        let index = at % chunk_bytes;
        let (piece, more) = rest.split_at(rest.len().min(chunk_bytes - index));
        pieces.push((index, piece));
        at += piece.len();
        rest = more;
    }
    pieces
}

fn make_pattern() -> Vec<u8> {
    (0..MIB / 8)
        .flat_map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
        .collect()
}

fn object_path(options: &MemoryBenchOptions, object: usize) -> String {
    format!("/{}/loadtest-memory-{object}", options.bucket)
}

fn total_resident_bytes(pids: &[u32]) -> anyhow::Result<u64> {
    pids.iter().map(|&pid| cpu_time::resident_bytes(pid)).sum()
}
