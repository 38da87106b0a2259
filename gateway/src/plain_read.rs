//! Answers plain GETs and HEADs without s3s: the form of request that training reads have.
//!
//! Owns which requests are plain, and the proof of their signatures. Every doubt and every refusal
//! of a signature goes to s3s, which decides as if this way did not exist. So this way may accept
//! less than s3s, never more. Rights and bytes are those of the long way.

mod plain_proof;
mod plain_request;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use s3s::{Body, HttpResponse, S3Result};
use time::OffsetDateTime;

use crate::auth::{AuthIdentity, IdentityStore};
use crate::exchange::HttpExchange;
use crate::http::HostDomains;
use crate::mount::MountedBucket;
use crate::operation_table::TABLE;
use crate::operations::OperationCore;
use crate::read::{ACCEPT_RANGES, ReadRequestPlan, TierAnswer};
use plain_proof::ProofClock;
use plain_request::PlainRequest;

/// The short way of plain reads.
pub(crate) struct PlainReadRoute {
    pub core: Arc<OperationCore>,
    pub identities: Arc<IdentityStore>,
    pub domains: HostDomains,
    /// Largest difference between a signature's time and now.
    pub clock_skew_max: Duration,
}

impl PlainReadRoute {
    /// Answers a plain read out of the tier. `None`: s3s has to answer. If the exchange knows the
    /// identity by then, its signature has held, and the tier had no answer.
    pub async fn try_answer(
        &self,
        request: &Request<Body>,
        exchange: &Arc<HttpExchange>,
    ) -> Option<S3Result<HttpResponse>> {
        let plain = PlainRequest::recognise_request(request, &self.domains)?;
        let mount = self.core.mounts.resolve_bucket(plain.bucket).filter(|mount| mount.cached)?;
        let identity = self.identities.get(plain.proof.access_key)?;
        let now = OffsetDateTime::now_utc();
        let clock = ProofClock { now, skew_max: self.clock_skew_max };
        if !plain.proof.is_signed_by(&identity, request, clock) {
            return None;
        }
        let answered = self.read_object(&plain, &mount, identity, exchange).await.transpose()?;
        Some(answered.map(|answer| build_response(answer, plain.is_head)))
    }

    /// Authorises and reads. `None`: the tier has no answer.
    async fn read_object(
        &self,
        plain: &PlainRequest<'_>,
        mount: &Arc<MountedBucket>,
        identity: Arc<AuthIdentity>,
        exchange: &Arc<HttpExchange>,
    ) -> S3Result<Option<TierAnswer>> {
        let Some(reader) = &self.core.reader else { return Ok(None) };
        let name = if plain.is_head { "HeadObject" } else { "GetObject" };
        if let Some(row) = TABLE.iter().position(|row| row.name == name) {
            let _ = exchange.row.set(row);
        }
        let _ = exchange.target.set((plain.bucket.into(), plain.key.into()));
        exchange.recognise_identity(identity.clone()).await?;
        exchange.entered.store(true, Ordering::Relaxed);
        self.core.authorize_read(&identity, mount, plain.key)?;
        let plan = ReadRequestPlan::of_plain(plain.key, plain.range, plain.checksums);
        if plain.is_head {
            reader.head_from_tier(&exchange.cx, mount, &plan).await
        } else {
            reader.get_from_tier(&exchange.cx, mount, &plan).await
        }
    }
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
