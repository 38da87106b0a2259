//! Takes requests about preload jobs out of s3s, after it has verified their signature.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use s3s::host::S3Host as _;
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result};

use super::preload_request::PreloadTarget;
use super::{NO_BUCKET, PATH, PreloadAnswer, PreloadJobs, refuse};
use crate::auth::{AuthIdentity, IdentityStore};
use crate::http::{HostDomains, LenientRoute};
use crate::http_exchange::HttpExchange;
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::mount::MountTable;
use crate::s3_errors::access_denied;
use crate::tenant_places::TenantPlaces;

/// Longest description of a job, in bytes: twice what coordinators keep of one.
const JOB_BYTES_MAX: usize = 128 * 1024;

/// The route, and what the other requests go to.
pub(crate) struct PreloadRoute {
    pub others: LenientRoute,
    /// `None`: there are no coordinators, and so no jobs.
    pub jobs: Option<Arc<dyn PreloadJobs>>,
    pub mounts: MountTable,
    pub identities: Arc<IdentityStore>,
    pub domains: HostDomains,
    pub metrics: Arc<GatewayHttpMetrics>,
    /// Places for questions to the coordinators.
    pub places: TenantPlaces,
}

impl PreloadRoute {
    /// Whether the request is about jobs: by its path, where its host names no bucket.
    fn is_about_jobs(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let rest = uri.path().strip_prefix(PATH);
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return false;
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).or(uri.host());
        host.and_then(|host| self.domains.parse_host_header(host).ok())
            .is_none_or(|named| named.bucket().is_none())
    }

    async fn answer_request(
        &self,
        request: S3Request<Body>,
        identity: &AuthIdentity,
    ) -> PreloadAnswer {
        let Some(jobs) = &self.jobs else {
            let reason = "there are no preload jobs without coordinators (cluster.coordinators)";
            return refuse(StatusCode::NOT_IMPLEMENTED, "unavailable", reason);
        };
        let S3Request { input, method, uri, headers, .. } = request;
        let refused = |refusal: PreloadAnswer| {
            if refusal.status == StatusCode::FORBIDDEN {
                self.metrics.count_denial(DenialReason::Policy);
            }
            refusal
        };
        let target = match PreloadTarget::read_request(&method, uri.path()) {
            Ok(target) => target,
            Err(refusal) => return refused(refusal),
        };
        let body = if target.takes_job() {
            if !signs_body(&headers) {
                let reason = "the signature does not cover the job: sign by header, with the \
                    body's SHA-256 (x-amz-content-sha256)";
                return refused(refuse(StatusCode::FORBIDDEN, "denied", reason));
            }
            match Limited::new(input, JOB_BYTES_MAX).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => {
                    let reason = format!(
                        "the job did not arrive, or has more than {JOB_BYTES_MAX} bytes: {error}"
                    );
                    return refuse(StatusCode::BAD_REQUEST, "malformed", &reason);
                }
            }
        } else {
            Bytes::new()
        };
        let query = uri.query().unwrap_or_default();
        let question = match target.make_question(query, &body, identity, &self.mounts) {
            Ok(question) => question,
            Err(refusal) => return refused(refusal),
        };
        // From here on nothing of the client is waited for.
        let place = self.places.try_take_place(identity.tenant(), 1, Instant::now());
        let Some(_place) = place else {
            self.metrics.count_denial(DenialReason::Preloads);
            let reason = "too many requests about jobs are under way; send it again later";
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable", reason);
        };
        jobs.ask_coordinators(question).await
    }
}

/// Whether the signature covers the body. Else whoever comes upon a signed URL could have anything
/// loaded that its signer may: a URL's signature is over `UNSIGNED-PAYLOAD`, whatever hash comes
/// with it, and one of version 2 covers no body.
fn signs_body(headers: &HeaderMap) -> bool {
    let by_header = headers
        .get(AUTHORIZATION)
        .is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256"));
    let has_hash = headers.get("x-amz-content-sha256").is_some_and(|hash| {
        hash.len() == 64 && hash.as_bytes().iter().all(|byte| byte.is_ascii_hexdigit())
    });
    by_header && has_hash
}

#[async_trait]
impl S3Route for PreloadRoute {
    fn is_match(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        extensions: &mut Extensions,
    ) -> bool {
        self.is_about_jobs(uri, headers) || self.others.is_match(method, uri, headers, extensions)
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        if !self.is_about_jobs(&request.uri, &request.headers) {
            return self.others.check_access(request).await;
        }
        let exchange = request.extensions.get::<Arc<HttpExchange>>().ok_or_else(access_denied)?;
        let _ = exchange.target.set((NO_BUCKET.into(), "preload".into()));
        let signed = request.credentials.as_ref();
        let identity = signed.and_then(|signed| self.identities.get(&signed.access_key));
        match identity {
            Some(identity) => exchange.admit_identity(identity).await,
            None => {
                self.metrics.count_denial(DenialReason::Anonymous);
                Err(access_denied())
            }
        }
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        if !self.is_about_jobs(&request.uri, &request.headers) {
            return self.others.call(request).await;
        }
        let exchange =
            request.extensions.get::<Arc<HttpExchange>>().cloned().ok_or_else(access_denied)?;
        let identity = exchange.proven_identity().ok_or_else(access_denied)?;
        let answer = self.answer_request(request, identity).await;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut response = S3Response::with_headers(Body::from(answer.body), headers);
        response.status = Some(answer.status);
        Ok(response)
    }
}
