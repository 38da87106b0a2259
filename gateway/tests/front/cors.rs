//! Pages from other origins: preflights that nobody signs, and what stands in the answers that
//! follow. The store's configuration decides; here it is a store that has nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use verbs3_gateway::auth::IdentityStore;
use verbs3_ufs::{Ufs, UfsSettings};

use crate::gateway_fixture::{Answer, GatewayFixture, GatewaySetup, mount, until};
use crate::signing::Request;
use verbs3_settings::TimePeriod;

const PAGE: &str = "https://page.test";

/// A store that knows a bucket's rules, and one object.
#[derive(Default)]
struct CorsRulesStore {
    rules: Mutex<Option<Vec<CORSRule>>>,
    asked: AtomicUsize,
    broken: AtomicBool,
}

#[async_trait]
impl S3 for CorsRulesStore {
    async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        // Long enough for others to ask the same.
        tokio::time::sleep(Duration::from_millis(50)).await;
        if request.input.bucket.starts_with("silent") {
            std::future::pending::<()>().await;
        }
        match (request.input.bucket.as_str(), self.rules.lock().clone()) {
            _ if self.broken.load(Ordering::SeqCst) => Err(s3_error!(InternalError)),
            ("web", Some(rules)) => {
                Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules) }))
            }
            ("web", None) => Err(s3_error!(NoSuchCORSConfiguration)),
            _ => Err(s3_error!(NoSuchBucket)),
        }
    }

    async fn put_bucket_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        *self.rules.lock() = Some(request.input.cors_configuration.cors_rules);
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        match request.input.key.as_str() {
            "k" | "p/k" => Ok(S3Response::new(GetObjectOutput {
                body: Some(StreamingBlob::from(s3s::Body::from("hello".to_owned()))),
                content_length: Some(5),
                ..GetObjectOutput::default()
            })),
            _ => Err(s3_error!(NoSuchKey)),
        }
    }
}

async fn start_fixture(rules: Option<Vec<CORSRule>>) -> (GatewayFixture, Arc<CorsRulesStore>) {
    start_fixture_with(rules, |_| {}).await
}

async fn start_fixture_with(
    rules: Option<Vec<CORSRule>>,
    change: impl FnOnce(&mut GatewaySetup),
) -> (GatewayFixture, Arc<CorsRulesStore>) {
    let store = Arc::new(CorsRulesStore { rules: Mutex::new(rules), ..CorsRulesStore::default() });
    let ufs = Ufs::new(store.clone(), UfsSettings::with_name("web"));
    let fixture = GatewayFixture::start_with(|setup| {
        setup.settings.domains = vec!["s3.test".to_owned()];
        setup.mounts = vec![
            mount("web", ufs.clone(), "web", ""),
            mount("part", ufs.clone(), "web", "p/"),
            mount("gone", ufs.clone(), "gone", ""),
        ];
        for number in 0..8 {
            let name = format!("silent{number}");
            setup.mounts.push(mount(&name, ufs.clone(), &name, ""));
        }
        setup.settings.timeouts.cors_lookup = TimePeriod(Duration::from_secs(2));
        change(setup);
    })
    .await;
    (fixture, store)
}

fn rule(origin: &str, method: &str) -> CORSRule {
    CORSRule {
        allowed_headers: Some(vec!["x-amz-*".to_owned()]),
        allowed_methods: vec![method.to_owned()],
        allowed_origins: vec![origin.to_owned()],
        expose_headers: Some(vec!["ETag".to_owned()]),
        id: None,
        max_age_seconds: Some(60),
    }
}

async fn preflight(
    fixture: &GatewayFixture,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head =
        format!("OPTIONS {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{lines}\r\n");
    fixture.exchange(&head, b"").await
}

fn of(origin: &'static str, method: &'static str) -> [(&'static str, &'static str); 2] {
    [("origin", origin), ("access-control-request-method", method)]
}

#[tokio::test]
async fn a_preflight_without_a_signature_gets_the_stores_rules() {
    let (fixture, _store) = start_fixture(Some(vec![rule(PAGE, "PUT"), rule("*", "GET")])).await;
    for (host, path) in [("h", "/web/k"), ("h", "/web"), ("h", "/part/k"), ("web.s3.test", "/k")] {
        let asked = [
            of(PAGE, "PUT").as_slice(),
            &[("access-control-request-headers", "X-Amz-Date, x-amz-acl")],
        ]
        .concat();
        let answer = preflight(&fixture, host, path, &asked).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, ""), "{host}{path}");
        for (name, value) in [
            ("access-control-allow-origin", PAGE),
            ("access-control-allow-methods", "PUT"),
            ("access-control-allow-headers", "x-amz-date, x-amz-acl"),
            ("access-control-max-age", "60"),
            ("access-control-expose-headers", "ETag"),
        ] {
            assert_eq!(answer.headers[name], value, "{host}{path}");
        }
        assert!(answer.headers.contains_key("x-amz-request-id"));
    }
    let anyone = preflight(&fixture, "h", "/web/k", &of("https://other.test", "GET")).await;
    assert_eq!((anyone.status, anyone.headers["access-control-allow-origin"].as_str()), (200, "*"));
}

#[tokio::test]
async fn a_preflight_that_no_rule_allows_or_that_is_none_is_refused() {
    let (with, _store) = start_fixture(Some(vec![rule(PAGE, "PUT")])).await;
    let (without, _store) = start_fixture(None).await;
    let header =
        [of(PAGE, "PUT").as_slice(), &[("access-control-request-headers", "range")]].concat();
    for (fixture, path, headers, status, code) in [
        (&with, "/web/k", &of("https://other.test", "PUT")[..], 403, "AccessForbidden"),
        (&with, "/web/k", &of(PAGE, "GET"), 403, "AccessForbidden"),
        (&with, "/web/k", &header, 403, "AccessForbidden"),
        (&with, "/web/k", &of(PAGE, "put"), 400, "BadRequest"),
        (&with, "/web/k", &[("origin", PAGE)], 400, "BadRequest"),
        (&with, "/web/k", &[("access-control-request-method", "PUT")], 400, "BadRequest"),
        (&with, "/web/k", &[], 400, "BadRequest"),
        (&with, "/unknown/k", &of(PAGE, "PUT"), 404, "NoSuchBucket"),
        (&with, "/gone/k", &of(PAGE, "PUT"), 404, "NoSuchBucket"),
        (&with, "/data/k", &of(PAGE, "PUT"), 403, "AccessForbidden"),
        (&without, "/web/k", &of(PAGE, "PUT"), 403, "AccessForbidden"),
    ] {
        let answer = preflight(fixture, "h", path, headers).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{path} {headers:?}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{path} {headers:?}");
    }
}

#[tokio::test]
async fn answers_and_errors_alike_say_which_page_may_read_them() {
    let (fixture, store) = start_fixture(Some(vec![rule(PAGE, "GET")])).await;
    let allowed = |answer: &Answer| answer.headers.get("access-control-allow-origin").cloned();
    let get = |path: &str| Request::new("GET", path);
    for (request, status, wanted) in [
        (get("/web/k").header("origin", PAGE), 200, Some(PAGE)),
        (get("/part/k").header("origin", PAGE), 200, Some(PAGE)),
        (get("/web/none").header("origin", PAGE), 404, Some(PAGE)),
        (get("/web/k").header("origin", PAGE).by("AKNOBODY", "x"), 403, Some(PAGE)),
        (get("/web/k").header("origin", "https://other.test"), 200, None),
        (Request::new("HEAD", "/web/k").header("origin", PAGE), 501, None),
        (get("/data/none").header("origin", PAGE), 404, None),
        (get("/unknown/k").header("origin", PAGE), 404, None),
    ] {
        let answer = fixture.send(&request, b"").await;
        assert_eq!(
            (answer.status, allowed(&answer).as_deref()),
            (status, wanted),
            "{} {:?}",
            request.path,
            request.headers
        );
    }
    let before = store.asked.load(Ordering::SeqCst);
    assert_eq!(allowed(&fixture.get("/web/k").await), None);
    assert_eq!(
        store.asked.load(Ordering::SeqCst),
        before,
        "a request without an origin asks for nothing"
    );
}

#[tokio::test]
async fn cors_rules_are_fetched_once_and_a_change_counts_at_once() {
    let (fixture, store) = start_fixture(Some(vec![rule(PAGE, "PUT")])).await;
    let asked = of(PAGE, "PUT");
    let all = (0..20).map(|_| preflight(&fixture, "h", "/web/k", &asked));
    assert!(futures::future::join_all(all).await.iter().all(|answer| answer.status == 200));
    assert_eq!(store.asked.load(Ordering::SeqCst), 1);

    let document = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>";
    let put = Request::new("PUT", "/web")
        .query("cors=")
        .header("content-length", &document.len().to_string());
    assert_eq!(fixture.send(&put, document.as_bytes()).await.status, 200);
    assert_eq!(preflight(&fixture, "h", "/web/k", &asked).await.status, 403);
    assert_eq!(preflight(&fixture, "h", "/web/k", &of(PAGE, "GET")).await.status, 200);
}

/// Other answers lack nothing but their CORS headers.
#[tokio::test]
async fn a_store_without_an_answer_fails_preflights_and_no_requests() {
    let (fixture, store) = start_fixture(Some(vec![rule("*", "GET")])).await;
    store.broken.store(true, Ordering::SeqCst);
    let answer = preflight(&fixture, "h", "/web/k", &of(PAGE, "GET")).await;
    assert_eq!(
        (answer.error(), answer.headers["retry-after"].as_str()),
        ((503, "ServiceUnavailable".to_owned()), "1")
    );
    let got = fixture.send(&Request::new("GET", "/web/k").header("origin", PAGE), b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, "hello"));
    store.broken.store(false, Ordering::SeqCst);
    assert_eq!(
        preflight(&fixture, "h", "/web/k", &of(PAGE, "GET")).await.status,
        200,
        "a failure is not remembered"
    );
}

/// One address could hold all questions to the store, and with them the headers of everybody's
/// answers.
#[tokio::test]
async fn a_stranger_holds_a_share_of_the_lookups_and_not_for_long() {
    let (fixture, _store) = start_fixture(Some(vec![rule(PAGE, "GET")])).await;
    let held = Request::new("GET", "/web/k").header("origin", PAGE);
    let paths: Vec<String> = (0..8).map(|number| format!("/silent{number}/k")).collect();
    let asked = of(PAGE, "GET");
    let preflights = paths.iter().map(|path| preflight(&fixture, "h", path, &asked));
    let mut strangers = Box::pin(futures::future::join_all(preflights));
    let known = async {
        until(|| {
            let text = fixture.metrics_text();
            text.contains("verbs3_gateway_denied_total{reason=\"cors_lookups\"} 6")
        })
        .await;
        let answer = fixture.send(&held, b"").await;
        assert_eq!(
            (answer.status, answer.headers["access-control-allow-origin"].as_str()),
            (200, PAGE)
        );
    };
    let answers = tokio::select! {
        answers = &mut strangers => answers,
        () = known => strangers.await,
    };
    // Six at once, because the address has its share; two when the store has had its time.
    assert!(answers.iter().all(|answer| answer.status == 503), "{answers:?}");
}

/// `AKGREEDY` may read everything, `AKMODEST` the bucket `web` alone. Each is a tenant.
fn two_tenants() -> Arc<IdentityStore> {
    let identity = |name: &str, mount: &str| {
        format!(
            "[[identity]]\naccess_key = \"{name}\"\nsecret_key = \"secret\"\n\
             [[identity.allow]]\nmount = \"{mount}\"\nrights = [\"read\"]\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("identities.toml");
    std::fs::write(&path, identity("AKGREEDY", "*") + &identity("AKMODEST", "web")).unwrap();
    IdentityStore::load_file(&path).unwrap()
}

fn page_get(key: &str, path: &str) -> Request {
    Request::new("GET", path).header("origin", PAGE).by(key, "secret")
}

/// Names that a caller made up cost the store a question each, and others their headers.
#[tokio::test]
async fn a_bucket_without_rights_is_not_looked_up() {
    let change = |setup: &mut GatewaySetup| setup.identities = two_tenants();
    let (fixture, store) = start_fixture_with(Some(vec![rule(PAGE, "GET")]), change).await;
    let allowed = |answer: &Answer| answer.headers.get("access-control-allow-origin").cloned();
    let refused = page_get("AKMODEST", "/part/k");
    let answer = fixture.send(&refused, b"").await;
    assert_eq!((answer.status, allowed(&answer)), (403, None));
    assert_eq!(store.asked.load(Ordering::SeqCst), 0);
    // Its own bucket is looked up. What is known by that is no secret: `part` lies in it.
    let answer = fixture.send(&page_get("AKMODEST", "/web/k"), b"").await;
    assert_eq!((answer.status, allowed(&answer).as_deref()), (200, Some(PAGE)));
    let answer = fixture.send(&refused, b"").await;
    assert_eq!((answer.status, allowed(&answer).as_deref()), (403, Some(PAGE)));
    assert_eq!(store.asked.load(Ordering::SeqCst), 1);
}

/// One tenant held all places for look-ups, and others' answers went without CORS headers.
#[tokio::test]
async fn a_tenant_leaves_places_for_lookups_to_others() {
    let change = |setup: &mut GatewaySetup| {
        setup.identities = two_tenants();
        setup.settings.limits.cors_lookups_max = 4;
        setup.settings.limits.tenant_reserve_percent = 25;
        setup.settings.timeouts.cors_lookup = TimePeriod(Duration::from_secs(60));
    };
    let (fixture, store) = start_fixture_with(Some(vec![rule(PAGE, "GET")]), change).await;
    let requests: Vec<Request> =
        (0..8).map(|number| page_get("AKGREEDY", &format!("/silent{number}/k"))).collect();
    let greedy =
        futures::future::join_all(requests.iter().map(|request| fixture.send(request, b"")));
    let modest = async {
        let held = "verbs3_tenant_held{resource=\"cors_lookups\",tenant=\"AKGREEDY\"} 3\n";
        until(|| fixture.metrics_text().contains(held) && store.asked.load(Ordering::SeqCst) == 3)
            .await;
        let answer = fixture.send(&page_get("AKMODEST", "/web/k"), b"").await;
        assert_eq!(
            (answer.status, answer.headers["access-control-allow-origin"].as_str()),
            (200, PAGE)
        );
    };
    tokio::select! {
        biased;
        () = modest => {}
        answers = greedy => panic!("the store is silent, but they came: {answers:?}"),
    }
}
