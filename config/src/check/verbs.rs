//! Checks of `[verbs]`, and of what it shares with the other ways to a peer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::CheckFindings;
use crate::gateway::GatewaySettings;
use crate::quantity::{ByteSize, TimePeriod};
use crate::verbs::{VerbsMode, VerbsSettings};
use crate::worker::{WorkerSettings, WorkerShmSettings};

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
    let VerbsSettings {
        mode,
        rails,
        port,
        connections_max,
        handshakes_max,
        handshakes_per_address_max,
        receive_count,
        receive_buffer,
        shared_receive: _,
        shared_receives,
        windows: _,
        send_queue,
        inline_max,
        ack_timeout,
        retry_count,
        rnr_retry,
        path_mtu_max,
        tos: _,
        busy_poll,
        poll_cpus,
        heartbeat,
        reopen_max,
    } = verbs;
    let at = |field: &str| format!("verbs.{field}");
    findings.check_range(at("port"), *port, 1, 65_535);
    findings.check_range(at("connections_max"), *connections_max, 1, 1_000_000);
    findings.check_range(at("handshakes_max"), *handshakes_max, 1, 65_536);
    findings.check_range(at("handshakes_per_address_max"), *handshakes_per_address_max, 1, 65_536);
    findings.check_range(at("receive_count"), *receive_count, 4, 4096);
    findings.check_range(
        at("receive_buffer"),
        *receive_buffer,
        ByteSize::from_kib(1),
        ByteSize::from_kib(64),
    );
    findings.check_range(at("shared_receives"), *shared_receives, 64, 32_768);
    findings.check_range(at("send_queue"), *send_queue, 16, 16_384);
    findings.check_range(at("inline_max"), *inline_max, ByteSize(0), ByteSize::from_kib(1));
    findings.check_range(at("ack_timeout"), *ack_timeout, 0, 31);
    findings.check_range(at("retry_count"), *retry_count, 0, 7);
    findings.check_range(at("rnr_retry"), *rnr_retry, 0, 7);
    findings.check_range(
        at("busy_poll"),
        *busy_poll,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(1),
    );
    findings.check_range(
        at("reopen_max"),
        *reopen_max,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        at("heartbeat"),
        *heartbeat,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(600),
    );
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
    check_rails(*mode, rails, findings);
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

/// A device with or without a port, a network device, or an address.
fn check_rail(rail: &str) -> Result<(), &'static str> {
    if let Ok(address) = rail.parse::<IpAddr>() {
        let nobody = address.is_unspecified() || address.is_multicast();
        return if nobody { Err("is no address of one host") } else { Ok(()) };
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
        Err("is neither a device (mlx5_0, mlx5_0:1), nor a network device (ib0), nor an address")
    }
}

fn check_shm(shm: &WorkerShmSettings, findings: &mut CheckFindings) {
    let WorkerShmSettings { enabled: _, socket, connections_max, pins_max, pinned_max, copy_max } =
        shm;
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
    findings.check_range(at("connections_max"), *connections_max, 1, 4096);
    findings.check_range(at("pins_max"), *pins_max, 1, 1_000_000);
    findings.check_range(at("pinned_max"), *pinned_max, ByteSize::from_mib(1), ByteSize(1 << 40));
    findings.check_range(at("copy_max"), *copy_max, ByteSize(0), ByteSize::from_mib(16));
}
