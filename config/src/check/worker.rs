//! Checks of `[worker]`.

use std::net::SocketAddr;

use super::check_device;
use crate::cluster::ClusterSettings;
use crate::process_role::ProcessRole;
use verbs3_cache_worker::{WorkerFillSettings, WorkerSettings};
use verbs3_settings::{ByteSize, CheckFindings, suggest_name};

/// Least part of a page: the least cell of the arena, and the page of the CPU.
const PART_MIN: ByteSize = ByteSize(4 << 10);

pub(super) fn check_worker(
    worker: &WorkerSettings,
    cluster: &ClusterSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    // `shm` is checked with the other ways.
    let WorkerSettings {
        id,
        listen,
        admin_listen,
        admin_bind_device,
        advertise,
        zone,
        fill,
        disk,
        ..
    } = worker;
    check_place(advertise.as_deref(), zone, findings);
    if roles.contains(&ProcessRole::Worker) {
        check_worker_id(id, listen.port(), cluster, findings);
    }
    if listen == admin_listen && listen.port() != 0 {
        findings.add_error(
            "worker.admin_listen",
            format!("{admin_listen} is worker.listen too; give it another port"),
        );
    }
    check_device("worker.admin_bind_device", admin_bind_device.as_deref(), findings);
    check_fill(fill, cluster, findings);
    super::disk::check_disk(disk, findings);
}

fn check_fill(fill: &WorkerFillSettings, cluster: &ClusterSettings, findings: &mut CheckFindings) {
    let WorkerFillSettings { bytes_in_flight_max, request_max, part, .. } = fill;
    let at = |field: &str| format!("worker.fill.{field}");
    for (name, bytes) in
        [("request_max", request_max), ("bytes_in_flight_max", bytes_in_flight_max)]
    {
        if *bytes < cluster.page {
            findings.add_error(
                at(name),
                format!("{bytes} is less than one page (cluster.page is {})", cluster.page),
            );
        }
    }
    if part.0 > 0 && (!part.0.is_power_of_two() || *part < PART_MIN) {
        findings.add_error(
            at("part"),
            format!("{part} is not a power of two from {PART_MIN} on; \"0B\" fills whole pages"),
        );
    } else if *part >= cluster.page {
        findings.add_warning(
            at("part"),
            format!(
                "{part} is no less than a page (cluster.page is {}): of no effect",
                cluster.page
            ),
        );
    }
}

fn check_place(advertise: Option<&str>, zone: &str, findings: &mut CheckFindings) {
    if let Some(address) = advertise
        && address
            .rsplit_once(':')
            .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().unwrap_or(0) == 0)
    {
        findings.add_error("worker.advertise", format!("{address:?} is not host:port"));
    }
    let is_nowhere = |address: &str| {
        address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified())
    };
    if let Some(address) = advertise.filter(|address| is_nowhere(address)) {
        findings.add_error(
            "worker.advertise",
            format!("{address:?} is every address of a host; name the one that others reach"),
        );
    }
    if zone.len() > 256 || zone.chars().any(char::is_control) {
        findings.add_error("worker.zone", "is longer than 256 bytes or has control characters");
    }
}

fn check_worker_id(id: &str, port: u16, cluster: &ClusterSettings, findings: &mut CheckFindings) {
    if id.is_empty() {
        return findings
            .add_error("worker.id", "is missing; it is this worker's name in the cluster");
    }
    match cluster.workers.iter().find(|worker| worker.id == id) {
        None if cluster.workers.is_empty() => {}
        None => {
            let close = suggest_name(id, cluster.workers.iter().map(|worker| worker.id.as_str()));
            findings.add_error(
                "worker.id",
                format!("cluster.workers has no worker named {id:?}{close}"),
            );
        }
        Some(entry) => {
            let told =
                entry.address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if told.is_some_and(|told| told != port) {
                findings.add_warning("worker.listen", format!(
                    "listens on port {port}, but cluster.workers sends gateways to {}; right only \
                    if something forwards it",
                    entry.address
                ));
            }
        }
    }
}
