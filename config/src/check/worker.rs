//! Checks of `[worker]` and of `[tcp]`.

use super::{CheckFindings, ProcessRole, check_device, check_memory};
use crate::cluster::ClusterSettings;
use crate::problem::suggest_name;
use crate::quantity::{ByteSize, TimePeriod};
use crate::tcp::TcpSettings;
use crate::worker::{
    WorkerFillSettings, WorkerIndexSettings, WorkerLeasesSettings, WorkerNeighboursSettings,
    WorkerSettings, WorkerWritesSettings,
};

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
        weight,
        memory,
        fill,
        disk,
        index,
        writes,
        leases,
        neighbours,
        shm: _,
    } = worker;
    check_place(advertise.as_deref(), zone, findings);
    if weight.is_finite() {
        findings.check_range("worker.weight", *weight, 0.0, 1_000_000.0);
    } else {
        findings.add_error(
            "worker.weight",
            format!("{weight} is not a number that weights can be compared with"),
        );
    }
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
    check_memory("worker.memory", memory, findings);
    check_fill(fill, cluster, findings);
    super::disk::check_disk(disk, findings);
    check_neighbours(neighbours, findings);
    let WorkerIndexSettings { attributes_max, checks_in_flight_max, generation_slots } = index;
    let at = |field: &str| format!("worker.index.{field}");
    findings.check_range(at("attributes_max"), *attributes_max, 1_000, 100_000_000);
    findings.check_range(at("checks_in_flight_max"), *checks_in_flight_max, 1, 65_536);
    findings.check_range(at("generation_slots"), *generation_slots, 1 << 10, 1 << 28);
    let WorkerWritesSettings {
        uncertain_for_max,
        doubt_for,
        doubt_age_max,
        open_max,
        keys_per_message_max,
    } = writes;
    let at = |field: &str| format!("worker.writes.{field}");
    findings.check_range(
        at("uncertain_for_max"),
        *uncertain_for_max,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        at("doubt_for"),
        *doubt_for,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(7 * 86_400),
    );
    findings.check_range(
        at("doubt_age_max"),
        *doubt_age_max,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(at("open_max"), *open_max, 1_000, 10_000_000);
    findings.check_range(at("keys_per_message_max"), *keys_per_message_max, 1, 1000);
    let WorkerLeasesSettings { length, reads_min, quiet_for, leases_max, holders_max } = leases;
    let at = |field: &str| format!("worker.leases.{field}");
    findings.check_range(
        at("length"),
        *length,
        TimePeriod::from_seconds(0),
        TimePeriod::from_seconds(2),
    );
    findings.check_range(at("reads_min"), *reads_min, 1, 1_000_000);
    findings.check_range(
        at("quiet_for"),
        *quiet_for,
        TimePeriod::from_seconds(0),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(at("leases_max"), *leases_max, 1, 10_000_000);
    findings.check_range(at("holders_max"), *holders_max, 1, 1_000_000);
}

fn check_fill(fill: &WorkerFillSettings, cluster: &ClusterSettings, findings: &mut CheckFindings) {
    let WorkerFillSettings {
        reserve,
        in_flight_max,
        queued_max,
        bytes_in_flight_max,
        warms_in_flight_max,
        request_max,
        wait_max,
        unwanted_max,
        read_ahead_max,
        page_idle_max,
    } = fill;
    let at = |field: &str| format!("worker.fill.{field}");
    findings.check_range(at("reserve"), *reserve, 0.0, 0.9);
    findings.check_range(at("in_flight_max"), *in_flight_max, 1, 65_536);
    findings.check_range(at("queued_max"), *queued_max, 1, 1_000_000);
    findings.check_range(at("warms_in_flight_max"), *warms_in_flight_max, 1, 65_536);
    findings.check_range(
        at("bytes_in_flight_max"),
        *bytes_in_flight_max,
        ByteSize::from_mib(1),
        ByteSize(1 << 40),
    );
    findings.check_range(
        at("request_max"),
        *request_max,
        ByteSize::from_kib(64),
        ByteSize::from_mib(16),
    );
    findings.check_range(
        at("wait_max"),
        *wait_max,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("unwanted_max"),
        *unwanted_max,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(10),
    );
    findings.check_range(
        at("read_ahead_max"),
        *read_ahead_max,
        ByteSize(0),
        ByteSize::from_mib(1024),
    );
    findings.check_range(
        at("page_idle_max"),
        *page_idle_max,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(365 * 86_400),
    );
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
}

fn check_neighbours(neighbours: &WorkerNeighboursSettings, findings: &mut CheckFindings) {
    let WorkerNeighboursSettings {
        asked_for,
        memory,
        wait_max,
        silence_max,
        deadline,
        hot_blocks_max,
        hand_over_rate_max,
    } = neighbours;
    let at = |field: &str| format!("worker.neighbours.{field}");
    findings.check_range(
        at("asked_for"),
        *asked_for,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(7 * 86_400),
    );
    findings.check_range(
        at("memory"),
        *memory,
        ByteSize::from_mib(16),
        ByteSize::from_mib(64 << 10),
    );
    findings.check_range(
        at("wait_max"),
        *wait_max,
        TimePeriod::from_millis(1),
        TimePeriod::from_seconds(10),
    );
    findings.check_range(
        at("silence_max"),
        *silence_max,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(10),
    );
    findings.check_range(
        at("deadline"),
        *deadline,
        TimePeriod::from_millis(50),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(at("hot_blocks_max"), *hot_blocks_max, 1, 10_000_000);
    findings.check_range(
        at("hand_over_rate_max"),
        *hand_over_rate_max,
        ByteSize::from_mib(1),
        ByteSize::from_mib(64 << 10),
    );
}

pub(super) fn check_tcp(tcp: &TcpSettings, findings: &mut CheckFindings) {
    let TcpSettings {
        bind_device,
        bind_address: _,
        connect_deadline,
        calls_in_flight_max,
        frame_max,
        write_queue_max,
        cancel_ack_deadline,
        keepalive_idle,
        keepalive_interval,
        send_stall_max,
        connections_max,
        handshakes_max,
        handshakes_per_address_max,
    } = tcp;
    let at = |field: &str| format!("tcp.{field}");
    check_device("tcp.bind_device", bind_device.as_deref(), findings);
    findings.check_range(
        at("connect_deadline"),
        *connect_deadline,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(at("calls_in_flight_max"), *calls_in_flight_max, 1, 65_536);
    findings.check_range(
        at("frame_max"),
        *frame_max,
        ByteSize::from_kib(16),
        ByteSize::from_mib(1),
    );
    findings.check_range(
        at("write_queue_max"),
        *write_queue_max,
        ByteSize::from_mib(1),
        ByteSize::from_mib(256),
    );
    findings.check_range(
        at("cancel_ack_deadline"),
        *cancel_ack_deadline,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("keepalive_idle"),
        *keepalive_idle,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        at("keepalive_interval"),
        *keepalive_interval,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("send_stall_max"),
        *send_stall_max,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(600),
    );
    findings.check_range(at("connections_max"), *connections_max, 1, 1_000_000);
    findings.check_range(at("handshakes_max"), *handshakes_max, 1, 65_536);
    findings.check_range(at("handshakes_per_address_max"), *handshakes_per_address_max, 1, 65_536);
}

fn check_place(advertise: Option<&str>, zone: &str, findings: &mut CheckFindings) {
    if let Some(address) = advertise
        && address
            .rsplit_once(':')
            .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().unwrap_or(0) == 0)
    {
        findings.add_error("worker.advertise", format!("{address:?} is not host:port"));
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
