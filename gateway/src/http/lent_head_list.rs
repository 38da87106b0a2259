//! Answers a list of HEADs that came by lent memory: each with the bounds, headers and ending of a
//! HEAD by itself, and all of them in one question to each home.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, Response, Uri, Version};
use s3s::{HttpResponse, S3Result};
use verbs3_lending::HeadListSink;
use verbs3_lending_protocol::LentHeadList;

use super::connection_peer::ConnectionPeer;
use super::gateway_front::{GatewayFront, answer_of_read};
use super::outbound_body::{OutboundBody, RequestEnding};
use crate::auth::AuthIdentity;
use crate::http_exchange::HttpExchange;
use crate::plain_read::{PlainTarget, note_target};
use crate::request_context::{RequestContext, RequestId};
use crate::s3_errors::slow_down;

/// HEADs that are answered without giving others a turn on the thread: some 200 µs of a core.
const HEADS_PER_TURN: usize = 32;

/// What all HEADs of a list share.
struct HeadListScope<'a> {
    identity: Arc<AuthIdentity>,
    peer: &'a ConnectionPeer,
    started: Instant,
}

impl GatewayFront {
    /// Answers HEADs of an identity that is in force now. The list counts as one request under way.
    /// Returns which of the keys have to be asked for by themselves.
    pub async fn answer_head_list(
        &self,
        list: &LentHeadList,
        identity: Arc<AuthIdentity>,
        peer: &ConnectionPeer,
        sink: &mut (dyn HeadListSink<OutboundBody> + Send),
    ) -> Vec<usize> {
        let LentHeadList { bucket, keys, .. } = list;
        let started = Instant::now();
        let found = self.plain_reads.as_ref();
        let found =
            found.and_then(|plain_reads| Some((plain_reads, plain_reads.cached_mount(bucket)?)));
        let Some((plain_reads, mount)) = found else { return (0..keys.len()).collect() };
        let scope = HeadListScope { identity, peer, started };
        let Ok(_turn) = self.bounds.take_turn(scope.identity.tenant(), started).await else {
            for (at, key) in keys.iter().enumerate() {
                let exchange = self.begin_listed_head(&scope, bucket, key);
                sink.take_head(at, self.end_listed_head(&scope, exchange, Err(slow_down())));
            }
            return Vec::new();
        };
        let outcomes = plain_reads.open_heads(&mount, &scope.identity, bucket, keys).await;
        let mut left = Vec::new();
        for (at, (key, outcome)) in keys.iter().zip(outcomes).enumerate() {
            let Some(outcome) = outcome else {
                left.push(at);
                continue;
            };
            let exchange = self.begin_listed_head(&scope, bucket, key);
            let judged = plain_reads.answer_head(&exchange, &mount, key, outcome).await;
            self.metrics.plain_reads.inc();
            sink.take_head(at, self.end_listed_head(&scope, exchange, judged));
            if at % HEADS_PER_TURN == HEADS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        left
    }

    fn begin_listed_head(
        &self,
        scope: &HeadListScope<'_>,
        bucket: &str,
        key: &str,
    ) -> Arc<HttpExchange> {
        let cx = RequestContext::new(RequestId::generate(), scope.started);
        let exchange = self.begin_exchange(cx, scope.peer.caller.clone());
        exchange.note_identity(scope.identity.clone());
        let plain = PlainTarget { bucket, key, is_head: true, range: None, checksums: false };
        note_target(&plain, &exchange);
        exchange
    }

    fn end_listed_head(
        &self,
        scope: &HeadListScope<'_>,
        exchange: Arc<HttpExchange>,
        judged: S3Result<HttpResponse>,
    ) -> Response<OutboundBody> {
        let visit = scope.peer.caller.begin_request(Version::HTTP_11);
        let (metrics, uri) = (self.metrics.clone(), Uri::default());
        let mut ending =
            RequestEnding::begin_ending(exchange.clone(), metrics, Method::HEAD, uri, Some(visit));
        let called = Ok(judged.unwrap_or_else(|error| answer_of_read(error, &exchange.cx)));
        let mut response = self.finish_response(called, &exchange, false, &Method::HEAD);
        self.complete_answer(&mut response, &mut ending);
        response.map(|body| OutboundBody::new(body, ending, scope.peer.progress.clone()))
    }
}
