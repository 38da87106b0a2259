//! Owns one UFS as the cache sees it: its heads and reads. Their answers are checked and bounded.
//! They are retried before the first byte, and refused at once while the store is down.
//!
//! Everything else goes to the store itself, through [`Ufs::s3_store`].

mod cache_requests;
mod probing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::{Extensions, HeaderMap, Method, StatusCode, Uri, header};
use parking_lot::Mutex;
use s3s::dto::GetObjectOutput;
use s3s::{S3, S3Request, S3Response, S3Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use verbs3_pacing::TokenBucket;

use crate::answer_check::{AnswerRefusal, StoreReadPlan, check_get, check_head, check_request};
use crate::body::CheckedBody;
use crate::circuit_breaker::{CircuitAdmission, CircuitBreaker, CircuitOutcome, CircuitState};
use crate::error::{NoAnswerCause, RawAnswer, RetryAdvice, UfsError};
use crate::headers::{of_get, of_head};
use crate::metered_store::MeteredStore;
use crate::metrics::{ReadOperation, RefusalReason, UfsMetrics, metrics_of_ufs};
use crate::object::{ObjectHead, ObjectStream, ReadObject};
use crate::raw_answer::observe_answer;
use crate::settings::UfsSettings;
use cache_requests::{answer_headers, get_request, head_request};

/// A source of numbers in `0.0..1.0`, for the pauses between tries.
pub type RandomSource = Arc<dyn Fn() -> f64 + Send + Sync>;

/// One UFS. Clones share its limits.
#[derive(Clone)]
pub struct Ufs {
    shared: Arc<UfsInner>,
}

struct UfsInner {
    settings: UfsSettings,
    store_name: String,
    metrics: UfsMetrics,
    metered: Arc<MeteredStore>,
    s3: Arc<dyn S3>,
    places: Arc<Semaphore>,
    circuit: Mutex<CircuitBreaker>,
    /// Retries that may still be made. Its time counts from `started`.
    budget: Mutex<TokenBucket>,
    started: Instant,
    random: RandomSource,
    /// True if the store answered the last ranged read with the whole object.
    ignores_range: AtomicBool,
    /// It has said or shown that it answers ranges.
    answers_ranges: AtomicBool,
}

/// An admission by the circuit breaker. It is given back however the request ends.
struct CircuitPermit<'a> {
    shared: &'a UfsInner,
    admission: Option<CircuitAdmission>,
}

/// A place among the requests in flight.
struct UfsRequestPermit {
    shared: Arc<UfsInner>,
    _permit: OwnedSemaphorePermit,
}

impl Ufs {
    /// Wraps a store. Its bounds, deadlines and retries of the cache's heads and reads are those of
    /// the settings. The store's own connections bound requests that pass through.
    pub fn new(s3: Arc<dyn S3>, settings: UfsSettings) -> Self {
        Self::with_randomness(s3, settings, Arc::new(rand::random::<f64>))
    }

    /// Makes a UFS like `new`; the caller gives the numbers for the pauses between tries. A limit
    /// of 0 requests counts as 1.
    pub fn with_randomness(s3: Arc<dyn S3>, settings: UfsSettings, random: RandomSource) -> Self {
        let places_max = settings.limits.requests_in_flight_max.max(1) as usize;
        let places = Arc::new(Semaphore::new(places_max));
        let circuit = Mutex::new(CircuitBreaker::new(settings.circuit));
        let budget = Mutex::new(settings.retries.make_budget());
        let metrics = metrics_of_ufs(&settings.name);
        let metered = Arc::new(MeteredStore::new(metrics.clone(), s3));
        let shared = UfsInner {
            store_name: settings.store_name(),
            settings,
            metrics,
            s3: metered.clone(),
            metered,
            places,
            circuit,
            budget,
            started: Instant::now(),
            random,
            ignores_range: AtomicBool::new(false),
            answers_ranges: AtomicBool::new(false),
        };
        shared.show_circuit(CircuitState::Closed);
        Self { shared: Arc::new(shared) }
    }

    /// Returns the name in the configuration.
    pub fn ufs_name(&self) -> &str {
        &self.shared.settings.name
    }

    /// Returns how many heads and reads may be under way at once. Others wait in order of arrival,
    /// so whoever shares them fairly sends no more.
    pub fn requests_in_flight_max(&self) -> u32 {
        self.shared.settings.limits.requests_in_flight_max.max(1)
    }

    /// Returns what every object's identity begins with: [`UfsSettings::store_name`].
    pub fn store_name(&self) -> &str {
        &self.shared.store_name
    }

    /// Returns the store, with its requests counted. All requests but the cache's own heads and
    /// reads pass through it.
    pub fn s3_store(&self) -> &Arc<dyn S3> {
        &self.shared.s3
    }

    /// Returns whether reads are refused for now.
    pub fn circuit_state(&self) -> CircuitState {
        self.shared.circuit.lock().circuit_state()
    }

    /// Returns the last byte at which a range may begin, for a UFS that ignores `Range`. What comes
    /// before the range is read and thrown away. Returns `None` for any byte, as far as is known.
    pub fn range_start_max(&self) -> Option<u64> {
        self.shared
            .ignores_range
            .load(Ordering::Relaxed)
            .then_some(self.shared.settings.limits.skip_max.0)
    }

    /// Returns whether any range of an object of this length can be read, as far as is known. A UFS
    /// has to say or show first that it answers ranges.
    pub fn reads_ranges_of(&self, object_bytes: u64) -> bool {
        object_bytes <= self.shared.settings.limits.skip_max.0
            || self.shared.answers_ranges.load(Ordering::Relaxed)
                && !self.shared.ignores_range.load(Ordering::Relaxed)
    }

    /// Returns how long to wait before an error-answered read is sent again, after `tried` tries.
    /// Takes the retry from the budget. Returns `None` when the answer stands.
    pub fn pause_before_retry(&self, tried: u32, answer: &RawAnswer) -> Option<Duration> {
        if answer.retry_advice() == RetryAdvice::Never {
            return None;
        }
        self.shared.take_retry(tried, answer.retry_after())
    }

    /// Returns the UFS's current head of an object. Ignores `wanted.range`.
    pub async fn head_object(&self, wanted: ReadObject) -> Result<ObjectHead, UfsError> {
        check_request(&wanted).map_err(|refusal| self.shared.refusal_error(refusal))?;
        let attempt = || -> BoxFuture<'_, _> {
            Box::pin(async {
                let place = self.acquire_permit().await?;
                let head = self.shared.try_head(&wanted).await;
                drop(place);
                head
            })
        };
        self.with_retries(ReadOperation::HeadObject, &attempt).await
    }

    /// Reads a range of one version, or the whole object.
    pub async fn read(&self, wanted: ReadObject) -> Result<ObjectStream, UfsError> {
        check_request(&wanted).map_err(|refusal| self.shared.refusal_error(refusal))?;
        let attempt = || -> BoxFuture<'_, _> {
            Box::pin(async {
                let place = self.acquire_permit().await?;
                let (plan, output) = self.shared.try_get(&wanted).await?;
                Ok((plan, output.body, place))
            })
        };
        let (plan, body, place) = self.with_retries(ReadOperation::GetObject, &attempt).await?;
        let body = body.unwrap_or_else(|| s3s::Body::empty().into());
        let count = self.shared.metrics.bytes_read.clone();
        let on_bytes = Box::new(move |bytes| count.inc_by(bytes));
        let checked = CheckedBody::new(
            self.shared.settings.name.clone(),
            body,
            &plan,
            self.shared.settings.deadlines.idle_body.0,
            place,
            on_bytes,
        );
        Ok(ObjectStream { head: plan.head, range: plan.range, body: Box::pin(checked) })
    }

    async fn acquire_permit(&self) -> Result<UfsRequestPermit, UfsError> {
        let shared = &self.shared;
        let (limits, wait_max) = (&shared.settings.limits, shared.settings.limits.wait_max.0);
        let turn = tokio::time::timeout(wait_max, shared.places.clone().acquire_owned()).await;
        let Ok(permit) = turn else {
            shared.metrics.throttled.inc();
            return Err(UfsError::Throttled {
                ufs: shared.settings.name.clone(),
                limit: limits.requests_in_flight_max as usize,
                waited_ms: u64::try_from(wait_max.as_millis()).unwrap_or(u64::MAX),
            });
        };
        let permit = permit.expect("the semaphore is never closed");
        shared.metrics.in_flight.inc();
        Ok(UfsRequestPermit { shared: shared.clone(), _permit: permit })
    }

    /// Runs tries until one is final. Gives the place back between tries.
    ///
    /// A try is boxed. The compiler can't show that an `AsyncFn`'s future may move between threads,
    /// so no task could await a read.
    async fn with_retries<'a, T>(
        &'a self,
        op: ReadOperation,
        attempt: &(dyn Fn() -> BoxFuture<'a, Result<T, UfsError>> + Send + Sync),
    ) -> Result<T, UfsError> {
        let shared = &self.shared;
        let mut tried = 0;
        loop {
            let admitted = shared.admit_request()?;
            let result = attempt().await;
            tried += 1;
            admitted.finish_request(result.as_ref().err());
            let error = match result {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // A throttled read has already waited its time.
            if error.retry_advice() == RetryAdvice::Never
                || matches!(error, UfsError::Throttled { .. })
            {
                return Err(error);
            }
            let asked_for = error.raw_answer().and_then(RawAnswer::retry_after);
            let Some(pause) = shared.take_retry(tried, asked_for) else { return Err(error) };
            shared.metrics.retries[op].inc();
            tokio::time::sleep(pause).await;
        }
    }
}

impl UfsInner {
    /// Takes another try from the budget and returns the pause before it. Returns `None` when there
    /// is no other try.
    fn take_retry(&self, tried: u32, asked_for: Option<Duration>) -> Option<Duration> {
        let pause = self.settings.retries.pause_after(tried, asked_for, (self.random)())?;
        self.budget.lock().try_take_one(self.started.elapsed()).then_some(pause)
    }

    async fn try_head(&self, wanted: &ReadObject) -> Result<ObjectHead, UfsError> {
        let request = head_request(wanted);
        let (response, raw) = self.call_store(self.s3.head_object(request)).await?;
        let (status, headers) = answer_headers(
            raw,
            response.status,
            response.headers,
            || of_head(&response.output),
            None,
        );
        if headers.get(header::ACCEPT_RANGES).is_some_and(|unit| unit == "bytes") {
            self.answers_ranges.store(true, Ordering::Relaxed);
        }
        check_head(wanted, status, headers).map_err(|refusal| self.refusal_error(refusal))
    }

    async fn try_get(
        &self,
        wanted: &ReadObject,
    ) -> Result<(StoreReadPlan, GetObjectOutput), UfsError> {
        let request = get_request(wanted);
        let (response, raw) = self.call_store(self.s3.get_object(request)).await?;
        let typed_status =
            response.output.content_range.as_ref().map(|_| StatusCode::PARTIAL_CONTENT);
        let (status, headers) = answer_headers(
            raw,
            response.status,
            response.headers,
            || of_get(&response.output),
            typed_status,
        );
        let plan = check_get(wanted, status, headers, self.settings.limits.skip_max.0);
        if wanted.range.is_some() {
            let is_cut = plan.as_ref().map_or(true, |plan| plan.skip > 0 || !plan.to_end);
            self.note_range_support(status, is_cut);
        }
        Ok((plan.map_err(|refusal| self.refusal_error(refusal))?, response.output))
    }

    /// Learns from a ranged read's answer whether the store supports ranges. `is_cut` says that the
    /// wanted bytes are not the whole body.
    fn note_range_support(&self, status: StatusCode, is_cut: bool) {
        let ignores = match status {
            StatusCode::PARTIAL_CONTENT => false,
            StatusCode::OK if is_cut => true,
            _ => return,
        };
        self.answers_ranges.store(!ignores, Ordering::Relaxed);
        if self.ignores_range.swap(ignores, Ordering::Relaxed) == ignores {
            return;
        }
        self.metrics.ignores_range.set(i64::from(ignores));
        if ignores {
            let larger_than = self.settings.limits.skip_max.0;
            tracing::warn!(
                ufs = %self.settings.name, larger_than,
                "ufs ignores Range; larger objects are read past the cache"
            );
        }
    }

    /// Makes one call on the store, with the deadline for its first byte.
    async fn call_store<T>(
        &self,
        call: impl Future<Output = S3Result<S3Response<T>>>,
    ) -> Result<(S3Response<T>, Option<RawAnswer>), UfsError> {
        let (sent, deadline) = (Instant::now(), self.settings.deadlines.first_byte.0);
        let Ok((result, raw)) = tokio::time::timeout(deadline, observe_answer(call)).await else {
            let cause = NoAnswerCause::FirstByte(deadline);
            self.metered.note_silence(sent, cause.clone());
            return Err(UfsError::Unreachable { ufs: self.settings.name.clone(), cause });
        };
        match result {
            Ok(response) => Ok((response, raw)),
            Err(error) => Err(UfsError::from_s3(&self.settings.name, &error, raw)),
        }
    }

    fn refusal_error(&self, refusal: AnswerRefusal) -> UfsError {
        let ufs = self.settings.name.clone();
        let (reason, error) = match refusal {
            AnswerRefusal::Untrusted(defect) => {
                (RefusalReason::Untrusted, UfsError::Untrusted { ufs, defect })
            }
            AnswerRefusal::Changed { wanted, got } => {
                (RefusalReason::Changed, UfsError::Changed { ufs, wanted, got })
            }
        };
        self.metrics.refused[reason].inc();
        error
    }

    fn admit_request(&self) -> Result<CircuitPermit<'_>, UfsError> {
        let mut circuit = self.circuit.lock();
        let admission = circuit.admit_request(Instant::now());
        self.show_circuit(circuit.circuit_state());
        match admission {
            Ok(admission) => Ok(CircuitPermit { shared: self, admission: Some(admission) }),
            Err(wait) => {
                let failures_max = self.settings.circuit.failures_max;
                let cause = NoAnswerCause::CircuitOpen { failures_max, wait };
                Err(UfsError::Unreachable { ufs: self.settings.name.clone(), cause })
            }
        }
    }

    fn record_outcome(&self, admission: CircuitAdmission, ended: CircuitOutcome) {
        let mut circuit = self.circuit.lock();
        let before = circuit.circuit_state();
        circuit.record_outcome(admission, ended, Instant::now());
        let after = circuit.circuit_state();
        self.show_circuit(after);
        if before != after {
            match after {
                CircuitState::Open => {
                    tracing::warn!(
                        ufs = %self.settings.name,
                        "ufs fails; reads are refused until a probe succeeds"
                    )
                }
                CircuitState::Closed => {
                    tracing::info!(ufs = %self.settings.name, "ufs answers again")
                }
                CircuitState::HalfOpen => {}
            }
        }
    }

    fn show_circuit(&self, state: CircuitState) {
        let value = match state {
            CircuitState::Closed => 0,
            CircuitState::HalfOpen => 1,
            CircuitState::Open => 2,
        };
        self.metrics.circuit.set(value);
    }
}

impl CircuitPermit<'_> {
    fn finish_request(mut self, error: Option<&UfsError>) {
        let Some(admission) = self.admission.take() else { return };
        let ended = match error {
            None => CircuitOutcome::Success,
            Some(UfsError::Unreachable { .. } | UfsError::Truncated { .. }) => {
                CircuitOutcome::Failure
            }
            // A store that answers 4xx, or with another version, works.
            Some(UfsError::Answer { answer, .. }) => {
                if answer.status.is_server_error() {
                    CircuitOutcome::Failure
                } else {
                    CircuitOutcome::Success
                }
            }
            Some(UfsError::Untrusted { .. } | UfsError::Changed { .. }) => CircuitOutcome::Success,
            // The store was not asked.
            Some(UfsError::Throttled { .. }) => CircuitOutcome::Abandoned,
        };
        self.shared.record_outcome(admission, ended);
    }
}

impl Drop for CircuitPermit<'_> {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            self.shared.record_outcome(admission, CircuitOutcome::Abandoned);
        }
    }
}

impl Drop for UfsRequestPermit {
    fn drop(&mut self) {
        self.shared.metrics.in_flight.dec();
    }
}

/// Makes a request as a store expects it from s3s. Stores use the input alone.
pub fn s3_request<T>(method: Method, input: T) -> S3Request<T> {
    S3Request {
        input,
        method,
        uri: Uri::from_static("/"),
        headers: HeaderMap::new(),
        extensions: Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

#[cfg(test)]
mod tests;
