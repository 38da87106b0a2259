//! One client that has proven who it is: what it may lend, whether its key is still in force, and
//! its reads as requests.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt as _;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::Body;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use verbs3_lending::{HeadListSink, LendingGuest};
use verbs3_lending_protocol::{LentHeadList, LentReadMethod, LentReadRequest};

use crate::auth::{AuthIdentity, IdentityStore};
use crate::http::{ConnectionPeer, GatewayFront, OutboundBody};
use crate::tenant_places::{TenantPlace, TenantPlaces};

/// What a path's segments are encoded in, as signatures of version 4 have it.
const IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same with the slashes of a key.
const IN_KEY: &AsciiSet = &IN_SEGMENT.remove(b'/');

/// The host that requests name. There is none; a name without a bucket in it makes them path style.
const LENDING_HOST: HeaderValue = HeaderValue::from_static("localhost");

/// Most HEADs of one list that are asked for by themselves at once.
const SINGLE_HEADS_MAX: usize = 16;

/// A client.
pub(super) struct GatewayLendingGuest {
    pub(super) front: Arc<GatewayFront>,
    pub(super) identities: Arc<IdentityStore>,
    pub(super) access_key: String,
    /// The identity that the proof held for.
    pub(super) proven: Arc<AuthIdentity>,
    pub(super) peer: ConnectionPeer,
    pub(super) memory: TenantPlaces,
    pub(super) mappings: TenantPlaces,
    /// Turns of HEADs of lists that are asked for by themselves: as many as one client may have reads
    /// in flight.
    pub(super) singles: Semaphore,
    pub(super) _place: TenantPlace,
}

impl GatewayLendingGuest {
    /// Returns the identity with its rules of now. `None`: its key is gone, or has another secret.
    fn current_identity(&self) -> Option<Arc<AuthIdentity>> {
        self.identities.get(&self.access_key).filter(|now| {
            let (now, proven) = (now.secret_key(), self.proven.secret_key());
            now.as_bytes().ct_eq(proven.as_bytes()).into()
        })
    }
}

impl LendingGuest for GatewayLendingGuest {
    type Body = OutboundBody;
    type MemoryPlace = TenantPlace;
    type MappingTurn = TenantPlace;

    fn take_memory(&self, bytes: u64) -> Option<TenantPlace> {
        self.memory.try_take_place(self.proven.tenant(), bytes, Instant::now())
    }

    async fn take_mapping_turn(&self) -> Option<TenantPlace> {
        self.mappings.take_place(self.proven.tenant(), 1, Instant::now()).await.ok()
    }

    fn is_welcome(&self) -> bool {
        self.current_identity().is_some()
    }

    async fn answer_read(&self, asked: LentReadRequest) -> Response<OutboundBody> {
        // Between the server's look and this one the key may have gone.
        let identity = self.current_identity();
        match (identity, build_request(&asked)) {
            (Some(identity), Some(request)) => {
                self.front.answer_lent_read(request, identity, &self.peer).await
            }
            (identity, _) => self.front.refuse_lent_read(identity.is_some(), &self.peer),
        }
    }

    async fn answer_heads(
        &self,
        list: LentHeadList,
        sink: &mut (dyn HeadListSink<OutboundBody> + Send),
    ) {
        let left: Vec<usize> = match self.current_identity() {
            Some(identity) => self.front.answer_head_list(&list, identity, &self.peer, sink).await,
            None => (0..list.keys.len()).collect(),
        };
        let ask = |at: usize| {
            let (bucket, key) = (list.bucket.clone(), list.keys[at].clone());
            let head =
                LentReadRequest { method: LentReadMethod::Head, bucket, key, headers: Vec::new() };
            async move {
                // Nobody closes it.
                let _turn = self.singles.acquire().await;
                (at, self.answer_read(head).await)
            }
        };
        let mut answers =
            futures::stream::iter(left.into_iter().map(ask)).buffer_unordered(SINGLE_HEADS_MAX);
        while let Some((at, answer)) = answers.next().await {
            sink.take_head(at, answer);
        }
    }
}

/// Builds the request that the same read over HTTP would be. `None`: HTTP has no such request.
fn build_request(asked: &LentReadRequest) -> Option<Request<Body>> {
    let bucket = utf8_percent_encode(&asked.bucket, IN_SEGMENT);
    let key = utf8_percent_encode(&asked.key, IN_KEY);
    let mut request = Request::new(Body::empty());
    *request.method_mut() = match asked.method {
        LentReadMethod::Get => Method::GET,
        LentReadMethod::Head => Method::HEAD,
    };
    *request.uri_mut() = Uri::try_from(format!("/{bucket}/{key}")).ok()?;
    request.headers_mut().insert(header::HOST, LENDING_HOST);
    for (name, value) in &asked.headers {
        let name = HeaderName::try_from(name).ok()?;
        request.headers_mut().insert(name, HeaderValue::try_from(value).ok()?);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn asked(bucket: &str, key: &str, range: &str) -> LentReadRequest {
        LentReadRequest {
            method: LentReadMethod::Get,
            bucket: bucket.into(),
            key: key.into(),
            headers: vec![("range".into(), range.into())],
        }
    }

    #[test]
    fn names_stay_in_their_part_of_the_path() {
        for (bucket, key, path) in [
            ("train", "a/b c.tar", "/train/a/b%20c.tar"),
            ("train", "a?versionId=1#x", "/train/a%3FversionId%3D1%23x"),
            ("tr/ain", "%2e", "/tr%2Fain/%252e"),
            ("train", "\u{e9}\r\n", "/train/%C3%A9%0D%0A"),
        ] {
            let request = build_request(&asked(bucket, key, "bytes=0-1")).unwrap();
            assert_eq!((request.uri().path(), request.uri().query()), (path, None));
        }
        assert!(build_request(&asked("train", "k", "bytes=0-1\r\nx: y")).is_none());
    }
}
