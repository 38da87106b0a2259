//! GET and HEAD through the cache tier. `plan` says what is asked, `Reader` asks the object's home,
//! `fetch` brings the bytes that the home did not send along, `assemble` makes a body of them;
//! `bypass` is the way past the tier.
//!
//! Parses no HTTP and decides no right: that is done before.

mod admission;
mod answers;
mod assemble;
mod bypass;
mod bypassed;
mod conditions;
mod fetch;
pub(crate) mod if_range;
pub(crate) mod metrics;
mod options;
mod plan;
mod resumption;
mod sequence;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::Registry;
use s3s::dto::{GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput};
use s3s::{S3Error, S3Response, S3Result};
use verbs3_client::{Found, OpenOutcome, OpenRequest, Tier};
use verbs3_protocol::{Attributes, ByteRange, CacheVerdict, Geometry, ObjectKey};
use verbs3_telemetry::{Child, Value};

use crate::mount::{Freshness, KEY_BYTES_MAX, Mount};
use crate::request::{RequestContext, Verdict, Via};
use admission::{Admission, Admitted, BypassPlaces};
use assemble::Body;
use conditions::Judgement;
use fetch::{Fetch, FetchError, Subject, verdict_of};
use if_range::IfRange;
use metrics::Metrics;
pub use options::ReaderOptions;
use plan::{Ask, Extent};
use sequence::Sequences;

/// Reads objects through the tier.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// What all reads of this gateway share.
struct Shared {
    tier: Arc<Tier>,
    options: ReaderOptions,
    admission: Admission,
    places: BypassPlaces,
    sequences: Sequences,
    metrics: Metrics,
}

impl Shared {
    fn geometry(&self) -> Geometry {
        self.tier.options().geometry
    }
}

/// Opens of one read: the first, and those after the version was gone before its first byte was
/// sent.
const OPENS_MAX: usize = 3;

/// An object that is open.
struct Opened {
    attributes: Attributes,
    extent: Range<u64>,
    /// 206 instead of 200.
    part: bool,
    ready: VecDeque<Bytes>,
    fetch: Option<Box<Fetch>>,
}

enum Opening {
    Object(Opened),
    /// The tier can't help.
    Bypass,
}

impl Reader {
    pub fn new(
        options: ReaderOptions,
        tier: Arc<Tier>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let metrics = Metrics::new(registry)?;
        let in_flight = (metrics.bytes_in_flight.clone(), metrics.bypasses_in_flight.clone());
        let shared = Shared {
            admission: Admission::new(
                options.bytes_in_flight_max,
                options.admission_wait_max,
                in_flight.0,
            ),
            places: BypassPlaces::new(
                options.ufs_bypass_in_flight_max,
                options.ufs_bypass_share_percent,
                options.ufs_bypass_wait_max,
                in_flight.1,
            ),
            sequences: Sequences::new(
                options.sequences_max,
                u64::from(options.read_ahead_bytes_max),
            ),
            metrics,
            tier,
            options,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// GET. `input` names bucket and key as the client does.
    pub(crate) async fn get(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<Mount>,
        input: GetObjectInput,
        if_range: Option<IfRange>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let if_range = if_range.as_ref();
        let Some(ask) = Ask::of_get(&input, mount, if_range) else {
            return self.bypass_get(cx, mount, input, if_range).await;
        };
        let Some(mut admitted) = self.shared.admission.enter(self.first_bytes(&ask)).await else {
            self.shared.metrics.slow_downs.inc();
            return Err(answers::slow_down("too many bytes are in flight"));
        };
        let opened =
            match self.open(cx, mount, &ask, Some(ask.range.unwrap_or(ByteRange::All))).await? {
                Opening::Object(opened) => opened,
                Opening::Bypass => {
                    drop(admitted);
                    return self.bypass_get(cx, mount, input, if_range).await;
                }
            };
        let bytes = opened.extent.end - opened.extent.start;
        admitted.resize(
            &self.shared.admission,
            bytes.min(u64::from(self.shared.geometry().block_bytes)),
        );
        Ok(self.respond(cx, &ask, opened, admitted))
    }

    /// HEAD. `input` names bucket and key as the client does.
    pub async fn head(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<Mount>,
        input: HeadObjectInput,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let Some(ask) = Ask::of_head(&input, mount) else {
            return self.bypass_head(cx, mount, input).await;
        };
        let opened = match self.open(cx, mount, &ask, None).await? {
            Opening::Object(opened) => opened,
            Opening::Bypass => return self.bypass_head(cx, mount, input).await,
        };
        let output = HeadObjectOutput {
            accept_ranges: Some(ACCEPT_RANGES.to_owned()),
            content_length: Some((opened.extent.end - opened.extent.start) as i64),
            content_range: content_range(&opened),
            ..Default::default()
        };
        let mut response = S3Response::new(output);
        response.headers =
            answers::headers(opened.attributes, ask.checksums && !opened.part, &ask.overrides);
        Ok(response)
    }

    /// Bytes to be admitted before anything is asked: the first landing.
    fn first_bytes(&self, ask: &Ask) -> u64 {
        let open = u64::from(self.shared.tier.options().open_landing_bytes);
        match ask.range {
            None | Some(ByteRange::All) => open,
            Some(ByteRange::From { first, last }) => {
                last.map_or(open, |last| last.saturating_sub(first).saturating_add(1)).min(open)
            }
            Some(ByteRange::Suffix { bytes }) => bytes.min(open),
        }
    }

    /// `want`: bytes to bring along; `None` for HEAD.
    async fn open(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<Mount>,
        ask: &Ask,
        want: Option<ByteRange>,
    ) -> S3Result<Opening> {
        let object = mount.object(&ask.key);
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
            trace: None,
        };
        for _ in 0..OPENS_MAX {
            let mut span = cx.span("verbs3.open");
            request.trace = cx.onward(span.as_ref());
            let outcome = self.shared.tier.open(&request).await;
            tell(span.as_mut(), &outcome);
            drop(span);
            let found = match outcome {
                OpenOutcome::Found(found) => *found,
                OpenOutcome::Absent(absent) => {
                    let verdict = if absent.cached { Verdict::Hit } else { Verdict::Miss };
                    self.shared.metrics.read(verdict);
                    return Err(answers::of_worker(cx, mount, absent.answer));
                }
                OpenOutcome::Ufs(answer) => return Err(answers::of_worker(cx, mount, answer)),
                OpenOutcome::Bypass(_) => return Ok(Opening::Bypass),
            };
            match self.opened(cx, mount, ask, &request.object, found, want.is_some()).await {
                Ok(opening) => return Ok(opening),
                Err(Unopened::Answer(error)) => return Err(error),
                Err(Unopened::VersionGone) => {
                    self.shared.metrics.reopens.inc();
                    // What the home knows is old: it has to ask.
                    (request.attributes_age_ms_max, request.absence_age_ms_max) = (0, 0);
                }
            }
        }
        Ok(Opening::Bypass)
    }

    /// Judges what was found against conditions and range, and waits for the first byte.
    async fn opened(
        &self,
        cx: &Arc<RequestContext>,
        mount: &Arc<Mount>,
        ask: &Ask,
        object: &Arc<ObjectKey>,
        found: Found,
        body: bool,
    ) -> Result<Opening, Unopened> {
        let verdict = found.verdict();
        let Found { opened, data, transport, rest, covered } = found;
        let attributes = opened.attributes;
        let outcome = |verdict| self.note(cx, verdict, Via::Tier(transport));
        match ask.conditions.judge(&attributes) {
            Judgement::Proceed => {}
            Judgement::NotModified => {
                outcome(verdict_of(attributes_verdict(opened.attributes_cached)));
                return Err(Unopened::Answer(answers::not_modified(cx, attributes)));
            }
            Judgement::Failed => return Err(Unopened::Answer(answers::precondition_failed())),
        }
        let range = ask.range_of(&attributes);
        // What came along is of a range that the client has no use for any more.
        let (data, rest, covered) =
            if range == ask.range { (data, rest, covered) } else { (Vec::new(), None, 0..0) };
        let (extent, part) = match Extent::of(range, attributes.version.bytes) {
            Extent::Whole(range) => (range, false),
            Extent::Part(range) => (range, true),
            Extent::Unsatisfiable => {
                return Err(Unopened::Answer(answers::invalid_range(attributes.version.bytes)));
            }
        };
        if !body || extent.is_empty() {
            outcome(verdict_of(verdict));
            return Ok(Opening::Object(Opened {
                attributes,
                extent,
                part,
                ready: VecDeque::new(),
                fetch: None,
            }));
        }
        let sequential = part && self.shared.sequences.note(object, &attributes.version, &extent);
        let fetched = if covered.is_empty() { extent.clone() } else { covered.end..extent.end };
        let ready: VecDeque<Bytes> = data.into_iter().filter(|data| !data.is_empty()).collect();
        let mut fetch = None;
        if rest.is_some() || !fetched.is_empty() {
            let subject = Subject {
                shared: self.shared.clone(),
                cx: cx.clone(),
                mount: mount.clone(),
                object: object.clone(),
                version: Arc::new(attributes.version.clone()),
                version_named: ask.version_id.is_some(),
            };
            let ahead = if sequential { self.shared.options.read_ahead_bytes_max } else { 0 };
            fetch = Some(Box::new(Fetch::new(subject, fetched, rest, ahead)));
        }
        if !ready.is_empty() {
            outcome(verdict_of(verdict));
            fetch.iter_mut().for_each(|fetch| fetch.note_answer_left());
        } else if let Some(fetch) = &mut fetch {
            fetch.prime().await.map_err(|error| self.unopened(cx, mount, error))?;
            if let Some((verdict, via)) = fetch.origin() {
                self.note(cx, verdict, via);
            }
        }
        Ok(Opening::Object(Opened { attributes, extent, part, ready, fetch }))
    }

    fn note(&self, cx: &RequestContext, verdict: Verdict, via: Via) {
        self.shared.metrics.read(verdict);
        cx.note_outcome(verdict, via);
    }

    /// Before the first byte, an error is an answer.
    fn unopened(&self, cx: &RequestContext, mount: &Mount, error: FetchError) -> Unopened {
        match error {
            FetchError::VersionGone => Unopened::VersionGone,
            FetchError::Ufs(error) => Unopened::Answer(answers::of_ufs_error(cx, mount, error)),
            FetchError::NoPlace => {
                self.shared.metrics.slow_downs.inc();
                Unopened::Answer(answers::slow_down("too many reads past the cache are under way"))
            }
        }
    }

    fn respond(
        &self,
        cx: &Arc<RequestContext>,
        ask: &Ask,
        opened: Opened,
        admitted: Admitted,
    ) -> S3Response<GetObjectOutput> {
        let bytes = opened.extent.end - opened.extent.start;
        let content_range = content_range(&opened);
        let body = Body {
            shared: self.shared.clone(),
            cx: cx.clone(),
            ready: opened.ready,
            fetch: opened.fetch.map(Mutex::new),
            remaining: bytes,
            _admitted: admitted,
        };
        let output = GetObjectOutput {
            accept_ranges: Some(ACCEPT_RANGES.to_owned()),
            content_length: Some(bytes as i64),
            content_range,
            body: Some(body.into_blob()),
            ..Default::default()
        };
        S3Response::with_headers(
            output,
            answers::headers(opened.attributes, ask.checksums && !opened.part, &ask.overrides),
        )
    }
}

/// Notes what the home answered, for the trace.
fn tell(span: Option<&mut Child>, outcome: &OpenOutcome) {
    let Some(span) = span else { return };
    let (what, failed) = match outcome {
        OpenOutcome::Found(found) => {
            span.set("verbs3.transport", Value::Name(found.transport.as_str()));
            (verdict_of(found.verdict()).as_str(), None)
        }
        OpenOutcome::Absent(_) => ("absent", None),
        OpenOutcome::Ufs(answer) => ("ufs", Some(format!("the ufs answered {}", answer.status))),
        OpenOutcome::Bypass(reason) => ("bypass", Some(reason.as_str().to_owned())),
    };
    span.set("verbs3.outcome", Value::Name(what));
    if let Some(why) = failed {
        span.fail(why);
    }
}

/// Why an object that was found is not the answer.
enum Unopened {
    Answer(S3Error),
    VersionGone,
}

const ACCEPT_RANGES: &str = "bytes";

fn content_range(opened: &Opened) -> Option<String> {
    let Range { start, end } = opened.extent;
    opened.part.then(|| format!("bytes {start}-{}/{}", end - 1, opened.attributes.version.bytes))
}

fn attributes_verdict(cached: bool) -> CacheVerdict {
    if cached { CacheVerdict::Hit } else { CacheVerdict::Miss }
}

/// A mount that asks for attributes every time asks for absences, too.
fn absence_age_ms_max(mount: &Mount) -> u64 {
    match mount.attributes {
        Freshness::AlwaysAsk => 0,
        Freshness::Ttl(_) | Freshness::Immutable => {
            u64::try_from(mount.absence_ttl.as_millis()).unwrap_or(u64::MAX - 1)
        }
    }
}

#[cfg(test)]
mod tests;
