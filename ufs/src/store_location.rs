//! Which store a `[[ufs]]` means. Processes agree on a name; whether they also mean one store is told
//! by where it is.

use crc_fast::{CrcAlgorithm, checksum};

use crate::settings::{UfsKind, UfsSettings};

/// Where a store is, however it is spelled. What name service or routing make of it is not known
/// here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreLocation {
    /// AWS itself, by whichever of its names; buckets of another region are not reached there.
    Aws {
        region: String,
    },
    Host {
        host: String,
        port: Option<u16>,
    },
    /// By `store_id`, wherever it is.
    Named(String),
}

impl UfsSettings {
    /// Returns which store is meant: by `store_id`, or by its endpoint.
    pub fn store_location(&self) -> StoreLocation {
        match self.store_id.as_str() {
            "" => self.endpoint_location(),
            name => StoreLocation::Named(name.to_owned()),
        }
    }

    /// Returns where this process reaches the store.
    pub fn endpoint_location(&self) -> StoreLocation {
        let Some(endpoint) = &self.endpoint else {
            return StoreLocation::Aws { region: self.region.clone() };
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
            return StoreLocation::Aws { region: self.region.clone() };
        }
        // Both schemes at their own ports lead to one store, as far as anybody can tell.
        StoreLocation::Host { host: host.to_owned(), port: port.filter(|port| *port != standard) }
    }

    /// Returns the first part of the identity of all objects of the store: its name, `@`, and 8 hex
    /// digits that tell which store and namespace the name means. Processes whose names mean two
    /// stores share nothing. The defaults (AWS in its first region) and local stores, which one
    /// process has, are told by the name alone.
    pub fn store_name(&self) -> String {
        let location = self.store_location();
        let defaults = Self::default();
        let is_default =
            location == defaults.store_location() && self.namespace == defaults.namespace;
        if self.kind == UfsKind::Local || is_default {
            return self.name.clone();
        }
        let place = match location {
            StoreLocation::Aws { region } => format!("aws {region}"),
            StoreLocation::Host { host, port: None } => format!("host {host}"),
            StoreLocation::Host { host, port: Some(port) } => format!("host {host} {port}"),
            StoreLocation::Named(name) => format!("named {name}"),
        };
        let place = format!("{place}\n{}", self.namespace);
        let tag = checksum(CrcAlgorithm::Crc64Nvme, place.as_bytes()) as u32;
        format!("{}@{tag:08x}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(endpoint: &str) -> UfsSettings {
        UfsSettings { endpoint: Some(endpoint.to_owned()), ..UfsSettings::with_name("ceph") }
    }

    #[test]
    fn a_name_means_one_store_however_its_endpoint_is_spelled() {
        let name = at("http://rgw.example:8080").store_name();
        assert_eq!(name.len(), "ceph@00000000".len());
        assert_eq!(at("http://RGW.example.:8080/").store_name(), name);
        let named = |endpoint| UfsSettings { store_id: "rack-free".into(), ..at(endpoint) };
        assert_eq!(named("http://a").store_name(), named("http://b").store_name());
        assert_eq!(UfsSettings::with_name("ceph").store_name(), "ceph");
    }

    #[test]
    fn one_name_at_two_places_or_namespaces_means_two_stores() {
        let other = UfsSettings { namespace: "team".into(), ..at("http://rgw:8080") };
        let region = UfsSettings { region: "eu-west-1".into(), ..UfsSettings::with_name("ceph") };
        let mut names: Vec<String> =
            [at("http://rgw:8080"), at("http://rgw:8081"), at("http://rgw2:8080"), other, region]
                .iter()
                .map(UfsSettings::store_name)
                .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5, "{names:?}");
    }
}
