//! Takes one request through the gateway that came by lent memory: the same bounds, operations,
//! headers and ending as a request over HTTP. Its sender has proven itself for the whole connection,
//! so the request carries no signature.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt as _, Either};
use s3s::{Body, HttpError, HttpResponse, S3ErrorCode};
use verbs3_lending::LentSource;
use verbs3_rdma::foreign_memory::BodyPlace;

use super::connection_caller::CallerVisit;
use super::connection_peer::ConnectionPeer;
use super::gateway_front::{GatewayFront, answer_of, answer_of_read, code_of};
use super::outbound_body::{OutboundBody, RequestEnding};
use crate::auth::AuthIdentity;
use crate::http_exchange::HttpExchange;
use crate::metrics::DenialReason;
use crate::plain_read::PlainReadOutcome;
use crate::request_context::{RequestContext, RequestId};
use crate::s3_rdma::PulledBody;

/// What a write writes: memory that a process of this host lends, or memory of a client of another
/// host. `None`: a read.
pub(crate) type LentRequestBody = Option<Either<LentSource, PulledBody>>;

impl GatewayFront {
    /// Answers a request of an identity that is in force now. `body_place`: where a read's body is to
    /// land, if it can.
    pub async fn answer_lent_request(
        &self,
        request: Request<LentRequestBody>,
        body_place: Option<Arc<BodyPlace>>,
        identity: Arc<AuthIdentity>,
        peer: &ConnectionPeer,
    ) -> Response<OutboundBody> {
        let visit = peer.caller.begin_request(Version::HTTP_11);
        self.answer_known_request(request, body_place, identity, peer, Some(visit)).await
    }

    /// Answers a request of an identity that is in force now, which came in some other way than by
    /// HTTP. `visit`: it counts as one of its connection.
    pub(super) async fn answer_known_request(
        &self,
        mut request: Request<LentRequestBody>,
        body_place: Option<Arc<BodyPlace>>,
        identity: Arc<AuthIdentity>,
        peer: &ConnectionPeer,
        visit: Option<CallerVisit>,
    ) -> Response<OutboundBody> {
        let trace = self.tracer.get().and_then(|tracer| tracer.begin_trace(request.headers()));
        let cx = RequestContext::new(RequestId::generate(), Instant::now())
            .with_trace(trace)
            .with_body_place(body_place);
        let exchange = self.begin_exchange(cx, peer.caller.clone());
        let mut ending = self.expect_ending(&exchange, &request, visit);
        request.extensions_mut().insert(exchange.clone());
        request.extensions_mut().insert(exchange.cx.clone());
        let called = match exchange.admit_identity(identity).await {
            Ok(()) => {
                let request = self.bound_source(request, &exchange);
                self.call_recognised(request, &exchange).await
            }
            Err(refused) => Ok(answer_of(refused)),
        };
        exchange.drop_body();
        let mut response = self.finish_response(called, &exchange, false, &ending.method);
        self.complete_answer(&mut response, &mut ending);
        response.map(|body| OutboundBody::new(body, ending, peer.progress.clone()))
    }

    /// Refuses a request that never becomes one of HTTP: its key is no longer in force, or, where
    /// `is_known`, HTTP has no such request.
    pub fn refuse_lent_request(
        &self,
        method: Method,
        is_known: bool,
        peer: &ConnectionPeer,
    ) -> Response<OutboundBody> {
        let cx = RequestContext::new(RequestId::generate(), Instant::now());
        let exchange = self.begin_exchange(cx, peer.caller.clone());
        let code = if is_known { S3ErrorCode::InvalidRequest } else { S3ErrorCode::AccessDenied };
        if !is_known {
            self.metrics.count_denial(DenialReason::UnknownKey);
        }
        let mut response = answer_of(code.into());
        self.add_headers(&mut response, &exchange);
        let (metrics, uri) = (self.metrics.clone(), Uri::default());
        let mut ending = RequestEnding::begin_ending(exchange, metrics, method, uri, None);
        ending.status = response.status().as_u16();
        ending.code = code_of(response.body());
        response.map(|body| OutboundBody::new(body, ending, peer.progress.clone()))
    }

    /// Makes the body one that is counted, and whose memory is reserved before its first piece is
    /// taken. It is never late, as one over HTTP could be.
    fn bound_source(
        &self,
        request: Request<LentRequestBody>,
        exchange: &Arc<HttpExchange>,
    ) -> Request<Body> {
        let (parts, source) = request.into_parts();
        let Some(source) = source else { return Request::from_parts(parts, Body::empty()) };
        let _ = exchange.body.set(self.bodies.make_reservation(&exchange.cx, &parts));
        let metrics = self.metrics.clone();
        let exchange = exchange.clone();
        let counted = source.map_frame(move |frame| {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            metrics.bytes_in.inc_by(bytes);
            exchange.cx.tenant().metrics().bytes_received.inc_by(bytes);
            frame
        });
        Request::from_parts(parts, Body::http_body(counted))
    }

    /// Calls the operation: plain reads by the short way, all else through s3s, which asks for no
    /// signature where the sender is noted.
    async fn call_recognised(
        &self,
        request: Request<Body>,
        exchange: &Arc<HttpExchange>,
    ) -> Result<HttpResponse, HttpError> {
        if let Some(plain_reads) = &self.plain_reads {
            match plain_reads.try_recognised(&request, exchange).await {
                PlainReadOutcome::Answered(answer) => {
                    self.metrics.plain_reads.inc();
                    let answer_of = |error| answer_of_read(error, &exchange.cx);
                    return Ok(answer.unwrap_or_else(answer_of));
                }
                PlainReadOutcome::TierDeclined | PlainReadOutcome::NotPlain => {}
            }
        }
        // In a box: s3s's future is much larger than that of a plain read.
        Box::pin(self.service.call(request)).await
    }
}
