//! Owns what a field of a table can hold, and how it is made from its declaration.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::metric_declaration::MetricDeclaration;
use crate::metric_family::{FamilyMember, MetricFamily};
use crate::metric_label::LabelSet;
use crate::metrics_table::{LabelDescription, MetricDescription, MetricKind};

/// What a field of a table holds: a metric, a family, or tables.
pub trait MetricField: Collector + Clone {
    /// What `/metrics` calls it; `None` for tables.
    const KIND: Option<MetricKind>;

    /// Makes it at zero. `outer`: labels of the whole table.
    fn create_field(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self;

    /// What the document says of it, without labels of the whole table.
    fn describe_field(declared: &MetricDeclaration) -> Vec<MetricDescription>;
}

impl<M: FamilyMember> MetricField for M {
    const KIND: Option<MetricKind> = Some(M::MEMBER_KIND);

    fn create_field(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self {
        M::create_metric(declared, outer)
    }

    fn describe_field(declared: &MetricDeclaration) -> Vec<MetricDescription> {
        vec![declared.describe_metric(M::MEMBER_KIND, Vec::new())]
    }
}

impl<L: LabelSet, M: FamilyMember> MetricField for MetricFamily<L, M> {
    const KIND: Option<MetricKind> = Some(M::MEMBER_KIND);

    fn create_field(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self {
        Self::create_family(declared, outer)
    }

    fn describe_field(declared: &MetricDeclaration) -> Vec<MetricDescription> {
        let labels = declared.labels.iter().zip(L::describe_values());
        let labels = labels.map(|(name, values)| LabelDescription { name, values }).collect();
        vec![declared.describe_metric(M::MEMBER_KIND, labels)]
    }
}

/// Families whose labels only the running process knows.
macro_rules! open_families {
    ($($metric:ident of $vec:ident;)*) => {$(
        impl MetricField for $vec {
            const KIND: Option<MetricKind> = Some($metric::MEMBER_KIND);

            fn create_field(declared: &MetricDeclaration, outer: &[(&str, &str)]) -> Self {
                $metric::create_vec(declared, outer)
            }

            fn describe_field(declared: &MetricDeclaration) -> Vec<MetricDescription> {
                let labels = declared.labels.iter();
                let labels = labels.map(|name| LabelDescription { name, values: &[] }).collect();
                vec![declared.describe_metric($metric::MEMBER_KIND, labels)]
            }
        }
    )*};
}

open_families! {
    IntCounter of IntCounterVec;
    IntGauge of IntGaugeVec;
}
