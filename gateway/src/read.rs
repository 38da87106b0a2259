//! Serves GET and HEAD through the cache tier. `request_plan` reads what is wanted. `ObjectReader`
//! asks the object's home. `object_fetch` brings the bytes that the home did not send along, and
//! `assembled_body` makes a body of them. `bypass` is the way past the tier.
//!
//! Parses no HTTP and checks no right: that is done before.

mod admission;
mod assembled_body;
mod bypass;
mod bypassed_body;
mod client_answer;
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
use verbs3_client::{CacheTierClient, ObjectBytesPlace, OpenOutcome, OpenRequest, OpenedObject};
use verbs3_protocol::{AbsentReply, BlockGeometry, ByteRange, ObjectKey};
use verbs3_telemetry::ActiveTraceSpan;

use crate::mount::{AttributeFreshness, KEY_BYTES_MAX, MountedBucket};
use crate::request_context::{BytesOrigin, ReadVerdict, RequestContext};
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
use tier_answer::{FoundObject, JudgedObject, ReadyObject, TierBody, describe_object};

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
            && let Some(plan) = ReadRequestPlan::of_get(&input, mount, if_range)
            && let Some(answer) = self.get_from_tier(cx, mount, &plan).await?
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
        plan: &ReadRequestPlan,
    ) -> S3Result<Option<TierAnswer>> {
        let first_bytes = self.first_bytes(plan);
        let Some(mut admitted) = self.shared.admission.admit_bytes(cx, first_bytes).await else {
            self.shared.metrics.slow_downs.inc();
            return Err(client_answer::slow_down("too many bytes are in flight"));
        };
        let want = Some(plan.range.unwrap_or(ByteRange::All));
        let Some(mut object) = self.open_object(cx, mount, plan, want).await? else {
            cx.note_tier_declined();
            return Ok(None);
        };
        let bytes = object.extent.end - object.extent.start;
        if let Some(held) = object.take_held() {
            return Ok(Some(describe_object(plan, object, Some(TierBody::Held(held)))));
        }
        admitted.resize_permit(cx, bytes.min(u64::from(self.shared.block_geometry().block_bytes)));
        let body = AssembledBody {
            shared: self.shared.clone(),
            cx: cx.clone(),
            ready: mem::take(&mut object.ready),
            fetch: object.fetch.take().map(Mutex::new),
            remaining: bytes,
            _admitted: admitted,
        };
        let body = TierBody::Assembled(body.into_blob());
        Ok(Some(describe_object(plan, object, Some(body))))
    }

    /// Answers a HEAD. `input` has the client's bucket and key.
    pub async fn head_object(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        input: HeadObjectInput,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        if !cx.has_tier_declined()
            && let Some(plan) = ReadRequestPlan::of_head(&input, mount)
            && let Some(answer) = self.head_from_tier(cx, mount, &plan).await?
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
        plan: &ReadRequestPlan,
    ) -> S3Result<Option<TierAnswer>> {
        let Some(object) = self.open_object(cx, mount, plan, None).await? else {
            cx.note_tier_declined();
            return Ok(None);
        };
        Ok(Some(describe_object(plan, object, None)))
    }

    /// Returns the bytes to admit before anything is asked: the first landing.
    fn first_bytes(&self, plan: &ReadRequestPlan) -> u64 {
        let open = u64::from(self.shared.tier.tier_options().settings.open_landing_bytes());
        match plan.range {
            None | Some(ByteRange::All) => open,
            Some(ByteRange::From { first, last }) => {
                last.map_or(open, |last| last.saturating_sub(first).saturating_add(1)).min(open)
            }
            Some(ByteRange::Suffix { bytes }) => bytes.min(open),
        }
    }

    /// Opens an object. `want`: bytes to bring along; `None` for HEAD. Returns `None` if the tier
    /// can't help.
    async fn open_object(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        plan: &ReadRequestPlan,
        want: Option<ByteRange>,
    ) -> S3Result<Option<ReadyObject>> {
        let object = mount.object_key(&plan.key);
        if object.key.len() > KEY_BYTES_MAX {
            return Err(s3s::S3ErrorCode::KeyTooLongError.into());
        }
        let mut request = OpenRequest {
            object: Arc::new(object),
            version_id: plan.version_id.clone(),
            attributes_age_ms_max: mount.attributes.age_ms_max(),
            absence_age_ms_max: absence_age_ms_max(mount),
            checksums: plan.checksums,
            want,
            silence: Some(Arc::default()),
            trace: None,
            tenant: cx.tenant().worker_tag(),
            place: want.and_then(|want| place_of(cx, plan, want)),
        };
        for _ in 0..OPENS_MAX {
            let Some(found) = self.find_object(cx, mount, &mut request).await? else {
                return Ok(None);
            };
            let judged = self.judge_object(cx, plan, found)?;
            if want.is_none() {
                return Ok(Some(self.finish_without_body(cx, judged)));
            }
            match self.begin_body(cx, mount, plan, &request.object, judged).await {
                Ok(object) => return Ok(Some(object)),
                Err(FetchError::VersionGone) => {
                    self.shared.metrics.reopens.inc();
                    // The home's attributes are old: have it ask the UFS.
                    (request.attributes_age_ms_max, request.absence_age_ms_max) = (0, 0);
                }
                Err(FetchError::Ufs(error)) => {
                    return Err(client_answer::of_ufs_error(cx, mount, error));
                }
                Err(FetchError::NoPlace) => {
                    self.shared.metrics.slow_downs.inc();
                    return Err(client_answer::slow_down(
                        "too many reads past the cache are under way",
                    ));
                }
            }
        }
        Ok(None)
    }

    /// Asks the tier for an object, and where it can't say, the store. `None`: read it past the
    /// tier. `Err`: the answer to the client.
    async fn find_object(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        request: &mut OpenRequest,
    ) -> S3Result<Option<FoundObject>> {
        let mut trace_span = cx.begin_trace_span("verbs3.open");
        request.trace = cx.outgoing_trace(trace_span.as_ref());
        let outcome = match self.open_beside_store(cx, mount, request).await {
            HedgedOpenOutcome::Tier(outcome) => outcome,
            HedgedOpenOutcome::Store(found) => return Ok(Some(*found)),
        };
        trace_outcome(trace_span.as_mut(), &outcome);
        drop(trace_span);
        match outcome {
            OpenOutcome::Found(found) => Ok(Some(FoundObject::from_tier(*found))),
            OpenOutcome::Absent(absent) => Err(self.tell_absence(cx, mount, absent)),
            OpenOutcome::Ufs(answer) => Err(client_answer::of_worker(cx, mount, answer)),
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
        client_answer::of_worker(cx, mount, absent.answer)
    }

    /// Judges an object against conditions and range. `Err`: the answer to the client.
    fn judge_object(
        &self,
        cx: &RequestContext,
        plan: &ReadRequestPlan,
        found: FoundObject,
    ) -> S3Result<JudgedObject> {
        let FoundObject { object, attributes_verdict, bytes_verdict, origin } = found;
        let OpenedObject { reply, data, transport: _, rest, covered } = object;
        let attributes = reply.attributes;
        match plan.conditions.judge_attributes(&attributes) {
            ConditionVerdict::Proceed => {}
            ConditionVerdict::NotModified => {
                self.note_outcome(cx, attributes_verdict, origin);
                return Err(client_answer::not_modified(cx, attributes));
            }
            ConditionVerdict::Failed => return Err(client_answer::precondition_failed()),
        }
        let range = plan.range_of(&attributes);
        // The bytes that came along belong to a range that the client can no longer use.
        let (data, rest, covered) =
            if range == plan.range { (data, rest, covered) } else { (Vec::new(), None, 0..0) };
        let (extent, is_partial) = match AnswerExtent::from_range(range, attributes.version.bytes) {
            AnswerExtent::Whole(range) => (range, false),
            AnswerExtent::Part(range) => (range, true),
            AnswerExtent::Unsatisfiable => {
                return Err(client_answer::invalid_range(attributes.version.bytes));
            }
        };
        Ok(JudgedObject {
            attributes,
            extent,
            is_partial,
            data,
            rest,
            covered,
            bytes_verdict,
            origin,
        })
    }

    /// Makes the answer to a HEAD, or to a GET of no bytes.
    fn finish_without_body(&self, cx: &RequestContext, judged: JudgedObject) -> ReadyObject {
        let JudgedObject { attributes, extent, is_partial, bytes_verdict, origin, .. } = judged;
        self.note_outcome(cx, bytes_verdict, origin);
        let ready = VecDeque::new();
        ReadyObject { attributes, extent, is_partial, ready, fetch: None, is_held: false }
    }

    /// Begins the body of a GET, and waits for its first bytes.
    async fn begin_body(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<MountedBucket>,
        plan: &ReadRequestPlan,
        object: &Arc<ObjectKey>,
        judged: JudgedObject,
    ) -> Result<ReadyObject, FetchError> {
        if judged.extent.is_empty() {
            return Ok(self.finish_without_body(cx, judged));
        }
        let JudgedObject { attributes, extent, is_partial, data, rest, covered, .. } = judged;
        let (verdict, origin) = (judged.bytes_verdict, judged.origin);
        let sequential =
            is_partial && self.shared.sequences.note_read(object, &attributes.version, &extent);
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
                version_named: plan.version_id.is_some(),
            };
            let ahead = if sequential { self.shared.settings.read_ahead_bytes_max() } else { 0 };
            fetch = Some(Box::new(ObjectFetch::new(subject, fetched, rest, ahead, extent.start)));
        }
        if !ready.is_empty() {
            self.note_outcome(cx, verdict, origin);
            fetch.iter_mut().for_each(|fetch| fetch.note_answer_left());
            cx.tenant().note_read(verdict == ReadVerdict::Hit);
        } else if let Some(fetch) = &mut fetch {
            fetch.await_first_bytes().await?;
            if let Some((verdict, via)) = fetch.bytes_origin() {
                self.note_outcome(cx, verdict, via);
                cx.tenant().note_read(verdict == ReadVerdict::Hit);
            }
        }
        let is_held = origin == BytesOrigin::Gateway;
        Ok(ReadyObject { attributes, extent, is_partial, ready, fetch, is_held })
    }

    fn note_outcome(&self, cx: &RequestContext, verdict: ReadVerdict, via: BytesOrigin) {
        self.shared.metrics.reads[verdict].inc();
        cx.note_outcome(verdict, via);
    }
}

/// Notes the home's answer, for the trace.
fn trace_outcome(trace_span: Option<&mut ActiveTraceSpan>, outcome: &OpenOutcome) {
    let Some(trace_span) = trace_span else { return };
    let (what, failed) = match outcome {
        OpenOutcome::Found(found) => {
            let origin = found.transport.map_or(BytesOrigin::Gateway, BytesOrigin::Tier);
            trace_span.set_attribute("verbs3.transport", origin.as_str());
            (verdict_of(found.cache_verdict()).as_str(), None)
        }
        OpenOutcome::Absent(_) => ("absent", None),
        OpenOutcome::Ufs(answer) => ("ufs", Some(format!("the ufs answered {}", answer.status))),
        OpenOutcome::Bypass(reason) => ("bypass", Some(reason.as_str().to_owned())),
    };
    trace_span.set_attribute("verbs3.outcome", what);
    if let Some(why) = failed {
        trace_span.mark_failed(why);
    }
}

/// Returns where the wanted bytes are to land. `None`: their client has lent no memory, or where in
/// the body they are depends on the object.
fn place_of(
    cx: &RequestContext,
    plan: &ReadRequestPlan,
    want: ByteRange,
) -> Option<ObjectBytesPlace> {
    let body = cx.body_place().filter(|_| plan.if_range.is_none())?.clone();
    Some(ObjectBytesPlace { body, first_byte: want.first_byte()? })
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
