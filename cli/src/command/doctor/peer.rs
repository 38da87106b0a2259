//! What `--peer` names: a host, with a port or the configuration's.

use verbs3_config::RootSettings;

use crate::host_port::split_host_port;

/// Host and port. A worker's id stands for its address; a host of the configuration's workers has
/// their port.
pub(super) fn parse_target(text: &str, config: &RootSettings) -> Result<(String, u16), String> {
    let workers = &config.cluster.workers;
    if let Some(worker) = workers.iter().find(|worker| worker.id == text) {
        return split_host_port(&worker.address, config.worker.listen.port());
    }
    let of_worker = workers
        .iter()
        .filter_map(|worker| split_host_port(&worker.address, 0).ok())
        .find(|(host, _)| host == text);
    split_host_port(text, of_worker.map_or(config.worker.listen.port(), |(_, port)| port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use verbs3_config::ClusterWorkerSettings;

    use super::*;

    #[test]
    fn a_peer_is_a_name_or_an_address_with_a_port_or_the_workers() {
        let mut config = RootSettings::default();
        let worker = |id: &str, address: &str| ClusterWorkerSettings {
            id: id.to_owned(),
            address: address.to_owned(),
            weight: 1.0,
            zone: String::new(),
        };
        config.cluster.workers =
            vec![worker("gpu-01", "10.0.0.1:9411"), worker("gpu-02", "[fd00::2]:9412")];
        let target = |text: &str| parse_target(text, &config).unwrap();
        for (text, host, port) in [
            ("gpu-09", "gpu-09", 9400),
            ("gpu-09:81", "gpu-09", 81),
            ("gpu-01", "10.0.0.1", 9411),
            ("10.0.0.1", "10.0.0.1", 9411),
            ("gpu-02", "fd00::2", 9412),
            ("::1", "::1", 9400),
            ("[::1]", "::1", 9400),
            ("[::1]:82", "::1", 82),
        ] {
            assert_eq!(target(text), (host.to_owned(), port), "{text}");
        }
    }

    #[test]
    fn what_is_no_peer_is_refused_with_an_example() {
        for text in ["", ":9400", "gpu-01:", "gpu-01:0", "gpu-01:99999", "[::1", "[::1]9400", "a b"]
        {
            let complaint = parse_target(text, &RootSettings::default()).unwrap_err();
            assert!(complaint.contains("gpu-08:9400"), "{complaint}");
        }
    }
}
