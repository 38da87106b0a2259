//! Owns delivery: a bounded queue of finished requests, the task that hands their spans to
//! OpenTelemetry's exporter in batches, and its end. An absent receiver costs the queue, a counter,
//! and two log lines: when it goes and when it comes back.
//!
//! The SDK's batch processor is not used: it does not say what it drops.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::metrics::{SpanDropReason, TelemetryMetrics};
use super::otlp_client::{OtlpHttpClient, ReceiverAnswer};
use super::settings::{OtlpProtocol, TelemetryOtlpSettings, TelemetrySettings};
use super::telemetry_error::TelemetryError;
use super::trace::{FinishedTrace, RequestTracer};

/// Repetitions of one message. Then it is dropped, since newer ones wait.
const RETRIES_MAX: u32 = 3;
/// Pause before the first repetition; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause that a receiver may ask for; the exporter's own bound.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Who a process is, for the receiver.
#[derive(Debug, Clone, Copy)]
pub struct TelemetrySource<'a> {
    /// `service.name`.
    pub service: &'a str,
    /// `service.instance.id`.
    pub instance: &'a str,
}

/// Running export.
pub struct TelemetryHandle {
    tracer: Arc<RequestTracer>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// State of the task that sends spans.
struct SpanSender {
    client: Arc<OtlpHttpClient>,
    exporter: SpanExporter,
    /// Tries once. At the end, other batches need the time more than pauses do.
    last_exporter: SpanExporter,
    metrics: Arc<TelemetryMetrics>,
    settings: TelemetryOtlpSettings,
    queue: mpsc::Receiver<FinishedTrace>,
    /// The next message.
    batch: Vec<FinishedTrace>,
    /// Spans of the message that is being sent.
    in_flight: usize,
}

impl TelemetryHandle {
    /// Starts the export of the tracer's spans; `registry` shows what becomes of them. `None` where
    /// no receiver is configured. Must be called within a tokio runtime.
    pub fn start(
        settings: &TelemetrySettings,
        source: TelemetrySource<'_>,
        registry: &Registry,
    ) -> Result<Option<Self>, TelemetryError> {
        let settings = settings.otlp.clone();
        let Some(endpoint) = &settings.endpoint else { return Ok(None) };
        let queue_max = settings.queue_max as usize;
        let metrics = Arc::new(TelemetryMetrics::with_queue_max(registry, queue_max)?);
        let client = Arc::new(OtlpHttpClient::new(&settings, metrics.clone())?);
        let retries = RetryPolicy::default()
            .with_max_retries(RETRIES_MAX as usize)
            .with_initial_delay(PAUSE)
            .with_max_delay(PAUSE_MAX);
        let mut exporter = build_exporter(&settings, endpoint, client.clone(), retries)?;
        let mut last_exporter =
            build_exporter(&settings, endpoint, client.clone(), RetryPolicy::disabled())?;
        let attributes = [
            KeyValue::new("service.name", source.service.to_owned()),
            KeyValue::new("service.instance.id", source.instance.to_owned()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let resource = Resource::builder_empty().with_attributes(attributes).build();
        exporter.set_resource(&resource);
        last_exporter.set_resource(&resource);
        let (enqueue, queue) = mpsc::channel(queue_max.max(1));
        let tracer = Arc::new(RequestTracer {
            queue: enqueue,
            sample_ratio: settings.sample_ratio,
            spans_max: settings.spans_max as usize,
            metrics: metrics.clone(),
        });
        let (batch, in_flight) = (Vec::new(), 0);
        let sender = SpanSender {
            client,
            exporter,
            last_exporter,
            metrics,
            settings,
            queue,
            batch,
            in_flight,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(sender.send_spans(stop.clone()));
        Ok(Some(Self { tracer, stop, task }))
    }

    /// Returns the tracer for requests.
    pub fn request_tracer(&self) -> Arc<RequestTracer> {
        self.tracer.clone()
    }

    /// Sends what is left, for up to `flush_max`. Call it when all requests have ended.
    pub async fn shutdown(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            warn!("the export of telemetry ended badly; its last spans are lost");
        }
    }
}

/// Builds an exporter that leaves nothing to the environment's variables.
fn build_exporter(
    settings: &TelemetryOtlpSettings,
    endpoint: &str,
    client: Arc<OtlpHttpClient>,
    retries: RetryPolicy,
) -> Result<SpanExporter, TelemetryError> {
    let protocol = match settings.protocol {
        OtlpProtocol::HttpProtobuf => Protocol::HttpBinary,
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_shared_http_client(client)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_protocol(protocol)
        // The deadline of all tries together; the client holds each message to its own.
        .with_timeout(settings.timeout.0 * (RETRIES_MAX + 1) + PAUSE_MAX * RETRIES_MAX)
        .with_retry_policy(retries)
        // `batch_max` bounds a message.
        .with_max_request_body_size(usize::MAX)
        .build()?;
    Ok(exporter)
}

impl SpanSender {
    /// Sends spans until the stop, and then what is left, for up to `flush_max`.
    async fn send_spans(mut self, stop: CancellationToken) {
        let (until, flush_max) = (stop.clone(), self.settings.flush_max.0);
        let end = async {
            until.cancelled().await;
            sleep(flush_max).await;
        };
        tokio::select! {
            () = self.send_batches(stop) => return,
            () = end => {}
        }
        self.queue.close();
        while let Ok(finished) = self.queue.try_recv() {
            self.metrics.queue.dec();
            self.batch.push(finished);
        }
        let spans = self.in_flight + count_spans(&self.batch);
        self.metrics.count_dropped(SpanDropReason::Shutdown, spans);
        warn!(
            spans,
            "the receiver of telemetry did not take the last spans in time; they are lost"
        );
    }

    /// Sends a batch when it is full or the interval is over. After the stop, sends what is left.
    async fn send_batches(&mut self, stop: CancellationToken) {
        let interval = self.settings.interval.0;
        let mut tick = interval_at(Instant::now() + interval, interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopped => {
                    stopped = true;
                    self.queue.close();
                }
                () = self.fill_batch() => self.deliver_batch(stopped).await,
                _ = tick.tick() => self.deliver_batch(stopped).await,
            }
            if stopped && self.batch.is_empty() && self.queue.is_empty() {
                return;
            }
        }
    }

    /// Takes requests from the queue until the batch is full, or no others can come.
    async fn fill_batch(&mut self) {
        while let room @ 1.. =
            (self.settings.batch_max.max(1) as usize).saturating_sub(self.batch.len())
        {
            match self.queue.recv_many(&mut self.batch, room).await {
                0 => return,
                taken => self.metrics.queue.sub(i64::try_from(taken).unwrap_or(0)),
            }
        }
    }

    /// Sends the batch, and counts the result.
    async fn deliver_batch(&mut self, stopped: bool) {
        let spans: Vec<_> = self.batch.drain(..).flatten().collect();
        if spans.is_empty() {
            return;
        }
        let count = spans.len();
        self.in_flight = count;
        let exporter = if stopped { &self.last_exporter } else { &self.exporter };
        let sent = exporter.export(spans).await;
        self.in_flight = 0;
        match (sent, self.client.last_answer()) {
            (Ok(()), ReceiverAnswer::Taken { rejected }) => {
                let rejected = usize::try_from(rejected).unwrap_or(count).min(count);
                self.metrics.count_dropped(SpanDropReason::Rejected, rejected);
                self.metrics.spans_exported.inc_by((count - rejected) as u64);
            }
            (_, ReceiverAnswer::Refused) => {
                self.metrics.count_dropped(SpanDropReason::Rejected, count)
            }
            _ => self.metrics.count_dropped(SpanDropReason::Undeliverable, count),
        }
    }
}

fn count_spans(batch: &[FinishedTrace]) -> usize {
    batch.iter().map(Vec::len).sum()
}
