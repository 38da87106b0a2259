//! Defines what the tier answers to a read: an object that was found, one that is open, and the
//! answer made of it.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use s3s::Body;
use s3s::dto::StreamingBlob;
use verbs3_client::OpenedObject;
use verbs3_protocol::{AttributeLease, HeadAttributes, KeyGeneration, OpenObjectReply};

use super::answers;
use super::fetch_flight::verdict_of;
use super::object_fetch::ObjectFetch;
use super::request_plan::ReadRequestPlan;
use crate::request::{BytesOrigin, ReadVerdict};

/// An object that was found, and not judged yet.
pub(super) struct FoundObject {
    pub(super) opened: OpenedObject,
    /// How the attributes were found, and the first bytes or, without any, the attributes again.
    pub(super) verdicts: [ReadVerdict; 2],
    pub(super) origin: BytesOrigin,
}

/// An object that is open.
pub(super) struct ReadyObject {
    pub(super) attributes: HeadAttributes,
    pub(super) extent: Range<u64>,
    /// 206 instead of 200.
    pub(super) part: bool,
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
    pub(super) fn from_tier(opened: OpenedObject) -> Self {
        let attributes =
            if opened.opened.attributes_cached { ReadVerdict::Hit } else { ReadVerdict::Miss };
        let verdicts = [attributes, verdict_of(opened.cache_verdict())];
        let origin = opened.transport.map_or(BytesOrigin::Gateway, BytesOrigin::Tier);
        Self { opened, verdicts, origin }
    }

    /// Makes an object of which the store has told the attributes. Its bytes are still to be read.
    pub(super) fn from_store(attributes: &HeadAttributes) -> Self {
        let opened = OpenObjectReply {
            attributes: attributes.clone(),
            generation: KeyGeneration::default(),
            lease: AttributeLease::default(),
            attributes_cached: false,
            piece: None,
        };
        let opened =
            OpenedObject { opened, data: Vec::new(), transport: None, rest: None, covered: 0..0 };
        Self { opened, verdicts: [ReadVerdict::Bypass; 2], origin: BytesOrigin::Ufs }
    }
}

impl ReadyObject {
    /// Takes the body, if it is one piece of this gateway's own memory. It takes no landing.
    pub(super) fn take_held(&mut self) -> Option<Bytes> {
        let is_whole = self.is_held && self.fetch.is_none() && self.ready.len() == 1;
        if is_whole { self.ready.pop_front() } else { None }
    }
}

/// Makes the tier's answer about an object that is open.
pub(super) fn describe_object(
    ask: &ReadRequestPlan,
    opened: ReadyObject,
    body: Option<TierBody>,
) -> TierAnswer {
    let checksums = ask.checksums && !opened.part;
    TierAnswer {
        bytes: opened.extent.end - opened.extent.start,
        content_range: content_range(&opened),
        headers: answers::object_headers(&opened.attributes, checksums, &ask.overrides),
        body,
    }
}

fn content_range(opened: &ReadyObject) -> Option<String> {
    let Range { start, end } = opened.extent;
    opened.part.then(|| format!("bytes {start}-{}/{}", end - 1, opened.attributes.version.bytes))
}
