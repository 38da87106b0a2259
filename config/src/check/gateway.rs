//! Checks of `[gateway]`.

use super::{CheckFindings, ProcessRole, check_device, check_memory};
use crate::cluster::ClusterSettings;
use crate::gateway::{
    GatewayLimitsSettings, GatewayPeersSettings, GatewayReadSettings, GatewaySettings,
    GatewayTierSettings, GatewayTimeoutsSettings, GatewayTlsSettings,
};
use crate::process::MemorySettings;
use crate::quantity::{ByteSize, TimePeriod};

pub(super) fn check_gateway(
    gateway: &GatewaySettings,
    cluster: &ClusterSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let GatewaySettings {
        listen,
        bind_device,
        admin_listen,
        admin_bind_device,
        domains,
        identities,
        sigv2: _,
        cors_ttl,
        memory,
        tls,
        limits,
        timeouts,
        read,
        tier,
        peers,
    } = gateway;
    if listen == admin_listen && listen.port() != 0 {
        findings.add_error(
            "gateway.admin_listen",
            format!("{admin_listen} is gateway.listen too; give it another port"),
        );
    }
    check_device("gateway.bind_device", bind_device.as_deref(), findings);
    check_device("gateway.admin_bind_device", admin_bind_device.as_deref(), findings);
    for (index, domain) in domains.iter().enumerate() {
        let label = |label: &str| {
            !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        let host = domain.rsplit_once(':').map_or(domain.as_str(), |(host, _)| host);
        if !host.split('.').all(label) {
            findings.add_error(
                format!("gateway.domains[{index}]"),
                format!("{domain:?} is not a host name"),
            );
        }
    }
    if identities.is_none() && roles.contains(&ProcessRole::Gateway) {
        findings.add_error(
            "gateway.identities",
            "is missing; it names the file of access keys and what they may do",
        );
    }
    findings.check_range(
        "gateway.cors_ttl",
        *cors_ttl,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(3600),
    );
    check_memory("gateway.memory", memory, findings);
    check_tls(tls, findings);
    check_limits(limits, findings);
    check_timeouts(timeouts, findings);
    check_read(read, findings);
    // Where worker and gateway share a process, replies need no memory of the gateway.
    if roles.contains(&ProcessRole::Gateway) {
        check_arena(memory, read, tier, findings);
    }
    check_tier(tier, cluster, findings);
    check_peers(peers, findings);
}

fn check_peers(peers: &GatewayPeersSettings, findings: &mut CheckFindings) {
    let GatewayPeersSettings {
        connections_max,
        calls_per_connection,
        idle_max,
        upgrade_wait,
        pause_min,
        pause_max,
        stable_after,
        rest_errors_max,
        rest_window,
        rest_min,
        rest_max,
    } = peers;
    findings.check_range(
        "gateway.peers.upgrade_wait",
        *upgrade_wait,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(60),
    );
    findings.check_range("gateway.peers.rest_errors_max", *rest_errors_max, 1, 1000);
    findings.check_range(
        "gateway.peers.rest_window",
        *rest_window,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        "gateway.peers.rest_min",
        *rest_min,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        "gateway.peers.rest_max",
        *rest_max,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(86_400),
    );
    findings.check_range("gateway.peers.connections_max", *connections_max, 1, 64);
    findings.check_range("gateway.peers.calls_per_connection", *calls_per_connection, 1, 65_536);
    findings.check_range(
        "gateway.peers.idle_max",
        *idle_max,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(86_400),
    );
    findings.check_range(
        "gateway.peers.pause_min",
        *pause_min,
        TimePeriod::from_millis(1),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(
        "gateway.peers.pause_max",
        *pause_max,
        TimePeriod::from_millis(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        "gateway.peers.stable_after",
        *stable_after,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(3600),
    );
    if pause_min > pause_max {
        findings.add_error(
            "gateway.peers.pause_min",
            format!("{pause_min} is more than pause_max ({pause_max})"),
        );
    }
}

fn check_tls(tls: &GatewayTlsSettings, findings: &mut CheckFindings) {
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => {
            findings.add_error("gateway.tls.key", "is missing; a certificate needs its key")
        }
        (None, Some(_)) => {
            findings.add_error("gateway.tls.certificate", "is missing; a key needs its certificate")
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn check_limits(limits: &GatewayLimitsSettings, findings: &mut CheckFindings) {
    let GatewayLimitsSettings {
        connections_max,
        connections_per_address_max,
        unproven_connections_max,
        unproven_per_address_max,
        unproven_requests_max,
        identity_share_percent,
        uploads_per_identity_max,
        upload_rate_min,
        download_rate_min,
        cors_lookups_max,
        requests_in_flight_max,
        header_max,
        bodies_max,
        http2_window,
        http2_answers_max,
        xml_max,
        form_max,
        forms_max,
    } = limits;
    let at = |field: &str| format!("gateway.limits.{field}");
    findings.check_range(at("connections_max"), *connections_max, 1, 1_000_000);
    findings.check_range(
        at("connections_per_address_max"),
        *connections_per_address_max,
        1,
        1_000_000,
    );
    findings.check_range(at("unproven_connections_max"), *unproven_connections_max, 1, 1_000_000);
    findings.check_range(at("unproven_per_address_max"), *unproven_per_address_max, 1, 1_000_000);
    findings.check_range(at("unproven_requests_max"), *unproven_requests_max, 1, 65_536);
    findings.check_range(at("identity_share_percent"), *identity_share_percent, 1, 100);
    findings.check_range(at("uploads_per_identity_max"), *uploads_per_identity_max, 1, 65_536);
    findings.check_range(
        at("upload_rate_min"),
        *upload_rate_min,
        ByteSize(0),
        ByteSize::from_mib(1024),
    );
    findings.check_range(
        at("download_rate_min"),
        *download_rate_min,
        ByteSize(0),
        ByteSize::from_mib(1024),
    );
    findings.check_range(at("cors_lookups_max"), *cors_lookups_max, 1, 1024);
    findings.check_range(at("requests_in_flight_max"), *requests_in_flight_max, 1, 1_000_000);
    findings.check_range(
        at("header_max"),
        *header_max,
        ByteSize::from_kib(8),
        ByteSize::from_mib(1),
    );
    findings.check_range(
        at("bodies_max"),
        *bodies_max,
        ByteSize::from_mib(1),
        ByteSize::from_mib(64 * 1024),
    );
    findings.check_range(
        at("http2_window"),
        *http2_window,
        ByteSize::from_kib(256),
        ByteSize::from_mib(64),
    );
    findings.check_range(
        at("http2_answers_max"),
        *http2_answers_max,
        ByteSize::from_kib(64),
        ByteSize::from_mib(64 * 1024),
    );
    if bodies_max.0 / 2 < xml_max.0 {
        let why = format!(
            "{bodies_max} is less than twice xml_max ({xml_max}): such a document would not fit"
        );
        findings.add_error(at("bodies_max"), why);
    }
    findings.check_range(at("xml_max"), *xml_max, ByteSize::from_kib(64), ByteSize::from_mib(64));
    findings.check_range(
        at("form_max"),
        *form_max,
        ByteSize::from_kib(64),
        ByteSize::from_mib(1024),
    );
    findings.check_range(
        at("forms_max"),
        *forms_max,
        ByteSize::from_kib(64),
        ByteSize::from_mib(64 * 1024),
    );
    if forms_max < form_max {
        findings.add_error(
            at("forms_max"),
            format!("{forms_max} is less than form_max ({form_max}): not even one would fit"),
        );
    }
}

fn check_timeouts(timeouts: &GatewayTimeoutsSettings, findings: &mut CheckFindings) {
    let GatewayTimeoutsSettings {
        header,
        proof,
        tls_handshake,
        body_idle,
        write_stall,
        rate_window,
        cors_lookup,
        clock_skew,
    } = timeouts;
    let (second, hour) = (TimePeriod::from_seconds(1), TimePeriod::from_seconds(3600));
    findings.check_range("gateway.timeouts.header", *header, second, hour);
    findings.check_range("gateway.timeouts.proof", *proof, second, hour);
    findings.check_range(
        "gateway.timeouts.rate_window",
        *rate_window,
        second,
        TimePeriod::from_seconds(600),
    );
    findings.check_range(
        "gateway.timeouts.cors_lookup",
        *cors_lookup,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(
        "gateway.timeouts.tls_handshake",
        *tls_handshake,
        second,
        TimePeriod::from_seconds(300),
    );
    findings.check_range("gateway.timeouts.body_idle", *body_idle, second, hour);
    findings.check_range("gateway.timeouts.write_stall", *write_stall, second, hour);
    findings.check_range(
        "gateway.timeouts.clock_skew",
        *clock_skew,
        second,
        TimePeriod::from_seconds(86_400),
    );
}

fn check_read(read: &GatewayReadSettings, findings: &mut CheckFindings) {
    let GatewayReadSettings {
        window,
        bytes_in_flight_max,
        admission_wait_max,
        bypass_in_flight_max,
        bypass_wait_max,
        resume_wait_max,
        read_ahead_max,
        sequences_max,
    } = read;
    let at = |field: &str| format!("gateway.read.{field}");
    findings.check_range(at("window"), *window, ByteSize::from_mib(1), ByteSize::from_mib(256));
    findings.check_range(
        at("admission_wait_max"),
        *admission_wait_max,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(at("bypass_in_flight_max"), *bypass_in_flight_max, 1, 65_536);
    findings.check_range(
        at("bypass_wait_max"),
        *bypass_wait_max,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("resume_wait_max"),
        *resume_wait_max,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(600),
    );
    findings.check_range(
        at("read_ahead_max"),
        *read_ahead_max,
        ByteSize(0),
        ByteSize::from_mib(1024),
    );
    findings.check_range(at("sequences_max"), *sequences_max, 1, 1_000_000);
    if let Some(bytes) = bytes_in_flight_max.filter(|bytes| window > bytes) {
        findings.add_error(
            at("window"),
            format!(
                "{window} is more than bytes_in_flight_max ({bytes}): no large read could start"
            ),
        );
    }
}

/// What is admitted must fit, or requests would be refused for memory before any bound is reached.
fn check_arena(
    memory: &MemorySettings,
    read: &GatewayReadSettings,
    tier: &GatewayTierSettings,
    findings: &mut CheckFindings,
) {
    let capacity = memory.capacity;
    if let Some(bytes) = read.bytes_in_flight_max.filter(|bytes| *bytes > capacity) {
        findings.add_error("gateway.memory.capacity", format!(
            "{capacity} is too small for gateway.read.bytes_in_flight_max ({bytes}); raise the one or lower the other"
        ));
    }
    for (name, bytes) in [("read.window", read.window), ("tier.open_landing", tier.open_landing)] {
        if bytes > capacity {
            findings.add_error(
                "gateway.memory.capacity",
                format!("{capacity} is too small for one gateway.{name} ({bytes})"),
            );
        }
    }
}

fn check_tier(tier: &GatewayTierSettings, cluster: &ClusterSettings, findings: &mut CheckFindings) {
    let GatewayTierSettings {
        open_landing,
        first_progress,
        idle,
        hedge_after,
        write_uncertain_for,
        announce_deadline,
        report_deadline,
        map_wait,
        relay_after,
        relays_max,
        leases_max,
        failures_max,
        rest_min,
        rest_max,
    } = tier;
    let at = |field: &str| format!("gateway.tier.{field}");
    findings.check_range(
        at("open_landing"),
        *open_landing,
        ByteSize::from_kib(64),
        ByteSize::from_mib(16),
    );
    findings.check_range(
        at("first_progress"),
        *first_progress,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("idle"),
        *idle,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(600),
    );
    findings.check_range(
        at("hedge_after"),
        *hedge_after,
        TimePeriod::from_millis(1),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(
        at("write_uncertain_for"),
        *write_uncertain_for,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        at("announce_deadline"),
        *announce_deadline,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("report_deadline"),
        *report_deadline,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(600),
    );
    findings.check_range(
        at("map_wait"),
        *map_wait,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(30),
    );
    findings.check_range(
        at("relay_after"),
        *relay_after,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(at("relays_max"), *relays_max, 0, 65536);
    findings.check_range(at("leases_max"), *leases_max, 0, 10_000_000);
    findings.check_range(at("failures_max"), *failures_max, 1, 1000);
    findings.check_range(
        at("rest_min"),
        *rest_min,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(600),
    );
    findings.check_range(
        at("rest_max"),
        *rest_max,
        TimePeriod::from_millis(10),
        TimePeriod::from_seconds(3600),
    );
    if *open_landing < cluster.page {
        findings.add_error(
            at("open_landing"),
            format!("{open_landing} is less than one page (cluster.page is {})", cluster.page),
        );
    } else if *open_landing > cluster.block {
        findings.add_error(
            at("open_landing"),
            format!("{open_landing} is more than one block (cluster.block is {})", cluster.block),
        );
    }
    if hedge_after >= first_progress {
        findings.add_error(
            at("hedge_after"),
            format!(
                "{hedge_after} is not shorter than first_progress ({first_progress}): no hedge \
                would ever be sent"
            ),
        );
    }
    // Without coordinators nobody relays.
    if *relays_max > 0 && relay_after >= announce_deadline && !cluster.coordinators.is_empty() {
        findings.add_error(
            at("relay_after"),
            format!(
                "{relay_after} is not shorter than announce_deadline ({announce_deadline}): no \
                announcement would ever be relayed"
            ),
        );
    }
    if rest_min > rest_max {
        findings
            .add_error(at("rest_min"), format!("{rest_min} is more than rest_max ({rest_max})"));
    }
}

/// A home that has died is in the map until its lease is over. `lease`: of the coordinators, as far
/// as this file says it.
pub(super) fn check_announcements(
    tier: &GatewayTierSettings,
    cluster: &ClusterSettings,
    lease: TimePeriod,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let is_late = tier.announce_deadline <= lease;
    if is_late && !cluster.coordinators.is_empty() && roles.contains(&ProcessRole::Gateway) {
        findings.add_warning(
            "gateway.tier.announce_deadline",
            format!(
                "{} is not longer than coordinator.lease ({lease}, as this file has it): writes \
                whose home has died get 503",
                tier.announce_deadline
            ),
        );
    }
}
