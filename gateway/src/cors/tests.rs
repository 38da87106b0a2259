//! When a configuration is asked for, by whom, and how long an older one serves.
#![allow(clippy::unwrap_used)]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::poll;
use prometheus::Registry;
use s3s::dto::{CORSRule, GetBucketCorsOutput};
use s3s::{S3, S3Request, S3Response, s3_error};
use tokio::time::advance;
use verbs3_protocol::ObjectVolume;
use verbs3_ufs::{Ufs, UfsSettings};

use super::*;
use crate::auth::IdentityStore;
use crate::mount::{AttributeFreshness, WriteCoherence};
use crate::settings::GatewaySettings;

const TTL: Duration = Duration::from_secs(5);
const STALE_MAX: Duration = Duration::from_secs(60);

/// A store whose bucket `slow` answers when it is let.
struct AskedStore {
    asked: AtomicUsize,
    is_broken: AtomicBool,
    slow_answers: Semaphore,
}

#[async_trait]
impl S3 for AskedStore {
    async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if request.input.bucket == "slow" {
            self.slow_answers.acquire().await.unwrap().forget();
        }
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(s3_error!(InternalError));
        }
        let rule = CORSRule {
            allowed_headers: None,
            allowed_methods: vec!["GET".to_owned()],
            allowed_origins: vec!["*".to_owned()],
            expose_headers: None,
            id: None,
            max_age_seconds: None,
        };
        Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(vec![rule]) }))
    }
}

/// A responder with one place for questions, and whoever may do everything.
struct CorsFixture {
    store: Arc<AskedStore>,
    responder: CorsResponder,
    owner: Arc<AuthIdentity>,
}

impl CorsFixture {
    fn new() -> Self {
        let store = Arc::new(AskedStore {
            asked: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
            slow_answers: Semaphore::new(0),
        });
        let ufs = Ufs::new(store.clone(), UfsSettings::with_name("asked"));
        let mount = |name: &str| MountedBucket {
            name: name.to_owned(),
            volume: ObjectVolume::new(ufs.store_name(), name),
            ufs: ufs.clone(),
            bucket: name.to_owned(),
            prefix: String::new(),
            attributes: AttributeFreshness::AlwaysAsk,
            absence_ttl: Duration::ZERO,
            coherence: WriteCoherence::Strict,
            read_only: false,
            cached: true,
            populate_bytes_max: None,
        };
        let options = CorsOptions {
            ttl: TTL,
            stale_max: STALE_MAX,
            lookups_max: 1,
            lookup_max: Duration::from_secs(5),
            sharing: SharingRules::from_settings(&GatewaySettings::default()),
        };
        let metrics = Arc::new(GatewayHttpMetrics::new(&Registry::new()).unwrap());
        let mounts = MountTable::new([mount("web"), mount("slow")]).unwrap();
        let owner = IdentityStore::with_single("AK", "secret").get("AK").unwrap();
        Self { store, responder: CorsResponder::new(mounts, options, metrics), owner }
    }

    async fn find(&self, bucket: &str) -> StoreAnswer {
        self.responder.find_configuration(bucket, CorsRequester::Known(&self.owner)).await
    }

    async fn forget(&self, bucket: &str) {
        let mount = self.responder.mounts.resolve_bucket(bucket).unwrap();
        self.responder.forget_bucket(&mount).await;
    }

    fn asked(&self) -> usize {
        self.store.asked.load(Ordering::SeqCst)
    }

    fn break_store(&self, is_broken: bool) {
        self.store.is_broken.store(is_broken, Ordering::SeqCst);
    }
}

fn has_rules(answer: &StoreAnswer) -> bool {
    matches!(answer, Ok(CorsConfiguration::Rules(rules)) if !rules.is_empty())
}

/// One try for a place cost answers their headers whenever others were being looked up.
#[tokio::test(start_paused = true)]
async fn known_caller_waits_for_its_turn_to_look_up() {
    let fixture = CorsFixture::new();
    let (mut first, mut second) = (pin!(fixture.find("slow")), pin!(fixture.find("web")));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    assert_eq!(fixture.asked(), 1, "there is one place");
    fixture.store.slow_answers.add_permits(1);
    assert!(has_rules(&first.await) && has_rules(&second.await));
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_turn_ends_where_no_place_becomes_free() {
    let fixture = CorsFixture::new();
    let mut asks = pin!(fixture.responder.take_place(CorsRequester::Known(&fixture.owner), true));
    let std::task::Poll::Ready(Some(_held)) = poll!(&mut asks) else {
        panic!("the place is free");
    };
    assert!(matches!(fixture.find("web").await, Err(CorsLookupError::NoPlace)));
    assert_eq!(fixture.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn older_rules_serve_while_the_store_does_not_answer() {
    let fixture = CorsFixture::new();
    assert!(has_rules(&fixture.find("web").await));
    fixture.break_store(true);
    advance(TTL).await;
    assert!(has_rules(&fixture.find("web").await));
    assert_eq!(fixture.asked(), 2);
    assert!(has_rules(&fixture.find("web").await));
    assert_eq!(fixture.asked(), 2, "a silent store is not asked for each answer");
    advance(STALE_MAX).await;
    assert!(matches!(fixture.find("web").await, Err(CorsLookupError::NoAnswer(_))));
    fixture.break_store(false);
    assert!(has_rules(&fixture.find("web").await), "a failure is not remembered");
}

#[tokio::test(start_paused = true)]
async fn older_rules_serve_at_once_while_the_places_are_full() {
    let fixture = CorsFixture::new();
    assert!(has_rules(&fixture.find("web").await));
    advance(TTL).await;
    let mut slow = pin!(fixture.find("slow"));
    assert!(poll!(&mut slow).is_pending());
    let std::task::Poll::Ready(answer) = poll!(pin!(fixture.find("web"))) else {
        panic!("it waits for a place");
    };
    assert!(has_rules(&answer));
    assert_eq!(fixture.asked(), 2, "of web once, of slow once");
}

#[tokio::test(start_paused = true)]
async fn known_change_ends_rules_that_are_kept() {
    let fixture = CorsFixture::new();
    assert!(has_rules(&fixture.find("web").await));
    fixture.forget("web").await;
    fixture.break_store(true);
    assert!(matches!(fixture.find("web").await, Err(CorsLookupError::NoAnswer(_))));
}

#[tokio::test(start_paused = true)]
async fn answer_from_before_a_change_is_not_remembered() {
    let fixture = CorsFixture::new();
    let mut slow = pin!(fixture.find("slow"));
    assert!(poll!(&mut slow).is_pending());
    fixture.forget("slow").await;
    fixture.store.slow_answers.add_permits(1);
    assert!(has_rules(&slow.await));
    fixture.break_store(true);
    fixture.store.slow_answers.add_permits(1);
    assert!(matches!(fixture.find("slow").await, Err(CorsLookupError::NoAnswer(_))));
}

#[tokio::test(start_paused = true)]
async fn question_that_nobody_waits_for_gives_its_place_back() {
    let fixture = CorsFixture::new();
    {
        let mut slow = pin!(fixture.find("slow"));
        assert!(poll!(&mut slow).is_pending());
    }
    let std::task::Poll::Ready(answer) = poll!(pin!(fixture.find("web"))) else {
        panic!("the place is still held");
    };
    assert!(has_rules(&answer));
}
