//! One client that has proven who it is: what it may lend, whether its key is still in force, and
//! its reads and writes as requests.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt as _;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Either;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use verbs3_lending::{HeadListSink, LendingGuest, LentSource};
use verbs3_lending_protocol::{
    LentHeadList, LentPart, LentReadMethod, LentReadRequest, LentWriteRequest,
};
use verbs3_rdma::foreign_memory::BodyPlace;

use crate::auth::{AuthIdentity, IdentityStore};
use crate::http::{ConnectionPeer, GatewayFront, LentRequestBody, OutboundBody};
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
    /// `None`: clients read no pages of workers.
    pub(super) pages: Option<TenantPlaces>,
    /// Turns of HEADs of lists that are asked for by themselves: as many as one client may have reads
    /// in flight.
    pub(super) singles: Semaphore,
    /// Bytes of other hosts' workers are received straight into its memory.
    pub(super) lands_directly: bool,
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

    fn take_pages(&self, bytes: u64) -> Option<TenantPlace> {
        self.pages.as_ref()?.try_take_place(self.proven.tenant(), bytes, Instant::now())
    }

    async fn take_mapping_turn(&self) -> Option<TenantPlace> {
        self.mappings.take_place(self.proven.tenant(), 1, Instant::now()).await.ok()
    }

    fn is_welcome(&self) -> bool {
        self.current_identity().is_some()
    }

    async fn answer_read(
        &self,
        asked: LentReadRequest,
        place: Option<Arc<BodyPlace>>,
    ) -> Response<OutboundBody> {
        // Between the server's look and this one the key may have gone.
        let identity = self.current_identity();
        let (method, request) = build_read(&asked);
        match (identity, request) {
            (Some(identity), Some(request)) => {
                let place = place.filter(|_| self.lands_directly);
                self.front.answer_lent_request(request, place, identity, &self.peer).await
            }
            (identity, _) => self.front.refuse_lent_request(method, identity.is_some(), &self.peer),
        }
    }

    async fn answer_write(
        &self,
        asked: LentWriteRequest,
        source: LentSource,
    ) -> Response<OutboundBody> {
        match (self.current_identity(), build_write(&asked, source)) {
            (Some(identity), Some(request)) => {
                self.front.answer_lent_request(request, None, identity, &self.peer).await
            }
            (identity, _) => {
                self.front.refuse_lent_request(Method::PUT, identity.is_some(), &self.peer)
            }
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
                (at, self.answer_read(head, None).await)
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
fn build_read(asked: &LentReadRequest) -> (Method, Option<Request<LentRequestBody>>) {
    let method = match asked.method {
        LentReadMethod::Get => Method::GET,
        LentReadMethod::Head => Method::HEAD,
    };
    let path = object_path(&asked.bucket, &asked.key);
    (method.clone(), build_request(method, path, &asked.headers, None))
}

/// Builds the request that the same write over HTTP would be. `None`: HTTP has no such request.
fn build_write(asked: &LentWriteRequest, source: LentSource) -> Option<Request<LentRequestBody>> {
    let mut path = object_path(&asked.bucket, &asked.key);
    if let Some(LentPart { upload_id, number }) = &asked.part {
        let upload_id = utf8_percent_encode(upload_id, IN_SEGMENT);
        path += &format!("?partNumber={number}&uploadId={upload_id}");
    }
    let length = HeaderValue::from(source.bytes_left());
    let source = Some(Either::Left(source));
    let mut request = build_request(Method::PUT, path, &asked.headers, source)?;
    request.headers_mut().insert(header::CONTENT_LENGTH, length);
    Some(request)
}

fn object_path(bucket: &str, key: &str) -> String {
    format!("/{}/{}", utf8_percent_encode(bucket, IN_SEGMENT), utf8_percent_encode(key, IN_KEY))
}

fn build_request(
    method: Method,
    path: String,
    headers: &[(String, String)],
    body: LentRequestBody,
) -> Option<Request<LentRequestBody>> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::try_from(path).ok()?;
    request.headers_mut().insert(header::HOST, LENDING_HOST);
    for (name, value) in headers {
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
            let request = build_read(&asked(bucket, key, "bytes=0-1")).1.unwrap();
            assert_eq!((request.uri().path(), request.uri().query()), (path, None));
        }
        assert!(build_read(&asked("train", "k", "bytes=0-1\r\nx: y")).1.is_none());
    }
}
