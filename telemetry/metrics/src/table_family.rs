//! Owns tables that there is one of for each name that a running process comes to know.

use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::metric_declaration::MetricDeclaration;
use crate::metric_field::MetricField;
use crate::metrics_table::{MetricDescription, MetricKind, MetricsTable};

/// One table for each value of `T::TABLE_LABEL`, such as each folder. Clones share the tables.
#[derive(Clone)]
pub struct TableFamily<T> {
    tables: Arc<RwLock<BTreeMap<String, T>>>,
    /// What a registry knows it by.
    nameless: T,
}

impl<T: MetricsTable> TableFamily<T> {
    /// Finds or makes the table of `value`. Keep it where it is used often.
    pub fn select_table(&self, value: &str) -> T {
        if let Some(table) = self.tables.read().get(value) {
            return table.clone();
        }
        let mut tables = self.tables.write();
        tables.entry(value.to_owned()).or_insert_with(|| Self::create_table(value)).clone()
    }

    /// Lists every table that was made.
    pub fn list_tables(&self) -> Vec<T> {
        self.tables.read().values().cloned().collect()
    }

    fn create_table(value: &str) -> T {
        T::create_table(&[(Self::table_label(), value)])
    }

    fn table_label() -> &'static str {
        T::TABLE_LABEL.expect("tables of a family are declared with #[metrics(each = …)]")
    }
}

impl<T: MetricsTable> Default for TableFamily<T> {
    fn default() -> Self {
        Self { tables: Arc::default(), nameless: Self::create_table("") }
    }
}

impl<T: MetricsTable> MetricField for TableFamily<T> {
    const KIND: Option<MetricKind> = None;

    fn create_field(_: &MetricDeclaration, _: &[(&str, &str)]) -> Self {
        Self::default()
    }

    fn describe_field(_: &MetricDeclaration) -> Vec<MetricDescription> {
        T::describe_table().metrics
    }
}

impl<T> Debug for TableFamily<T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> FmtResult {
        out.debug_list().entries(self.tables.read().keys()).finish()
    }
}

impl<T: MetricsTable> Collector for TableFamily<T> {
    fn desc(&self) -> Vec<&Desc> {
        self.nameless.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.tables.read().values().flat_map(Collector::collect).collect()
    }
}
