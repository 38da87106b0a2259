//! Checks of `[coordinator]`.

use super::{Findings, Role};
use crate::coordinator::{Coordinator, CoordinatorStore, CoordinatorStoreKind};
use crate::quantity::{ByteSize, Period};

pub(super) fn check(coordinator: &Coordinator, roles: &[Role], findings: &mut Findings) {
    let Coordinator {
        listen,
        admin_listen,
        advertise,
        lease,
        outage,
        gather,
        move_for,
        leadership,
        clock_skew,
        workers_max,
        connections_max,
        unproven_connections_max,
        unproven_per_address_max,
        proof_deadline,
        notification_token_file: _,
        wait_max,
        relays_max,
        relays_memory,
        store,
        preload,
        hot,
    } = coordinator;
    if listen == admin_listen && listen.port() != 0 {
        findings.error(
            "coordinator.admin_listen",
            format!("{admin_listen} is coordinator.listen too; choose another port"),
        );
    }
    if let Some(url) = advertise {
        check_url("coordinator.advertise", url, &["http://"], findings);
    }
    let at = |name: &str| format!("coordinator.{name}");
    findings.range(at("lease"), *lease, Period::seconds(1), Period::seconds(300));
    findings.range(at("outage"), *outage, Period::millis(0), Period::seconds(86_400));
    findings.range(at("gather"), *gather, Period::millis(0), Period::seconds(60));
    findings.range(at("move_for"), *move_for, Period::millis(0), Period::seconds(3600));
    findings.range(at("leadership"), *leadership, Period::seconds(2), Period::seconds(300));
    findings.range(at("clock_skew"), *clock_skew, Period::seconds(1), Period::seconds(3600));
    findings.range(at("workers_max"), *workers_max, 1, 4000);
    findings.range(at("connections_max"), *connections_max, 16, 1_000_000);
    findings.range(at("unproven_connections_max"), *unproven_connections_max, 16, 1_000_000);
    findings.range(at("unproven_per_address_max"), *unproven_per_address_max, 1, 1_000_000);
    findings.range(at("proof_deadline"), *proof_deadline, Period::seconds(1), Period::seconds(300));
    findings.range(at("wait_max"), *wait_max, Period::seconds(1), Period::seconds(600));
    findings.range(at("relays_max"), *relays_max, 0, 1_000_000);
    findings.range(at("relays_memory"), *relays_memory, ByteSize::mib(2), ByteSize::mib(1024));
    // Until then nobody leads who could renew a lease. The rest is for noticing, for the election,
    // and for coming back.
    if store.kind == CoordinatorStoreKind::Etcd && lease.0 < 3 * leadership.0 {
        findings.warning(
            at("lease"),
            format!(
                "{lease} is less than three times leadership ({leadership}): when a leader \
                dies, workers lose their leases, and reads ask the store"
            ),
        );
    }
    check_store(store, roles, findings);
    super::preload::check(preload, findings);
    super::hot::check(hot, findings);
}

fn check_store(store: &CoordinatorStore, roles: &[Role], findings: &mut Findings) {
    let CoordinatorStore {
        kind,
        path,
        endpoints,
        prefix,
        ca_file: _,
        certificate,
        key,
        user,
        password_file,
        deadline,
    } = store;
    findings.range(
        "coordinator.store.deadline",
        *deadline,
        Period::millis(100),
        Period::seconds(60),
    );
    if path.as_os_str().is_empty() {
        findings.error("coordinator.store.path", "is empty; name a folder");
    }
    if prefix.trim_matches('/').is_empty() {
        findings
            .error("coordinator.store.prefix", "is empty; each cluster needs a prefix of its own");
    }
    if *kind == CoordinatorStoreKind::Etcd
        && endpoints.is_empty()
        && roles.contains(&Role::Coordinator)
    {
        findings.error(
            "coordinator.store.endpoints",
            "is empty; name etcd's members: [\"http://etcd-0:2379\"]",
        );
    }
    for (index, url) in endpoints.iter().enumerate() {
        check_url(
            &format!("coordinator.store.endpoints[{index}]"),
            url,
            &["http://", "https://"],
            findings,
        );
    }
    let both = [("certificate", certificate.is_some()), ("key", key.is_some())];
    let user = [("user", user.is_some()), ("password_file", password_file.is_some())];
    for [(one, has_one), (other, has_other)] in [both, user] {
        if has_one != has_other {
            let (missing, there) = if has_one { (other, one) } else { (one, other) };
            findings.error(
                format!("coordinator.store.{missing}"),
                format!("is missing, and {there} is set"),
            );
        }
    }
}

/// A URL of scheme, host and port.
pub(super) fn check_url(path: &str, url: &str, schemes: &[&str], findings: &mut Findings) {
    let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return findings
            .error(path, format!("{url:?} does not begin with {}", schemes.join(" or ")));
    };
    let host = rest.trim_end_matches('/');
    let port = host
        .rsplit_once(':')
        .and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>().ok())?);
    if host.contains('/') || port.is_none_or(|port| port == 0) {
        findings.error(path, format!("{url:?} is not {}HOST:PORT", schemes[0]));
    }
}
