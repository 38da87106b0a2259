//! What a process tells the coordinators' console of its work, read from its own metrics: a dozen
//! sums and nothing else. Pure: takes what was gathered.

use std::collections::BTreeMap;

use prometheus::proto::{Metric, MetricFamily, MetricType};
use verbs3_coordinator_client::api::{
    ACTIVITY_TENANTS_MAX, ACTIVITY_WAYS_MAX, ActivityCounters, ActivityGauges, LatencyBucket,
    NodeActivity, RailActivity, TenantActivity, TransportActivity,
};

/// State of a circuit that asks its store nothing. See `verbs3_ufs_circuit_state`.
const CIRCUIT_OPEN: f64 = 2.0;

/// Which series of a metric count: those whose label has one of some values.
#[derive(Clone, Copy)]
struct SeriesChoice<'a> {
    label: &'a str,
    values: &'a [&'a str],
}

const fn chosen<'a>(label: &'a str, values: &'a [&'a str]) -> SeriesChoice<'a> {
    SeriesChoice { label, values }
}

/// Metrics of a process at one moment.
struct GatheredMetrics<'a>(BTreeMap<&'a str, &'a MetricFamily>);

/// Fills in what metrics say. Metrics that a process does not have leave their figures at zero.
pub fn fill_activity(families: &[MetricFamily], activity: &mut NodeActivity) {
    let metrics = GatheredMetrics(families.iter().map(|family| (family.name(), family)).collect());
    activity.counters = metrics.read_counters();
    activity.gauges = metrics.read_gauges();
    activity.request_seconds = metrics.sum_buckets("verbs3_gateway_request_seconds");
    activity.store_seconds = metrics.sum_buckets("verbs3_ufs_first_byte_seconds");
    activity.transports = metrics.read_transports();
    activity.rails = metrics.read_rails();
    activity.tenants = metrics.read_tenants();
}

impl GatheredMetrics<'_> {
    fn read_counters(&self) -> ActivityCounters {
        // As the dashboard has them. Pages would not do: an open that misses brings the first ones,
        // which are there then.
        let reads =
            |cache: &[&str]| self.sum_chosen("verbs3_read_requests_total", chosen("cache", cache));
        let store_flaws = chosen("outcome", &["5xx", "unreachable", "untrusted"]);
        ActivityCounters {
            requests: self.sum_all("verbs3_gateway_requests_total"),
            requests_failed: self
                .sum_chosen("verbs3_gateway_requests_total", chosen("status", &["5xx"])),
            bytes_sent: self.sum_all("verbs3_gateway_body_bytes_sent_total"),
            bytes_received: self.sum_all("verbs3_gateway_body_bytes_received_total"),
            reads: self.sum_all("verbs3_read_requests_total"),
            reads_hit: reads(&["hit"]),
            reads_bypassed: reads(&["bypass"]),
            store_requests: self.sum_all("verbs3_ufs_requests_total"),
            store_failures: self.sum_chosen("verbs3_ufs_requests_total", store_flaws),
            store_bytes_read: self.sum_all("verbs3_ufs_bytes_read_total"),
            store_bytes_written: self.sum_all("verbs3_ufs_bytes_written_total"),
            fills_failed: self.sum_all("verbs3_worker_fills_failed_total"),
            // The one who gives counts them, too.
            bytes_moved: self
                .sum_chosen("verbs3_worker_former_bytes_total", chosen("direction", &["taken"])),
            evictions: self.sum_all("verbs3_worker_evictions_total"),
        }
    }

    fn read_gauges(&self) -> ActivityGauges {
        let circuits = self.series("verbs3_ufs_circuit_state");
        ActivityGauges {
            fills_running: self.sum_all("verbs3_worker_fills_in_flight"),
            fills_waiting: self.sum_all("verbs3_worker_fills_queued"),
            hand_overs_left: self.sum_all("verbs3_worker_hand_overs_left"),
            memory_held: self.sum_all("verbs3_worker_held_bytes"),
            stores_cut_off: circuits
                .filter(|circuit| circuit.get_gauge().get_value() >= CIRCUIT_OPEN)
                .count() as u64,
        }
    }

    fn read_transports(&self) -> Vec<TransportActivity> {
        let connections = self.sums_by("verbs3_rdma_connections", "transport");
        let bytes_in = self.sums_by("verbs3_rdma_bytes_in_total", "transport");
        let bytes_out = self.sums_by("verbs3_rdma_bytes_out_total", "transport");
        let known: std::collections::BTreeSet<&str> = [&connections, &bytes_in, &bytes_out]
            .into_iter()
            .flat_map(|sums| sums.keys())
            .copied()
            .collect();
        let transport = |name: &str| TransportActivity {
            name: name.to_owned(),
            connections: connections.get(name).copied().unwrap_or(0),
            bytes_in: bytes_in.get(name).copied().unwrap_or(0),
            bytes_out: bytes_out.get(name).copied().unwrap_or(0),
        };
        let used = known.into_iter().map(transport);
        let used = used.filter(|way| way.connections + way.bytes_in + way.bytes_out > 0);
        used.take(ACTIVITY_WAYS_MAX).collect()
    }

    fn read_rails(&self) -> Vec<RailActivity> {
        let rails = self.series("verbs3_verbs_rail_up").map(|series| RailActivity {
            name: label_of(series, "name").to_owned(),
            up: series.get_gauge().get_value() > 0.0,
        });
        rails.take(ACTIVITY_WAYS_MAX).collect()
    }

    fn read_tenants(&self) -> Vec<TenantActivity> {
        let requests = self.sums_by("verbs3_tenant_requests_total", "tenant");
        let bytes_sent = self.sums_by("verbs3_tenant_bytes_sent_total", "tenant");
        let bytes_received = self.sums_by("verbs3_tenant_bytes_received_total", "tenant");
        let refusals = self.sums_by("verbs3_tenant_refusals_total", "tenant");
        let tenant = |(&name, &count): (&&str, &u64)| TenantActivity {
            name: name.to_owned(),
            requests: count,
            bytes_sent: bytes_sent.get(name).copied().unwrap_or(0),
            bytes_received: bytes_received.get(name).copied().unwrap_or(0),
            refusals: refusals.get(name).copied().unwrap_or(0),
        };
        requests.iter().map(tenant).take(ACTIVITY_TENANTS_MAX).collect()
    }

    fn series(&self, name: &str) -> impl Iterator<Item = &Metric> {
        self.0.get(name).into_iter().flat_map(|family| family.get_metric())
    }

    fn value_of(&self, name: &str, series: &Metric) -> u64 {
        let is_counter =
            self.0.get(name).is_some_and(|family| family.get_field_type() == MetricType::COUNTER);
        let value = if is_counter {
            series.get_counter().get_value()
        } else {
            series.get_gauge().get_value()
        };
        // Figures of people: beyond 2^53 nothing is lost that anybody sees.
        value.max(0.0) as u64
    }

    fn sum_all(&self, name: &str) -> u64 {
        self.series(name).map(|series| self.value_of(name, series)).sum()
    }

    fn sum_chosen(&self, name: &str, choice: SeriesChoice<'_>) -> u64 {
        let wanted = self
            .series(name)
            .filter(|series| choice.values.contains(&label_of(series, choice.label)));
        wanted.map(|series| self.value_of(name, series)).sum()
    }

    fn sums_by(&self, name: &str, label: &str) -> BTreeMap<&str, u64> {
        let mut sums = BTreeMap::new();
        for series in self.series(name) {
            *sums.entry(label_of(series, label)).or_default() += self.value_of(name, series);
        }
        sums
    }

    fn sum_buckets(&self, name: &str) -> Vec<LatencyBucket> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for series in self.series(name) {
            let histogram = series.get_histogram();
            for bucket in histogram.get_bucket() {
                let up_to_us = (bucket.upper_bound() * 1e6) as u64;
                *counts.entry(up_to_us).or_default() += bucket.cumulative_count();
            }
            *counts.entry(u64::MAX).or_default() += histogram.get_sample_count();
        }
        counts.into_iter().map(|(up_to_us, count)| LatencyBucket { up_to_us, count }).collect()
    }
}

fn label_of<'a>(series: &'a Metric, name: &str) -> &'a str {
    let label = series.get_label().iter().find(|label| label.name() == name);
    label.map_or("", |label| label.value())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use prometheus::{
        HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    };

    use super::*;

    fn counters(registry: &Registry, name: &str, labels: &[&str]) -> IntCounterVec {
        let counters = IntCounterVec::new(Opts::new(name, "x"), labels).unwrap();
        registry.register(Box::new(counters.clone())).unwrap();
        counters
    }

    fn gauges(registry: &Registry, name: &str, labels: &[&str]) -> IntGaugeVec {
        let gauges = IntGaugeVec::new(Opts::new(name, "x"), labels).unwrap();
        registry.register(Box::new(gauges.clone())).unwrap();
        gauges
    }

    fn read(registry: &Registry) -> NodeActivity {
        let mut activity = NodeActivity { name: "n".to_owned(), ..NodeActivity::default() };
        fill_activity(&registry.gather(), &mut activity);
        activity
    }

    #[test]
    fn sums_are_those_of_the_series_that_are_meant() {
        let registry = Registry::new();
        let requests = counters(&registry, "verbs3_gateway_requests_total", &["op", "status"]);
        requests.with_label_values(&["GetObject", "2xx"]).inc_by(5);
        requests.with_label_values(&["PutObject", "5xx"]).inc_by(2);
        let reads = counters(&registry, "verbs3_read_requests_total", &["cache"]);
        for (cache, count) in [("hit", 100), ("partial", 10), ("miss", 2), ("bypass", 1)] {
            reads.with_label_values(&[cache]).inc_by(count);
        }
        let moved = counters(&registry, "verbs3_worker_former_bytes_total", &["direction"]);
        moved.with_label_values(&["taken"]).inc_by(7);
        moved.with_label_values(&["given"]).inc_by(70);
        let circuits = gauges(&registry, "verbs3_ufs_circuit_state", &["ufs"]);
        circuits.with_label_values(&["a"]).set(2);
        circuits.with_label_values(&["b"]).set(1);
        let failed = IntCounter::new("verbs3_worker_fills_failed_total", "x").unwrap();
        failed.inc();
        registry.register(Box::new(failed)).unwrap();
        let NodeActivity { counters, gauges, .. } = read(&registry);
        assert_eq!((counters.requests, counters.requests_failed), (7, 2));
        assert_eq!((counters.reads, counters.reads_hit, counters.reads_bypassed), (113, 100, 1));
        assert_eq!((counters.bytes_moved, counters.fills_failed), (7, 1));
        assert_eq!(gauges.stores_cut_off, 1);
    }

    #[test]
    fn ways_and_tenants_stand_by_their_names() {
        let registry = Registry::new();
        let connections = gauges(&registry, "verbs3_rdma_connections", &["transport", "side"]);
        connections.with_label_values(&["tcp", "requester"]).set(2);
        connections.with_label_values(&["tcp", "responder"]).set(1);
        connections.with_label_values(&["verbs", "responder"]).set(0);
        counters(&registry, "verbs3_rdma_bytes_in_total", &["transport"])
            .with_label_values(&["tcp"])
            .inc_by(9);
        let rails = gauges(&registry, "verbs3_verbs_rail_up", &["index", "name"]);
        rails.with_label_values(&["0", "mlx5_0/1"]).set(1);
        rails.with_label_values(&["1", "mlx5_1/1"]).set(0);
        let requests = counters(&registry, "verbs3_tenant_requests_total", &["tenant"]);
        requests.with_label_values(&["lab"]).inc_by(3);
        let refusals = counters(&registry, "verbs3_tenant_refusals_total", &["tenant", "resource"]);
        refusals.with_label_values(&["lab", "requests"]).inc();
        refusals.with_label_values(&["lab", "read_bytes"]).inc();
        let activity = read(&registry);
        let tcp =
            TransportActivity { name: "tcp".to_owned(), connections: 3, bytes_in: 9, bytes_out: 0 };
        assert_eq!(activity.transports, [tcp], "one that nobody uses is left out");
        let up: Vec<bool> = activity.rails.iter().map(|rail| rail.up).collect();
        assert_eq!(up, [true, false]);
        assert_eq!((activity.tenants[0].requests, activity.tenants[0].refusals), (3, 2));
    }

    #[test]
    fn histograms_of_several_stores_are_summed() {
        let registry = Registry::new();
        let options = HistogramOpts::new("verbs3_ufs_first_byte_seconds", "x");
        let seconds = HistogramVec::new(options.buckets(vec![0.001, 0.1]), &["ufs", "op"]).unwrap();
        registry.register(Box::new(seconds.clone())).unwrap();
        for (ufs, value) in [("a", 0.0005), ("b", 0.05), ("b", 7.0)] {
            seconds.with_label_values(&[ufs, "get_object"]).observe(value);
        }
        let bucket = |up_to_us, count| LatencyBucket { up_to_us, count };
        let wanted = [bucket(1000, 1), bucket(100_000, 2), bucket(u64::MAX, 3)];
        assert_eq!(read(&registry).store_seconds, wanted);
    }

    #[test]
    fn every_metric_that_is_read_is_a_declared_one() {
        let (source, documented) =
            (include_str!("activity_report.rs"), include_str!("../../../docs/metrics.md"));
        let code = source.split("mod tests").next().unwrap();
        let names: Vec<&str> = code.split('"').filter(|text| text.starts_with("verbs3_")).collect();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(documented.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
