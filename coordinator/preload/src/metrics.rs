//! Every metric of preload jobs: name, labels and meaning in one table.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Name, labels and meaning of every metric, for the documentation and its test.
pub const TABLE: &[(&str, &[&str], &str)] = &[
    ("verbs3_preload_jobs_running", &[], "Preload jobs that run"),
    ("verbs3_preload_jobs_waiting", &[], "Preload jobs that wait for their turn"),
    (
        "verbs3_preload_jobs_ended_total",
        &["state"],
        "Preload jobs that ended, by how (done, incomplete, failed, stopped)",
    ),
    (
        "verbs3_preload_notified_refused_total",
        &[],
        "Notifications whose objects were not loaded, because \
        coordinator.preload.notified_jobs_max jobs of others wait or run",
    ),
    (
        "verbs3_preload_objects_total",
        &["outcome"],
        "Objects that jobs went through, by what became of them (loaded, failed, vanished)",
    ),
    (
        "verbs3_preload_bytes_total",
        &["found"],
        "Bytes that jobs asked for: loaded from a UFS, or held already",
    ),
    ("verbs3_preload_blocks_in_flight", &[], "Blocks that workers are asked to load"),
    (
        "verbs3_preload_retries_total",
        &[],
        "Questions put again because a worker or a UFS was busy or away",
    ),
    ("verbs3_preload_store_failures_total", &[], "Writes of a job's progress that failed"),
];

/// Metrics of one process; clones share them.
#[derive(Clone)]
pub struct PreloadMetrics {
    pub(crate) running: IntGauge,
    pub(crate) waiting: IntGauge,
    pub(crate) ended: IntCounterVec,
    pub(crate) objects: IntCounterVec,
    pub(crate) bytes: IntCounterVec,
    pub(crate) blocks: IntGauge,
    pub(crate) retries: IntCounter,
    pub(crate) store_failures: IntCounter,
    pub(crate) notified_refused: IntCounter,
}

impl PreloadMetrics {
    /// Registers every metric of `TABLE`. Fails if one of these names is registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let row = |name: &str| {
            let row = TABLE.iter().find(|(known, ..)| *known == name);
            row.ok_or_else(|| prometheus::Error::Msg(format!("{name} is not in the table")))
        };
        let opts = |name: &str| row(name).map(|(name, _, help)| Opts::new(*name, *help));
        let gauge = |name: &str| {
            let made = IntGauge::with_opts(opts(name)?)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let counter = |name: &str| {
            let made = IntCounter::with_opts(opts(name)?)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let counters = |name: &str| {
            let made = IntCounterVec::new(opts(name)?, row(name)?.1)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let ended = counters("verbs3_preload_jobs_ended_total")?;
        // Series start at 0: an alert sees no increase in a series that begins with 1.
        for state in ["done", "incomplete", "failed", "stopped"] {
            ended.with_label_values(&[state]);
        }
        Ok(Self {
            running: gauge("verbs3_preload_jobs_running")?,
            waiting: gauge("verbs3_preload_jobs_waiting")?,
            ended,
            objects: counters("verbs3_preload_objects_total")?,
            bytes: counters("verbs3_preload_bytes_total")?,
            blocks: gauge("verbs3_preload_blocks_in_flight")?,
            retries: counter("verbs3_preload_retries_total")?,
            store_failures: counter("verbs3_preload_store_failures_total")?,
            notified_refused: counter("verbs3_preload_notified_refused_total")?,
        })
    }
}
