//! Defines what becomes of an object on its way to the answer: found (`FoundObject`), judged
//! against conditions and range (`JudgedObject`), with its body begun (`ReadyObject`), answered
//! (`TierAnswer`).

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use s3s::Body;
use s3s::dto::StreamingBlob;
use verbs3_client::{OpenedObject, SpanRead};
use verbs3_protocol::{AttributeLease, HeadAttributes, KeyGeneration, OpenObjectReply};

use super::client_answer;
use super::fetch_flight::verdict_of;
use super::object_fetch::ObjectFetch;
use super::request_plan::ReadRequestPlan;
use crate::request_context::{BytesOrigin, ReadVerdict};

/// An object that was found, and not judged yet.
pub(super) struct FoundObject {
    pub(super) object: OpenedObject,
    /// How the attributes were found.
    pub(super) attributes_verdict: ReadVerdict,
    /// How the first bytes were found or, without any, the attributes.
    pub(super) bytes_verdict: ReadVerdict,
    pub(super) origin: BytesOrigin,
}

/// An object that meets the conditions and has the range: 200 or 206.
pub(super) struct JudgedObject {
    pub(super) attributes: HeadAttributes,
    /// The bytes of the object that are the answer.
    pub(super) extent: Range<u64>,
    /// 206 instead of 200.
    pub(super) is_partial: bool,
    /// The first bytes of the extent.
    pub(super) data: Vec<Bytes>,
    /// The read of what follows `data` within `covered`.
    pub(super) rest: Option<SpanRead>,
    /// The bytes of the object that `data` and `rest` give.
    pub(super) covered: Range<u64>,
    pub(super) bytes_verdict: ReadVerdict,
    pub(super) origin: BytesOrigin,
}

/// An object whose answer can go out, with the body of a GET.
pub(super) struct ReadyObject {
    pub(super) attributes: HeadAttributes,
    pub(super) extent: Range<u64>,
    /// 206 instead of 200.
    pub(super) is_partial: bool,
    pub(super) ready: VecDeque<Bytes>,
    pub(super) fetch: Option<Box<ObjectFetch>>,
    /// The bytes are in this gateway's own memory, and are accounted for there.
    pub(super) is_held: bool,
}

/// What the tier answers to a GET or HEAD.
pub(crate) struct TierAnswer {
    /// Length of the body, or of what a GET's body would be.
    pub(crate) bytes: u64,
    /// Set for a part of the object.
    pub(crate) content_range: Option<String>,
    /// The object's own headers.
    pub(crate) headers: HeaderMap,
    /// `None` for HEAD.
    pub(crate) body: Option<TierBody>,
}

/// A body out of the tier.
pub(crate) enum TierBody {
    /// A small object, or a part of one, which this gateway holds.
    Held(Bytes),
    Assembled(StreamingBlob),
}

impl From<TierBody> for Body {
    fn from(body: TierBody) -> Self {
        match body {
            TierBody::Held(bytes) => bytes.into(),
            TierBody::Assembled(blob) => blob.into(),
        }
    }
}

impl FoundObject {
    pub(super) fn from_tier(object: OpenedObject) -> Self {
        let cached = object.reply.attributes_cached;
        Self {
            attributes_verdict: if cached { ReadVerdict::Hit } else { ReadVerdict::Miss },
            bytes_verdict: verdict_of(object.cache_verdict()),
            origin: object.transport.map_or(BytesOrigin::Gateway, BytesOrigin::Tier),
            object,
        }
    }

    /// Makes an object of which the store has told the attributes. Its bytes are still to be read.
    pub(super) fn from_store(attributes: &HeadAttributes) -> Self {
        let reply = OpenObjectReply {
            attributes: attributes.clone(),
            generation: KeyGeneration::default(),
            lease: AttributeLease::default(),
            attributes_cached: false,
            piece: None,
        };
        let object =
            OpenedObject { reply, data: Vec::new(), transport: None, rest: None, covered: 0..0 };
        Self {
            object,
            attributes_verdict: ReadVerdict::Bypass,
            bytes_verdict: ReadVerdict::Bypass,
            origin: BytesOrigin::Ufs,
        }
    }
}

impl ReadyObject {
    /// Takes the body, if it is one piece of this gateway's own memory. It takes no landing.
    pub(super) fn take_held(&mut self) -> Option<Bytes> {
        let is_whole = self.is_held && self.fetch.is_none() && self.ready.len() == 1;
        if is_whole { self.ready.pop_front() } else { None }
    }
}

/// Makes the tier's answer about an object.
pub(super) fn describe_object(
    plan: &ReadRequestPlan,
    object: ReadyObject,
    body: Option<TierBody>,
) -> TierAnswer {
    let checksums = plan.checksums && !object.is_partial;
    TierAnswer {
        bytes: object.extent.end - object.extent.start,
        content_range: content_range(&object),
        headers: client_answer::object_headers(&object.attributes, checksums, &plan.overrides),
        body,
    }
}

fn content_range(object: &ReadyObject) -> Option<String> {
    let Range { start, end } = object.extent;
    let object_bytes = object.attributes.version.bytes;
    object.is_partial.then(|| format!("bytes {start}-{}/{object_bytes}", end - 1))
}
