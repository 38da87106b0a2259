//! Answers cross-origin requests by the UFS's own CORS configuration of the bucket: browsers'
//! preflights, which are unsigned, and the CORS headers of other answers.
//!
//! Owns a short-lived cache of configurations, and the bounds on asking for them. Strangers have
//! places of their own, and each address gets a share of these. Grants no access: it only says
//! which origins may read an answer.

mod rules;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use moka::future::Cache;
use s3s::dto::GetBucketCorsInput;
use s3s::{S3Error, S3ErrorCode, S3Result};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::debug;
use verbs3_doors::KeyShares;
use verbs3_ufs::raw_answer::{self, RemoteFailure, observe_answer};
use verbs3_ufs::s3_request;

use self::rules::CorsRuleList;
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::mount::{MountTable, MountedBucket};

/// Most configurations in the cache; a browser's application uses a handful of buckets.
const REMEMBERED_MAX: u64 = 1024;
/// One address may hold one part in this many of the strangers' places.
const ADDRESSES_MIN: usize = 4;

/// The UFS's answer about a bucket.
#[derive(Debug, Clone)]
enum CorsConfiguration {
    Rules(Arc<CorsRuleList>),
    NoBucket,
}

/// The sender of a cross-origin request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CorsRequester {
    /// Its signature holds.
    Known,
    /// Unknown; anyone can send a preflight.
    Stranger(IpAddr),
}

/// Bounds of the questions to the UFS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CorsOptions {
    /// How long a configuration stays in the cache.
    pub ttl: Duration,
    /// Most configurations asked for at once on behalf of strangers. Known callers have as many of
    /// their own.
    pub lookups_max: usize,
    /// Longest wait for one configuration.
    pub lookup_max: Duration,
}

/// The cache of CORS configurations, and the answers by them.
pub(crate) struct CorsResponder {
    mounts: MountTable,
    known: Cache<String, CorsConfiguration>,
    options: CorsOptions,
    lookups: Semaphore,
    strangers: Semaphore,
    by_address: Arc<KeyShares<IpAddr>>,
    metrics: Arc<GatewayHttpMetrics>,
}

/// The store could not be asked, or too many callers ask it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the bucket's configuration can't be asked for: {0}")]
struct CorsLookupError(String);

impl CorsResponder {
    /// Makes a responder with an empty cache. `lookups_max` bounds the questions of known callers
    /// and of strangers, each by itself.
    pub fn new(mounts: MountTable, options: CorsOptions, metrics: Arc<GatewayHttpMetrics>) -> Self {
        let known = Cache::builder().max_capacity(REMEMBERED_MAX).time_to_live(options.ttl).build();
        let places = || Semaphore::new(options.lookups_max);
        let by_address = KeyShares::new(options.lookups_max.div_ceil(ADDRESSES_MIN));
        Self { mounts, known, options, lookups: places(), strangers: places(), by_address, metrics }
    }

    /// Drops a bucket's configuration, because it or the bucket changes.
    pub async fn forget_bucket(&self, mount: &MountedBucket) {
        self.known.invalidate(&cache_key(mount)).await;
    }

    /// Answers `OPTIONS`.
    pub async fn answer_preflight(
        &self,
        bucket: &str,
        asker: CorsRequester,
        request: &HeaderMap,
    ) -> S3Result<HeaderMap> {
        let Some(origin) = request.get(header::ORIGIN) else {
            return Err(cors_error(
                "BadRequest",
                400,
                "Insufficient information. Origin request header needed.",
            ));
        };
        let method = request
            .get(header::ACCESS_CONTROL_REQUEST_METHOD)
            .and_then(|method| method.to_str().ok());
        let Some(method) =
            method.filter(|method| matches!(*method, "GET" | "PUT" | "POST" | "DELETE" | "HEAD"))
        else {
            let message =
                format!("Invalid Access-Control-Request-Method: {}", method.unwrap_or("null"));
            return Err(cors_error("BadRequest", 400, message));
        };
        let rules = match self.find_configuration(bucket, asker).await {
            Ok(CorsConfiguration::Rules(rules)) => rules,
            Ok(CorsConfiguration::NoBucket) => return Err(crate::s3_errors::no_such_bucket()),
            Err(_) => return Err(unavailable_error()),
        };
        if rules.is_empty() {
            return Err(cors_error(
                "AccessForbidden",
                403,
                "CORSResponse: CORS is not enabled for this bucket.",
            ));
        }
        rules.answer_headers(origin, method, &rules::requested_headers(request)).ok_or_else(|| {
            let message = "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request method / \
                           Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.";
            cors_error("AccessForbidden", 403, message)
        })
    }

    /// Adds the headers that let a page of `origin` read an answer. Without a configuration it adds
    /// none.
    pub async fn decorate_answer(
        &self,
        bucket: &str,
        asker: CorsRequester,
        origin: &HeaderValue,
        method: &Method,
        answer: &mut HeaderMap,
    ) {
        match self.find_configuration(bucket, asker).await {
            Ok(CorsConfiguration::Rules(rules)) => {
                for (name, value) in
                    &rules.answer_headers(origin, method.as_str(), &[]).unwrap_or_default()
                {
                    // The object may have a `Vary` of its own, which stays.
                    if name == header::VARY {
                        answer.append(name, value.clone());
                    } else {
                        answer.insert(name, value.clone());
                    }
                }
            }
            Ok(CorsConfiguration::NoBucket) => {}
            Err(error) => debug!(bucket, %error, "an answer goes without CORS headers"),
        }
    }

    /// Returns a bucket's configuration. All who wait for it share one question to the UFS.
    async fn find_configuration(
        &self,
        bucket: &str,
        asker: CorsRequester,
    ) -> Result<CorsConfiguration, CorsLookupError> {
        let Some(mount) = self.mounts.resolve_bucket(bucket) else {
            return Ok(CorsConfiguration::NoBucket);
        };
        let found = self.known.try_get_with(cache_key(&mount), self.look_up(&mount, asker)).await;
        found.map_err(|error| CorsLookupError::clone(&error))
    }

    /// Asks the UFS, within the places and the time limit.
    async fn look_up(
        &self,
        mount: &MountedBucket,
        asker: CorsRequester,
    ) -> Result<CorsConfiguration, CorsLookupError> {
        let full = || {
            self.metrics.count_denial(DenialReason::CorsLookups);
            CorsLookupError("too many others are being asked for".to_owned())
        };
        let (places, _share) = match asker {
            CorsRequester::Known => (&self.lookups, None),
            CorsRequester::Stranger(address) => {
                (&self.strangers, Some(self.by_address.take_share(&address).ok_or_else(full)?))
            }
        };
        let _place = places.try_acquire().map_err(|_| full())?;
        match timeout(self.options.lookup_max, self.ask_store(mount)).await {
            Ok(found) => found,
            Err(_) => Err(CorsLookupError("the ufs does not answer in time".to_owned())),
        }
    }

    async fn ask_store(&self, mount: &MountedBucket) -> Result<CorsConfiguration, CorsLookupError> {
        let input =
            GetBucketCorsInput { bucket: mount.bucket.clone(), ..GetBucketCorsInput::default() };
        let (result, raw) =
            observe_answer(mount.ufs.s3_store().get_bucket_cors(s3_request(Method::GET, input)))
                .await;
        let failure = match result {
            Ok(response) => {
                return Ok(known_rules(CorsRuleList::from_config(
                    response.output.cors_rules.unwrap_or_default(),
                )));
            }
            Err(failure) => failure,
        };
        match raw_answer::remote_failure(&failure) {
            // A store that does not know the operation has no rules.
            Some(RemoteFailure::Unintelligible(_)) => {
                return Ok(known_rules(CorsRuleList::default()));
            }
            Some(RemoteFailure::NoAnswer(why)) => return Err(CorsLookupError(why.clone())),
            Some(RemoteFailure::Answer(_)) | None => {}
        }
        if *failure.code() == S3ErrorCode::NoSuchBucket {
            return Ok(CorsConfiguration::NoBucket);
        }
        match raw_answer::answer_of(&failure, raw).status {
            StatusCode::NOT_FOUND
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::METHOD_NOT_ALLOWED => Ok(known_rules(CorsRuleList::default())),
            status => Err(CorsLookupError(format!("the ufs answered {status}"))),
        }
    }
}

fn known_rules(rules: CorsRuleList) -> CorsConfiguration {
    CorsConfiguration::Rules(Arc::new(rules))
}

fn cache_key(mount: &MountedBucket) -> String {
    format!("{}/{}", mount.ufs.ufs_name(), mount.bucket)
}

/// Makes an error with a code that s3s may not know.
fn cors_error(code: &'static str, status: u16, message: impl Into<String>) -> S3Error {
    let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InvalidRequest);
    let mut error = S3Error::new(code);
    error.set_message(message.into());
    error.set_status_code(StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN));
    error
}

fn unavailable_error() -> S3Error {
    let message = "the store behind this endpoint can't be asked for the bucket's CORS \
        configuration; try again";
    let mut error = S3Error::with_message(S3ErrorCode::ServiceUnavailable, message);
    let headers = [(header::RETRY_AFTER, "1"), (header::CONTENT_TYPE, "application/xml")];
    error.set_headers(
        headers.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect(),
    );
    error
}
