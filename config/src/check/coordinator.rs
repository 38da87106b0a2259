//! Checks of `[coordinator]`.

use super::{CheckFindings, ProcessRole};
use crate::coordinator::{CoordinatorSettings, CoordinatorStoreKind, CoordinatorStoreSettings};
use crate::quantity::{ByteSize, TimePeriod};

pub(super) fn check_coordinator(
    coordinator: &CoordinatorSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let CoordinatorSettings {
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
        findings.add_error(
            "coordinator.admin_listen",
            format!("{admin_listen} is coordinator.listen too; choose another port"),
        );
    }
    if let Some(url) = advertise {
        check_url("coordinator.advertise", url, &["http://"], findings);
    }
    let at = |name: &str| format!("coordinator.{name}");
    findings.check_range(
        at("lease"),
        *lease,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("outage"),
        *outage,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(86_400),
    );
    findings.check_range(
        at("gather"),
        *gather,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(60),
    );
    findings.check_range(
        at("move_for"),
        *move_for,
        TimePeriod::from_millis(0),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(
        at("leadership"),
        *leadership,
        TimePeriod::from_seconds(2),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("clock_skew"),
        *clock_skew,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(3600),
    );
    findings.check_range(at("workers_max"), *workers_max, 1, 4000);
    findings.check_range(at("connections_max"), *connections_max, 16, 1_000_000);
    findings.check_range(at("unproven_connections_max"), *unproven_connections_max, 16, 1_000_000);
    findings.check_range(at("unproven_per_address_max"), *unproven_per_address_max, 1, 1_000_000);
    findings.check_range(
        at("proof_deadline"),
        *proof_deadline,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(300),
    );
    findings.check_range(
        at("wait_max"),
        *wait_max,
        TimePeriod::from_seconds(1),
        TimePeriod::from_seconds(600),
    );
    findings.check_range(at("relays_max"), *relays_max, 0, 1_000_000);
    findings.check_range(
        at("relays_memory"),
        *relays_memory,
        ByteSize::from_mib(2),
        ByteSize::from_mib(1024),
    );
    // Until then nobody leads who could renew a lease. The rest is for noticing, for the election,
    // and for coming back.
    if store.kind == CoordinatorStoreKind::Etcd && lease.0 < 3 * leadership.0 {
        findings.add_warning(
            at("lease"),
            format!(
                "{lease} is less than three times leadership ({leadership}): when a leader \
                dies, workers lose their leases, and reads ask the store"
            ),
        );
    }
    check_store(store, roles, findings);
    super::preload::check_preload(preload, findings);
    super::hot::check_hot(hot, findings);
}

fn check_store(
    store: &CoordinatorStoreSettings,
    roles: &[ProcessRole],
    findings: &mut CheckFindings,
) {
    let CoordinatorStoreSettings {
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
    findings.check_range(
        "coordinator.store.deadline",
        *deadline,
        TimePeriod::from_millis(100),
        TimePeriod::from_seconds(60),
    );
    if path.as_os_str().is_empty() {
        findings.add_error("coordinator.store.path", "is empty; name a folder");
    }
    if prefix.trim_matches('/').is_empty() {
        findings.add_error(
            "coordinator.store.prefix",
            "is empty; each cluster needs a prefix of its own",
        );
    }
    if *kind == CoordinatorStoreKind::Etcd
        && endpoints.is_empty()
        && roles.contains(&ProcessRole::Coordinator)
    {
        findings.add_error(
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
            findings.add_error(
                format!("coordinator.store.{missing}"),
                format!("is missing, and {there} is set"),
            );
        }
    }
}

/// A URL of scheme, host and port.
pub(super) fn check_url(path: &str, url: &str, schemes: &[&str], findings: &mut CheckFindings) {
    let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return findings
            .add_error(path, format!("{url:?} does not begin with {}", schemes.join(" or ")));
    };
    let host = rest.trim_end_matches('/');
    let port = host
        .rsplit_once(':')
        .and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>().ok())?);
    if host.contains('/') || port.is_none_or(|port| port == 0) {
        findings.add_error(path, format!("{url:?} is not {}HOST:PORT", schemes[0]));
    }
}
