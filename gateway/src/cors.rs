//! Answers cross-origin requests by the UFS's own CORS configuration of the bucket: browsers'
//! preflights, which are unsigned, and the CORS headers of other answers.
//!
//! Owns the bounds on asking for configurations; `rule_memory` remembers them. Tenants share the
//! places for questions. Strangers have places of their own, and each address gets a share of
//! these. Grants no access: it only says which origins may read an answer.

mod rule_memory;
mod rules;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use s3s::dto::GetBucketCorsInput;
use s3s::{S3Error, S3ErrorCode, S3Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::debug;
use verbs3_doors::{KeyShare, KeyShares};
use verbs3_ufs::raw_answer::{self, RemoteFailure, observe_answer};
use verbs3_ufs::s3_request;

use self::rule_memory::{CorsRuleMemory, RuleAges, StoreAnswer};
use self::rules::CorsRuleList;
use crate::auth::AuthIdentity;
use crate::metrics::{DenialReason, GatewayHttpMetrics};
use crate::mount::{MountTable, MountedBucket};
use crate::operation_table::AccessRight;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::{SharingRules, TenantPlace, TenantPlaces};

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
pub(crate) enum CorsRequester<'a> {
    /// Its signature holds.
    Known(&'a AuthIdentity),
    /// Unknown; anyone can send a preflight.
    Stranger(IpAddr),
}

/// Bounds of the questions to the UFS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CorsOptions {
    /// How long a configuration is believed.
    pub ttl: Duration,
    /// How much longer it is kept, for when the UFS can't be asked.
    pub stale_max: Duration,
    /// Most configurations asked for at once on behalf of strangers. Known callers have as many of
    /// their own.
    pub lookups_max: usize,
    /// Longest wait for one configuration. A known caller may wait as long for its turn before.
    pub lookup_max: Duration,
    /// How tenants share the places of known callers. How long one waits is `lookup_max`.
    pub sharing: SharingRules,
}

/// What is known of CORS configurations, and the answers by it.
pub(crate) struct CorsResponder {
    mounts: MountTable,
    memory: Arc<CorsRuleMemory>,
    lookup_max: Duration,
    lookups: TenantPlaces,
    strangers: Arc<Semaphore>,
    by_address: Arc<KeyShares<IpAddr>>,
    metrics: Arc<GatewayHttpMetrics>,
}

/// A place for one question. Dropping it gives it back.
struct LookupPlace {
    _tenants: Option<TenantPlace>,
    _strangers: Option<(OwnedSemaphorePermit, KeyShare<IpAddr>)>,
}

/// Why a bucket's configuration is not known.
#[derive(Debug, Clone, thiserror::Error)]
enum CorsLookupError {
    #[error("who asks has no right on the bucket")]
    NoRight,
    #[error("too many other configurations are being asked for")]
    NoPlace,
    #[error("the store does not say: {0}")]
    NoAnswer(String),
    #[error("the store refuses to say, with status {0}")]
    Refused(StatusCode),
}

impl CorsLookupError {
    /// Returns whether what the store said before may still be so.
    fn leaves_rules(&self) -> bool {
        match self {
            Self::NoPlace | Self::NoAnswer(_) => true,
            Self::NoRight | Self::Refused(_) => false,
        }
    }
}

impl CorsResponder {
    /// Makes a responder that knows nothing yet. `lookups_max` bounds the questions of known
    /// callers and of strangers, each by itself.
    pub fn new(mounts: MountTable, options: CorsOptions, metrics: Arc<GatewayHttpMetrics>) -> Self {
        let CorsOptions { ttl, stale_max, lookups_max, lookup_max, sharing } = options;
        let sharing = SharingRules { wait_max: lookup_max, ..sharing };
        let held = metrics.cors_lookups.clone();
        Self {
            mounts,
            memory: CorsRuleMemory::new(RuleAges { ttl, stale_max }),
            lookup_max,
            lookups: TenantPlaces::of_count(
                SharedResource::CorsLookups,
                lookups_max,
                &sharing,
                held,
            ),
            strangers: Arc::new(Semaphore::new(lookups_max)),
            by_address: KeyShares::new(lookups_max.div_ceil(ADDRESSES_MIN)),
            metrics,
        }
    }

    /// Drops a bucket's configuration, because it or the bucket changes.
    pub async fn forget_bucket(&self, mount: &MountedBucket) {
        self.memory.forget_rules(&cache_key(mount));
    }

    /// Answers `OPTIONS`.
    pub async fn answer_preflight(
        &self,
        bucket: &str,
        asker: CorsRequester<'_>,
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
        asker: CorsRequester<'_>,
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

    /// Returns a bucket's configuration. Where the UFS can't be asked, one from before serves.
    async fn find_configuration(&self, bucket: &str, asker: CorsRequester<'_>) -> StoreAnswer {
        let Some(mount) = self.mounts.resolve_bucket(bucket) else {
            return Ok(CorsConfiguration::NoBucket);
        };
        let key = cache_key(&mount);
        if let Some(believed) = self.memory.find_believed(&key) {
            return Ok(believed);
        }
        match self.look_up(&mount, &key, asker).await {
            Err(error) if error.leaves_rules() => self.memory.find_kept(&key).ok_or(error),
            answer => answer,
        }
    }

    /// Asks the UFS, within the places and the time limit. All who wait for a bucket's
    /// configuration share one question. Who waits for a place shares nothing yet: whether it
    /// comes depends on the tenant.
    async fn look_up(
        &self,
        mount: &Arc<MountedBucket>,
        key: &str,
        asker: CorsRequester<'_>,
    ) -> StoreAnswer {
        // A known caller could make the store busy with any name that it makes up.
        if let CorsRequester::Known(identity) = asker
            && !identity.allows_right(&mount.name, "", AccessRight::seen)
        {
            return Err(CorsLookupError::NoRight);
        }
        if let Some(answer) = self.memory.join_question(key) {
            return answer.await;
        }
        let may_wait = self.memory.find_kept(key).is_none();
        let Some(place) = self.take_place(asker, may_wait).await else {
            self.metrics.count_denial(DenialReason::CorsLookups);
            return Err(CorsLookupError::NoPlace);
        };
        // The answer to another's question may have come since.
        if let Some(believed) = self.memory.find_believed(key) {
            return Ok(believed);
        }
        let (mount, lookup_max) = (mount.clone(), self.lookup_max);
        let question = async move {
            let answer = timeout(lookup_max, ask_store(&mount)).await;
            drop(place);
            answer.unwrap_or_else(|_| {
                Err(CorsLookupError::NoAnswer("its answer did not come in time".to_owned()))
            })
        };
        self.memory.begin_question(key, question.boxed()).await
    }

    /// Takes a place for a question. A known caller waits for its tenant's turn, if it `may_wait`.
    async fn take_place(&self, asker: CorsRequester<'_>, may_wait: bool) -> Option<LookupPlace> {
        let now = Instant::now();
        match asker {
            CorsRequester::Known(identity) => {
                let tenant = identity.tenant();
                let place = if may_wait {
                    self.lookups.take_place(tenant, 1, now).await.ok()?
                } else {
                    self.lookups.try_take_place(tenant, 1, now)?
                };
                Some(LookupPlace { _tenants: Some(place), _strangers: None })
            }
            CorsRequester::Stranger(address) => {
                let share = self.by_address.take_share(&address)?;
                let permit = self.strangers.clone().try_acquire_owned().ok()?;
                Some(LookupPlace { _tenants: None, _strangers: Some((permit, share)) })
            }
        }
    }
}

async fn ask_store(mount: &MountedBucket) -> StoreAnswer {
    let input =
        GetBucketCorsInput { bucket: mount.bucket.clone(), ..GetBucketCorsInput::default() };
    let (result, raw) =
        observe_answer(mount.ufs.s3_store().get_bucket_cors(s3_request(Method::GET, input))).await;
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
        Some(RemoteFailure::NoAnswer(why)) => return Err(CorsLookupError::NoAnswer(why.clone())),
        Some(RemoteFailure::Answer(_)) | None => {}
    }
    if *failure.code() == S3ErrorCode::NoSuchBucket {
        return Ok(CorsConfiguration::NoBucket);
    }
    match raw_answer::answer_of(&failure, raw).status {
        StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED => {
            Ok(known_rules(CorsRuleList::default()))
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(CorsLookupError::NoAnswer(format!("it answered {status}")))
        }
        status => Err(CorsLookupError::Refused(status)),
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

#[cfg(test)]
mod tests;
