//! `verbs3 bench fabric`: what the network between two hosts gives, over each transport that works
//! there.
//!
//! Owns the order of measurements. `verbs3_fabric_bench` measures; `figures`, `plot` and `record`
//! show.

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use verbs3_config::{ConfigLayers, EnvironmentLayer};
use verbs3_fabric_bench::{
    BenchError, BenchHost, BenchRequester, DialOptions, ECHO_BYTES_MAX, HostOptions,
    TransferDirection, TransferLoad,
};
use verbs3_loadtest::units;
use verbs3_rdma::calls::{CallOptions, HandshakeSecret};
use verbs3_rdma::rails::{self, RailRules};
use verbs3_rdma::settings::VerbsMode;
use verbs3_rdma::tcp::TcpOptions;
use verbs3_rdma::transport::TransportKind;
use verbs3_rdma::verbs::VerbsOptions;
use verbs3_settings::TimePeriod;

use super::arguments::{FabricArguments, WayArgument};
use super::record::{FabricCell, FabricRecord, FabricRow};
use super::{figures, plot};
use crate::host_port::split_host_port;
use crate::process::MISCONFIGURED;
use crate::reactor_threads::ReactorThreads;
use crate::wiring::transports::find_rail_port;

/// Where `--serve` listens by itself.
pub const FABRIC_PORT: u16 = 9410;

/// Known to everyone who reads this: it keeps accidents out, not people.
const BENCH_SECRET: &str = "verbs3 bench fabric";

/// Serves or measures until the end. Status 1: a way failed. Status 2: the arguments can't be used.
pub fn run_fabric_bench(arguments: &FabricArguments) -> ExitCode {
    let BenchCluster { secret, rules } = match load_bench_cluster(arguments) {
        Ok(cluster) => cluster,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    if secret.is_none() && !arguments.loopback {
        eprintln!(
            "warning: no --secret-file: whoever reaches the serving side can use it while it serves"
        );
    }
    let secret = secret.unwrap_or_else(public_secret);
    let ended = if arguments.serve {
        let arguments = arguments.clone();
        block_on_task(async move { serve_fabric(&arguments, &secret, &rules).await }).map(|()| true)
    } else {
        measure_with(arguments, secret).and_then(|record| show_record(arguments, &record))
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures as `verbs3 bench fabric` does, and prints nothing.
pub fn measure_record(arguments: &FabricArguments) -> anyhow::Result<FabricRecord> {
    let secret = load_bench_cluster(arguments)?.secret.unwrap_or_else(public_secret);
    measure_with(arguments, secret)
}

fn measure_with(
    arguments: &FabricArguments,
    secret: HandshakeSecret,
) -> anyhow::Result<FabricRecord> {
    let arguments = arguments.clone();
    block_on_task(async move { measure_fabric(&arguments, &secret).await })
}

/// Runs `job` as a task of the runtime's own threads, as a gateway's are: the thread that blocks
/// here would be woken for each reply.
fn block_on_task<T: Send + 'static>(
    job: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("can't start threads")?;
    runtime.block_on(async { tokio::spawn(job).await? })
}

fn public_secret() -> HandshakeSecret {
    HandshakeSecret::new(BENCH_SECRET)
}

/// What the command line says of the cluster, or the configuration that it names.
struct BenchCluster {
    /// `None`: the arguments name no secret.
    secret: Option<HandshakeSecret>,
    /// Which ports of this host are rails: all, where no configuration says otherwise.
    rules: RailRules,
}

fn load_bench_cluster(arguments: &FabricArguments) -> anyhow::Result<BenchCluster> {
    let mut rules = RailRules::from_entries(&["auto".to_owned()], &[]);
    let given = if let Some(path) = &arguments.secret_file {
        Some(verbs3_config::ConfigSecret::read(path)?)
    } else if let Some(path) = &arguments.config {
        let layers = ConfigLayers {
            file: Some(path.clone()),
            environment: EnvironmentLayer::of_process(),
            flags: Vec::new(),
        };
        let loaded = verbs3_config::load_config(&layers, &[])
            .map_err(|problems| anyhow::anyhow!("{problems}"))?;
        let verbs = &loaded.config.verbs;
        rules = match verbs.mode {
            VerbsMode::Off => RailRules::default(),
            VerbsMode::Auto | VerbsMode::On => {
                RailRules::from_entries(&verbs.rails, &verbs.rails_except)
            }
        };
        loaded.config.cluster.resolve_secret()?
    } else {
        None
    };
    let secret = given.map(|secret| HandshakeSecret::new(secret.reveal_text()));
    Ok(BenchCluster { secret, rules })
}

/// Returns the addresses that are offered as rails: those that the command line names, or the one
/// that is listened on, or, where these are all of the host, those that `rules` take.
fn choose_own_rails(arguments: &FabricArguments, listen: IpAddr, rules: &RailRules) -> Vec<IpAddr> {
    if !arguments.rails.is_empty() {
        return arguments.rails.clone();
    }
    if listen.is_loopback() {
        return Vec::new();
    }
    if !listen.is_unspecified() {
        return vec![listen];
    }
    let interfaces = match rails::list_interfaces() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            eprintln!("not served: verbs: can't list the network devices: {error}");
            return Vec::new();
        }
    };
    let chosen = rules.choose_rails(&interfaces, find_rail_port);
    let found = rules.resolve_rails(&chosen, &interfaces, find_rail_port);
    for (rail, found) in chosen.iter().zip(&found) {
        if let Err(error) = found {
            eprintln!("not served: verbs: {}: {error}", rail.rail_name());
        }
    }
    found.into_iter().flatten().collect()
}

fn tcp_options(arguments: &FabricArguments, secret: &HandshakeSecret) -> TcpOptions {
    let mut options = TcpOptions::new(secret.clone());
    options.calls.settings.bind_device = arguments.bind_device.clone();
    options
}

fn verbs_options(arguments: &FabricArguments, secret: &HandshakeSecret) -> VerbsOptions {
    let mut options = VerbsOptions::new(secret.clone());
    options.settings.busy_poll = TimePeriod(Duration::from_micros(arguments.busy_poll));
    options.settings.windows = arguments.windows.into();
    options.settings.relaxed_ordering = arguments.relaxed_ordering.into();
    options
}

async fn start_bench_host(
    arguments: &FabricArguments,
    secret: &HandshakeSecret,
    listen: SocketAddr,
    rails: Vec<IpAddr>,
    reactors: &ReactorThreads,
) -> anyhow::Result<BenchHost> {
    let each = usize::try_from(arguments.memory).context("more memory than there are addresses")?;
    let arena_bytes = each.saturating_mul(rails.len().max(1));
    let socket = std::env::temp_dir().join(format!("verbs3-bench-{}.sock", std::process::id()));
    let options = HostOptions {
        listen,
        tcp: tcp_options(arguments, secret),
        verbs: verbs_options(arguments, secret),
        rails,
        shm: CallOptions::new(secret.clone()),
        socket: Some(socket),
        page_bytes: arguments.page as usize,
        arena_bytes,
        runtimes: reactors.runtime_handles(),
    };
    Ok(BenchHost::start(options).await?)
}

async fn serve_fabric(
    arguments: &FabricArguments,
    secret: &HandshakeSecret,
    rules: &RailRules,
) -> anyhow::Result<()> {
    let reactors = ReactorThreads::start(0).context("can't start threads")?;
    let rails = choose_own_rails(arguments, arguments.listen.ip(), rules);
    let host = start_bench_host(arguments, secret, arguments.listen, rails, &reactors).await?;
    println!("serving on {}", host.local_addr());
    for rail in host.offered_ways().rails.iter().flatten() {
        println!("  verbs {rail}");
    }
    if let Some(shm) = &host.offered_ways().shm {
        println!("  shm {}", shm.socket_path().display());
    }
    for left in host.left_out() {
        println!("  not served: {}: {}", left.way, left.cause);
    }
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    host.shutdown().await;
    Ok(())
}

async fn measure_fabric(
    arguments: &FabricArguments,
    secret: &HandshakeSecret,
) -> anyhow::Result<FabricRecord> {
    let reactors = ReactorThreads::start(0).context("can't start threads")?;
    let (own, host) = if arguments.loopback {
        let (listen, rails) = (SocketAddr::from(([127, 0, 0, 1], 0)), arguments.rails.clone());
        let own = start_bench_host(arguments, secret, listen, rails, &reactors).await?;
        let address = own.local_addr();
        (Some(own), address)
    } else {
        let given = arguments.host.as_deref().unwrap_or_default();
        let name = split_host_port(given, FABRIC_PORT).map_err(anyhow::Error::msg)?;
        let found = tokio::net::lookup_host((name.0.as_str(), name.1))
            .await
            .with_context(|| format!("can't look up {given:?}"))?
            .next();
        (None, found.with_context(|| format!("{given} has no address"))?)
    };
    let dialled = BenchRequester::dial_host(dial_options(arguments, secret, host)).await?;
    let record = FabricMeasurement {
        arguments,
        dialled: &dialled,
        progress: std::io::stderr().is_terminal(),
    }
    .measure_all(host)
    .await?;
    drop(dialled);
    if let Some(own) = own {
        own.shutdown().await;
    }
    Ok(record)
}

/// `false` where a way failed under way, or could not be measured although it was asked for.
fn show_record(arguments: &FabricArguments, record: &FabricRecord) -> anyhow::Result<bool> {
    if let Some(path) = &arguments.plot {
        std::fs::write(path, plot::render_svg(record))
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    if arguments.json {
        println!("{:#}", record.to_json());
    } else {
        print!("{}", figures::render_table(record));
    }
    let is_measured = |way: &WayArgument| {
        let kind = TransportKind::from(*way).as_str();
        record.ways.iter().any(|(_, known)| *known == kind)
    };
    let mut cells = record.rows.iter().flat_map(|row| &row.cells);
    Ok(arguments.ways.iter().all(is_measured) && cells.all(|cell| cell.failed.is_none()))
}

fn dial_options(
    arguments: &FabricArguments,
    secret: &HandshakeSecret,
    host: SocketAddr,
) -> DialOptions {
    let largest = arguments.sizes.iter().copied().max().unwrap_or(0) as usize;
    DialOptions {
        host,
        tcp: tcp_options(arguments, secret),
        verbs: verbs_options(arguments, secret),
        shm: CallOptions::new(secret.clone()),
        rails: arguments.rails.clone(),
        kinds: arguments.tried_ways().iter().copied().map(TransportKind::from).collect(),
        connections: arguments.connections as usize,
        page_bytes: arguments.page as usize,
        in_flight_bytes_max: largest * arguments.depth as usize,
        in_process: arguments.loopback,
    }
}

/// One run. Ways take turns within a round, so that what else the hosts do meets all of them.
struct FabricMeasurement<'a> {
    arguments: &'a FabricArguments,
    dialled: &'a BenchRequester,
    progress: bool,
}

impl FabricMeasurement<'_> {
    async fn measure_all(&self, host: SocketAddr) -> anyhow::Result<FabricRecord> {
        let (arguments, ways) = (self.arguments, self.dialled.open_ways());
        let mut record = FabricRecord {
            host: host.to_string(),
            ways: ways.iter().map(|way| (way.name.clone(), way.kind.as_str())).collect(),
            left_out: self.dialled.left_out().to_vec(),
            depth: arguments.depth as usize,
            connections: arguments.connections as usize,
            page_bytes: arguments.page as usize,
            seconds: arguments.seconds,
            whole: arguments.verify,
            in_process: arguments.loopback,
            rows: Vec::new(),
        };
        for &bytes in &arguments.sizes {
            let mut row = FabricRow {
                bytes,
                cells: ways.iter().map(|_| FabricCell::default()).collect(),
                plain: Vec::new(),
            };
            for round in 1..=arguments.rounds {
                self.measure_round(&mut row, round).await?;
            }
            record.rows.push(row);
        }
        if self.progress {
            eprint!("\r\x1b[K");
        }
        Ok(record)
    }

    async fn measure_round(&self, row: &mut FabricRow, round: u32) -> anyhow::Result<()> {
        for (at, way) in self.dialled.open_ways().iter().enumerate() {
            if self.progress {
                eprint!(
                    "\r\x1b[K{} over {}, round {round}",
                    units::show_bytes(row.bytes),
                    way.name
                );
            }
            let cell = &mut row.cells[at];
            if cell.failed.is_none()
                && let Err(error) = self.measure_way(cell, at, row.bytes).await
            {
                // Others go on; a way that moves wrong bytes is no matter of figures.
                if matches!(error, BenchError::Corrupt { .. }) {
                    return Err(error.into());
                }
                cell.failed = Some(error.to_string());
            }
        }
        let tcp = self.dialled.open_ways().iter().any(|way| way.kind == TransportKind::Tcp);
        if tcp && !self.arguments.no_plain && self.arguments.bind_device.is_none() {
            row.plain.push(
                self.dialled
                    .measure_plain_tcp(&self.build_load(row.bytes, TransferDirection::Read))
                    .await?,
            );
        }
        Ok(())
    }

    async fn measure_way(
        &self,
        cell: &mut FabricCell,
        way: usize,
        bytes: u64,
    ) -> Result<(), BenchError> {
        let way = &self.dialled.open_ways()[way];
        let load = self.build_load(bytes, TransferDirection::Read);
        if bytes <= ECHO_BYTES_MAX {
            cell.echo.push(self.dialled.measure_echo(way, bytes, load.time).await?);
        }
        cell.read_trips.push(self.dialled.read(way, bytes, load.time, load.whole).await?);
        for &direction in &self.arguments.directions {
            let load = self.build_load(bytes, direction.into());
            let moved = self.dialled.measure_bandwidth(way, &load).await?;
            cell.bandwidths_mut(load.direction).push(moved);
        }
        Ok(())
    }

    fn build_load(&self, bytes: u64, direction: TransferDirection) -> TransferLoad {
        let time = Duration::from_secs_f64(self.arguments.seconds);
        TransferLoad {
            bytes,
            direction,
            depth: self.arguments.depth as usize,
            time,
            whole: self.arguments.verify,
        }
    }
}
