//! Serves GET and HEAD through the cache tier. `request_plan` reads what is wanted. `ObjectReader`
//! asks the object's home. `object_fetch` brings the bytes that the home did not send along, and
//! `assembled_body` makes a body of them. `bypass` is the way past the tier.
//!
//! Parses no HTTP and checks no right: that is done before.

mod admission;
mod answers;
mod assembled_body;
mod bypass;
mod bypassed_body;
mod conditions;
mod fetch_flight;
mod head_list;
pub(crate) mod if_range;
pub(crate) mod metrics;
mod object_fetch;
mod request_plan;
mod resumption_backoff;
mod sequence_table;
mod store_heads;
mod store_open;
mod tier_answer;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::Registry;
use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, StreamingBlob};
use s3s::{Body, S3Error, S3Response, S3Result};
use verbs3_client::{CacheTierClient, OpenOutcome, OpenRequest, OpenedObject};
use verbs3_protocol::{AbsentReply, BlockGeometry, ByteRange, ObjectKey};
use verbs3_telemetry::ActiveTraceSpan;

use crate::mount::{AttributeFreshness, KEY_BYTES_MAX, MountedBucket};
use crate::request::{BytesOrigin, ReadVerdict, RequestContext};
use crate::settings::{GatewayReadSettings, GatewaySettings};
use crate::store_rates::StoreRates;
use crate::tenant_places::SharingRules;
use admission::{BypassPlaces, ReadAdmission};
use assembled_body::AssembledBody;
use conditions::ConditionVerdict;
use fetch_flight::{FetchError, verdict_of};
use if_range::IfRange;
use metrics::ReadMetrics;
use object_fetch::{FetchSubject, ObjectFetch};
use request_plan::AnswerExtent;
pub(crate) use request_plan::ReadRequestPlan;
use sequence_table::SequenceTable;
use store_heads::StoreHeads;
use store_open::HedgedOpenOutcome;
pub(crate) use tier_answer::TierAnswer;
use tier_answer::{FoundObject, ReadyObject, TierBody, describe_object};

/// Reads objects through the tier.
#[derive(Clone)]
pub struct ObjectReader {
    shared: Arc<ObjectReaderInner>,
}

/// The state that all reads of this gateway share.
struct ObjectReaderInner {
    tier: Arc<CacheTierClient>,
    settings: GatewayReadSettings,
    admission: ReadAdmission,
    places: BypassPlaces,
    rates: StoreRates,
    sequences: SequenceTable,
    store_heads: StoreHeads,
    metrics: ReadMetrics,
}

impl ObjectReaderInner {
    fn block_geometry(&self) -> BlockGeometry {
        self.tier.tier_options().geometry
    }
}

/// Most opens of one read: the first, and repeats because the version was gone before its first
/// byte was sent.
const OPENS_MAX: usize = 3;

enum ReadOpenOutcome {
    Object(ReadyObject),
    /// The tier can't help.
    Bypass,
}

impl ObjectReader {
    /// Makes a reader. Fails if a metric's name is taken in the registry.
    pub fn new(
        gateway: &GatewaySettings,
        tier: Arc<CacheTierClient>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let settings = gateway.read.clone();
        let metrics = ReadMetrics::new(registry)?;
        let rules = SharingRules::of_reads(gateway);
        let admission = ReadAdmission::new(
            settings.bytes_in_flight_max.unwrap_or(gateway.memory.capacity).0,
            &settings,
            &rules,
            metrics.bytes_in_flight.clone(),
        );
        let places = BypassPlaces::new(
            settings.bypass_in_flight_max as usize,
            settings.bypass_wait_max.0,
            &rules,
            metrics.bypasses_in_flight.clone(),
        );
        let sequences =
            SequenceTable::new(settings.sequences_max as usize, settings.read_ahead_max.0);
        let rates = StoreRates::new(gateway);
        let store_heads = StoreHeads::default();
        let shared = ObjectReaderInner {
            admission,
            places,
            rates,
            sequences,
            store_heads,
            metrics,
            tier,
            settings,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the rates of stores, which uploads share.
    pub(crate) fn store_rates(&self) -> &StoreRates {
        &self.shared.rates
    }

    /// Answers a GET. `input` has the client's bucket and key.
    pub(crate) async fn get(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        input: GetObjectInput,
        if_range: Option<IfRange>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let if_range = if_range.as_ref();
        if !cx.has_tier_declined()
            && let Some(ask) = ReadRequestPlan::of_get(&input, mount, if_range)
            && let Some(answer) = self.get_from_tier(cx, mount, &ask).await?
        {
            let TierAnswer { bytes, content_range, headers, body } = answer;
            let output = GetObjectOutput {
                accept_ranges: Some(ACCEPT_RANGES.to_owned()),
                content_length: Some(bytes as i64),
                content_range,
                body: body.map(|body| StreamingBlob::from(Body::from(body))),
                ..Default::default()
            };
            return Ok(S3Response::with_headers(output, headers));
        }
        self.bypass_get(cx, mount, input, if_range).await
    }

    /// Answers a GET out of the tier. `None`: the tier can't help, now or in the rest of this
    /// request.
    pub(crate) async fn get_from_tier(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        ask: &ReadRequestPlan,
    ) -> S3Result<Option<TierAnswer>> {
        let first_bytes = self.first_bytes(ask);
        let Some(mut admitted) = self.shared.admission.admit_bytes(cx, first_bytes).await else {
            self.shared.metrics.slow_downs.inc();
            return Err(answers::slow_down("too many bytes are in flight"));
        };
        let mut opened = match self
            .open_object(cx, mount, ask, Some(ask.range.unwrap_or(ByteRange::All)))
            .await?
        {
            ReadOpenOutcome::Object(opened) => opened,
            ReadOpenOutcome::Bypass => {
                cx.note_tier_declined();
                return Ok(None);
            }
        };
        let bytes = opened.extent.end - opened.extent.start;
        if let Some(held) = opened.take_held() {
            return Ok(Some(describe_object(ask, opened, Some(TierBody::Held(held)))));
        }
        admitted.resize_permit(cx, bytes.min(u64::from(self.shared.block_geometry().block_bytes)));
        let body = AssembledBody {
            shared: self.shared.clone(),
            cx: cx.clone(),
            ready: mem::take(&mut opened.ready),
            fetch: opened.fetch.take().map(Mutex::new),
            remaining: bytes,
            _admitted: admitted,
        };
        let body = TierBody::Assembled(body.into_blob());
        Ok(Some(describe_object(ask, opened, Some(body))))
    }

    /// Answers a HEAD. `input` has the client's bucket and key.
    pub async fn head_object(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        input: HeadObjectInput,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        if !cx.has_tier_declined()
            && let Some(ask) = ReadRequestPlan::of_head(&input, mount)
            && let Some(answer) = self.head_from_tier(cx, mount, &ask).await?
        {
            let output = HeadObjectOutput {
                accept_ranges: Some(ACCEPT_RANGES.to_owned()),
                content_length: Some(answer.bytes as i64),
                content_range: answer.content_range,
                ..Default::default()
            };
            return Ok(S3Response::with_headers(output, answer.headers));
        }
        self.bypass_head(cx, mount, input).await
    }

    /// Answers a HEAD out of the tier, like [`ObjectReader::get_from_tier`].
    pub(crate) async fn head_from_tier(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        ask: &ReadRequestPlan,
    ) -> S3Result<Option<TierAnswer>> {
        let opened = match self.open_object(cx, mount, ask, None).await? {
            ReadOpenOutcome::Object(opened) => opened,
            ReadOpenOutcome::Bypass => {
                cx.note_tier_declined();
                return Ok(None);
            }
        };
        Ok(Some(describe_object(ask, opened, None)))
    }

    /// Returns the bytes to admit before anything is asked: the first landing.
    fn first_bytes(&self, ask: &ReadRequestPlan) -> u64 {
        let open = u64::from(self.shared.tier.tier_options().settings.open_landing_bytes());
        match ask.range {
            None | Some(ByteRange::All) => open,
            Some(ByteRange::From { first, last }) => {
                last.map_or(open, |last| last.saturating_sub(first).saturating_add(1)).min(open)
            }
            Some(ByteRange::Suffix { bytes }) => bytes.min(open),
        }
    }

    /// Opens an object. `want`: bytes to bring along; `None` for HEAD.
    async fn open_object(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        ask: &ReadRequestPlan,
        want: Option<ByteRange>,
    ) -> S3Result<ReadOpenOutcome> {
        let object = mount.object_key(&ask.key);
        if object.key.len() > KEY_BYTES_MAX {
            return Err(s3s::S3ErrorCode::KeyTooLongError.into());
        }
        let mut request = OpenRequest {
            object: Arc::new(object),
            version_id: ask.version_id.clone(),
            attributes_age_ms_max: mount.attributes.age_ms_max(),
            absence_age_ms_max: absence_age_ms_max(mount),
            checksums: ask.checksums,
            want,
            silence: Some(Arc::default()),
            trace: None,
            tenant: cx.tenant().worker_tag(),
        };
        for _ in 0..OPENS_MAX {
            let Some(found) = self.find_object(cx, mount, &mut request).await? else {
                return Ok(ReadOpenOutcome::Bypass);
            };
            match self.judge_opened(cx, mount, ask, &request.object, found, want.is_some()).await {
                Ok(opening) => return Ok(opening),
                Err(ReadOpenFailure::Answer(error)) => return Err(error),
                Err(ReadOpenFailure::VersionGone) => {
                    self.shared.metrics.reopens.inc();
                    // The home's attributes are old: have it ask the UFS.
                    (request.attributes_age_ms_max, request.absence_age_ms_max) = (0, 0);
                }
            }
        }
        Ok(ReadOpenOutcome::Bypass)
    }

    /// Asks the tier for an object, and where it can't say, the store. `None`: read it past the
    /// tier. `Err`: the answer to the client.
    async fn find_object(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        request: &mut OpenRequest,
    ) -> S3Result<Option<FoundObject>> {
        let mut span = cx.begin_span("verbs3.open");
        request.trace = cx.outgoing_trace(span.as_ref());
        let outcome = match self.open_beside_store(cx, mount, request).await {
            HedgedOpenOutcome::Tier(outcome) => outcome,
            HedgedOpenOutcome::Store(found) => return Ok(Some(*found)),
        };
        trace_outcome(span.as_mut(), &outcome);
        drop(span);
        match outcome {
            OpenOutcome::Found(found) => Ok(Some(FoundObject::from_tier(*found))),
            OpenOutcome::Absent(absent) => Err(self.tell_absence(cx, mount, absent)),
            OpenOutcome::Ufs(answer) => Err(answers::of_worker(cx, mount, answer)),
            OpenOutcome::Bypass(reason) => Ok(self.open_by_store(cx, mount, request, reason).await),
        }
    }

    /// Counts an absence, and makes the client's answer of it.
    fn tell_absence(
        &self,
        cx: &RequestContext,
        mount: &MountedBucket,
        absent: AbsentReply,
    ) -> S3Error {
        let verdict = if absent.cached { ReadVerdict::Hit } else { ReadVerdict::Miss };
        self.shared.metrics.reads[verdict].inc();
        answers::of_worker(cx, mount, absent.answer)
    }

    /// Judges an object against conditions and range, and waits for the first byte.
    async fn judge_opened(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        ask: &ReadRequestPlan,
        object: &Arc<ObjectKey>,
        found: FoundObject,
        body: bool,
    ) -> Result<ReadOpenOutcome, ReadOpenFailure> {
        let FoundObject { opened: found, verdicts: [attributes_verdict, verdict], origin } = found;
        let OpenedObject { opened, data, transport: _, rest, covered } = found;
        let attributes = opened.attributes;
        let outcome = |verdict| self.note_outcome(cx, verdict, origin);
        match ask.conditions.judge_attributes(&attributes) {
            ConditionVerdict::Proceed => {}
            ConditionVerdict::NotModified => {
                outcome(attributes_verdict);
                return Err(ReadOpenFailure::Answer(answers::not_modified(cx, attributes)));
            }
            ConditionVerdict::Failed => {
                return Err(ReadOpenFailure::Answer(answers::precondition_failed()));
            }
        }
        let range = ask.range_of(&attributes);
        // The bytes that came along belong to a range that the client can no longer use.
        let (data, rest, covered) =
            if range == ask.range { (data, rest, covered) } else { (Vec::new(), None, 0..0) };
        let (extent, part) = match AnswerExtent::from_range(range, attributes.version.bytes) {
            AnswerExtent::Whole(range) => (range, false),
            AnswerExtent::Part(range) => (range, true),
            AnswerExtent::Unsatisfiable => {
                return Err(ReadOpenFailure::Answer(answers::invalid_range(
                    attributes.version.bytes,
                )));
            }
        };
        if !body || extent.is_empty() {
            outcome(verdict);
            return Ok(ReadOpenOutcome::Object(ReadyObject {
                attributes,
                extent,
                part,
                ready: VecDeque::new(),
                fetch: None,
                is_held: false,
            }));
        }
        let sequential =
            part && self.shared.sequences.note_read(object, &attributes.version, &extent);
        let fetched = if covered.is_empty() { extent.clone() } else { covered.end..extent.end };
        let ready: VecDeque<Bytes> = data.into_iter().filter(|data| !data.is_empty()).collect();
        let mut fetch = None;
        if rest.is_some() || !fetched.is_empty() {
            let subject = FetchSubject {
                shared: self.shared.clone(),
                cx: cx.clone(),
                mount: mount.clone(),
                object: object.clone(),
                version: Arc::new(attributes.version.clone()),
                version_named: ask.version_id.is_some(),
            };
            let ahead = if sequential { self.shared.settings.read_ahead_bytes_max() } else { 0 };
            fetch = Some(Box::new(ObjectFetch::new(subject, fetched, rest, ahead)));
        }
        if !ready.is_empty() {
            outcome(verdict);
            fetch.iter_mut().for_each(|fetch| fetch.note_answer_left());
            cx.tenant().note_read(verdict == ReadVerdict::Hit);
        } else if let Some(fetch) = &mut fetch {
            fetch.await_first_bytes().await.map_err(|error| self.open_failure(cx, mount, error))?;
            if let Some((verdict, via)) = fetch.bytes_origin() {
                self.note_outcome(cx, verdict, via);
                cx.tenant().note_read(verdict == ReadVerdict::Hit);
            }
        }
        let is_held = origin == BytesOrigin::Gateway;
        Ok(ReadOpenOutcome::Object(ReadyObject { attributes, extent, part, ready, fetch, is_held }))
    }

    fn note_outcome(&self, cx: &RequestContext, verdict: ReadVerdict, via: BytesOrigin) {
        self.shared.metrics.reads[verdict].inc();
        cx.note_outcome(verdict, via);
    }

    /// Turns an error before the first byte into an answer.
    fn open_failure(
        &self,
        cx: &RequestContext,
        mount: &MountedBucket,
        error: FetchError,
    ) -> ReadOpenFailure {
        match error {
            FetchError::VersionGone => ReadOpenFailure::VersionGone,
            FetchError::Ufs(error) => {
                ReadOpenFailure::Answer(answers::of_ufs_error(cx, mount, error))
            }
            FetchError::NoPlace => {
                self.shared.metrics.slow_downs.inc();
                ReadOpenFailure::Answer(answers::slow_down(
                    "too many reads past the cache are under way",
                ))
            }
        }
    }
}

/// Notes the home's answer, for the trace.
fn trace_outcome(span: Option<&mut ActiveTraceSpan>, outcome: &OpenOutcome) {
    let Some(span) = span else { return };
    let (what, failed) = match outcome {
        OpenOutcome::Found(found) => {
            let origin = found.transport.map_or(BytesOrigin::Gateway, BytesOrigin::Tier);
            span.set_attribute("verbs3.transport", origin.as_str());
            (verdict_of(found.cache_verdict()).as_str(), None)
        }
        OpenOutcome::Absent(_) => ("absent", None),
        OpenOutcome::Ufs(answer) => ("ufs", Some(format!("the ufs answered {}", answer.status))),
        OpenOutcome::Bypass(reason) => ("bypass", Some(reason.as_str().to_owned())),
    };
    span.set_attribute("verbs3.outcome", what);
    if let Some(why) = failed {
        span.mark_failed(why);
    }
}

/// Reason why an object that was found is not the answer.
enum ReadOpenFailure {
    Answer(S3Error),
    VersionGone,
}

pub(crate) const ACCEPT_RANGES: &str = "bytes";

/// Returns the age limit of absences. A mount that always asks for attributes asks for absences,
/// too.
fn absence_age_ms_max(mount: &MountedBucket) -> u64 {
    match mount.attributes {
        AttributeFreshness::AlwaysAsk => 0,
        AttributeFreshness::Ttl(_) | AttributeFreshness::Immutable => {
            u64::try_from(mount.absence_ttl.as_millis()).unwrap_or(u64::MAX - 1)
        }
    }
}

#[cfg(test)]
mod tests;
