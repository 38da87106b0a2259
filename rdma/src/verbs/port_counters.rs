//! Owns the reading of the kernel's RDMA port counters from sysfs, at each scrape.
//!
//! `doctor` explains what the numbers mean for the person with the NIC.

use std::fs;
use std::path::{Path, PathBuf};

use prometheus::{IntGaugeVec, Registry, Result as PrometheusResult};
use verbs3_metrics::{MetricsTable, register_sampled};

/// RDMA ports of this host, as the kernel sees them.
#[derive(MetricsTable)]
#[metrics(prefix = "verbs3_verbs_port")]
pub(crate) struct PortMetrics {
    /// Whether the kernel calls an RDMA port of this host active.
    #[metric(labels(rail))]
    up: IntGaugeVec,
    /// The kernel's own counters of an RDMA port (counters and hw_counters of sysfs), by name.
    #[metric("verbs3_verbs_port_counter", labels(rail, name))]
    counters: IntGaugeVec,
}

/// Shows the counters of every port below `root`, read at each scrape. `root` is
/// `/sys/class/infiniband`, except in tests.
pub(crate) fn register_ports(registry: &Registry, root: PathBuf) -> PrometheusResult<()> {
    register_sampled(registry, PortMetrics::default(), move |metrics| {
        metrics.read_ports(&root);
        true
    })
}

impl PortMetrics {
    fn read_ports(&self, root: &Path) {
        // Devices come and go. A device that is gone must not be shown with its last value.
        self.up.reset();
        self.counters.reset();
        for device in list_entries(root) {
            for port in list_entries(&device.join("ports")) {
                let rail = format!("{}:{}", file_name(&device), file_name(&port));
                let state = fs::read_to_string(port.join("state")).unwrap_or_default();
                self.up.with_label_values(&[&rail]).set(i64::from(state.contains("ACTIVE")));
                for folder in ["counters", "hw_counters"] {
                    for file in list_entries(&port.join(folder)) {
                        // Some files there hold no number, and some can't be read.
                        let text = fs::read_to_string(&file).unwrap_or_default();
                        if let Ok(value) = text.trim().parse::<i64>() {
                            self.counters.with_label_values(&[&rail, &file_name(&file)]).set(value);
                        }
                    }
                }
            }
        }
    }
}

fn list_entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn values(registry: &Registry) -> Vec<(String, f64)> {
        let mut values = Vec::new();
        for family in registry.gather() {
            for metric in family.get_metric() {
                let labels: Vec<_> =
                    metric.get_label().iter().map(|label| label.value().to_owned()).collect();
                values.push((
                    format!("{} {}", family.name(), labels.join(" ")),
                    metric.get_gauge().get_value(),
                ));
            }
        }
        values.sort_by(|one, two| one.0.cmp(&two.0));
        values
    }

    #[test]
    fn ports_and_their_counters_are_read_anew_each_time() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("mlx5_0/ports/1");
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("counters/port_rcv_data", "17\n"),
            ("hw_counters/lifespan", "ten\n"),
        ] {
            let file = port.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let registry = Registry::new();
        register_ports(&registry, root.path().to_owned()).unwrap();
        let expected = [
            ("verbs3_verbs_port_counter port_rcv_data mlx5_0:1".to_owned(), 17.0),
            ("verbs3_verbs_port_up mlx5_0:1".to_owned(), 1.0),
        ];
        // Labels are sorted by their names.
        assert_eq!(values(&registry), expected);
        fs::write(port.join("state"), "1: DOWN\n").unwrap();
        assert_eq!(values(&registry)[1].1, 0.0);
        fs::remove_dir_all(root.path().join("mlx5_0")).unwrap();
        assert_eq!(values(&registry), []);
    }
}
