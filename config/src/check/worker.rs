//! Checks of `[worker]` and of `[tcp]`.

use super::{Findings, Role, check_device, check_memory};
use crate::cluster::Cluster;
use crate::problem::suggestion;
use crate::quantity::{ByteSize, Period};
use crate::tcp::Tcp;
use crate::worker::{
    Worker, WorkerFill, WorkerIndex, WorkerLeases, WorkerNeighbours, WorkerWrites,
};

pub(super) fn check(worker: &Worker, cluster: &Cluster, roles: &[Role], findings: &mut Findings) {
    // `shm` is checked with the other ways.
    let Worker {
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
        findings.range("worker.weight", *weight, 0.0, 1_000_000.0);
    } else {
        findings.error(
            "worker.weight",
            format!("{weight} is not a number that weights can be compared with"),
        );
    }
    if roles.contains(&Role::Worker) {
        check_worker_id(id, listen.port(), cluster, findings);
    }
    if listen == admin_listen && listen.port() != 0 {
        findings.error(
            "worker.admin_listen",
            format!("{admin_listen} is worker.listen too; give it another port"),
        );
    }
    check_device("worker.admin_bind_device", admin_bind_device.as_deref(), findings);
    check_memory("worker.memory", memory, findings);
    check_fill(fill, cluster, findings);
    super::disk::check(disk, findings);
    check_neighbours(neighbours, findings);
    let WorkerIndex { attributes_max, checks_in_flight_max, generation_slots } = index;
    let at = |field: &str| format!("worker.index.{field}");
    findings.range(at("attributes_max"), *attributes_max, 1_000, 100_000_000);
    findings.range(at("checks_in_flight_max"), *checks_in_flight_max, 1, 65_536);
    findings.range(at("generation_slots"), *generation_slots, 1 << 10, 1 << 28);
    let WorkerWrites {
        uncertain_for_max,
        doubt_for,
        doubt_age_max,
        open_max,
        keys_per_message_max,
    } = writes;
    let at = |field: &str| format!("worker.writes.{field}");
    findings.range(
        at("uncertain_for_max"),
        *uncertain_for_max,
        Period::seconds(1),
        Period::seconds(3600),
    );
    findings.range(at("doubt_for"), *doubt_for, Period::millis(0), Period::seconds(7 * 86_400));
    findings.range(at("doubt_age_max"), *doubt_age_max, Period::millis(10), Period::seconds(3600));
    findings.range(at("open_max"), *open_max, 1_000, 10_000_000);
    findings.range(at("keys_per_message_max"), *keys_per_message_max, 1, 1000);
    let WorkerLeases { length, reads_min, quiet_for, leases_max, holders_max } = leases;
    let at = |field: &str| format!("worker.leases.{field}");
    findings.range(at("length"), *length, Period::seconds(0), Period::seconds(2));
    findings.range(at("reads_min"), *reads_min, 1, 1_000_000);
    findings.range(at("quiet_for"), *quiet_for, Period::seconds(0), Period::seconds(3600));
    findings.range(at("leases_max"), *leases_max, 1, 10_000_000);
    findings.range(at("holders_max"), *holders_max, 1, 1_000_000);
}

fn check_fill(fill: &WorkerFill, cluster: &Cluster, findings: &mut Findings) {
    let WorkerFill {
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
    findings.range(at("reserve"), *reserve, 0.0, 0.9);
    findings.range(at("in_flight_max"), *in_flight_max, 1, 65_536);
    findings.range(at("queued_max"), *queued_max, 1, 1_000_000);
    findings.range(at("warms_in_flight_max"), *warms_in_flight_max, 1, 65_536);
    findings.range(
        at("bytes_in_flight_max"),
        *bytes_in_flight_max,
        ByteSize::mib(1),
        ByteSize(1 << 40),
    );
    findings.range(at("request_max"), *request_max, ByteSize::kib(64), ByteSize::mib(16));
    findings.range(at("wait_max"), *wait_max, Period::millis(10), Period::seconds(300));
    findings.range(at("unwanted_max"), *unwanted_max, Period::millis(0), Period::seconds(10));
    findings.range(at("read_ahead_max"), *read_ahead_max, ByteSize(0), ByteSize::mib(1024));
    findings.range(
        at("page_idle_max"),
        *page_idle_max,
        Period::millis(0),
        Period::seconds(365 * 86_400),
    );
    for (name, bytes) in
        [("request_max", request_max), ("bytes_in_flight_max", bytes_in_flight_max)]
    {
        if *bytes < cluster.page {
            findings.error(
                at(name),
                format!("{bytes} is less than one page (cluster.page is {})", cluster.page),
            );
        }
    }
}

fn check_neighbours(neighbours: &WorkerNeighbours, findings: &mut Findings) {
    let WorkerNeighbours {
        asked_for,
        memory,
        wait_max,
        silence_max,
        deadline,
        hot_blocks_max,
        hand_over_rate_max,
    } = neighbours;
    let at = |field: &str| format!("worker.neighbours.{field}");
    findings.range(at("asked_for"), *asked_for, Period::millis(0), Period::seconds(7 * 86_400));
    findings.range(at("memory"), *memory, ByteSize::mib(16), ByteSize::mib(64 << 10));
    findings.range(at("wait_max"), *wait_max, Period::millis(1), Period::seconds(10));
    findings.range(at("silence_max"), *silence_max, Period::millis(10), Period::seconds(10));
    findings.range(at("deadline"), *deadline, Period::millis(50), Period::seconds(60));
    findings.range(at("hot_blocks_max"), *hot_blocks_max, 1, 10_000_000);
    findings.range(
        at("hand_over_rate_max"),
        *hand_over_rate_max,
        ByteSize::mib(1),
        ByteSize::mib(64 << 10),
    );
}

pub(super) fn check_tcp(tcp: &Tcp, findings: &mut Findings) {
    let Tcp {
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
    findings.range(
        at("connect_deadline"),
        *connect_deadline,
        Period::millis(10),
        Period::seconds(60),
    );
    findings.range(at("calls_in_flight_max"), *calls_in_flight_max, 1, 65_536);
    findings.range(at("frame_max"), *frame_max, ByteSize::kib(16), ByteSize::mib(1));
    findings.range(at("write_queue_max"), *write_queue_max, ByteSize::mib(1), ByteSize::mib(256));
    findings.range(
        at("cancel_ack_deadline"),
        *cancel_ack_deadline,
        Period::millis(100),
        Period::seconds(300),
    );
    findings.range(
        at("keepalive_idle"),
        *keepalive_idle,
        Period::seconds(1),
        Period::seconds(3600),
    );
    findings.range(
        at("keepalive_interval"),
        *keepalive_interval,
        Period::seconds(1),
        Period::seconds(300),
    );
    findings.range(at("send_stall_max"), *send_stall_max, Period::seconds(1), Period::seconds(600));
    findings.range(at("connections_max"), *connections_max, 1, 1_000_000);
    findings.range(at("handshakes_max"), *handshakes_max, 1, 65_536);
    findings.range(at("handshakes_per_address_max"), *handshakes_per_address_max, 1, 65_536);
}

fn check_place(advertise: Option<&str>, zone: &str, findings: &mut Findings) {
    if let Some(address) = advertise
        && address
            .rsplit_once(':')
            .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().unwrap_or(0) == 0)
    {
        findings.error("worker.advertise", format!("{address:?} is not host:port"));
    }
    if zone.len() > 256 || zone.chars().any(char::is_control) {
        findings.error("worker.zone", "is longer than 256 bytes or has control characters");
    }
}

fn check_worker_id(id: &str, port: u16, cluster: &Cluster, findings: &mut Findings) {
    if id.is_empty() {
        return findings.error("worker.id", "is missing; it is this worker's name in the cluster");
    }
    match cluster.workers.iter().find(|worker| worker.id == id) {
        None if cluster.workers.is_empty() => {}
        None => {
            let close = suggestion(id, cluster.workers.iter().map(|worker| worker.id.as_str()));
            findings
                .error("worker.id", format!("cluster.workers has no worker named {id:?}{close}"));
        }
        Some(entry) => {
            let told =
                entry.address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if told.is_some_and(|told| told != port) {
                findings.warning("worker.listen", format!(
                    "listens on port {port}, but cluster.workers sends gateways to {}; right only \
                    if something forwards it",
                    entry.address
                ));
            }
        }
    }
}
