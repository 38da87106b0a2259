//! Checks of `[coordinator]`.

use crate::process_role::ProcessRole;
use verbs3_coordinator::{CoordinatorSettings, CoordinatorStoreKind, CoordinatorStoreSettings};
use verbs3_settings::CheckFindings;

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
        leadership,
        store,
        preload,
        ..
    } = coordinator;
    if listen == admin_listen && listen.port() != 0 {
        findings.add_error(
            "coordinator.admin_listen",
            format!("{admin_listen} is coordinator.listen too; choose another port"),
        );
    }
    if let Some(url) = advertise {
        check_url("coordinator.advertise", url, &["http://", "https://"], findings);
    }
    // Until then nobody leads who could renew a lease. The rest is for noticing, for the election,
    // and for coming back.
    if store.kind == CoordinatorStoreKind::Etcd && lease.0 < 3 * leadership.0 {
        findings.add_warning(
            "coordinator.lease",
            format!(
                "{lease} is less than three times leadership ({leadership}): when a leader \
                dies, workers lose their leases, and reads ask the store"
            ),
        );
    }
    check_store(store, roles, findings);
    if preload.failures.as_os_str().is_empty() {
        findings.add_error("coordinator.preload.failures", "is empty; name a folder");
    }
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
        certificate,
        key,
        user,
        password_file,
        ..
    } = store;
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
    // First of all: the messages below show the URL.
    if url.contains('@') {
        return findings.add_error(path, "has a user in it; leave out what is before the @");
    }
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
