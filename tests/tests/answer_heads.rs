//! Heads of answers: the same whether an object is cold, comes from a worker, or is held in the
//! gateway; and connections that go on after every kind of answer.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_s3::presigning::{PresignedRequest, PresigningConfig};
use aws_sdk_s3::primitives::DateTime;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use verbs3_tests::metrics::eventually;
use verbs3_tests::{Cluster, PATIENT_TIER, Section, content};

const WITHIN: Duration = Duration::from_secs(120);
const LENGTH: usize = 5000;

/// Headers that an object is stored with.
const STORED: [(&str, &str); 5] = [
    ("cache-control", "max-age=30, private"),
    ("content-disposition", "attachment; filename=\"a b.txt\""),
    ("content-encoding", "gzip"),
    ("content-language", "de, en"),
    ("expires", "Mon, 04 May 2037 03:02:01 GMT"),
];
/// What a reader asks for in their place.
const OVERRIDES: [(&str, &str); 5] = [
    ("cache-control", "no-store"),
    ("content-disposition", "inline; filename=x"),
    ("content-encoding", "identity"),
    ("content-language", "fr"),
    ("expires", "Tue, 05 May 2037 03:02:01 GMT"),
];

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    /// All headers but those that tell one answer from the next.
    fn lasting_headers(&self) -> BTreeMap<String, Vec<u8>> {
        let passing = ["date", "x-amz-request-id", "x-amz-id-2"];
        let named = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
            (name.as_str().to_owned(), value.as_bytes().to_vec())
        };
        let lasts = |name: &str| !passing.contains(&name) && !name.starts_with("x-verbs3-");
        self.headers.iter().map(named).filter(|(name, _)| lasts(name)).collect()
    }

    fn cache_outcome(&self) -> &str {
        self.headers["x-verbs3-cache"].to_str().unwrap()
    }
}

/// One connection to a gateway.
struct Connection {
    host: String,
    sender: SendRequest<Empty<Bytes>>,
}

impl Connection {
    async fn open(endpoint: &str) -> Self {
        let host = endpoint.strip_prefix("http://").unwrap().to_owned();
        let stream = TokioIo::new(TcpStream::connect(&host).await.unwrap());
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self { host, sender }
    }

    /// Fails if the gateway has closed the connection, or has said more than its last answer.
    async fn ask(&mut self, signed: &PresignedRequest, headers: &[(&str, &str)]) -> Answer {
        let target = signed.uri().split_once(&self.host).unwrap().1;
        let mut request = Request::builder().method(signed.method()).uri(target);
        request = request.header(header::HOST, &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await.expect("the connection goes on");
        let asked = self.sender.send_request(request.body(Empty::new()).unwrap());
        let answer = tokio::time::timeout(WITHIN, asked).await.unwrap().unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }
}

struct AnswerHeadFixture {
    cluster: Cluster,
    bucket: String,
}

impl AnswerHeadFixture {
    async fn start() -> Self {
        Self::start_with("").await
    }

    /// `settings`: of the table `gateway`.
    async fn start_with(settings: &str) -> Self {
        // Without a coordinator there are no leases, and nothing is held.
        let builder = Cluster::builder().coordinated().lease("10s");
        let settings = format!("{settings}{PATIENT_TIER}");
        let cluster = builder.settings(Section::Gateway, &settings).start().await.unwrap();
        let bucket = cluster.bucket("heads").await.unwrap();
        Self { cluster, bucket }
    }

    /// Writes an object with all of [`STORED`] behind the gateway, to which it is cold then.
    async fn put_cold(&self, key: &str) {
        let [(_, cache), (_, disposition), (_, encoding), (_, language), _] = STORED;
        let put = self.cluster.store().put_object().bucket(&self.bucket).key(key);
        let put = put.cache_control(cache).content_disposition(disposition);
        let put = put.content_encoding(encoding).content_language(language);
        let put = put.expires(DateTime::from_secs(2_125_018_921)).content_type("text/x-heads");
        put.body(content::body(key, 1, LENGTH).into()).send().await.unwrap();
    }

    async fn open(&self) -> Connection {
        Connection::open(&self.cluster.gateways()[0].endpoint).await
    }

    async fn signed(&self, method: &Method, key: &str, overrides: bool) -> PresignedRequest {
        let client = &self.cluster.gateways()[0].client;
        let expires = PresigningConfig::expires_in(Duration::from_secs(3600)).unwrap();
        let [(_, cache), (_, disposition), (_, encoding), (_, language), _] =
            OVERRIDES.map(|(name, value)| (name, overrides.then(|| value.to_owned())));
        let ends = overrides.then(|| DateTime::from_secs(2_125_105_321));
        if method == Method::HEAD {
            let head = client.head_object().bucket(&self.bucket).key(key);
            let head = head.set_response_cache_control(cache).set_response_expires(ends);
            let head = head.set_response_content_disposition(disposition);
            let head = head.set_response_content_encoding(encoding);
            return head.set_response_content_language(language).presigned(expires).await.unwrap();
        }
        let get = client.get_object().bucket(&self.bucket).key(key);
        let get = get.set_response_cache_control(cache).set_response_expires(ends);
        let get = get.set_response_content_disposition(disposition);
        let get = get.set_response_content_encoding(encoding);
        get.set_response_content_language(language).presigned(expires).await.unwrap()
    }

    /// Reads that the gateway answered without asking anybody.
    async fn held_reads(&self, method: &Method) -> f64 {
        let metrics = self.cluster.metrics("gateway-0").await.unwrap();
        match *method {
            Method::HEAD => metrics.sum("verbs3_client_leased_total", &["kind=\"head\""]),
            _ => metrics.sum("verbs3_client_small_object_reads_total", &[]),
        }
    }
}

fn assert_headers(answer: &Answer, wanted: &[(&str, &str)], what: &str) {
    for (name, value) in wanted {
        let found = answer.headers.get(*name).map(|found| found.to_str().unwrap());
        assert_eq!(found, Some(*value), "{what}: {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_the_same_cold_from_a_worker_and_held() {
    let fixture = AnswerHeadFixture::start().await;
    let mut line = fixture.open().await;
    for method in [Method::GET, Method::HEAD] {
        for (overrides, wanted) in [(false, STORED), (true, OVERRIDES)] {
            let key = format!("{method}-{overrides}");
            fixture.put_cold(&key).await;
            let signed = fixture.signed(&method, &key, overrides).await;
            let what = |place: &str| format!("{method}, {place}, overrides: {overrides}");

            let cold = line.ask(&signed, &[]).await;
            assert_eq!(cold.status, StatusCode::OK, "{}", what("cold"));
            assert_headers(&cold, &wanted, &what("cold"));
            assert_ne!(cold.cache_outcome(), "hit", "{}", what("cold"));
            let warm = line.ask(&signed, &[]).await;
            assert_eq!(warm.cache_outcome(), "hit", "{}", what("warm"));
            assert_eq!(warm.lasting_headers(), cold.lasting_headers(), "{}", what("warm"));

            // Bytes are held from a second GET on, and HEAD shares what is known of them.
            let read = fixture.signed(&Method::GET, &key, false).await;
            let held = eventually(WITHIN, async || {
                line.ask(&read, &[]).await;
                let before = fixture.held_reads(&method).await;
                let held = line.ask(&signed, &[]).await;
                match fixture.held_reads(&method).await > before {
                    true => Ok(held),
                    false => Err(format!("{} is not answered under a lease", what("held"))),
                }
            });
            let held = held.await.unwrap();
            assert_eq!(held.lasting_headers(), cold.lasting_headers(), "{}", what("held"));
            for answer in [&cold, &warm, &held] {
                let length = if method == Method::GET { LENGTH } else { 0 };
                assert_eq!(answer.body.len(), length, "{}", what("body"));
                content::check(&key, 1, 0, &answer.body).unwrap();
                assert_headers(answer, &[("content-type", "text/x-heads")], &what("any"));
            }
        }
    }
    drop(line);
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_on_after_every_kind_of_answer() {
    let fixture = AnswerHeadFixture::start().await;
    fixture.put_cold("there").await;
    let mut line = fixture.open().await;
    let whole = fixture.signed(&Method::GET, "there", false).await;
    let etag = line.ask(&whole, &[]).await.headers[header::ETAG].to_str().unwrap().to_owned();
    let (matches, range, past) = (
        [("if-none-match", etag.as_str())],
        [("range", "bytes=10-29")],
        [("range", "bytes=5000-5001")],
    );
    let cases = [
        ("there", &[][..], 200_u16, LENGTH),
        ("there", &range, 206, 20),
        ("there", &matches, 304, 0),
        ("absent", &[], 404, 0),
        ("there", &past, 416, 0),
    ];
    // The second round is answered under a lease.
    for _ in 0..2 {
        for method in [Method::GET, Method::HEAD] {
            for (key, headers, status, length) in cases {
                let signed = fixture.signed(&method, key, false).await;
                let answer = line.ask(&signed, headers).await;
                let what = format!("{method} {key} {headers:?}");
                assert_eq!(answer.status.as_u16(), status, "{what}");
                if status < 300 {
                    let said = answer.headers[header::CONTENT_LENGTH].to_str().unwrap();
                    assert_eq!(said, length.to_string(), "{what}");
                    let first = if status == 206 { 10 } else { 0 };
                    let length = if method == Method::GET { length } else { 0 };
                    assert_eq!(answer.body.len(), length, "{what}");
                    content::check("there", 1, first, &answer.body).unwrap();
                }
                let next = line.ask(&whole, &[]).await;
                assert_eq!((next.status, next.body.len()), (StatusCode::OK, LENGTH), "{what}");
                content::check("there", 1, 0, &next.body).unwrap();
            }
        }
    }
    drop(line);
    fixture.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cache_did_can_be_kept_from_clients() {
    let fixture = AnswerHeadFixture::start_with("cache_headers = false\n").await;
    fixture.put_cold("key").await;
    let mut line = fixture.open().await;
    for method in [Method::GET, Method::GET, Method::HEAD] {
        let signed = fixture.signed(&method, "key", false).await;
        let answer = line.ask(&signed, &[]).await;
        assert_eq!(answer.status, StatusCode::OK);
        let told = answer.headers.keys().filter(|name| name.as_str().starts_with("x-verbs3-"));
        assert_eq!(told.collect::<Vec<_>>(), Vec::<&header::HeaderName>::new(), "{method}");
    }
    drop(line);
    fixture.cluster.stop().await.unwrap();
}
