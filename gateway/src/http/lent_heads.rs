//! Answers a list of HEADs that came by lent memory: each with the bounds, headers and ending of a
//! HEAD by itself, and all of them in one question to each home.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, Response, Uri, Version};
use verbs3_client::OpenOutcome;

use super::connection_peer::ConnectionPeer;
use super::gateway_front::{GatewayFront, answer_of};
use super::outbound_body::{OutboundBody, RequestEnding};
use crate::auth::AuthIdentity;
use crate::exchange::HttpExchange;
use crate::mount::MountedBucket;
use crate::plain_read::{PlainReadRoute, PlainTarget};
use crate::request::{RequestContext, RequestId};

/// HEADs that are answered without giving others a turn on the thread: some 200 µs of a core.
const HEADS_PER_TURN: usize = 32;

/// What all HEADs of a list share.
struct HeadListScope<'a> {
    plain_reads: &'a PlainReadRoute,
    mount: Arc<MountedBucket>,
    identity: Arc<AuthIdentity>,
    bucket: &'a str,
    peer: &'a ConnectionPeer,
    started: Instant,
}

impl GatewayFront {
    /// Answers HEADs of an identity that is in force now. The list counts as one request under way.
    /// `None`: this object has to be asked for by itself.
    pub async fn answer_lent_heads(
        &self,
        bucket: &str,
        keys: &[String],
        identity: Arc<AuthIdentity>,
        peer: &ConnectionPeer,
    ) -> Vec<Option<Response<OutboundBody>>> {
        let mut answers: Vec<_> = keys.iter().map(|_| None).collect();
        let started = Instant::now();
        let Some(plain_reads) = &self.plain_reads else { return answers };
        let Some(mount) = plain_reads.cached_mount(bucket) else { return answers };
        // Refused: each object's own request is, too, and says so.
        let Ok(_turn) = self.bounds.take_turn(identity.tenant(), started).await else {
            return answers;
        };
        let outcomes = plain_reads.open_heads(&mount, &identity, bucket, keys).await;
        let scope = HeadListScope { plain_reads, mount, identity, bucket, peer, started };
        for (at, outcome) in outcomes.into_iter().enumerate() {
            if let Some(outcome) = outcome {
                answers[at] = self.answer_listed_head(&scope, &keys[at], outcome).await;
            }
            if at % HEADS_PER_TURN == HEADS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        answers
    }

    async fn answer_listed_head(
        &self,
        scope: &HeadListScope<'_>,
        key: &str,
        outcome: OpenOutcome,
    ) -> Option<Response<OutboundBody>> {
        let HeadListScope { plain_reads, mount, identity, bucket, peer, started } = scope;
        let visit = peer.caller.begin_request(Version::HTTP_11);
        let cx = Arc::new(RequestContext::new(RequestId::generate(), *started));
        let exchange = Arc::new(HttpExchange::new(cx, peer.caller.clone(), self.bounds.clone()));
        exchange.note_identity(identity.clone());
        let plain = PlainTarget { bucket, key, is_head: true, range: None, checksums: false };
        let called = plain_reads.answer_head(&exchange, mount, &plain, outcome).await?;
        self.metrics.plain_reads.inc();
        let mut ending = RequestEnding {
            exchange: exchange.clone(),
            metrics: self.metrics.clone(),
            method: Method::HEAD,
            uri: Uri::default(),
            status: 0,
            code: None,
            bytes: 0,
            complete: false,
            visit: Some(visit),
        };
        let called = Ok(called.unwrap_or_else(answer_of));
        let mut response = self.finish_response(called, &exchange, false, &Method::HEAD);
        self.complete_answer(&mut response, &mut ending);
        Some(response.map(|body| OutboundBody::new(body, ending, peer.progress.clone())))
    }
}
