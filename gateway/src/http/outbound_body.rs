//! Owns an answer's body on its way to the socket, and the request's end. When the body or its
//! connection is over, the request is counted, logged, and gives up its place among the requests
//! under way. Changes no byte and copies none.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use http_body::{Body, Frame, SizeHint};
use s3s::StdError;
use tracing::Level;
use verbs3_metrics::MetricLabel;
use verbs3_telemetry::{KeyValue, RequestFacts, clamp_number};

use super::client_progress::{ClientProgress, ProgressTurn};
use super::connection_caller::CallerVisit;
use super::outbound_queue::{AnswerRest, QueuedAnswer};
use crate::http_exchange::HttpExchange;
use crate::metrics::GatewayHttpMetrics;
use crate::write::body_budget::{BodyBudget, BodyPlace};

/// Largest body in memory that holds no place among the requests under way: it costs no more than
/// the connection that it waits for.
const SMALL_BYTES: usize = 64 * 1024;

/// What to count and log of a request when it ends. It ends when this is dropped, even if the
/// client went away before there was an answer.
pub(crate) struct RequestEnding {
    pub exchange: Arc<HttpExchange>,
    pub metrics: Arc<GatewayHttpMetrics>,
    pub method: Method,
    pub uri: Uri,
    /// 0 without an answer.
    pub status: u16,
    /// S3's error code.
    pub code: Option<Box<str>>,
    pub bytes: u64,
    pub complete: bool,
    /// Moves into what is left of an answer over HTTP/2.
    pub visit: Option<CallerVisit>,
}

/// An answer's body, with the end of its request.
pub(crate) struct OutboundBody {
    inner: s3s::Body,
    turn: Option<ProgressTurn>,
    /// Set over HTTP/2.
    queued: Option<Arc<QueuedAnswer>>,
    place: Option<BodyPlace>,
    ending: RequestEnding,
}

impl OutboundBody {
    /// Makes a body for HTTP/1. An answer in memory of up to 64 KiB gives up its place among the
    /// requests under way.
    pub fn new(inner: s3s::Body, ending: RequestEnding, progress: Arc<ClientProgress>) -> Self {
        if small_bytes(&inner).is_some() {
            ending.exchange.release_places();
        }
        Self::begin_answer(inner, ending, progress)
    }

    /// Makes a body for HTTP/2, where many answers may wait on one connection. An answer without a
    /// place among the requests under way holds `place` instead (from [`place_for_http2`]).
    pub fn over_http2(
        inner: s3s::Body,
        ending: RequestEnding,
        progress: Arc<ClientProgress>,
        place: Option<BodyPlace>,
    ) -> Self {
        if place.is_some() || small_bytes(&inner) == Some(0) {
            ending.exchange.release_places();
        }
        let queued = QueuedAnswer::new(ending.metrics.http2_queued_bytes.clone());
        let mut outbound = Self::begin_answer(inner, ending, progress);
        (outbound.place, outbound.queued) = (place, Some(queued));
        outbound
    }

    fn begin_answer(
        inner: s3s::Body,
        ending: RequestEnding,
        progress: Arc<ClientProgress>,
    ) -> Self {
        let mut turn = ProgressTurn::new(progress);
        if !inner.is_end_stream() {
            turn.of_client();
        }
        Self { inner, turn: Some(turn), queued: None, place: None, ending }
    }

    fn pass_turn(&mut self, to_client: bool) {
        match &mut self.turn {
            Some(turn) if to_client => turn.of_client(),
            Some(turn) => turn.of_server(),
            None => {}
        }
    }
}

/// Takes memory of `budget` for an answer over HTTP/2 that holds no place among the requests under
/// way while it waits. `None`: it needs none, or none is left. If none is left, a stranger's answer
/// loses its body: strangers must not hold the places of others.
pub(super) fn place_for_http2(
    body: &mut s3s::Body,
    headers: &mut HeaderMap,
    exchange: &HttpExchange,
    budget: &BodyBudget,
) -> Option<BodyPlace> {
    let bytes = small_bytes(body).filter(|&bytes| bytes > 0)?;
    let place = budget.take_memory(&exchange.cx, bytes as u64);
    if place.is_none() && exchange.proven_identity().is_none() {
        headers.remove(header::CONTENT_LENGTH);
        *body = s3s::Body::empty();
    }
    place
}

fn small_bytes(body: &s3s::Body) -> Option<usize> {
    body.bytes().map(|bytes| bytes.len()).filter(|&bytes| bytes <= SMALL_BYTES)
}

impl RequestEnding {
    /// Begins what is counted and logged of a request when its answer ends. There is no answer yet.
    pub fn begin_ending(
        exchange: Arc<HttpExchange>,
        metrics: Arc<GatewayHttpMetrics>,
        method: Method,
        uri: Uri,
        visit: Option<CallerVisit>,
    ) -> Self {
        Self {
            exchange,
            metrics,
            method,
            uri,
            status: 0,
            code: None,
            bytes: 0,
            complete: false,
            visit,
        }
    }

    /// Returns the request's trace attributes, by OpenTelemetry's names where there are some.
    fn trace_facts(&self) -> RequestFacts {
        let cx = &self.exchange.cx;
        let operation = self.exchange.operation_name();
        let mut attributes = vec![
            KeyValue::new("http.request.method", self.method.to_string()),
            KeyValue::new("http.response.status_code", i64::from(self.status)),
            KeyValue::new("http.response.body.size", clamp_number(self.bytes)),
            KeyValue::new("verbs3.request_id", cx.request_id().to_string()),
            KeyValue::new("verbs3.complete", self.complete),
            KeyValue::new("verbs3.cache", cx.cache_verdict().label_text()),
            KeyValue::new("verbs3.transport", cx.bytes_origin().label_text()),
        ];
        let mut add_text =
            |name: &'static str, text: &str| attributes.push(KeyValue::new(name, text.to_owned()));
        if let Some(operation) = operation {
            add_text("rpc.system", "aws-api");
            add_text("rpc.method", operation);
        }
        match self.exchange.target.get() {
            Some((bucket, key)) => {
                add_text("aws.s3.bucket", bucket);
                if !key.is_empty() {
                    add_text("aws.s3.key", key);
                }
            }
            None => add_text("url.path", self.uri.path()),
        }
        if let Some(identity) = self.exchange.proven_identity() {
            add_text("user.name", identity.identity_name());
        }
        if let Some(code) = &self.code {
            add_text("error.type", code);
        }
        // By OpenTelemetry's rules a client's mistake is no failure of the server.
        let failed = match self.status {
            0 => Some("the client went away before there was an answer".into()),
            500.. => Some(self.code.clone().unwrap_or_default()),
            _ if !self.complete => Some("the body was not sent to its end".into()),
            _ => None,
        };
        RequestFacts { name: operation.unwrap_or("S3 request"), attributes, failed }
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                this.ending.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                this.pass_turn(true);
            }
            Poll::Ready(None) => {
                this.ending.complete = true;
                // Queued frames wait for the client.
                this.pass_turn(this.queued.is_some());
            }
            Poll::Ready(Some(Err(_))) | Poll::Pending => this.pass_turn(false),
        }
        match &this.queued {
            Some(queued) => {
                polled.map_ok(|frame| frame.map_data(|data| queued.enqueue_frame(data)))
            }
            None => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for OutboundBody {
    fn drop(&mut self) {
        // hyper does not poll for the end of a body whose length it knows.
        self.ending.complete |= self.inner.is_end_stream() || self.ending.method == Method::HEAD;
        if let (Some(queued), Some(turn)) = (self.queued.take(), self.turn.take()) {
            queued.hold_rest(AnswerRest {
                _body: std::mem::take(&mut self.inner),
                _turn: turn,
                _places: self.ending.exchange.take_places(),
                _visit: self.ending.visit.take(),
                _place: self.place.take(),
            });
        }
    }
}

impl Drop for RequestEnding {
    fn drop(&mut self) {
        self.exchange.release_places();
        let cx = &self.exchange.cx;
        let operation = self.exchange.row.get().copied();
        let seconds = cx.started_at().elapsed().as_secs_f64();
        let (verdict, origin) = (cx.cache_verdict(), cx.bytes_origin());
        cx.add_body_bytes(self.bytes);
        self.metrics.count_answer(operation, self.status);
        self.metrics.seconds.observe(seconds);
        self.metrics.count_sent_bytes(verdict, origin, self.bytes);
        cx.tenant().metrics().bytes_sent.inc_by(self.bytes);
        if let Some(trace) = cx.request_trace() {
            trace.finish_trace(|| self.trace_facts());
        }
        // A macro, because the level is part of a log line's static description.
        macro_rules! line {
            ($level:ident) => {{
                let (bucket, key) = self.exchange.target.get().map_or(("", ""), |(bucket, key)| (bucket, key));
                let path = if bucket.is_empty() { self.uri.path() } else { "" };
                tracing::event!(
                    target: "verbs3::access",
                    Level::$level,
                    request = %cx.request_id(),
                    method = %self.method,
                    op = self.exchange.operation_name().unwrap_or("none"),
                    bucket,
                    key,
                    path,
                    status = self.status,
                    code = self.code.as_deref().unwrap_or(""),
                    bytes = self.bytes,
                    complete = self.complete,
                    cache = verdict.label_text(),
                    transport = origin.label_text(),
                    seconds,
                    principal = self.exchange.proven_identity().map_or("", |identity| identity.identity_name()),
                    "request",
                )
            }};
        }
        match log_level(self.status, self.complete) {
            Level::WARN => line!(WARN),
            Level::INFO => line!(INFO),
            _ => line!(DEBUG),
        }
    }
}

/// Returns the level of a log line. Successes are not logged by default: a line for each hot GET
/// costs more than the GET.
fn log_level(status: u16, complete: bool) -> Level {
    match status {
        500.. => Level::WARN,
        100..400 if complete => Level::DEBUG,
        _ => Level::INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_are_logged_at_the_default_level_or_above() {
        for (status, complete, wanted) in [
            (200, true, Level::DEBUG),
            (206, true, Level::DEBUG),
            (304, true, Level::DEBUG),
            (200, false, Level::INFO),
            (0, false, Level::INFO),
            (404, true, Level::INFO),
            (500, true, Level::WARN),
            (503, false, Level::WARN),
        ] {
            assert_eq!(log_level(status, complete), wanted, "{status} {complete}");
        }
    }
}
