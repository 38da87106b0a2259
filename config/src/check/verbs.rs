//! Checks of `[verbs]`, and of what it shares with the other ways to a peer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use verbs3_cache_worker::WorkerSettings;
use verbs3_gateway::GatewaySettings;
use verbs3_rdma::rails::RailSubnet;
use verbs3_rdma::settings::{ShmSettings, VerbsMode, VerbsSettings};
use verbs3_settings::CheckFindings;

/// What a welcome has room for; more than any host has.
const RAILS_MAX: usize = 32;

/// What fits a `sockaddr_un` with its final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

pub(super) fn check_verbs(
    verbs: &VerbsSettings,
    worker: &WorkerSettings,
    gateway: &GatewaySettings,
    findings: &mut CheckFindings,
) {
    let VerbsSettings { mode, rails, port, path_mtu_max, poll_cpus, .. } = verbs;
    let at = |field: &str| format!("verbs.{field}");
    if let Some(bytes) = path_mtu_max.filter(|bytes| ![256, 512, 1024, 2048, 4096].contains(bytes))
    {
        findings.add_error(
            at("path_mtu_max"),
            format!("{bytes} is no path MTU: 256, 512, 1024, 2048 or 4096"),
        );
    }
    // CPU_SETSIZE of Linux.
    if let Some(cpu) = poll_cpus.iter().find(|&&cpu| cpu >= 1024) {
        findings.add_error(
            at("poll_cpus"),
            format!("there is no CPU {cpu}; `nproc` says how many there are"),
        );
    }
    let mut named = BTreeSet::new();
    if let Some(cpu) = poll_cpus.iter().find(|&&cpu| !named.insert(cpu)) {
        findings.add_error(at("poll_cpus"), format!("names CPU {cpu} twice: each has one thread"));
    }
    check_rails(*mode, rails, findings);
    check_rails_except(verbs, findings);
    // On iWARP a queue pair's port is a tcp port.
    for (what, address) in
        [("worker.listen", worker.listen), ("worker.admin_listen", worker.admin_listen)]
    {
        if *mode != VerbsMode::Off && address.port() == *port {
            findings.add_error(
                at("port"),
                format!("{port} is the port of {what} too; give it another one"),
            );
        }
    }
    check_shm(&worker.shm, findings);
    let peers = &gateway.peers;
    if peers.rest_min > peers.rest_max {
        let (min, max) = (peers.rest_min, peers.rest_max);
        findings
            .add_error("gateway.peers.rest_min", format!("{min} is more than rest_max ({max})"));
    }
}

fn check_rails(mode: VerbsMode, rails: &[String], findings: &mut CheckFindings) {
    if rails.is_empty() && mode != VerbsMode::Off {
        findings.add_error("verbs.rails", "is empty; write [\"auto\"], or verbs.mode = \"off\"");
    }
    if rails.len() > RAILS_MAX {
        findings.add_error(
            "verbs.rails",
            format!("{} rails; at most {RAILS_MAX} can be told to peers", rails.len()),
        );
    }
    let mut seen = BTreeSet::new();
    for (index, rail) in rails.iter().enumerate() {
        let path = format!("verbs.rails[{index}]");
        if let Err(why) = check_rail(rail) {
            findings.add_error(path, format!("{rail:?} {why}"));
        } else if rail == "auto" && rails.len() > 1 {
            findings.add_error(path, "\"auto\" stands alone: it takes every rail that there is");
        } else if !seen.insert(rail) {
            findings.add_error(path, format!("{rail:?} is listed twice; a rail is one NIC port"));
        }
    }
}

/// Exceptions from rules. Names need none.
fn check_rails_except(verbs: &VerbsSettings, findings: &mut CheckFindings) {
    let is_rule = |rail: &String| rail == "auto" || RailSubnet::is_notation(rail);
    if !verbs.rails_except.is_empty() && !verbs.rails.iter().any(is_rule) {
        findings.add_error(
            "verbs.rails_except",
            "leaves nothing out: verbs.rails has neither \"auto\" nor a subnet",
        );
    }
    for (index, entry) in verbs.rails_except.iter().enumerate() {
        let path = format!("verbs.rails_except[{index}]");
        if let Err(why) = check_rail(entry) {
            findings.add_error(path, format!("{entry:?} {why}"));
        } else if entry == "auto" {
            findings
                .add_error(path, "\"auto\" would leave out every rail; verbs.mode = \"off\" does");
        } else if verbs.rails.contains(entry) {
            findings.add_error(path, format!("{entry:?} stands in verbs.rails, too"));
        }
    }
}

/// A device with or without a port, a network device, an address, or a subnet.
fn check_rail(rail: &str) -> Result<(), String> {
    if RailSubnet::is_notation(rail) {
        return rail.parse::<RailSubnet>().map(drop).map_err(|error| error.to_string());
    }
    check_rail_name(rail).map_err(str::to_owned)
}

fn check_rail_name(rail: &str) -> Result<(), &'static str> {
    if let Ok(address) = rail.parse::<IpAddr>() {
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        return match address {
            _ if address.is_unspecified() || address.is_multicast() => {
                Err("is no address of one host")
            }
            _ if address.is_loopback() || is_link_local => Err("reaches no other host"),
            _ => Ok(()),
        };
    }
    if rail.eq_ignore_ascii_case("auto") && rail != "auto" {
        return Err("is written \"auto\"");
    }
    let (name, port) = rail.split_once(':').map_or((rail, None), |(name, port)| (name, Some(port)));
    if port.is_some_and(|port| !matches!(port.parse::<u8>(), Ok(1..))) {
        return Err("has no port number between 1 and 255 after the colon");
    }
    let fits = |name: &str| {
        !name.is_empty()
            && name.len() <= 63
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
            && !name.starts_with('.')
    };
    if fits(name) {
        Ok(())
    } else {
        Err("is neither a device (mlx5_0, mlx5_0:1), nor a network device (ib0), nor an address, \
            nor a subnet")
    }
}

fn check_shm(shm: &ShmSettings, findings: &mut CheckFindings) {
    let ShmSettings { socket, .. } = shm;
    let at = |field: &str| format!("worker.shm.{field}");
    if let Some(socket) = socket {
        let fits = socket.to_str().is_some_and(|text| {
            text.len() <= SOCKET_PATH_BYTES_MAX && !text.chars().any(char::is_control)
        });
        if !socket.is_absolute() || !fits {
            findings.add_error(
                at("socket"),
                format!(
                    "{} is no absolute path of at most {SOCKET_PATH_BYTES_MAX} bytes",
                    socket.display()
                ),
            );
        }
    }
}
