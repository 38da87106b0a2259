//! Round trips, and garbage that must not panic.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use proptest::prelude::*;
use verbs3_instruction_counter::count_instructions;

use super::*;
use crate::{
    AnswerHeaders, BlockGeometry, ByteRange, ContentVersion, Epoch, HeadAttributes, KeyHash,
    ListedAttributes, ObjectKey, ObjectVolume, ReadSource, RefusalKind, StandingQuestion,
    WorkerQuestion,
};

fn context() -> TraceContext {
    TraceContext { trace: u128::MAX, span: 7, sampled: true, state: Some("a=1".into()) }
}

fn open() -> RequestEnvelope {
    let open = OpenMessage {
        object: ObjectKey { volume: ObjectVolume::new("local", "train"), key: "a/ü+%".into() },
        version_id: None,
        epoch: Epoch(3),
        geometry: BlockGeometry::DEFAULT,
        attributes_age_ms_max: u64::MAX,
        absence_age_ms_max: 0,
        checksums: true,
        want: Some(ByteRange::Suffix { bytes: 9 }),
        piece_bytes_max: 1 << 20,
        holder: None,
    };
    open.into_request().with_trace(None)
}

#[test]
fn a_request_survives_the_wire() {
    assert_eq!(RequestEnvelope::decode(&open().encode()).unwrap(), open());
}

#[test]
fn instruction_counts_of_frames() {
    let sent = open();
    count_instructions("frame-encoding", || drop(black_box(black_box(&sent).encode())));
    let frame = sent.encode();
    count_instructions("frame-decoding", || {
        assert_eq!(RequestEnvelope::decode(black_box(&frame)).unwrap(), sent);
    });
}

#[test]
fn any_request_keeps_its_trace() {
    for question in [open().question, WorkerRequest::Standing] {
        let traced = question.clone().with_trace(Some(&context()));
        let received = RequestEnvelope::decode(&traced.encode()).unwrap();
        assert_eq!(received, RequestEnvelope { trace: Some(context()), tenant: None, question });
    }
}

#[test]
fn any_request_keeps_the_tenant_that_it_is_asked_for() {
    let tenant = TenantTag::new("vision", 3);
    for question in [open().question, WorkerRequest::Standing] {
        for trace in [None, Some(context())] {
            let sent = question.clone().for_tenant(trace.as_ref(), tenant);
            let received = RequestEnvelope::decode(&sent.encode()).unwrap();
            assert_eq!(received, RequestEnvelope { trace, tenant, question: question.clone() });
        }
    }
}

/// The envelope stands once, at the front: what follows it is a question, and not an envelope.
#[test]
fn a_traced_request_within_a_traced_request_is_refused() {
    let inner = open().question.with_trace(Some(&context())).encode();
    let alone = WorkerRequest::Standing.with_trace(Some(&context())).encode();
    let mut nested = alone[..alone.len() - 1].to_vec();
    nested.extend_from_slice(&inner);
    assert!(RequestEnvelope::decode(&nested).is_err());
}

#[test]
fn an_answer_to_another_question_is_refused_and_named() {
    let standing = StandingReply { epoch: Epoch(3), leased: true };
    let reply = StandingQuestion::reply_from(standing);
    assert_eq!(reply.clone().into_answer::<StandingQuestion>().unwrap(), standing);
    let other = reply.into_answer::<ReadMessage>().unwrap_err();
    assert_eq!(other.to_string(), "it answered another question, with its standing");
}

/// Reads are the most frequent messages: three bytes beside what they ask.
#[test]
fn a_read_of_nobody_costs_three_bytes_beside_its_fields() {
    let read = ReadMessage {
        object: ObjectKey { volume: ObjectVolume::new("local", "train"), key: "a".into() },
        version: ContentVersion { etag: "\"e\"".into(), bytes: 7, version_id: None },
        geometry: BlockGeometry::DEFAULT,
        block: BlockIndex(0),
        start: 0,
        end: 7,
        ahead_bytes: 0,
        request_range: 0..7,
        from: ReadSource::Owner,
    };
    let fields = postcard::to_stdvec(&read).unwrap().len();
    assert_eq!(read.into_request().with_trace(None).encode().len(), fields + 3);
}

/// A peer of another release must not take one message for another. If this fails, raise
/// `PROTOCOL_VERSION` in `rdma/src/calls/frame.rs`, then change what is expected here.
#[test]
fn an_envelope_is_laid_out_as_the_handshakes_version_says() {
    let tenant = TenantTag::new("ab", 3);
    let [plain, tagged] = [None, tenant]
        .map(|tenant| WorkerRequest::Standing.for_tenant(None, tenant).encode().to_vec());
    assert_eq!(plain, [0, 0, 9]);
    assert_eq!(tagged, [0, 1, 2, b'a', b'b', 3, 9]);
    let refused =
        WorkerReply::Refused(WorkerRefusal { kind: RefusalKind::Busy, reason: "r".into() });
    assert_eq!(refused.encode()[0], 14, "the last kind of reply: each one before it counts");
}

/// What places an object, and guards its attributes. If this fails, raise `PROTOCOL_VERSION`, too.
#[test]
fn an_object_is_hashed_as_the_handshakes_version_says() {
    let object = |volume: &str| ObjectKey { volume: ObjectVolume(volume.into()), key: "k".into() };
    assert_eq!(object("ceph/train").hash(), object("ceph@0123abcd/train").hash());
    assert_eq!(object("ceph/train").hash(), KeyHash(15_271_459_565_676_281_878));
    let slots = [0, 15, 16].map(|block| object("ceph/train").block_slot(BlockIndex(block)).0);
    assert_eq!(slots, [42_002, 42_002, 12_073]);
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = open().encode().to_vec();
    bytes.push(0);
    assert!(RequestEnvelope::decode(&bytes).is_err());
}

#[test]
fn every_truncation_is_refused() {
    let bytes = open().encode();
    for length in 0..bytes.len() {
        assert!(
            RequestEnvelope::decode(&bytes[..length]).is_err(),
            "accepted {length} of {} bytes",
            bytes.len()
        );
    }
}

#[test]
fn ranges_resolve_as_http_says() {
    let from = |first, last| ByteRange::From { first, last };
    assert_eq!(from(0, Some(0)).resolve_range(10), Some(0..1));
    assert_eq!(from(5, None).resolve_range(10), Some(5..10));
    assert_eq!(from(5, Some(u64::MAX)).resolve_range(10), Some(5..10));
    assert_eq!(from(10, None).resolve_range(10), None);
    assert_eq!(from(6, Some(5)).resolve_range(10), None);
    assert_eq!(ByteRange::Suffix { bytes: 3 }.resolve_range(10), Some(7..10));
    assert_eq!(ByteRange::Suffix { bytes: 30 }.resolve_range(10), Some(0..10));
    assert_eq!(ByteRange::Suffix { bytes: 0 }.resolve_range(10), None);
    assert_eq!(ByteRange::Suffix { bytes: 5 }.resolve_range(0), None);
    assert_eq!(ByteRange::All.resolve_range(0), Some(0..0));
}

/// The fields are the ETag, the length and the time.
#[test]
fn a_listing_contradicts_a_field_that_differs_and_none_it_omits() {
    let version = ContentVersion { etag: "\"a\"".into(), bytes: 7, version_id: None };
    let known = HeadAttributes {
        version,
        last_modified: Some(100),
        headers: AnswerHeaders::default(),
        checksums_known: false,
    };
    let same = ListedAttributes {
        etag: Some("\"a\"".into()),
        bytes: Some(7),
        last_modified_ms: Some(100_000),
    };
    let at = |ms| ListedAttributes { last_modified_ms: Some(ms), ..same.clone() };
    for agrees in [same.clone(), ListedAttributes::default(), at(100_999), at(99_001)] {
        assert!(!agrees.contradicts_attributes(&known), "{agrees:?}");
    }
    let etag = ListedAttributes { etag: Some("\"b\"".into()), ..same.clone() };
    let bytes = ListedAttributes { bytes: Some(8), ..same.clone() };
    for contradicts in [etag, bytes, at(101_000), at(99_000), at(-1)] {
        assert!(contradicts.contradicts_attributes(&known), "{contradicts:?}");
    }
    let timeless = HeadAttributes { last_modified: None, ..known };
    assert!(!at(1).contradicts_attributes(&timeless));
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = RequestEnvelope::decode(&bytes);
        let _ = WorkerReply::decode(&bytes);
    }
}
