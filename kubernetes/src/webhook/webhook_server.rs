//! Answers the API server's reviews over TLS. Owns the bounds on callers.
//!
//! Callers are not authenticated, since API servers seldom have a certificate for that. So nobody
//! may hold anything for long: a connection carries one review, has a deadline over its whole life,
//! and gives way to others when places are needed. A body says its length first, and has a place in
//! memory before it is read. Whoever gets no answer goes on without a patch (`failurePolicy`).

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};
use verbs3_certificates::ListenerCertificates;
use verbs3_certificates::metrics::ReloadOutcome;
use verbs3_doors::{RareWarning, RoomLimits, WaitingRoom, address_group};
use verbs3_metrics::GaugeGuard;

use super::address_places::AddressPlaces;
use super::admission_review::answer_review;
use super::settings::WebhookSettings;
use crate::metrics::{ReviewOutcome, WebhookConnectionCut, WebhookMetrics};

/// Reviews that are parsed at once. A hostile body may take twenty times its bytes as a tree.
const PARSED_MAX: usize = 2;
/// Where reviews are posted.
const PATH: &str = "/inject";
/// Pause after an error of `accept` (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A connection does not give way for this long after it came: a job of many pods makes many
/// connections at once, and none may push out another.
const GRACE: Duration = Duration::from_secs(1);

/// The webhook: what it needs to serve.
pub struct WebhookServer {
    pub settings: WebhookSettings,
    pub certificates: Arc<ListenerCertificates>,
    pub metrics: Arc<WebhookMetrics>,
    /// Ends the acceptance of connections. Those that are there end within their deadline.
    pub stop: CancellationToken,
}

/// What connections share.
struct ReviewDesk {
    server: WebhookServer,
    places: Semaphore,
    /// The right to parse.
    parsing: Semaphore,
    by_address: AddressPlaces,
    warning: RareWarning,
}

impl WebhookServer {
    /// Serves until told to stop, and until all connections have ended.
    pub async fn serve_reviews(self, socket: TcpListener) {
        let settings = &self.settings;
        let (deadline, reviews_max) = (settings.deadline.0, settings.reviews_max as usize);
        let room = WaitingRoom::new(RoomLimits {
            places_max: settings.connections_max as usize,
            per_address_max: settings.connections_per_address_max as usize,
            grace: GRACE,
        });
        let (stop, tasks) = (self.stop.clone(), TaskTracker::new());
        tasks.spawn(follow_certificates(
            self.certificates.clone(),
            self.metrics.clone(),
            stop.clone(),
        ));
        let desk = Arc::new(ReviewDesk {
            server: self,
            places: Semaphore::new(reviews_max),
            parsing: Semaphore::new(PARSED_MAX),
            // API servers may all come from one address.
            by_address: AddressPlaces::new(reviews_max - reviews_max.div_ceil(4)),
            warning: RareWarning::new(),
        });
        while let Some(accepted) = stop.run_until_cancelled(socket.accept()).await {
            let (stream, address) = match accepted {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let metrics = desk.server.metrics.clone();
            let Some(guest) = room.admit_guest(address) else {
                metrics.connections_refused.inc();
                continue;
            };
            let desk = desk.clone();
            tasks.spawn(async move {
                let _counted = GaugeGuard::add_to(&metrics.connections, 1);
                let cut = tokio::select! {
                    served = timeout(deadline, desk.serve_connection(stream, address)) => {
                        match served {
                            Ok(()) => return,
                            Err(_) => WebhookConnectionCut::Late,
                        }
                    }
                    () = guest.wait_for_displacement() => WebhookConnectionCut::Displaced,
                };
                metrics.connections_cut[cut].inc();
                debug!(?cut, %address, "a connection was cut");
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

async fn follow_certificates(
    certificates: Arc<ListenerCertificates>,
    metrics: Arc<WebhookMetrics>,
    stop: CancellationToken,
) {
    metrics.tls_not_after.set(certificates.not_after());
    let pair = certificates.clone();
    let count_reload = |outcome: ReloadOutcome| {
        metrics.tls_reloads[outcome].inc();
        metrics.tls_not_after.set(pair.not_after());
    };
    certificates.follow_files(count_reload, stop).await;
}

impl ReviewDesk {
    async fn serve_connection(&self, stream: TcpStream, address: IpAddr) {
        let stream = match self.server.certificates.tls_acceptor().accept(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                self.server.metrics.tls_errors.inc();
                debug!(%error, %address, "a TLS handshake failed");
                return;
            }
        };
        let service = service_fn(|request: Request<Incoming>| async move {
            let answer = self.answer_request(request, address).await;
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.server.settings.deadline.0)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            debug!(%error, %address, "a connection ended early");
        }
    }

    async fn answer_request(
        &self,
        request: Request<Incoming>,
        address: IpAddr,
    ) -> Response<Full<Bytes>> {
        let (outcome, answer) = match self.review_request(request, address).await {
            Ok(answered) => answered,
            Err(refusal) => {
                if self.warning.may_warn(std::time::Instant::now()) {
                    warn!(%address, reason = refusal.answer_text, "a request was not answered");
                }
                (refusal.outcome, refusal.answer())
            }
        };
        self.server.metrics.reviews[outcome].inc();
        answer
    }

    async fn review_request(
        &self,
        request: Request<Incoming>,
        address: IpAddr,
    ) -> Result<(ReviewOutcome, Response<Full<Bytes>>), ReviewRefusal> {
        let settings = &self.server.settings;
        let (review_bytes_max, body_deadline) =
            (settings.review_max.as_usize(), settings.body_deadline.0);
        let refuse = |status, answer_text: String| ReviewRefusal {
            status,
            answer_text,
            outcome: ReviewOutcome::Malformed,
        };
        if request.uri().path() != PATH {
            return Err(refuse(StatusCode::NOT_FOUND, format!("reviews are posted to {PATH}")));
        }
        if request.method() != Method::POST {
            let reason = "reviews are posted".to_owned();
            return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, reason));
        }
        // Without a length nobody could say what place in memory the body needs.
        let Some(length) = request.body().size_hint().exact() else {
            let reason = "a review has a Content-Length".to_owned();
            return Err(refuse(StatusCode::LENGTH_REQUIRED, reason));
        };
        if length > review_bytes_max as u64 {
            let reason = format!(
                "the review has {length} bytes, and {review_bytes_max} are read \
                (webhook.review_max)"
            );
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        // Bodies that were before it have gone after this time.
        let share = self.by_address.acquire_place(address_group(address));
        let share = timeout(body_deadline, share).await.ok().flatten();
        let Some(_share) = share else {
            return Err(ReviewRefusal {
                status: StatusCode::SERVICE_UNAVAILABLE,
                answer_text: "too many reviews of this address are on their way".to_owned(),
                outcome: ReviewOutcome::Busy,
            });
        };
        // It is never closed.
        let _place = self.places.acquire().await;
        let _counted = GaugeGuard::add_to(&self.server.metrics.reviews_in_flight, 1);
        let body = Limited::new(request.into_body(), review_bytes_max).collect();
        let body = match timeout(body_deadline, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) => {
                let reason = format!("the review did not arrive: {error}");
                return Err(refuse(StatusCode::BAD_REQUEST, reason));
            }
            Err(_) => {
                let reason = "the review did not arrive in time (webhook.body_deadline)".to_owned();
                return Err(refuse(StatusCode::REQUEST_TIMEOUT, reason));
            }
        };
        // It is never closed. Nothing waits while it is held.
        let _turn = self.parsing.acquire().await;
        let answered = answer_review(&body, &self.server.settings).map_err(|error| {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            refuse(StatusCode::BAD_REQUEST, format!("{error}{cause}"))
        })?;
        let outcome = match answered.is_patched {
            true => ReviewOutcome::Patched,
            false => ReviewOutcome::Unchanged,
        };
        let mut answer = Response::new(Full::new(Bytes::from(answered.body)));
        let json = HeaderValue::from_static("application/json");
        answer.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok((outcome, answer))
    }
}

/// Why a request gets no review.
struct ReviewRefusal {
    status: StatusCode,
    /// What the caller is told.
    answer_text: String,
    outcome: ReviewOutcome,
}

impl ReviewRefusal {
    fn answer(self) -> Response<Full<Bytes>> {
        let mut answer = Response::new(Full::new(Bytes::from(format!("{}\n", self.answer_text))));
        *answer.status_mut() = self.status;
        answer
    }
}

#[cfg(test)]
mod tests;
