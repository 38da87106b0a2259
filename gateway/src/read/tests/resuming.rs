//! `If-Range`: a download goes on with the version that it began with, or begins again.

use http::header::IF_RANGE;
use s3s::dto::Range as Wanted;

use super::*;

impl ReadFixture {
    async fn try_resume(
        &self,
        input: GetObjectInput,
        validator: &str,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let cx = Arc::new(RequestContext::new(RequestId::generate(), Instant::now()));
        let if_range =
            IfRange::from_headers(&HeaderMap::from_iter([(IF_RANGE, validator.parse().unwrap())]));
        assert!(if_range.is_some());
        self.reader.get(&cx, &self.mount, input, if_range).await
    }

    /// Status and body.
    async fn resume(&self, input: GetObjectInput, validator: &str) -> (u16, Vec<u8>) {
        let mut output = self.try_resume(input, validator).await.unwrap().output;
        let status = if output.content_range.is_some() { 206 } else { 200 };
        let (mut bytes, length) = (Vec::new(), output.content_length.unwrap());
        let mut body = output.body.take().unwrap();
        while let Some(item) = body.next().await {
            bytes.extend_from_slice(&item.unwrap());
        }
        assert_eq!(bytes.len() as i64, length);
        (status, bytes)
    }

    /// Its strong ETag, quoted, and its Last-Modified.
    async fn validators(&self, key: &str) -> (String, String) {
        let input =
            HeadObjectInput { bucket: "train".into(), key: key.into(), ..Default::default() };
        let response = self.store.store.head_object(plain(input)).await.unwrap().output;
        let Some(ETag::Strong(etag)) = response.e_tag else { panic!("no strong ETag") };
        let modified = std::time::SystemTime::from(time::OffsetDateTime::from(
            response.last_modified.unwrap(),
        ));
        (format!("\"{etag}\""), httpdate::fmt_http_date(modified))
    }
}

const BYTES: usize = 3 * BLOCK + 17;
const OTHER: &str = "\"0123456789abcdef0123456789abcdef\"";

/// Ranges of an object of `BYTES`, and what they are.
fn ranges() -> Vec<(Wanted, std::ops::Range<usize>)> {
    let inside = |first: usize, last: usize| {
        (Wanted::Int { first: first as u64, last: Some(last as u64) }, first..last + 1)
    };
    vec![
        inside(0, 9),
        inside(PAGE - 1, PAGE),
        inside(BLOCK - 1, 2 * BLOCK),
        inside(2 * BLOCK + 5, 2 * BLOCK + 6),
        (Wanted::Int { first: 7, last: None }, 7..BYTES),
        (Wanted::Suffix { length: 20 }, BYTES - 20..BYTES),
    ]
}

/// Every validator with every range. `of_key`: the question but for its range.
async fn each(
    fixture: &ReadFixture,
    key: &str,
    expected: &[u8],
    of_key: impl Fn() -> GetObjectInput,
) {
    let (etag, date) = fixture.validators(key).await;
    let weak = format!("W/{etag}");
    for (range, part) in ranges() {
        for (validator, is_named) in [
            (etag.as_str(), true),
            (date.as_str(), true),
            (OTHER, false),
            (weak.as_str(), false),
            ("Sun, 06 Nov 1994 08:49:37 GMT", false),
            ("nonsense", false),
        ] {
            let input = GetObjectInput { range: Some(range), ..of_key() };
            let (status, body) = fixture.resume(input, validator).await;
            let (wanted_status, wanted) =
                if is_named { (206, &expected[part.clone()]) } else { (200, expected) };
            assert!(
                status == wanted_status && body == wanted,
                "{range:?}, {validator}: {status}, {}",
                body.len()
            );
        }
    }
    // Past the end: of that version it is; of another one there may be more.
    let past = || GetObjectInput {
        range: Some(Wanted::Int { first: BYTES as u64, last: None }),
        ..of_key()
    };
    let refused =
        fixture.try_resume(past(), &etag).await.expect_err("a range past the end is no answer");
    assert_eq!(refused.code().as_str(), "InvalidRange");
    assert!(fixture.resume(past(), OTHER).await == (200, expected.to_vec()));
    // Without a range it says nothing.
    assert!(fixture.resume(of_key(), OTHER).await == (200, expected.to_vec()));
}

#[tokio::test]
async fn a_range_is_of_the_clients_version_or_whole_from_the_cache() {
    for join in [Join::Share, Join::Copy] {
        let fixture = ReadSetup { join, workers: 2, ..ReadSetup::default() }.start_fixture().await;
        let expected = content(7, BYTES);
        for (number, (range, part)) in ranges().into_iter().enumerate() {
            // Cold: the home fetches the range, and then all the rest is wanted.
            let key = format!("cold-{number}");
            fixture.put(&key, &expected).await;
            let input = GetObjectInput { range: Some(range), ..of(&key) };
            assert!(
                fixture.resume(input.clone(), OTHER).await == (200, expected.clone()),
                "{range:?}"
            );
            let (etag, _) = fixture.validators(&key).await;
            assert!(
                fixture.resume(input, &etag).await == (206, expected[part].to_vec()),
                "{range:?}"
            );
        }
        fixture.put("k", &expected).await;
        each(&fixture, "k", &expected, || of("k")).await;
    }
}

#[tokio::test]
async fn a_range_is_of_the_clients_version_or_whole_past_the_tier() {
    let expected = content(8, BYTES);
    let one_place =
        || GatewayReadSettings { bypass_in_flight_max: 1, ..ReadSetup::default().reader };
    let fixture = ReadSetup { reader: one_place(), ..ReadSetup::default() }.start_fixture().await;
    fixture.put("k", &expected).await;
    each(&fixture, "k", &expected, || GetObjectInput {
        version_id: Some("null".into()),
        ..of("k")
    })
    .await;
    each(&fixture, "k", &expected, || GetObjectInput {
        expected_bucket_owner: Some("me".into()),
        ..of("k")
    })
    .await;
    let mut uncached =
        ReadSetup { reader: one_place(), ..ReadSetup::default() }.start_fixture().await;
    uncached.mount =
        Arc::new(MountedBucket { cached: false, ..MountedBucket::clone(&uncached.mount) });
    uncached.put("k", &expected).await;
    each(&uncached, "k", &expected, || of("k")).await;
    let alone = ReadSetup { reader: one_place(), ..ReadSetup::default() }.start_fixture().await;
    alone.put("k", &expected).await;
    alone.faults[0].refuse_connects(1000);
    each(&alone, "k", &expected, || of("k")).await;
}

#[tokio::test]
async fn a_part_by_its_number_is_no_range() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", b"hello").await;
    let gets = fixture.store.gets();
    let input = GetObjectInput { part_number: Some(1), ..of("k") };
    assert_eq!(fixture.resume(input, OTHER).await.1, b"hello");
    assert_eq!(fixture.store.gets(), gets + 1);
}

#[tokio::test]
async fn a_download_that_is_resumed_after_a_write_begins_again() {
    let fixture =
        ReadSetup { attributes: AttributeFreshness::AlwaysAsk, workers: 2, ..ReadSetup::default() }
            .start_fixture()
            .await;
    let (old, new) = (content(1, BYTES), content(2, BYTES));
    fixture.put("k", &old).await;
    let (etag, _) = fixture.validators("k").await;
    let rest = || GetObjectInput {
        range: Some(Wanted::Int { first: BLOCK as u64, last: None }),
        ..of("k")
    };
    assert!(fixture.resume(rest(), &etag).await == (206, old[BLOCK..].to_vec()));
    fixture.write("k", &new).await;
    assert!(fixture.resume(rest(), &etag).await == (200, new));
}

#[tokio::test]
async fn other_conditions_are_judged_before() {
    let fixture = ReadSetup::default().start_fixture().await;
    fixture.put("k", b"hello").await;
    let (etag, _) = fixture.validators("k").await;
    let strong =
        |value: &str| Some(ETagCondition::ETag(ETag::Strong(value.trim_matches('"').to_owned())));
    for bypassed in [false, true] {
        let ask = || GetObjectInput {
            version_id: bypassed.then(|| "null".to_owned()),
            ..ranged("k", 0, 1)
        };
        for validator in [etag.as_str(), OTHER] {
            let failed = GetObjectInput { if_match: strong(OTHER), ..ask() };
            let code = fixture
                .try_resume(failed, validator)
                .await
                .expect_err("412")
                .code()
                .as_str()
                .to_owned();
            assert_eq!(code, "PreconditionFailed", "{bypassed} {validator}");
            let unchanged = GetObjectInput { if_none_match: strong(&etag), ..ask() };
            let status = fixture
                .try_resume(unchanged, validator)
                .await
                .expect_err("304")
                .status_code()
                .unwrap();
            assert_eq!(status.as_u16(), 304, "{bypassed} {validator}");
        }
        let met = GetObjectInput { if_match: strong(&etag), ..ask() };
        assert_eq!(fixture.resume(met, OTHER).await, (200, b"hello".to_vec()));
    }
}
