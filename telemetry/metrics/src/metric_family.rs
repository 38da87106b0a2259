//! Owns a metric with labels: one series for each value of its labels.

use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::{Arc, OnceLock};

use prometheus::core::{Collector, Desc};
use prometheus::proto;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::metric_declaration::MetricDeclaration;
use crate::metric_label::LabelSet;
use crate::metrics_table::MetricKind;

/// A metric with the labels `L`, whose series are `M`.
///
/// `calls[(CallKind::Read, CallOutcome::Refused)].inc()` counts. A series shows from its first use
/// on; the family looks it up by its labels only then, and by a place in a list afterwards. Clones
/// share the values.
pub struct MetricFamily<L, M: FamilyMember> {
    series: Arc<[OnceLock<M>]>,
    vec: M::Vec,
    labels: PhantomData<fn(L)>,
}

/// One series of a family, and a metric without labels.
pub trait FamilyMember: Collector + Clone + 'static {
    /// The family of `prometheus`, whose labels are texts.
    type Vec: Collector + Clone + 'static;
    /// What `/metrics` calls it.
    const MEMBER_KIND: MetricKind;

    /// Makes a metric without labels of its own.
    fn create_metric(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self;

    /// Makes a family, empty.
    fn create_vec(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self::Vec;

    /// Finds or makes the series with these labels.
    fn find_series(vec: &Self::Vec, texts: &[&str]) -> Self;
}

const VALID: &str = "names and labels are written in the code; a test makes every table";

macro_rules! family_members {
    ($($metric:ident of $vec:ident is $kind:ident, $options:ident;)*) => {$(
        impl FamilyMember for $metric {
            type Vec = $vec;
            const MEMBER_KIND: MetricKind = MetricKind::$kind;

            fn create_metric(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self {
                $metric::with_opts(declared.$options(outer)).expect(VALID)
            }

            fn create_vec(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> $vec {
                $vec::new(declared.$options(outer), declared.labels).expect(VALID)
            }

            fn find_series(vec: &$vec, texts: &[&str]) -> Self {
                vec.with_label_values(texts)
            }
        }
    )*};
}

family_members! {
    IntCounter of IntCounterVec is Counter, options;
    IntGauge of IntGaugeVec is Gauge, options;
    Histogram of HistogramVec is Histogram, histogram_options;
}

impl<L: LabelSet, M: FamilyMember> MetricFamily<L, M> {
    pub(crate) fn create_family(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self {
        assert_eq!(declared.labels.len(), L::describe_values().len(), "{}", declared.name);
        let family = Self {
            series: (0..L::SERIES).map(|_| OnceLock::new()).collect(),
            vec: M::create_vec(declared, outer),
            labels: PhantomData,
        };
        if declared.from_zero {
            for index in 0..L::SERIES {
                family.resolve_series(index);
            }
        }
        family
    }

    fn resolve_series(&self, index: usize) -> &M {
        self.series[index].get_or_init(|| M::find_series(&self.vec, &L::list_texts(index)))
    }
}

impl<L: LabelSet, M: FamilyMember> Index<L> for MetricFamily<L, M> {
    type Output = M;

    fn index(&self, labels: L) -> &M {
        self.resolve_series(labels.series_index())
    }
}

impl<L, M: FamilyMember> Clone for MetricFamily<L, M> {
    fn clone(&self) -> Self {
        Self { series: self.series.clone(), vec: self.vec.clone(), labels: PhantomData }
    }
}

impl<L, M: FamilyMember> Debug for MetricFamily<L, M> {
    fn fmt(&self, out: &mut Formatter<'_>) -> FmtResult {
        out.debug_struct("MetricFamily").finish_non_exhaustive()
    }
}

impl<L, M: FamilyMember> Collector for MetricFamily<L, M> {
    fn desc(&self) -> Vec<&Desc> {
        self.vec.desc()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        self.vec.collect()
    }
}
