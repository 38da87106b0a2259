//! `verbs3 doctor`: looks at this host, and at the way to another one. What is judged, and how, is
//! `rdma`'s; this prints it.

mod acceptance;
mod fleet;
mod json;
mod peer;
mod remote_report;
mod text;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use verbs3_config::{RootSettings, load_config};
use verbs3_doctor::{
    DeviceAddresses, HostDescription, HostFinding, HostRequirements, PeerProbe, PortState,
    ProbeOptions, examine_host, judge_peer, list_addresses, probe_peer, without_left_out_ports,
    worst_severity,
};
use verbs3_rdma::verbs::{NoRdma, active_mtu, probe_devices};

use crate::arguments::config::RoleArgument;
use crate::arguments::doctor::DoctorArguments;
use crate::process::MISCONFIGURED;

/// Everything that is printed.
struct DoctorReport {
    host: HostDescription,
    findings: Vec<HostFinding>,
    peer: Option<PeerProbe>,
}

/// Status 0: all well. 1: warnings. 2: failures, or a configuration that can't be used.
pub fn run_doctor(arguments: &DoctorArguments) -> ExitCode {
    if let Some(hosts) = &arguments.fleet.fleet {
        return fleet::run_fleet(hosts, arguments);
    }
    let config = match load_configuration(arguments) {
        Ok(config) => config,
        Err(complaint) => {
            eprintln!("{complaint}");
            return ExitCode::from(MISCONFIGURED);
        }
    };
    let needs =
        config.as_ref().map(|config| host_needs(config, &arguments.role)).unwrap_or_default();
    let config = config.unwrap_or_default();
    let target =
        match arguments.peer.as_deref().map(|peer| peer::parse_target(peer, &config)).transpose() {
            Ok(target) => target,
            Err(complaint) => {
                eprintln!("--peer {complaint}");
                return ExitCode::from(MISCONFIGURED);
            }
        };
    let host = inspect_host(&arguments.root);
    let mut findings = examine_host(&host, &needs);
    let host = without_left_out_ports(&host, &needs.verbs);
    let peer = target.map(|(name, port)| probe_peer(&host, &name, port, &probe_options(&config)));
    if let Some(peer) = &peer {
        findings.extend(judge_peer(&host, peer));
    }
    let status = worst_severity(&findings).exit_status();
    let report = DoctorReport { host, findings, peer };
    if arguments.acceptance.acceptance.is_some() {
        return acceptance::run_acceptance(&arguments.acceptance, &report);
    }
    let printed =
        if arguments.json { json::render_json(&report) } else { text::render_text(&report) };
    // Whoever closed the pipe has read enough; the status still says it.
    let _ = std::io::stdout().write_all(printed.as_bytes());
    ExitCode::from(status)
}

fn load_configuration(arguments: &DoctorArguments) -> Result<Option<RootSettings>, String> {
    let Some(layers) = arguments.config_layers() else { return Ok(None) };
    let loaded = load_config(&layers, &arguments.process_roles())
        .map_err(|problems| problems.to_string())?;
    Ok(Some(loaded.config))
}

/// The arenas of the roles asked for, or else of those whose required settings are there, and the
/// settings of verbs.
fn host_needs(config: &RootSettings, roles: &[RoleArgument]) -> HostRequirements {
    let has = |role: RoleArgument, complete: bool| {
        roles.contains(&role) || (roles.is_empty() && complete)
    };
    let mut arenas = Vec::new();
    if has(RoleArgument::Worker, !config.worker.id.is_empty()) || roles.contains(&RoleArgument::Dev)
    {
        arenas.push(("worker.memory.capacity".to_owned(), config.worker.memory.capacity.0));
    }
    if has(RoleArgument::Gateway, config.gateway.identities.is_some()) {
        arenas.push(("gateway.memory.capacity".to_owned(), config.gateway.memory.capacity.0));
    }
    HostRequirements { arenas, verbs: config.verbs.clone() }
}

/// A root other than this host's has neither its addresses nor its libraries.
fn inspect_host(root: &Path) -> HostDescription {
    if root != Path::new("/") {
        return HostDescription::read(root, &DeviceAddresses::new());
    }
    let mut host = HostDescription::read(root, &list_addresses().unwrap_or_default());
    host.listed = Some(match probe_devices() {
        Ok(devices) => Ok(devices.into_iter().map(|device| device.name).collect()),
        // The libraries' absence is found by itself, with its remedy.
        Err(NoRdma::NoLibrary) => return host,
        Err(reason) => Err(reason.to_string()),
    });
    for device in &mut host.devices {
        for port in device.ports.iter_mut().filter(|port| port.state == PortState::Active) {
            port.active_mtu =
                u8::try_from(port.number).ok().and_then(|number| active_mtu(&device.name, number));
        }
    }
    host
}

fn probe_options(config: &RootSettings) -> ProbeOptions {
    ProbeOptions {
        deadline: config.tcp.connect_deadline.0,
        bind_device: config.tcp.bind_device.clone(),
        bind_address: config.tcp.bind_address,
    }
}

/// Returns an error with its causes in one line.
fn explain_error(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
