//! Round trips, and garbage that must not panic.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn open() -> Request {
    Request::Open(Open {
        object: ObjectKey { volume: Volume::new("local", "train"), key: "a/ü+%".into() },
        version_id: None,
        epoch: Epoch(3),
        geometry: Geometry::DEFAULT,
        attributes_age_ms_max: u64::MAX,
        absence_age_ms_max: 0,
        checksums: true,
        want: Some(ByteRange::Suffix { bytes: 9 }),
        piece_bytes_max: 1 << 20,
    })
}

#[test]
fn a_request_survives_the_wire() {
    assert_eq!(Request::decode(&open().encode()).unwrap(), open());
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = open().encode().to_vec();
    bytes.push(0);
    assert!(Request::decode(&bytes).is_err());
}

#[test]
fn every_truncation_is_refused() {
    let bytes = open().encode();
    for length in 0..bytes.len() {
        assert!(Request::decode(&bytes[..length]).is_err(), "accepted {length} of {} bytes", bytes.len());
    }
}

#[test]
fn ranges_resolve_as_http_says() {
    let from = |first, last| ByteRange::From { first, last };
    assert_eq!(from(0, Some(0)).resolve(10), Some(0..1));
    assert_eq!(from(5, None).resolve(10), Some(5..10));
    assert_eq!(from(5, Some(u64::MAX)).resolve(10), Some(5..10));
    assert_eq!(from(10, None).resolve(10), None);
    assert_eq!(from(6, Some(5)).resolve(10), None);
    assert_eq!(ByteRange::Suffix { bytes: 3 }.resolve(10), Some(7..10));
    assert_eq!(ByteRange::Suffix { bytes: 30 }.resolve(10), Some(0..10));
    assert_eq!(ByteRange::Suffix { bytes: 0 }.resolve(10), None);
    assert_eq!(ByteRange::Suffix { bytes: 5 }.resolve(0), None);
    assert_eq!(ByteRange::All.resolve(0), Some(0..0));
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
    }
}
