//! Tables of metrics, as their declarations promise them.
#![allow(clippy::unwrap_used)]

use prometheus::{Histogram, IntCounter, IntGauge, Registry, TextEncoder};
use verbs3_metrics::{
    GaugeGuard, MetricFamily, MetricLabel, MetricsTable, TableFamily, register_sampled,
};

#[derive(Clone, Copy, MetricLabel)]
enum CallKind {
    Open,
    /// Reads held pages.
    ReadHeld,
}

#[derive(Clone, Copy, MetricLabel)]
enum CallOutcome {
    Ok,
    #[label("5xx")]
    Failed,
}

/// A client. It calls.
#[derive(MetricsTable)]
#[metrics(prefix = "test")]
struct ClientMetrics {
    /// Calls that ended.
    #[metric(labels(kind, outcome))]
    calls: MetricFamily<(CallKind, CallOutcome), IntCounter>,
    /// Calls that were
    /// tried again.
    #[metric(labels(kind), from_zero)]
    repeats: MetricFamily<CallKind, IntCounter>,
    /// Seconds of a call.
    #[metric(buckets = [0.5, 1.0])]
    call_seconds: Histogram,
    folders: TableFamily<FolderMetrics>,
}

#[derive(MetricsTable)]
#[metrics(prefix = "test", each = "folder")]
struct FolderMetrics {
    /// Pages of a folder.
    pages: IntGauge,
    /// Calls to a folder.
    #[metric("test_folder_calls_total", labels(kind))]
    calls: MetricFamily<CallKind, IntCounter>,
}

fn show(registry: &Registry) -> Vec<String> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn a_series_shows_from_its_first_use_or_from_zero() {
    let registry = Registry::new();
    let metrics = ClientMetrics::new(&registry).unwrap();
    metrics.calls[(CallKind::ReadHeld, CallOutcome::Failed)].inc();
    metrics.clone().calls[(CallKind::ReadHeld, CallOutcome::Failed)].inc();
    metrics.calls[(CallKind::Open, CallOutcome::Ok)].inc();
    let shown = show(&registry);
    assert_eq!(shown[3..5], ["test_call_seconds_sum 0", "test_call_seconds_count 0"]);
    assert_eq!(
        shown[5..],
        [
            "test_calls_total{kind=\"open\",outcome=\"ok\"} 1",
            "test_calls_total{kind=\"read_held\",outcome=\"5xx\"} 2",
            "test_repeats_total{kind=\"open\"} 0",
            "test_repeats_total{kind=\"read_held\"} 0",
        ]
    );
    assert!(ClientMetrics::new(&registry).is_err(), "the names are taken");
}

#[test]
fn each_folder_has_a_table_of_its_own() {
    let registry = Registry::new();
    let metrics = ClientMetrics::new(&registry).unwrap();
    metrics.call_seconds.observe(2.0);
    metrics.folders.select_table("b").pages.set(2);
    let folder = metrics.folders.select_table("a");
    let guard = GaugeGuard::add_to(&folder.pages, 3);
    metrics.folders.select_table("a").calls[CallKind::Open].inc();
    let shown = |line: &str| show(&registry).iter().any(|shown| shown == line);
    assert!(shown("test_pages{folder=\"a\"} 3") && shown("test_pages{folder=\"b\"} 2"));
    assert!(shown("test_folder_calls_total{folder=\"a\",kind=\"open\"} 1"));
    drop(guard);
    assert!(shown("test_pages{folder=\"a\"} 0") && !shown("test_pages{folder=\"\"} 0"));
}

#[test]
fn a_sampled_table_shows_what_is_so_at_the_scrape() {
    let (registry, values) = (Registry::new(), std::sync::atomic::AtomicI64::new(0));
    register_sampled(&registry, FolderMetrics::new("a"), move |table| {
        let value = values.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        table.pages.set(value);
        value < 2
    })
    .unwrap();
    assert_eq!(show(&registry), ["test_pages{folder=\"a\"} 0"]);
    assert_eq!(show(&registry), ["test_pages{folder=\"a\"} 1"]);
    assert_eq!(show(&registry), [""; 0]);
}

#[test]
fn a_table_describes_what_it_shows() {
    let table = ClientMetrics::describe_table();
    assert_eq!(table.documentation, "A client. It calls.");
    let names: Vec<&str> = table.metrics.iter().map(|metric| metric.name).collect();
    assert_eq!(
        names,
        [
            "test_calls_total",
            "test_repeats_total",
            "test_call_seconds",
            "test_pages",
            "test_folder_calls_total",
        ]
    );
    assert_eq!(table.metrics[1].help, "Calls that were tried again.");
    assert_eq!(table.metrics[2].kind.as_str(), "histogram");
    let labels = &table.metrics[4].labels;
    assert_eq!((labels[0].name, labels[0].values, labels[1].name), ("folder", &[][..], "kind"));
    let values: Vec<_> = labels[1].values.iter().map(|v| (v.text, v.documentation)).collect();
    assert_eq!(values, [("open", ""), ("read_held", "Reads held pages.")]);
}
