//! Checks of `[gateway]` and `[worker]`.

use super::{Findings, Role, check_memory};
use crate::cluster::Cluster;
use crate::gateway::{Gateway, GatewayLimits, GatewayTier, GatewayTimeouts, GatewayTls};
use crate::problem::suggestion;
use crate::quantity::{ByteSize, Period};
use crate::tcp::Tcp;
use crate::worker::{Worker, WorkerFill, WorkerIndex, WorkerWrites};

pub(super) fn check_gateway(gateway: &Gateway, roles: &[Role], findings: &mut Findings) {
    let Gateway { listen, admin_listen, domains, identities, memory, tls, limits, timeouts, tier } = gateway;
    if listen == admin_listen && listen.port() != 0 {
        findings.error("gateway.admin_listen", format!("{admin_listen} is gateway.listen too; give it another port"));
    }
    for (index, domain) in domains.iter().enumerate() {
        let label = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let host = domain.rsplit_once(':').map_or(domain.as_str(), |(host, _)| host);
        if !host.split('.').all(label) {
            findings.error(format!("gateway.domains[{index}]"), format!("{domain:?} is not a host name"));
        }
    }
    match identities {
        Some(file) => findings.readable("gateway.identities", file),
        None if roles.contains(&Role::Gateway) => {
            findings.error("gateway.identities", "is missing; it names the file of access keys and what they may do");
        }
        None => {}
    }
    check_memory("gateway.memory", memory, findings);
    check_tls(tls, findings);
    check_limits(limits, findings);
    // Where worker and gateway share a process, replies need no memory of the gateway.
    if roles.contains(&Role::Gateway) {
        check_arena(gateway, findings);
    }
    let GatewayTimeouts { header, idle_body, clock_skew } = timeouts;
    findings.range("gateway.timeouts.header", *header, Period::seconds(1), Period::seconds(600));
    findings.range("gateway.timeouts.idle_body", *idle_body, Period::seconds(1), Period::seconds(3600));
    findings.range("gateway.timeouts.clock_skew", *clock_skew, Period::seconds(1), Period::seconds(86_400));
    check_tier(tier, findings);
}

fn check_tls(tls: &GatewayTls, findings: &mut Findings) {
    match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            findings.readable("gateway.tls.certificate", certificate);
            findings.readable("gateway.tls.key", key);
        }
        (Some(_), None) => findings.error("gateway.tls.key", "is missing; a certificate needs its key"),
        (None, Some(_)) => findings.error("gateway.tls.certificate", "is missing; a key needs its certificate"),
        (None, None) => {}
    }
}

fn check_limits(limits: &GatewayLimits, findings: &mut Findings) {
    let GatewayLimits {
        connections_max,
        requests_in_flight_max,
        bytes_in_flight_max,
        window,
        open_landing,
        aws_chunk_max,
        header_max,
        headers_max,
    } = limits;
    let at = |field: &str| format!("gateway.limits.{field}");
    findings.range(at("connections_max"), *connections_max, 1, 1_000_000);
    findings.range(at("requests_in_flight_max"), *requests_in_flight_max, 1, 1_000_000);
    findings.range(at("window"), *window, ByteSize::mib(1), ByteSize::mib(256));
    findings.range(at("open_landing"), *open_landing, ByteSize::kib(4), ByteSize::mib(16));
    findings.range(at("aws_chunk_max"), *aws_chunk_max, ByteSize::kib(64), ByteSize::mib(64));
    findings.range(at("header_max"), *header_max, ByteSize::kib(8), ByteSize::mib(1));
    findings.range(at("headers_max"), *headers_max, 16, 1024);
    let Some(bytes_in_flight_max) = bytes_in_flight_max else { return };
    for (name, bytes) in [("window", window), ("open_landing", open_landing), ("aws_chunk_max", aws_chunk_max)] {
        if bytes > bytes_in_flight_max {
            findings.error(
                at(name),
                format!("{bytes} is more than bytes_in_flight_max ({bytes_in_flight_max}): no request could start"),
            );
        }
    }
}

/// What is admitted must fit, or requests would be refused for memory before any bound is reached.
fn check_arena(gateway: &Gateway, findings: &mut Findings) {
    let GatewayLimits { bytes_in_flight_max, window, .. } = &gateway.limits;
    let capacity = gateway.memory.capacity;
    if let Some(bytes) = bytes_in_flight_max.filter(|bytes| *bytes > capacity) {
        findings.error("gateway.memory.capacity", format!(
            "{capacity} is too small for gateway.limits.bytes_in_flight_max ({bytes}); raise the one or lower the other"
        ));
    }
    if *window > capacity {
        findings.error(
            "gateway.memory.capacity",
            format!("{capacity} is too small for one gateway.limits.window ({window})"),
        );
    }
}

fn check_tier(tier: &GatewayTier, findings: &mut Findings) {
    let GatewayTier {
        connect_deadline,
        reply_deadline,
        hedge_after,
        write_uncertain_for,
        connections_per_worker,
        bypass_in_flight_max,
    } = tier;
    let at = |field: &str| format!("gateway.tier.{field}");
    findings.range(at("connect_deadline"), *connect_deadline, Period::millis(10), Period::seconds(60));
    findings.range(at("reply_deadline"), *reply_deadline, Period::millis(10), Period::seconds(300));
    findings.range(at("hedge_after"), *hedge_after, Period::millis(1), Period::seconds(60));
    findings.range(at("write_uncertain_for"), *write_uncertain_for, Period::seconds(1), Period::seconds(3600));
    findings.range(at("connections_per_worker"), *connections_per_worker, 1, 64);
    findings.range(at("bypass_in_flight_max"), *bypass_in_flight_max, 1, 65_536);
    if hedge_after >= reply_deadline {
        findings.error(
            at("hedge_after"),
            format!("{hedge_after} is not shorter than reply_deadline ({reply_deadline}): no hedge would ever be sent"),
        );
    }
}

pub(super) fn check_worker(worker: &Worker, cluster: &Cluster, roles: &[Role], findings: &mut Findings) {
    let Worker { id, listen, admin_listen, memory, fill, index, writes } = worker;
    if roles.contains(&Role::Worker) {
        check_worker_id(id, listen.port(), cluster, findings);
    }
    if listen == admin_listen && listen.port() != 0 {
        findings.error("worker.admin_listen", format!("{admin_listen} is worker.listen too; give it another port"));
    }
    check_memory("worker.memory", memory, findings);
    check_fill(fill, cluster, findings);
    let WorkerIndex { attributes_max, checks_in_flight_max, generation_slots } = index;
    let at = |field: &str| format!("worker.index.{field}");
    findings.range(at("attributes_max"), *attributes_max, 1_000, 100_000_000);
    findings.range(at("checks_in_flight_max"), *checks_in_flight_max, 1, 65_536);
    findings.range(at("generation_slots"), *generation_slots, 1 << 10, 1 << 28);
    let WorkerWrites { uncertain_for_max, open_max, keys_per_message_max } = writes;
    let at = |field: &str| format!("worker.writes.{field}");
    findings.range(at("uncertain_for_max"), *uncertain_for_max, Period::seconds(1), Period::seconds(3600));
    findings.range(at("open_max"), *open_max, 1_000, 10_000_000);
    findings.range(at("keys_per_message_max"), *keys_per_message_max, 1, 1000);
}

fn check_fill(fill: &WorkerFill, cluster: &Cluster, findings: &mut Findings) {
    let WorkerFill {
        reserve,
        in_flight_max,
        queued_max,
        bytes_in_flight_max,
        request_max,
        wait_max,
        read_ahead_max,
        page_idle_max,
    } = fill;
    let at = |field: &str| format!("worker.fill.{field}");
    findings.range(at("reserve"), *reserve, 0.0, 0.9);
    findings.range(at("in_flight_max"), *in_flight_max, 1, 65_536);
    findings.range(at("queued_max"), *queued_max, 1, 1_000_000);
    findings.range(at("bytes_in_flight_max"), *bytes_in_flight_max, ByteSize::mib(1), ByteSize(1 << 40));
    findings.range(at("request_max"), *request_max, ByteSize::kib(64), ByteSize::mib(16));
    findings.range(at("wait_max"), *wait_max, Period::millis(10), Period::seconds(300));
    findings.range(at("read_ahead_max"), *read_ahead_max, ByteSize(0), ByteSize::mib(1024));
    findings.range(at("page_idle_max"), *page_idle_max, Period::millis(0), Period::seconds(365 * 86_400));
    for (name, bytes) in [("request_max", request_max), ("bytes_in_flight_max", bytes_in_flight_max)] {
        if *bytes < cluster.page {
            findings.error(at(name), format!("{bytes} is less than one page (cluster.page is {})", cluster.page));
        }
    }
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
    } = tcp;
    let at = |field: &str| format!("tcp.{field}");
    // IFNAMSIZ of Linux is 16 with the closing zero.
    if bind_device.as_ref().is_some_and(|device| device.is_empty() || device.len() > 15) {
        findings.error(at("bind_device"), "is not the name of a network device; `ip link` lists them");
    }
    findings.range(at("connect_deadline"), *connect_deadline, Period::millis(10), Period::seconds(60));
    findings.range(at("calls_in_flight_max"), *calls_in_flight_max, 1, 65_536);
    findings.range(at("frame_max"), *frame_max, ByteSize::kib(16), ByteSize::mib(1));
    findings.range(at("write_queue_max"), *write_queue_max, ByteSize::mib(1), ByteSize::mib(256));
    findings.range(at("cancel_ack_deadline"), *cancel_ack_deadline, Period::millis(100), Period::seconds(300));
    findings.range(at("keepalive_idle"), *keepalive_idle, Period::seconds(1), Period::seconds(3600));
    findings.range(at("keepalive_interval"), *keepalive_interval, Period::seconds(1), Period::seconds(300));
    findings.range(at("send_stall_max"), *send_stall_max, Period::seconds(1), Period::seconds(600));
    findings.range(at("connections_max"), *connections_max, 1, 1_000_000);
    findings.range(at("handshakes_max"), *handshakes_max, 1, 65_536);
}

fn check_worker_id(id: &str, port: u16, cluster: &Cluster, findings: &mut Findings) {
    if id.is_empty() {
        return findings.error("worker.id", "is missing; it is this worker's name in cluster.workers");
    }
    match cluster.workers.iter().find(|worker| worker.id == id) {
        None if cluster.workers.is_empty() => {}
        None => {
            let close = suggestion(id, cluster.workers.iter().map(|worker| worker.id.as_str()));
            findings.error("worker.id", format!("cluster.workers has no worker named {id:?}{close}"));
        }
        Some(entry) => {
            let told = entry.address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if told.is_some_and(|told| told != port) {
                findings.warning("worker.listen", format!(
                    "listens on port {port}, but cluster.workers sends gateways to {}; right only if something forwards it",
                    entry.address
                ));
            }
        }
    }
}
