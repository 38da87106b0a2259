//! Answers plain GETs and HEADs without s3s: the form of request that training reads have.
//!
//! Owns which requests are plain, and the proof of their signatures. Every doubt and every refusal
//! of a signature goes to s3s, which decides as if this way did not exist. So this way may accept
//! less than s3s, never more. Rights and bytes are those of the long way.

mod head_list;
mod plain_proof;
mod plain_request;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use s3s::dto::{GetObjectInput, HeadObjectInput};
use s3s::{Body, HttpResponse, S3Result};
use time::OffsetDateTime;

use crate::auth::{AuthIdentity, IdentityStore, ProofClock};
use crate::http::HostDomains;
use crate::http_exchange::HttpExchange;
use crate::mount::MountedBucket;
use crate::operations::{OperationCore, TableOperation as _};
use crate::read::{ACCEPT_RANGES, ObjectReader, ReadRequestPlan, TierAnswer};
pub(crate) use plain_proof::PlainProof;
use plain_request::PlainRequest;
pub(crate) use plain_request::PlainTarget;

/// What becomes of a request on the short way.
pub(crate) enum PlainReadOutcome {
    Answered(S3Result<HttpResponse>),
    /// Its signature holds, its sender is noted, and the tier has no answer. s3s has to ask the
    /// store for it, without a look at the signature, which may have expired since.
    TierDeclined,
    /// Nothing has been done, and s3s has to judge it.
    NotPlain,
}

/// The short way of plain reads.
pub(crate) struct PlainReadRoute {
    pub core: Arc<OperationCore>,
    pub reader: ObjectReader,
    pub identities: Arc<IdentityStore>,
    pub domains: HostDomains,
    /// Largest difference between a signature's time and now.
    pub clock_skew_max: Duration,
}

/// A plain read whose sender is known.
struct ProvenRead<'a> {
    plain: PlainTarget<'a>,
    mount: Arc<MountedBucket>,
    identity: Arc<AuthIdentity>,
}

impl PlainReadRoute {
    /// Answers a plain read out of the tier.
    pub async fn try_answer<B: http_body::Body>(
        &self,
        request: &Request<B>,
        exchange: &Arc<HttpExchange>,
    ) -> PlainReadOutcome {
        let Some(proven) = self.prove_request(request) else { return PlainReadOutcome::NotPlain };
        note_target(&proven.plain, exchange);
        if let Err(error) = exchange.admit_identity(proven.identity.clone()).await {
            return PlainReadOutcome::Answered(Err(error));
        }
        self.answer_proven(proven, exchange).await
    }

    /// Answers a plain read out of the tier whose sender has proven itself otherwise, and is noted.
    pub async fn try_recognised(
        &self,
        request: &Request<Body>,
        exchange: &Arc<HttpExchange>,
    ) -> PlainReadOutcome {
        let known = exchange.proven_identity().cloned();
        let proven = PlainTarget::recognise_target(request, &self.domains).zip(known).and_then(
            |(plain, identity)| {
                let mount = self.cached_mount(plain.bucket)?;
                Some(ProvenRead { plain, mount, identity })
            },
        );
        match proven {
            Some(proven) => {
                note_target(&proven.plain, exchange);
                self.answer_proven(proven, exchange).await
            }
            None => PlainReadOutcome::NotPlain,
        }
    }

    /// Returns the mount that answers for a bucket's objects. `None`: there is none, or it is not
    /// cached.
    pub fn cached_mount(&self, bucket: &str) -> Option<Arc<MountedBucket>> {
        self.core.mounts.resolve_bucket(bucket).filter(|mount| mount.cached)
    }

    async fn answer_proven(
        &self,
        proven: ProvenRead<'_>,
        exchange: &Arc<HttpExchange>,
    ) -> PlainReadOutcome {
        let is_head = proven.plain.is_head;
        match self.read_object(proven, exchange).await {
            Ok(Some(answer)) => PlainReadOutcome::Answered(Ok(build_response(answer, is_head))),
            Ok(None) => PlainReadOutcome::TierDeclined,
            Err(error) => PlainReadOutcome::Answered(Err(error)),
        }
    }

    /// Recognises a plain read, and proves its signature. `None`: s3s has to judge it.
    fn prove_request<'a, B: http_body::Body>(
        &self,
        request: &'a Request<B>,
    ) -> Option<ProvenRead<'a>> {
        let PlainRequest { target, proof } =
            PlainRequest::recognise_request(request, &self.domains)?;
        let mount = self.cached_mount(target.bucket)?;
        let identity = self.identities.get(proof.access_key)?;
        let now = OffsetDateTime::now_utc();
        let clock = ProofClock { now, skew_max: self.clock_skew_max };
        let is_signed = proof.is_signed_by(&identity, request, clock);
        is_signed.then_some(ProvenRead { plain: target, mount, identity })
    }

    /// Authorises and reads. `None`: the tier has no answer.
    async fn read_object(
        &self,
        proven: ProvenRead<'_>,
        exchange: &Arc<HttpExchange>,
    ) -> S3Result<Option<TierAnswer>> {
        let ProvenRead { plain, mount, identity } = proven;
        exchange.entered.store(true, Ordering::Relaxed);
        self.core.authorize_read(&identity, &mount, plain.key)?;
        let plan = ReadRequestPlan::of_plain(plain.key, plain.range, plain.checksums);
        if plain.is_head {
            self.reader.head_from_tier(&exchange.cx, &mount, &plan).await
        } else {
            self.reader.get_from_tier(&exchange.cx, &mount, &plan).await
        }
    }
}

/// Notes operation and target, for the log.
pub(crate) fn note_target(plain: &PlainTarget<'_>, exchange: &HttpExchange) {
    exchange.note_row(if plain.is_head { HeadObjectInput::INDEX } else { GetObjectInput::INDEX });
    let _ = exchange.target.set((plain.bucket.into(), plain.key.into()));
}

/// Builds what s3s would make of the same answer.
fn build_response(answer: TierAnswer, is_head: bool) -> HttpResponse {
    let TierAnswer { bytes, content_range, headers, body } = answer;
    let mut response = HttpResponse::new(body.map_or_else(Body::empty, Body::from));
    if content_range.is_some() && !is_head {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    *response.headers_mut() = headers;
    let headers = response.headers_mut();
    let own = [
        (header::ACCEPT_RANGES, Some(HeaderValue::from_static(ACCEPT_RANGES))),
        (header::CONTENT_LENGTH, Some(HeaderValue::from(bytes))),
        (header::CONTENT_RANGE, content_range.and_then(|range| HeaderValue::try_from(range).ok())),
    ];
    for (name, value) in own {
        // The object's own headers come first, as s3s has it.
        if let Some(value) = value
            && !headers.contains_key(&name)
        {
            headers.insert(name, value);
        }
    }
    response
}
