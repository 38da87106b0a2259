//! Owns delivery: a bounded queue of finished requests, the task that sends them in batches, the
//! task that sends the metrics, and their end. An absent receiver costs the queue, a counter, and
//! two log lines: when it goes and when it comes back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::metrics::TelemetryMetrics;
pub use super::otlp_client::TelemetryError;
use super::otlp_client::{OtlpHttpClient, PostOutcome};
use super::otlp_metrics::{self, MetricPeriod};
use super::otlp_spans;
use super::trace::{FinishedTrace, RequestTracer};

/// Tries of one batch of spans. Then it is dropped, since newer ones wait. The next export repeats
/// the metrics.
const TRIES_MAX: u32 = 4;
/// Pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause that a receiver may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Where telemetry goes, and its bounds.
#[derive(Debug, Clone)]
pub struct TelemetryOptions {
    /// Base URL; `/v1/traces` and `/v1/metrics` are appended.
    pub endpoint: String,
    /// Headers, each as `name: value`.
    pub headers: Vec<String>,
    pub ca_file: Option<PathBuf>,
    /// `service.name`.
    pub service: String,
    /// `service.instance.id`.
    pub instance: String,
    pub traces: bool,
    pub metrics: bool,
    /// Ratio of sampled requests among those whose client does not decide.
    pub sample_ratio: f64,
    /// Time between two exports of metrics. Spans are sent at least as often, and earlier if a
    /// batch is full.
    pub interval: Duration,
    /// Deadline of one message.
    pub timeout: Duration,
    /// Most finished requests that wait.
    pub queue_max: usize,
    /// Most requests in one message.
    pub batch_max: usize,
    /// Most spans of one request, besides its own.
    pub spans_max: usize,
    /// Longest time to send what is left at the end.
    pub flush_max: Duration,
}

/// Running export.
pub struct TelemetryHandle {
    tracer: Option<Arc<RequestTracer>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// State that both tasks share.
struct TelemetryExporter {
    post: OtlpHttpClient,
    resource: Resource,
    metrics: Arc<TelemetryMetrics>,
    options: TelemetryOptions,
    stop: CancellationToken,
}

impl TelemetryHandle {
    /// Starts the export of the registry's metrics and the tracer's spans. Must be called within a
    /// tokio runtime.
    pub fn start(options: TelemetryOptions, registry: &Registry) -> Result<Self, TelemetryError> {
        let post = OtlpHttpClient::new(
            &options.endpoint,
            &options.headers,
            options.ca_file.as_deref(),
            options.timeout,
        )?;
        let metrics = Arc::new(TelemetryMetrics::new(registry, options.queue_max)?);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (queue, finished) = mpsc::channel(options.queue_max.max(1));
        let tracer = options.traces.then(|| {
            let (sample_ratio, spans_max) = (options.sample_ratio, options.spans_max);
            Arc::new(RequestTracer { queue, sample_ratio, spans_max, metrics: metrics.clone() })
        });
        let resource = Resource {
            attributes: vec![
                otlp_spans::text_attribute("service.name", &options.service),
                otlp_spans::text_attribute("service.instance.id", &options.instance),
                otlp_spans::text_attribute("service.version", env!("CARGO_PKG_VERSION")),
            ],
            ..Resource::default()
        };
        let (traces, figures) = (options.traces, options.metrics);
        let exporter =
            Arc::new(TelemetryExporter { post, resource, metrics, options, stop: stop.clone() });
        if traces {
            tasks.spawn(exporter.clone().export_spans(finished));
        }
        if figures {
            tasks.spawn(exporter.export_metrics(registry.clone()));
        }
        Ok(Self { tracer, stop, tasks })
    }

    /// Returns the tracer for requests. `None`: traces are off.
    pub fn request_tracer(&self) -> Option<Arc<RequestTracer>> {
        self.tracer.clone()
    }

    /// Sends what is left, for up to `flush_max`. Call it when all requests have ended.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl TelemetryExporter {
    /// Sends spans until the stop, and then what is left.
    async fn export_spans(self: Arc<Self>, mut queue: mpsc::Receiver<FinishedTrace>) {
        let (mut batch, mut heard) = (Vec::new(), ReceiverHealth::default());
        let mut tick = interval_at(Instant::now() + self.options.interval, self.options.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let room = self.options.batch_max.saturating_sub(batch.len());
            let due = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                _ = tick.tick() => true,
                taken = queue.recv_many(&mut batch, room) => {
                    self.metrics.queue.sub(i64::try_from(taken).unwrap_or(0));
                    batch.len() >= self.options.batch_max
                }
            };
            if due && !batch.is_empty() {
                let until = self.wait_for_end();
                tokio::select! {
                    () = self.deliver_batch(&batch, &mut heard) => {}
                    () = until => self.metrics.count_dropped("shutdown", spans_of(&batch)),
                }
                batch.clear();
            }
        }
        // The rest has one deadline in all.
        queue.close();
        while let Ok(finished) = queue.try_recv() {
            self.metrics.queue.dec();
            batch.push(finished);
        }
        let mut left = batch.as_slice();
        let flush = async {
            while !left.is_empty() {
                let (now, later) = left.split_at(left.len().min(self.options.batch_max.max(1)));
                self.deliver_batch(now, &mut heard).await;
                left = later;
            }
        };
        if timeout(self.options.flush_max, flush).await.is_err() {
            let spans = spans_of(left);
            self.metrics.count_dropped("shutdown", spans);
            warn!(
                spans,
                "the receiver of telemetry did not take the last spans in time; they are lost"
            );
        }
    }

    /// Waits until `flush_max` after the stop.
    async fn wait_for_end(&self) {
        self.stop.cancelled().await;
        sleep(self.options.flush_max).await;
    }

    /// Sends one batch, with a few tries, and counts the result.
    async fn deliver_batch(&self, batch: &[FinishedTrace], heard: &mut ReceiverHealth) {
        let (message, spans) = (otlp_spans::spans_message(&self.resource, batch), spans_of(batch));
        let mut pause = PAUSE;
        for tried in 1.. {
            let sent = self.post.send("/v1/traces", &message).await;
            self.note_delivery("traces", &sent, heard);
            match sent {
                PostOutcome::Taken { rejected, .. } => {
                    let rejected = usize::try_from(rejected).unwrap_or(spans).min(spans);
                    self.metrics.count_dropped("rejected", rejected);
                    self.metrics.spans_exported.inc_by((spans - rejected) as u64);
                    return;
                }
                PostOutcome::Refused(_) => return self.metrics.count_dropped("rejected", spans),
                PostOutcome::Later { after, .. } => {
                    // After the stop, other batches need the time more than pauses do.
                    if tried >= TRIES_MAX || self.stop.is_cancelled() {
                        return self.metrics.count_dropped("undeliverable", spans);
                    }
                    let wait = Instant::now() + after.unwrap_or(pause).min(PAUSE_MAX);
                    self.stop.run_until_cancelled(sleep_until(wait)).await;
                    pause *= 2;
                }
            }
        }
    }

    /// Sends the metrics at each interval, and once more at the end.
    async fn export_metrics(self: Arc<Self>, registry: Registry) {
        let (began_ns, mut heard) = (now_ns(), ReceiverHealth::default());
        let mut tick = interval_at(Instant::now() + self.options.interval, self.options.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.stop.run_until_cancelled(tick.tick()).await.is_some() {
            tokio::select! {
                () = self.send_metrics(&registry, began_ns, &mut heard) => {}
                () = self.wait_for_end() => return,
            }
        }
        let _ = timeout(self.options.flush_max, self.send_metrics(&registry, began_ns, &mut heard))
            .await;
    }

    async fn send_metrics(&self, registry: &Registry, began_ns: u64, heard: &mut ReceiverHealth) {
        let message = otlp_metrics::metrics_message(
            &self.resource,
            &registry.gather(),
            MetricPeriod { began_ns, now_ns: now_ns() },
        );
        let sent = self.post.send("/v1/metrics", &message).await;
        self.note_delivery("metrics", &sent, heard);
    }

    /// Counts a message, and logs when the receiver goes or comes back.
    fn note_delivery(&self, signal: &'static str, sent: &PostOutcome, heard: &mut ReceiverHealth) {
        let (outcome, why) = match sent {
            PostOutcome::Taken { rejected: 0, .. } => ("ok", None),
            PostOutcome::Taken { why, .. } => ("ok", Some(why)),
            PostOutcome::Refused(why) => ("refused", Some(why)),
            PostOutcome::Later { why, .. } => ("failed", Some(why)),
        };
        self.metrics.count_export(signal, outcome);
        let endpoint = &self.options.endpoint;
        match (why, heard.trouble) {
            (Some(why), false) => {
                warn!(
                    signal,
                    endpoint,
                    why,
                    "the receiver of telemetry does not take all of it; what it does not take is \
                    dropped and counted"
                );
            }
            (None, true) => info!(signal, endpoint, "the receiver of telemetry takes it again"),
            (Some(_), true) | (None, false) => {}
        }
        heard.trouble = why.is_some();
    }
}

/// The receiver's last known state.
#[derive(Default)]
struct ReceiverHealth {
    trouble: bool,
}

fn spans_of(batch: &[FinishedTrace]) -> usize {
    batch.iter().map(|finished| finished.spans.len()).sum()
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
