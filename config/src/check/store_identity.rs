//! Whether two `[[ufs]]` are one store. An object's identity begins with the name of its UFS: under
//! two names one object has two homes, and writes through one name are not told to readers through
//! the other.

use std::collections::BTreeMap;

use verbs3_settings::CheckFindings;
use verbs3_ufs::{UfsKind, UfsSettings};

/// Where a store is, however it is spelled. What name service or routing make of it is not known
/// here.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StoreLocation {
    /// AWS itself, by whichever of its names; buckets of another region are not reached there.
    Aws {
        region: String,
    },
    Host {
        host: String,
        port: Option<u16>,
    },
}

pub(super) fn check_store_identity(list: &[UfsSettings], findings: &mut CheckFindings) {
    let mut known: BTreeMap<(StoreLocation, &str), usize> = BTreeMap::new();
    // The folder of a local store is locked by whoever opens it.
    for (index, ufs) in list.iter().enumerate().filter(|(_, ufs)| ufs.kind == UfsKind::S3) {
        let place = (store_location(ufs), ufs.namespace.as_str());
        let Some(&first) = known.get(&place) else {
            known.insert(place, index);
            continue;
        };
        let path = if ufs.endpoint.is_some() { "endpoint" } else { "region" };
        let other = if list[first].endpoint.is_some() { "endpoint" } else { "region" };
        findings.add_error(
            format!("ufs[{index}].{path}"),
            format!(
                "is the store of ufs[{first}].{other} too: an object would have two identities, and readers of one would miss writes of \
                 the other; keep one [[ufs]], or set ufs[{index}].namespace if the two never show the same bucket"
            ),
        );
    }
}

fn store_location(ufs: &UfsSettings) -> StoreLocation {
    let Some(endpoint) = &ufs.endpoint else {
        return StoreLocation::Aws { region: ufs.region.clone() };
    };
    let (authority, standard) = match endpoint.split_once("://") {
        Some(("https", rest)) => (rest, 443),
        Some((_, rest)) => (rest, 80),
        None => (endpoint.as_str(), 80),
    };
    let authority = authority.trim_end_matches('/').to_ascii_lowercase();
    let (host, port) = match authority.rsplit_once(':') {
        // Not the last group of an IPv6 address.
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse::<u16>().ok().or(Some(standard)))
        }
        _ => (authority.as_str(), Some(standard)),
    };
    let host = host.trim_end_matches('.');
    if host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn") {
        return StoreLocation::Aws { region: ufs.region.clone() };
    }
    // Both schemes at their own ports lead to one store, as far as anybody can tell.
    StoreLocation::Host { host: host.to_owned(), port: port.filter(|port| *port != standard) }
}
