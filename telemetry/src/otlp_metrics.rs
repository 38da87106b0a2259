//! Translates a registry's metrics into OTLP, with the names, labels and values of `/metrics`.
//! Counts nothing itself.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::proto::{self, MetricFamily, MetricType};

use super::otlp_spans::{instrumentation_scope, text_attribute};

/// When the metrics began to count, and now; nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct MetricPeriod {
    pub began_ns: u64,
    pub now_ns: u64,
}

pub(super) fn metrics_message(
    resource: &Resource,
    families: &[MetricFamily],
    at: MetricPeriod,
) -> ExportMetricsServiceRequest {
    let metrics = families.iter().filter_map(|family| convert_metric(family, at)).collect();
    let scope_metrics = vec![ScopeMetrics {
        scope: Some(instrumentation_scope()),
        metrics,
        ..ScopeMetrics::default()
    }];
    let resource_metrics = vec![ResourceMetrics {
        resource: Some(resource.clone()),
        scope_metrics,
        ..ResourceMetrics::default()
    }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn convert_metric(family: &MetricFamily, at: MetricPeriod) -> Option<Metric> {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let points = |value: fn(&proto::Metric) -> f64| {
        family
            .get_metric()
            .iter()
            .map(|metric| number_point(metric, value(metric), at))
            .collect::<Vec<_>>()
    };
    let data = match family.get_field_type() {
        MetricType::COUNTER => metric::Data::Sum(Sum {
            data_points: points(|metric| metric.get_counter().get_value()),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        MetricType::GAUGE => metric::Data::Gauge(Gauge {
            data_points: points(|metric| metric.get_gauge().get_value()),
        }),
        MetricType::HISTOGRAM => metric::Data::Histogram(Histogram {
            data_points: family
                .get_metric()
                .iter()
                .map(|metric| histogram_point(metric, at))
                .collect(),
            aggregation_temporality: cumulative,
        }),
        // Nothing in this project makes any.
        MetricType::SUMMARY | MetricType::UNTYPED => return None,
    };
    Some(Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        unit: metric_unit(family.name()).to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

/// Returns the UCUM unit that a name implies by Prometheus's convention.
fn metric_unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name {
        _ if name.ends_with("_seconds") => "s",
        _ if name.ends_with("_bytes") => "By",
        _ => "",
    }
}

fn convert_labels(metric: &proto::Metric) -> Vec<KeyValue> {
    metric.get_label().iter().map(|label| text_attribute(label.name(), label.value())).collect()
}

fn number_point(metric: &proto::Metric, value: f64, at: MetricPeriod) -> NumberDataPoint {
    NumberDataPoint {
        attributes: convert_labels(metric),
        start_time_unix_nano: at.began_ns,
        time_unix_nano: at.now_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

/// Converts a histogram. Prometheus counts cumulatively up to each bound. OTLP counts between
/// bounds, with one bucket more than bounds.
fn histogram_point(metric: &proto::Metric, at: MetricPeriod) -> HistogramDataPoint {
    let histogram = metric.get_histogram();
    let finite = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
    let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0);
    for bucket in finite {
        bounds.push(bucket.upper_bound());
        counts.push(bucket.cumulative_count().saturating_sub(below));
        below = below.max(bucket.cumulative_count());
    }
    // Buckets and count are read one after the other; a point must be consistent.
    let count = histogram.get_sample_count().max(below);
    counts.push(count - below);
    HistogramDataPoint {
        attributes: convert_labels(metric),
        start_time_unix_nano: at.began_ns,
        time_unix_nano: at.now_ns,
        count,
        sum: Some(histogram.get_sample_sum()),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use prometheus::{HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};

    #[test]
    fn a_registry_is_told_by_the_same_names_labels_and_values() {
        let registry = Registry::new();
        let bytes = IntCounterVec::new(Opts::new("sent_bytes_total", "Sent."), &["to"]).unwrap();
        let open = IntGauge::new("open", "Open.").unwrap();
        let options = HistogramOpts::new("took_seconds", "Took.").buckets(vec![0.1, 1.0]);
        let took = prometheus::Histogram::with_opts(options).unwrap();
        registry.register(Box::new(bytes.clone())).unwrap();
        registry.register(Box::new(open.clone())).unwrap();
        registry.register(Box::new(took.clone())).unwrap();
        bytes.with_label_values(&["a"]).inc_by(7);
        open.set(-2);
        [0.05, 0.5, 0.6, 5.0].iter().for_each(|&seconds| took.observe(seconds));

        let message = metrics_message(
            &Resource::default(),
            &registry.gather(),
            MetricPeriod { began_ns: 1, now_ns: 2 },
        );
        let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
        let names: Vec<_> =
            metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(names, [("open", ""), ("sent_bytes_total", "By"), ("took_seconds", "s")]);
        let Some(metric::Data::Gauge(gauge)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(-2.0)));
        let Some(metric::Data::Sum(sum)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
        assert!(
            sum.is_monotonic
                && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32
        );
        assert_eq!(sum.data_points[0].attributes, [text_attribute("to", "a")]);
        assert_eq!(sum.data_points[0].value, Some(number_data_point::Value::AsDouble(7.0)));
        assert_eq!(
            (sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano),
            (1, 2)
        );
        let Some(metric::Data::Histogram(histogram)) = &metrics[2].data else {
            panic!("{:?}", metrics[2])
        };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, &point.bucket_counts[..]), (4, &[1, 2, 1][..]));
        assert_eq!((&point.explicit_bounds[..], point.sum), (&[0.1, 1.0][..], Some(6.15)));
    }
}
