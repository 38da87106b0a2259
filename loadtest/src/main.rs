//! Load tests that the scripts of this folder use. For everything else there is `verbs3 bench s3`.
//!
//! `hot`: GETs of cached objects, SigV4 on, against nginx sending the same bytes from tmpfs.
//! `memory`: many readers of large objects and many writers at once, while resident memory is
//! sampled. `tenants`: one tenant beside another. `store`: a million objects, or one of 100 GiB,
//! that take no room. `proxy`: makes a store on this machine as slow as one that is far away, and
//! counts its bytes.
#![forbid(unsafe_code)]

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use verbs3_loadtest::store_proxy::{StoreProxyServer, StoreProxyShape, serve_counts};
use verbs3_loadtest::synthetic_store::{SyntheticObjects, SyntheticStore};
use verbs3_loadtest::{hot_bench, memory_bench, tenant_bench, units};

#[derive(Parser)]
#[command(name = "verbs3-loadtest", version, about)]
struct LoadtestArguments {
    #[command(subcommand)]
    scenario: LoadtestCommand,
}

#[derive(Subcommand)]
enum LoadtestCommand {
    /// Hot GETs against nginx:
    /// `verbs3-loadtest hot --endpoint 127.0.0.1:9000 --pids 123 --access-key A --secret-key S`
    Hot(hot_bench::HotBenchOptions),
    /// Resident memory under many large reads and writes, against the bound that the configuration
    /// promises.
    Memory(memory_bench::MemoryBenchOptions),
    /// What a victim notices of an aggressor with ten times its connections; `tenants.sh` runs it
    Tenants(tenant_bench::TenantBenchOptions),
    /// A proxy in front of a store: bandwidth, time to the first byte, connections; counts bytes
    Proxy(StoreProxyOptions),
    /// A store of objects that are nowhere, all zeros, for preload jobs of any size
    Store(SyntheticStoreOptions),
}

#[derive(Args)]
struct StoreProxyOptions {
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The store.
    #[arg(long)]
    store: SocketAddr,
    /// Of all connections together, in each direction, a second: 200MiB.
    #[arg(long, value_parser = units::parse_bytes)]
    bandwidth: Option<u64>,
    /// Of each connection, in each direction, a second.
    #[arg(long, value_parser = units::parse_bytes)]
    connection_bandwidth: Option<u64>,
    /// Between a request and the first byte of its answer, on top of the store's own: 10ms.
    #[arg(long, value_parser = units::parse_time, default_value = "0ms")]
    first_byte: Duration,
    /// Further connections wait.
    #[arg(long, default_value_t = 256)]
    connections_max: usize,
    /// Where to answer with the counters, as JSON; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    counts: SocketAddr,
    /// Written once it serves: `{"listen": "…", "counts": "…"}`.
    #[arg(long)]
    ready_file: Option<PathBuf>,
}

#[derive(Args)]
struct SyntheticStoreOptions {
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// What names begin with; a number of nine digits follows.
    #[arg(long, default_value = "set/")]
    prefix: String,
    /// Objects.
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Of each: 4KiB.
    #[arg(long, value_parser = units::parse_bytes, default_value = "4KiB")]
    bytes: u64,
    /// Written once it serves: `{"listen": "…"}`.
    #[arg(long)]
    ready_file: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    match LoadtestArguments::parse().scenario {
        LoadtestCommand::Hot(options) => hot_bench::run_hot_bench(&options),
        LoadtestCommand::Memory(options) => memory_bench::run_memory_bench(&options),
        LoadtestCommand::Tenants(options) => tenant_bench::run_tenant_bench(&options),
        LoadtestCommand::Proxy(options) => run_proxy(&options),
        LoadtestCommand::Store(options) => run_store(options),
    }
}

fn run_proxy(options: &StoreProxyOptions) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let shape = StoreProxyShape {
            bandwidth: options.bandwidth,
            connection_bandwidth: options.connection_bandwidth,
            first_byte: options.first_byte,
            connections_max: options.connections_max,
        };
        let shown = || format!("can't listen on {}", options.listen);
        let proxy = StoreProxyServer::bind(options.listen, options.store, shape)
            .await
            .with_context(shown)?;
        let counts = tokio::net::TcpListener::bind(options.counts).await?;
        let ready = serde_json::json!({
            "listen": proxy.local_addr()?.to_string(),
            "counts": counts.local_addr()?.to_string(),
        });
        println!("{ready}");
        std::io::stdout().flush()?;
        if let Some(path) = &options.ready_file {
            std::fs::write(path, ready.to_string())
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        let counters = proxy.proxy_meter();
        tokio::spawn(serve_counts(counts, counters));
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            () = proxy.run() => {}
            _ = terminate.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        Ok(())
    })
}

/// Runs the store until it is told to stop. Then prints what it was asked for.
fn run_store(options: SyntheticStoreOptions) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let SyntheticStoreOptions { listen, prefix, count, bytes, ready_file } = options;
        let store = SyntheticStore::bind(listen, SyntheticObjects { prefix, count, bytes }).await;
        let store = store.with_context(|| format!("can't listen on {listen}"))?;
        let ready = serde_json::json!({"listen": store.local_addr()?.to_string()});
        if let Some(path) = &ready_file {
            std::fs::write(path, ready.to_string())
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        let asked = store.request_counters();
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            () = store.run() => {}
            _ = terminate.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        let read = |counter: &std::sync::atomic::AtomicU64| {
            counter.load(std::sync::atomic::Ordering::Relaxed)
        };
        println!(
            "{}",
            serde_json::json!({"gets": read(&asked.gets), "lists": read(&asked.lists),
                "body_bytes": read(&asked.body_bytes)})
        );
        Ok(())
    })
}
