//! Owns the reading of the kernel's RDMA port counters from sysfs, at each scrape.
//!
//! `doctor` explains what the numbers mean for the person with the NIC.

use std::fs;
use std::path::{Path, PathBuf};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Result as PrometheusResult};

pub(crate) const PORT_UP: &str = "verbs3_verbs_port_up";
pub(crate) const PORT_UP_HELP: &str = "Whether the kernel calls an RDMA port of this host active.";
pub(crate) const PORT_COUNTER: &str = "verbs3_verbs_port_counter";
pub(crate) const PORT_COUNTER_HELP: &str =
    "The kernel's own counters of an RDMA port (counters and hw_counters of sysfs), by name.";

/// Reads the counters of every port below `root` at each scrape.
pub(crate) struct PortCounters {
    root: PathBuf,
    up: IntGaugeVec,
    counters: IntGaugeVec,
}

impl PortCounters {
    /// Makes the collector. `root` is `/sys/class/infiniband`, except in tests.
    pub(crate) fn new(root: PathBuf) -> PrometheusResult<Self> {
        let up = IntGaugeVec::new(Opts::new(PORT_UP, PORT_UP_HELP), &["rail"])?;
        let counters =
            IntGaugeVec::new(Opts::new(PORT_COUNTER, PORT_COUNTER_HELP), &["rail", "name"])?;
        Ok(Self { root, up, counters })
    }

    fn read(&self) {
        // Devices come and go. A device that is gone must not be shown with its last value.
        self.up.reset();
        self.counters.reset();
        for device in list_entries(&self.root) {
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

impl Collector for PortCounters {
    fn desc(&self) -> Vec<&Desc> {
        self.up.desc().into_iter().chain(self.counters.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        self.up.collect().into_iter().chain(self.counters.collect()).collect()
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

    fn values(counters: &PortCounters) -> Vec<(String, f64)> {
        let mut values = Vec::new();
        for family in counters.collect() {
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
        let counters = PortCounters::new(root.path().to_owned()).unwrap();
        let expected = [
            (format!("{PORT_COUNTER} port_rcv_data mlx5_0:1"), 17.0),
            (format!("{PORT_UP} mlx5_0:1"), 1.0),
        ];
        // Labels are sorted by their names.
        assert_eq!(values(&counters), expected);
        fs::write(port.join("state"), "1: DOWN\n").unwrap();
        assert_eq!(values(&counters)[1].1, 0.0);
        fs::remove_dir_all(root.path().join("mlx5_0")).unwrap();
        assert_eq!(values(&counters), []);
    }
}
