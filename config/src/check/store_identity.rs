//! Whether two `[[ufs]]` are one store. An object's identity begins with the name of its UFS: under
//! two names one object has two homes, and writes through one name are not told to readers through
//! the other.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use verbs3_settings::CheckFindings;
use verbs3_ufs::{StoreLocation, UfsKind, UfsSettings};

pub(super) fn check_store_identity(list: &[UfsSettings], findings: &mut CheckFindings) {
    let mut known: BTreeMap<(StoreLocation, &str), (usize, &str)> = BTreeMap::new();
    // The folder of a local store is locked by whoever opens it.
    for (index, ufs) in list.iter().enumerate().filter(|(_, ufs)| ufs.kind == UfsKind::S3) {
        // A `store_id` adds to what the endpoint tells: two of them do not make one store two.
        let endpoint = if ufs.endpoint.is_some() { "endpoint" } else { "region" };
        let mut places = vec![(ufs.endpoint_location(), endpoint)];
        if !ufs.store_id.is_empty() {
            places.push((ufs.store_location(), "store_id"));
        }
        for (place, path) in places {
            match known.entry((place, ufs.namespace.as_str())) {
                Entry::Vacant(vacant) => drop(vacant.insert((index, path))),
                Entry::Occupied(first) => {
                    let (first, other) = first.get();
                    findings.add_error(
                        format!("ufs[{index}].{path}"),
                        format!(
                            "is the store of ufs[{first}].{other} too: an object would have two identities, and readers of one would miss writes of \
                             the other; keep one [[ufs]], or set ufs[{index}].namespace if the two never show the same bucket"
                        ),
                    );
                    break;
                }
            }
        }
    }
}

/// A gateway that is its own store would ask itself until nothing is left to ask with.
pub(super) fn check_own_endpoint(
    list: &[UfsSettings],
    listen: SocketAddr,
    findings: &mut CheckFindings,
) {
    for (index, ufs) in list.iter().enumerate() {
        let (Some(endpoint), StoreLocation::Host { host, port }) =
            (&ufs.endpoint, ufs.endpoint_location())
        else {
            continue;
        };
        let standard = if endpoint.starts_with("https://") { 443 } else { 80 };
        let addresses: Vec<IpAddr> = match host.trim_start_matches('[').trim_end_matches(']') {
            "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            host => host.parse().into_iter().collect(),
        };
        // A socket at `[::]` takes IPv4 as well.
        let takes = |address: &IpAddr| {
            let is_any = listen.ip().is_unspecified() && (listen.is_ipv6() || address.is_ipv4());
            *address == listen.ip() || (is_any && address.is_loopback())
        };
        let is_here = addresses.iter().any(takes);
        if is_here && port.unwrap_or(standard) == listen.port() {
            findings.add_error(
                format!("ufs[{index}].endpoint"),
                format!("is this gateway's own address ({listen}); name the store behind it"),
            );
        }
    }
}
