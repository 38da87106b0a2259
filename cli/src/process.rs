//! The life of a serving process: configuration, logs, runtime, signals, exit status.
//!
//! Status 0: ended as asked. 1: could not start, or failed. 2: the configuration is wrong.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use verbs3_config::{ConfigLayers, ProcessRole, ProcessSettings, RootSettings, load_config};

use crate::logging;
use crate::wiring::passed_sockets;

/// Exit status for a configuration that can't be used; also clap's for a command line.
pub const MISCONFIGURED: u8 = 2;
const FAILED: u8 = 1;

/// Where a process's configuration comes from, and whom to tell that it serves.
pub struct LaunchOptions {
    pub layers: ConfigLayers,
    pub ready_file: Option<PathBuf>,
}

/// What a running process is told, and whom it tells that it serves.
pub struct RunningProcess {
    /// Cancelled by the first SIGTERM or SIGINT.
    pub stop: CancellationToken,
    ready_file: Option<PathBuf>,
}

impl RunningProcess {
    /// Tells that requests are served now: to the log, and to the file that was asked for. Fails if
    /// the service manager has passed a socket on which nothing is served.
    pub fn signal_ready(
        &self,
        listen: SocketAddr,
        admin: Option<SocketAddr>,
    ) -> anyhow::Result<()> {
        passed_sockets::require_all_taken()?;
        tracing::info!(%listen, admin = admin.map(tracing::field::display), "serving");
        if let Some(path) = &self.ready_file {
            write_ready(path, listen, admin)
                .with_context(|| format!("can't write the ready file {}", path.display()))?;
        }
        Ok(())
    }
}

/// Loads the configuration, runs `serve` until it ends, and makes an exit status of that.
pub fn run_process<F, Fut>(start: &LaunchOptions, role: ProcessRole, serve: F) -> ExitCode
where
    F: FnOnce(RootSettings, RunningProcess) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    passed_sockets::take_from_environment();
    let loaded = match load_config(&start.layers, &[role]) {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    if let Err(error) = logging::start_logging(&loaded.config.log, role) {
        eprintln!("{error:#}");
        return ExitCode::from(MISCONFIGURED);
    }
    for warning in &loaded.warnings {
        tracing::warn!(setting = warning.path, "{}", warning.message);
    }
    let ready_file = start.ready_file.clone();
    match build_runtime(&loaded.config.process).and_then(|runtime| {
        let result = runtime.block_on(async {
            let stop = CancellationToken::new();
            watch_signals(stop.clone())?;
            serve(loaded.config, RunningProcess { stop, ready_file }).await
        });
        // Blocking calls on a disk or a resolver that hangs must not keep the process.
        runtime.shutdown_background();
        result
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn build_runtime(process: &ProcessSettings) -> anyhow::Result<tokio::runtime::Runtime> {
    // `drain_for` is the business of what drains.
    let ProcessSettings {
        threads,
        drain_for: _,
        admin_connections_max: _,
        admin_per_address_max: _,
        admin_deadline: _,
    } = process;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_name("verbs3");
    if *threads > 0 {
        builder.worker_threads(usize::from(*threads));
    }
    builder.build().context("can't start threads; raise the process's thread limit")
}

/// The first SIGTERM or SIGINT cancels `stop`; the second ends the process. The task lives as long
/// as the process.
fn watch_signals(stop: CancellationToken) -> anyhow::Result<()> {
    let listen = |kind| signal(kind).context("can't listen to signals");
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    tokio::spawn(async move {
        recv_either(&mut terminate, &mut interrupt).await;
        tracing::info!(
            "ending: no new requests, those under way may finish; a second signal ends at once"
        );
        stop.cancel();
        recv_either(&mut terminate, &mut interrupt).await;
        tracing::warn!("ended at once by a second signal");
        std::process::exit(i32::from(FAILED));
    });
    Ok(())
}

async fn recv_either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

/// Content of the ready file: where requests are served.
#[derive(Serialize)]
struct ReadyAddresses {
    listen: SocketAddr,
    admin: Option<SocketAddr>,
}

/// Written beside and renamed, so that who waits for the file finds it whole.
fn write_ready(path: &Path, listen: SocketAddr, admin: Option<SocketAddr>) -> std::io::Result<()> {
    let text = serde_json::to_string(&ReadyAddresses { listen, admin })?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, format!("{text}\n"))?;
    std::fs::rename(&beside, path)
}
