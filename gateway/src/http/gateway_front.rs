//! Answers one request: plain reads by `plain_read`, all else through s3s. Owns the places of
//! strangers' requests, the request's id, and the headers that every answer carries. Replaces s3s's
//! answer where the UFS gave one, or a body was refused. Spawns nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header,
};
use http_body::Body as _;
use memchr::memmem;
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse, S3Error, S3ErrorCode, S3Result};
use tracing::{Instrument, debug_span, error};
use verbs3_telemetry::RequestTracer;

use super::connection_caller::{CallerVisit, ConnectionCaller};
use super::connection_peer::ConnectionPeer;
use super::form::{self, FormUploads};
use super::host_domains::{self, OwnHosts};
use super::hyper_body::HttpRequestBody;
use super::inbound_body::InboundBounds;
use super::outbound_body::{self, OutboundBody, RequestEnding};
use super::signed_url;
use super::sigv4_demands::{self, UnsignedHeaders};
use super::xml_references::write_references;
use crate::cors::{CorsRequester, CorsResponder};
use crate::http_exchange::{HttpExchange, RequestPlaces, TenantBounds};
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::plain_read::{PlainReadOutcome, PlainReadRoute};
use crate::request_context::{RequestContext, RequestId};
use crate::s3_errors::slow_down;
use crate::s3_rdma::{RdmaEndpoints, RdmaWish};
use crate::ufs_answer::{REQUEST_ID, pass_headers};
use crate::write::body_budget::BodyBudget;
use crate::write::body_fault::BodyFault;

const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");
const CACHE: HeaderName = HeaderName::from_static("x-verbs3-cache");
const TRANSPORT: HeaderName = HeaderName::from_static("x-verbs3-transport");
const HOME: HeaderName = HeaderName::from_static("x-verbs3-home");

/// A request from a page of another origin, or its preflight.
struct CrossOriginRequest {
    bucket: String,
    /// The page's origin. `None`: a preflight, which is answered from the CORS configuration alone.
    page: Option<HeaderValue>,
}

/// The state that all connections of a gateway share.
pub(crate) struct GatewayFront {
    pub service: S3Service,
    pub metrics: Arc<GatewayHttpMetrics>,
    /// Places for requests that wait for something before their signature is verified.
    pub unproven: RequestPlaces,
    pub own_hosts: OwnHosts,
    pub bodies: InboundBounds,
    /// Memory for answers that wait for HTTP/2 and no longer count as requests under way.
    pub answers: Arc<BodyBudget>,
    pub bounds: Arc<TenantBounds>,
    pub forms: FormUploads,
    /// Largest clock difference for signatures whose time s3s does not check itself.
    pub clock_skew_max: Duration,
    /// False where clients must not learn what the cache did.
    pub shows_cache: bool,
    /// The gateway is about to stop: each answer of HTTP/1.1 ends its connection.
    pub is_leaving: AtomicBool,
    /// Set before the first request where requests are traced.
    pub tracer: OnceLock<Arc<RequestTracer>>,
    pub cors: Arc<CorsResponder>,
    pub rdma: RdmaEndpoints,
    /// `None`: s3s takes plain reads, too.
    pub plain_reads: Option<PlainReadRoute>,
}

impl GatewayFront {
    /// Answers one request. Errs only to have hyper cut the connection.
    pub async fn serve_request(
        &self,
        request: Request<HttpRequestBody>,
        peer: ConnectionPeer,
        scheme: &'static str,
    ) -> Result<Response<OutboundBody>, HttpError> {
        let visit = peer.caller.begin_request(request.version());
        let expects = request.headers().contains_key(header::EXPECT);
        let unasked = expects && request.body().is_end_stream();
        let version = request.version();
        let foreign = self.cross_origin_request(&request);
        let rdma_wish = RdmaWish::of_request(&request);
        let id = RequestId::generate();
        let trace = self.tracer.get().and_then(|tracer| tracer.begin_trace(request.headers()));
        let cx = RequestContext::new(id, Instant::now()).with_trace(trace);
        let exchange = self.begin_exchange(cx, peer.caller);
        let mut ending = self.expect_ending(&exchange, &request, Some(visit));
        let mut response = match self.admit_request(&request, &exchange) {
            Ok(()) => match &foreign {
                Some(CrossOriginRequest { bucket, page: None }) => {
                    let answering = self.answer_preflight(bucket, request.headers(), &exchange);
                    self.answer_unless_displaced(&exchange, answering).await
                }
                Some(CrossOriginRequest { page: Some(_), .. }) | None => {
                    let span = debug_span!("request", id = %exchange.cx.request_id());
                    let answering =
                        self.answer_request(request, &exchange, &ending.method, scheme, rdma_wish);
                    let answered = if span.is_disabled() && !exchange.holds_strangers_place() {
                        answering.await
                    } else {
                        let answering = answering.instrument(span);
                        self.answer_unless_displaced(&exchange, answering).await
                    };
                    exchange.drop_body();
                    answered
                }
            },
            Err(refused) => {
                self.metrics.count_denial(DenialReason::Unproven);
                answer_of(refused)
            }
        };
        if let Some(CrossOriginRequest { bucket, page: Some(origin) }) = &foreign
            && self.may_look_up(&exchange)
        {
            let asker = asker_of(&exchange);
            let decorating = Box::pin(self.cors.decorate_answer(
                bucket,
                asker,
                origin,
                &ending.method,
                response.headers_mut(),
            ));
            match exchange.displacement_token() {
                Some(displaced) => drop(displaced.run_until_cancelled(decorating).await),
                None => decorating.await,
            }
        }
        write_references(&mut response, exchange.operation_name());
        self.complete_answer(&mut response, &mut ending);
        self.note_rdma(rdma_wish, &mut response);
        // A client that expects 100 Continue may take another answer for the next request's.
        // botocore does, and then waits for a minute. Closing the connection gives it a new one.
        let is_spoiled = unasked || (expects && ending.status >= 400);
        // So does an answer that comes before the end of its request: hyper may drop the rest, and
        // then the connection.
        let is_early = peer.progress.is_unread();
        let ends_connection = is_spoiled || is_early || self.is_leaving.load(Ordering::Relaxed);
        if ends_connection && version < Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let (mut parts, mut body) = response.into_parts();
        let outbound = if version == Version::HTTP_2 {
            let place = outbound_body::place_for_http2(
                &mut body,
                &mut parts.headers,
                &exchange,
                &self.answers,
            );
            OutboundBody::over_http2(body, ending, peer.progress, place)
        } else {
            OutboundBody::new(body, ending, peer.progress)
        };
        Ok(Response::from_parts(parts, outbound))
    }

    /// Begins the exchange of one request of a caller.
    pub(super) fn begin_exchange(
        &self,
        cx: RequestContext,
        caller: Arc<ConnectionCaller>,
    ) -> Arc<HttpExchange> {
        Arc::new(HttpExchange::new(Arc::new(cx), caller, self.bounds.clone()))
    }

    /// Begins what is counted and logged of a request when its answer ends.
    pub(super) fn expect_ending<B>(
        &self,
        exchange: &Arc<HttpExchange>,
        request: &Request<B>,
        visit: Option<CallerVisit>,
    ) -> RequestEnding {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let (exchange, metrics) = (exchange.clone(), self.metrics.clone());
        RequestEnding::begin_ending(exchange, metrics, method, uri, visit)
    }

    /// Completes an answer's head, and notes what it says in `ending`.
    pub(super) fn complete_answer(&self, response: &mut HttpResponse, ending: &mut RequestEnding) {
        self.add_headers(response, &ending.exchange);
        ending.status = response.status().as_u16();
        if response.status().is_client_error() || response.status().is_server_error() {
            ending.code = code_of(response.body());
            self.note_denial(&ending.exchange, ending.code.as_deref());
        }
        strip_body(response, &ending.method);
    }

    /// Takes a stranger's place for a request that may wait before its sender is known. All others
    /// wait for nothing until then, and take a place of their tenant's (`admit_identity`).
    fn admit_request(
        &self,
        request: &Request<HttpRequestBody>,
        exchange: &HttpExchange,
    ) -> S3Result<()> {
        if may_wait_unproven(request) {
            let place = self.unproven.take_place_of(exchange.caller.counted_address());
            exchange.hold_place(place.ok_or_else(slow_down)?);
        }
        Ok(())
    }

    /// Answers a request, or refuses it once it has to end in favour of another stranger's.
    async fn answer_unless_displaced(
        &self,
        exchange: &HttpExchange,
        answering: impl Future<Output = HttpResponse>,
    ) -> HttpResponse {
        let answering = Box::pin(answering);
        let Some(displaced) = exchange.displacement_token() else { return answering.await };
        match displaced.run_until_cancelled(answering).await {
            Some(answer) => answer,
            None => {
                exchange.release_places();
                self.metrics.count_denial(DenialReason::Unproven);
                answer_of(slow_down())
            }
        }
    }

    /// Returns whether an answer may wait for the bucket's CORS configuration. If too many
    /// strangers wait, a stranger's answer goes without.
    fn may_look_up(&self, exchange: &HttpExchange) -> bool {
        if exchange.proven_identity().is_some() {
            return true;
        }
        let place = self.unproven.take_place_of(exchange.caller.counted_address());
        let has_place = place.is_some();
        if let Some(place) = place {
            exchange.hold_place(place);
        }
        has_place
    }

    /// Answers an admitted request: plain reads by the short way, all else through s3s.
    async fn answer_request(
        &self,
        mut request: Request<HttpRequestBody>,
        exchange: &Arc<HttpExchange>,
        method: &Method,
        scheme: &'static str,
        rdma_wish: RdmaWish,
    ) -> HttpResponse {
        let (uri, headers) = (request.uri(), request.headers());
        let checked = host_domains::check_single_host(uri, headers);
        if let Err(refused) = checked.and_then(|()| self.own_hosts.check_host(uri, headers)) {
            return answer_of(refused);
        }
        if let Some(answer) = self.answer_rdma(rdma_wish, &request, exchange).await {
            return answer;
        }
        if let Some(plain_reads) = &self.plain_reads {
            match plain_reads.try_answer(&request, exchange).await {
                PlainReadOutcome::Answered(answer) => {
                    self.metrics.plain_reads.inc();
                    let answer = answer.unwrap_or_else(|error| answer_of_read(error, &exchange.cx));
                    return self.finish_response(Ok(answer), exchange, false, method);
                }
                // The signature has held, and the exchange knows whose: `AuthAccessGate::check` asks
                // it before it takes a request without one for a stranger's.
                PlainReadOutcome::TierDeclined => {
                    request.headers_mut().remove(header::AUTHORIZATION);
                    match signed_url::strip_signature(request.uri()) {
                        Ok(uri) => *request.uri_mut() = uri,
                        Err(refused) => return answer_of(refused),
                    }
                }
                PlainReadOutcome::NotPlain => {}
            }
        }
        // In a box: s3s's future is much larger than that of a plain read.
        Box::pin(self.call_s3s(request, exchange, method, scheme)).await
    }

    /// Answers a request through s3s.
    async fn call_s3s(
        &self,
        request: Request<HttpRequestBody>,
        exchange: &Arc<HttpExchange>,
        method: &Method,
        scheme: &'static str,
    ) -> HttpResponse {
        let signed_body = has_sha256(&request);
        let prepared = if form::is_form(request.method(), request.headers()) {
            self.prepare_form(request, exchange, scheme).await
        } else {
            self.prepare_request(request, exchange).map(|request| (request, None))
        };
        let (request, posted) = match prepared {
            Ok(prepared) => prepared,
            Err(refused) => return answer_of(refused),
        };
        let called = self.service.call(request).await;
        let put = self.finish_response(called, exchange, signed_body, method);
        match posted {
            Some(posted) => posted.answer_form(put),
            None => put,
        }
    }

    /// Returns the request's cross-origin part. `None` at once if there is neither `Origin` nor
    /// `OPTIONS`.
    fn cross_origin_request(
        &self,
        request: &Request<HttpRequestBody>,
    ) -> Option<CrossOriginRequest> {
        let page = request.headers().get(header::ORIGIN).cloned();
        let preflight = *request.method() == Method::OPTIONS;
        if page.is_none() && !preflight {
            return None;
        }
        let bucket = self.bucket_of(request.uri(), request.headers())?;
        Some(CrossOriginRequest { bucket, page: page.filter(|_| !preflight) })
    }

    /// Answers whether a page may send the request it asks about. Nobody signs this question; only
    /// the bucket's configuration decides the answer.
    async fn answer_preflight(
        &self,
        bucket: &str,
        request: &HeaderMap,
        exchange: &HttpExchange,
    ) -> HttpResponse {
        match self.cors.answer_preflight(bucket, asker_of(exchange), request).await {
            Ok(headers) => {
                let mut response = HttpResponse::new(Body::empty());
                *response.headers_mut() = headers;
                response
            }
            Err(refused) => answer_of(refused),
        }
    }

    pub(super) fn finish_response(
        &self,
        called: Result<HttpResponse, HttpError>,
        exchange: &HttpExchange,
        signed_body: bool,
        method: &Method,
    ) -> HttpResponse {
        let mut response = match called {
            Ok(response) => response,
            Err(cause) => {
                let cause: s3s::StdError = cause.into();
                error!(request = %exchange.cx.request_id(), %cause, "an answer could not be made");
                answer_of(S3ErrorCode::InternalError.into())
            }
        };
        if let Some(answer) = exchange.cx.take_answer() {
            let is_head = *method == Method::HEAD;
            let body = if is_head { Body::empty() } else { Body::from(answer.body.clone()) };
            response = HttpResponse::new(body);
            *response.status_mut() = answer.status;
            *response.headers_mut() = pass_headers(&answer.headers);
        } else if response.status() == StatusCode::INTERNAL_SERVER_ERROR
            && !exchange.entered.load(Ordering::Relaxed)
        {
            // s3s reads documents whole, and reports any fault of their bodies as an internal
            // error.
            let broken = exchange.proven_identity().is_some() && signed_body;
            let fault =
                exchange.fault.lock().take().or_else(|| broken.then_some(BodyFault::Sha256));
            if let Some(fault) = fault {
                self.metrics.body_refused(Some(fault.body_refusal()));
                response = answer_of(fault.into_error());
            }
        } else if *method == Method::HEAD
            && response.status() == StatusCode::OK
            && response.headers().contains_key(header::CONTENT_RANGE)
        {
            // s3s handles a range for GET alone.
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        response
    }

    /// Adds the headers that every answer carries.
    pub(super) fn add_headers(&self, response: &mut HttpResponse, exchange: &HttpExchange) {
        let cx = &exchange.cx;
        let headers = response.headers_mut();
        let id = HeaderValue::from_bytes(&cx.request_id().hex_digits())
            .expect("hexadecimal digits are a header value");
        if !headers.contains_key(HOST_ID) {
            headers.insert(HOST_ID, id.clone());
        }
        headers.insert(REQUEST_ID, id);
        headers.insert(header::SERVER, HeaderValue::from_static("verbs3"));
        headers.insert(header::DATE, super::date::current_date());
        // A store that is a gateway itself speaks of its own cache.
        for name in [CACHE, TRANSPORT, HOME] {
            headers.remove(name);
        }
        if !self.shows_cache {
            return;
        }
        if let Some(verdict) = cx.cache_verdict() {
            headers.insert(CACHE, HeaderValue::from_static(verdict.as_str()));
        }
        if let Some(via) = cx.bytes_origin() {
            headers.insert(TRANSPORT, HeaderValue::from_static(via.as_str()));
        }
        if cx.is_relayed() {
            headers.insert(HOME, HeaderValue::from_static("relayed"));
        }
    }

    /// Counts what s3s refused by itself: signatures, clocks, keys.
    fn note_denial(&self, exchange: &HttpExchange, code: Option<&str>) {
        if exchange.row.get().is_some() || exchange.counted.load(Ordering::Relaxed) {
            return;
        }
        let reason = match code {
            Some("InvalidAccessKeyId") => DenialReason::UnknownKey,
            Some("SignatureDoesNotMatch") => DenialReason::Signature,
            Some("RequestTimeTooSkewed") => DenialReason::Clock,
            Some("AccessDenied") => DenialReason::Expired,
            _ => return,
        };
        self.metrics.count_denial(reason);
    }
}

/// Removes the body from answers that have none, by method or status. HTTP/1 drops it by itself,
/// HTTP/2 would send it. The other headers stay as the UFS gave them.
fn strip_body(response: &mut HttpResponse, method: &Method) {
    let status = response.status();
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bodiless && *method != Method::HEAD {
        return;
    }
    *response.body_mut() = Body::empty();
    if !status.is_success() || bodiless {
        // The length belongs to the body that is not sent. A successful HEAD keeps it: it is the
        // object's.
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
}

/// Returns whether a request may keep its place for a while before its sender is known. All others
/// are refused at once.
fn may_wait_unproven(request: &Request<HttpRequestBody>) -> bool {
    let (method, headers) = (request.method(), request.headers());
    let has_body = !request.body().is_end_stream();
    *method == Method::OPTIONS
        || (has_body && (form::is_form(method, headers) || is_for_sts(headers)))
}

/// Returns whether a request is for STS: s3s reads its body before it checks the signature.
fn is_for_sts(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    values.any(|value| memmem::find(value.as_bytes(), b"/sts/").is_some())
}

fn asker_of(exchange: &HttpExchange) -> CorsRequester<'_> {
    match exchange.proven_identity() {
        Some(identity) => CorsRequester::Known(identity),
        None => CorsRequester::Stranger(exchange.caller.counted_address()),
    }
}

fn has_sha256(request: &Request<HttpRequestBody>) -> bool {
    request.headers().get("x-amz-content-sha256").is_some_and(|value| value.len() == 64)
}

/// Turns an error into an answer in S3's format.
pub(super) fn answer_of(error: S3Error) -> HttpResponse {
    let unsigned =
        error.source().and_then(|source| source.downcast_ref::<UnsignedHeaders>()).cloned();
    if let Some(UnsignedHeaders { names }) = unsigned {
        return sigv4_demands::unsigned_headers_response(&error, &names);
    }
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = HttpResponse::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// The same for a read. Where the store's own document is kept, it takes the place of this answer.
pub(super) fn answer_of_read(error: S3Error, cx: &RequestContext) -> HttpResponse {
    if cx.has_answer() { HttpResponse::new(Body::empty()) } else { answer_of(error) }
}

/// Returns the code in an error document. s3s keeps only the document.
pub(super) fn code_of(body: &Body) -> Option<Box<str>> {
    let document = body.bytes()?;
    let text = std::str::from_utf8(&document).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    Some(rest.split_once("</Code>")?.0.into())
}
