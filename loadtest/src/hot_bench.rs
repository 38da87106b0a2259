//! Measures hot GETs, A/B/A/B against nginx in the same minute: requests per second, and CPU per
//! request of all the server's processes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;

use crate::connection::BenchConnection;
use crate::cpu_time;
use crate::nginx_reference::NginxReference;
use crate::sign::BenchSigner;

/// Command line of `verbs3-loadtest hot`.
#[derive(Args)]
pub struct HotBenchOptions {
    /// The gateway's address.
    #[arg(long, default_value = "127.0.0.1:9000")]
    endpoint: SocketAddr,
    /// Processes whose CPU time is the server's: gateway, and worker where it is one of its own.
    #[arg(long, value_delimiter = ',', required = true)]
    pids: Vec<u32>,
    #[arg(long, env = "AWS_ACCESS_KEY_ID")]
    access_key: String,
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret_key: String,
    /// Bucket to put the objects in; it must exist.
    #[arg(long, default_value = "demo")]
    bucket: String,
    /// Object sizes, bytes.
    #[arg(long, value_delimiter = ',', default_value = "4096,131072,1048576,16777216")]
    sizes: Vec<usize>,
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Rounds of nginx-then-gateway for each size.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each side of a round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// One side of one round.
#[derive(Debug, Clone, Copy, Serialize)]
struct HotBenchSample {
    requests_per_second: f64,
    cpu_us_per_request: f64,
}

#[derive(Debug, Serialize)]
struct HotBenchRow {
    bytes: usize,
    nginx: Vec<HotBenchSample>,
    gateway: Vec<HotBenchSample>,
    /// Median over rounds of gateway ÷ nginx, CPU per request.
    cpu_ratio: f64,
    /// The smallest and largest ratio of any round.
    cpu_ratio_range: (f64, f64),
    /// Median over rounds of gateway ÷ nginx, requests per second.
    rate_ratio: f64,
}

/// Measures nginx and the gateway by turns for each object size, and prints the table or JSON.
/// Fails if an answer is not what it must be.
pub fn run_hot_bench(options: &HotBenchOptions) -> anyhow::Result<()> {
    let nginx = NginxReference::start()?;
    let gateway = BenchSigner::with_key(
        &options.endpoint.to_string(),
        &options.access_key,
        &options.secret_key,
    );
    let mut rows = Vec::new();
    for &bytes in &options.sizes {
        let name = format!("loadtest-hot-{bytes}");
        let body: Vec<u8> = (0..bytes)
            .map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0])
            .collect();
        nginx.put_file(&name, &body)?;
        let path = format!("/{}/{name}", options.bucket);
        prepare_hot_object(options, &gateway, &path, &body)?;
        let plain = format!("GET /{name} HTTP/1.1\r\nhost: {}\r\n\r\n", nginx.address).into_bytes();
        let mut row = HotBenchRow {
            bytes,
            nginx: vec![],
            gateway: vec![],
            cpu_ratio: 0.0,
            cpu_ratio_range: (0.0, 0.0),
            rate_ratio: 0.0,
        };
        for _ in 0..options.rounds {
            row.nginx.push(measure_side(
                options,
                nginx.address,
                &[nginx.process_id()],
                &plain,
                bytes,
            )?);
            // Each round signs anew, because a signature is valid for only 15 minutes.
            let signed = gateway.sign_request("GET", &path, b"")?;
            row.gateway.push(measure_side(
                options,
                options.endpoint,
                &options.pids,
                &signed,
                bytes,
            )?);
        }
        let ratios = |of: fn(&HotBenchSample) -> f64| -> Vec<f64> {
            let mut all: Vec<f64> = row
                .gateway
                .iter()
                .zip(&row.nginx)
                .map(|(ours, theirs)| of(ours) / of(theirs))
                .collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let cpu = ratios(|sample| sample.cpu_us_per_request);
        row.cpu_ratio = cpu[cpu.len() / 2];
        row.cpu_ratio_range = (cpu[0], cpu[cpu.len() - 1]);
        let rate = ratios(|sample| sample.requests_per_second);
        row.rate_ratio = rate[rate.len() / 2];
        rows.push(row);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print_table(&rows);
    }
    Ok(())
}

/// Puts the object, reads it until it is hot, and checks every byte once.
fn prepare_hot_object(
    options: &HotBenchOptions,
    gateway: &BenchSigner,
    path: &str,
    body: &[u8],
) -> anyhow::Result<()> {
    let mut connection = BenchConnection::connect(options.endpoint)?;
    let put =
        connection.exchange_request(&gateway.sign_request("PUT", path, body)?, body, |_| {})?;
    ensure!(put.status == 200, "PUT {path} answered {}: {}", put.status, put.head);
    for attempt in 0..3 {
        let mut got = Vec::with_capacity(body.len());
        let answer =
            connection.exchange_request(&gateway.sign_request("GET", path, b"")?, b"", |part| {
                got.extend_from_slice(part)
            })?;
        ensure!(answer.status == 200, "GET {path} answered {}: {}", answer.status, answer.head);
        ensure!(got == body, "GET {path} gave wrong bytes");
        ensure!(
            attempt < 2 || answer.head.contains("x-verbs3-cache: hit"),
            "{path} is not hot: {}",
            answer.head
        );
    }
    Ok(())
}

/// Closed loop over kept connections for the configured time.
fn measure_side(
    options: &HotBenchOptions,
    address: SocketAddr,
    pids: &[u32],
    request: &[u8],
    bytes: usize,
) -> anyhow::Result<HotBenchSample> {
    let stop = AtomicBool::new(false);
    let mut connections = (0..options.connections)
        .map(|_| BenchConnection::connect(address))
        .collect::<Result<Vec<_>, _>>()?;
    // Each connection does one exchange before the clock starts, so that connection set-up is not
    // measured.
    for connection in &mut connections {
        connection.exchange_request(request, b"", |_| {})?;
    }
    std::thread::scope(|scope| {
        let cpu_before = cpu_time::used_cpu_time(pids)?;
        let began = Instant::now();
        let threads: Vec<_> = connections
            .into_iter()
            .map(|mut connection| {
                let stop = &stop;
                scope.spawn(move || -> anyhow::Result<u64> {
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let answer = connection.exchange_request(request, b"", |_| {})?;
                        ensure!(
                            answer.status == 200 && answer.body_bytes == bytes as u64,
                            "answered {}",
                            answer.head
                        );
                        done += 1;
                    }
                    Ok(done)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(options.seconds));
        stop.store(true, Ordering::Relaxed);
        let mut requests = 0;
        for thread in threads {
            requests +=
                thread.join().map_err(|_| anyhow::anyhow!("a client thread panicked"))??;
        }
        let (elapsed, cpu) =
            (began.elapsed(), cpu_time::used_cpu_time(pids)?.saturating_sub(cpu_before));
        ensure!(requests > 0, "no request ended within {} s; raise --seconds", options.seconds);
        Ok(HotBenchSample {
            requests_per_second: requests as f64 / elapsed.as_secs_f64(),
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests as f64,
        })
    })
    .context("measurement failed")
}

fn print_table(rows: &[HotBenchRow]) {
    let median = |samples: &[HotBenchSample], of: fn(&HotBenchSample) -> f64| {
        let mut all: Vec<f64> = samples.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!(
        "{:>10}  {:>12} {:>12} {:>20}  {:>10} {:>10} {:>6}",
        "bytes", "nginx µs", "verbs3 µs", "CPU ratio (range)", "nginx/s", "verbs3/s", "rate"
    );
    for row in rows {
        let cpu = |samples: &[HotBenchSample]| median(samples, |s| s.cpu_us_per_request);
        let rate = |samples: &[HotBenchSample]| median(samples, |s| s.requests_per_second);
        println!(
            "{:>10}  {:>12.1} {:>12.1} {:>8.2} ({:.2}–{:.2})  {:>10.0} {:>10.0} {:>6.2}",
            row.bytes,
            cpu(&row.nginx),
            cpu(&row.gateway),
            row.cpu_ratio,
            row.cpu_ratio_range.0,
            row.cpu_ratio_range.1,
            rate(&row.nginx),
            rate(&row.gateway),
            row.rate_ratio
        );
    }
}
