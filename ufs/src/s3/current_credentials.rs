//! Owns the credentials that a request is signed with now, by the SDK or without it. A provider
//! makes them; they are kept until shortly before they run out, and renewed once for all requests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_runtime_api::client::identity::Identity;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// How long before their end credentials are renewed. A request signed with them is still checked
/// in time.
const RENEWED_BEFORE: Duration = Duration::from_secs(10);

/// How long credentials are kept that name no end. A file of them may have changed since.
const KEPT_WITHOUT_END: Duration = Duration::from_secs(15 * 60);

/// How long a provider may take.
const PROVIDER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Pause between two renewals, also of keys that end sooner than they are renewed.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);

/// Reason why there is nothing to sign with.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum NoCredentials {
    #[error("the store's credentials can't be had")]
    Refused(#[source] Arc<CredentialsError>),
    #[error("the store's credentials did not come within {} s", PROVIDER_WAIT_MAX.as_secs())]
    Late,
    #[error("the provider of the store's credentials gave none that are valid")]
    NoneValid,
}

/// One store's credentials. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct CurrentCredentials {
    shared: Arc<SharedCredentials>,
}

#[derive(Debug)]
struct SharedCredentials {
    provider: SharedCredentialsProvider,
    state: Mutex<CredentialsState>,
    clock: fn() -> SystemTime,
}

#[derive(Debug, Default)]
struct CredentialsState {
    held: Option<HeldCredentials>,
    /// The last renewal, for all who have nothing to sign with while it is under way.
    renewal: Option<Renewal>,
    /// When one ended last, and its error.
    renewed: Option<(SystemTime, Option<NoCredentials>)>,
}

#[derive(Debug, Clone)]
struct Renewal {
    task: AbortHandle,
    result: Shared<BoxFuture<'static, Result<Identity, NoCredentials>>>,
}

#[derive(Debug)]
struct HeldCredentials {
    identity: Identity,
    renew_at: SystemTime,
    end: Option<SystemTime>,
}

impl HeldCredentials {
    fn new(credentials: Credentials, now: SystemTime) -> Self {
        let end = credentials.expiry();
        let renew_at = match end {
            Some(end) => end.checked_sub(RENEWED_BEFORE).unwrap_or(now),
            None => now + KEPT_WITHOUT_END,
        };
        Self { identity: credentials.into(), renew_at, end }
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        self.end.is_none_or(|end| now < end)
    }
}

impl CurrentCredentials {
    pub(super) fn new(provider: SharedCredentialsProvider) -> Self {
        Self::with_clock(provider, SystemTime::now)
    }

    fn with_clock(provider: SharedCredentialsProvider, clock: fn() -> SystemTime) -> Self {
        let state = Mutex::default();
        Self { shared: Arc::new(SharedCredentials { provider, state, clock }) }
    }

    /// Returns what to sign with. Nobody waits for a renewal while there are keys that have not run
    /// out. A renewal goes on when whoever began it has left.
    pub(super) async fn current(&self) -> Result<Identity, NoCredentials> {
        let renewal = {
            let mut state = self.shared.state.lock();
            let now = (self.shared.clock)();
            let valid = state.held.as_ref().filter(|held| held.is_valid(now));
            let is_fresh = valid.is_some_and(|held| now < held.renew_at);
            let valid = valid.map(|held| held.identity.clone());
            let hold = state.renewal_hold(now);
            if hold.is_none() && !is_fresh {
                state.renewal = Some(self.begin_renewal());
            }
            match (valid, hold) {
                (Some(identity), _) => return Ok(identity),
                (None, Some(RenewalHold::Failed(error))) => return Err(error),
                (None, _) => state.renewal.clone(),
            }
        };
        match renewal {
            Some(renewal) => renewal.result.await,
            None => Err(NoCredentials::NoneValid),
        }
    }

    fn begin_renewal(&self) -> Renewal {
        let shared = self.shared.clone();
        let renewing = tokio::spawn(async move { shared.renew().await });
        let task = renewing.abort_handle();
        let result = async { renewing.await.unwrap_or(Err(NoCredentials::NoneValid)) };
        Renewal { task, result: result.boxed().shared() }
    }
}

/// Why no renewal begins now.
enum RenewalHold {
    UnderWay,
    Failed(NoCredentials),
}

impl CredentialsState {
    fn renewal_hold(&self, now: SystemTime) -> Option<RenewalHold> {
        // A task that has panicked is finished, too.
        if self.renewal.as_ref().is_some_and(|renewal| !renewal.task.is_finished()) {
            return Some(RenewalHold::UnderWay);
        }
        let (at, error) = self.renewed.as_ref()?;
        let error = error.clone().unwrap_or(NoCredentials::NoneValid);
        (now < *at + RENEWAL_PAUSE).then_some(RenewalHold::Failed(error))
    }
}

impl SharedCredentials {
    /// Asks the provider, and keeps what it gives.
    async fn renew(&self) -> Result<Identity, NoCredentials> {
        let provided = self.provider.provide_credentials();
        let renewed = match tokio::time::timeout(PROVIDER_WAIT_MAX, provided).await {
            Ok(Ok(credentials)) => Ok(credentials),
            Ok(Err(error)) => Err(NoCredentials::Refused(Arc::new(error))),
            Err(_) => Err(NoCredentials::Late),
        };
        let mut state = self.state.lock();
        let now = (self.clock)();
        state.renewed = Some((now, renewed.as_ref().err().cloned()));
        let held = HeldCredentials::new(renewed?, now);
        let identity = held.identity.clone();
        state.held = Some(held);
        Ok(identity)
    }
}

impl ProvideCredentials for CurrentCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let identity = self.current().await.map_err(CredentialsError::provider_error)?;
            let credentials = identity.data::<Credentials>().expect("it was made of credentials");
            Ok(credentials.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Gives out numbered keys, each for an hour from the first time on.
    #[derive(Debug, Clone)]
    struct Numbered {
        given: Arc<AtomicU64>,
        begin: SystemTime,
        fails: Arc<AtomicBool>,
        has_end: bool,
    }

    impl ProvideCredentials for Numbered {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                if self.fails.load(Ordering::SeqCst) {
                    return Err(CredentialsError::not_loaded("away"));
                }
                let number = self.given.fetch_add(1, Ordering::SeqCst) + 1;
                let end = self.begin + Duration::from_secs(3600 * number);
                let end = self.has_end.then_some(end);
                Ok(Credentials::new(format!("KEY{number}"), "secret", None, end, "test"))
            })
        }
    }

    thread_local! {
        static TEST_TIME: Cell<Option<SystemTime>> = const { Cell::new(None) };
    }

    fn test_clock() -> SystemTime {
        TEST_TIME.get().unwrap()
    }

    fn numbered(has_end: bool) -> (Numbered, CurrentCredentials, SystemTime) {
        let begin = SystemTime::now();
        let (given, fails) = (Arc::default(), Arc::default());
        let provider = Numbered { given, begin, fails, has_end };
        let shared = SharedCredentialsProvider::new(provider.clone());
        (provider, CurrentCredentials::with_clock(shared, test_clock), begin)
    }

    async fn at_time(
        current: &CurrentCredentials,
        at: SystemTime,
    ) -> Result<String, NoCredentials> {
        TEST_TIME.set(Some(at));
        let identity = current.current().await?;
        Ok(identity.data::<Credentials>().unwrap().access_key_id().to_owned())
    }

    async fn key_at(current: &CurrentCredentials, at: SystemTime) -> String {
        at_time(current, at).await.unwrap()
    }

    /// The key at a time, once a renewal that this begins has ended.
    async fn settled_key_at(current: &CurrentCredentials, at: SystemTime) -> String {
        key_at(current, at).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        key_at(current, at).await
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn keys_are_renewed_shortly_before_their_end() {
        let (_provider, current, begin) = numbered(true);
        assert_eq!(key_at(&current, begin).await, "KEY1");
        assert_eq!(key_at(&current, begin + 3589 * SECOND).await, "KEY1");
        // Whoever finds them so signs with the old ones.
        assert_eq!(key_at(&current, begin + 3590 * SECOND).await, "KEY1");
        assert_eq!(settled_key_at(&current, begin + 3590 * SECOND).await, "KEY2");
    }

    #[tokio::test]
    async fn keys_without_an_end_are_asked_for_again() {
        let (_provider, current, begin) = numbered(false);
        assert_eq!(key_at(&current, begin).await, "KEY1");
        assert_eq!(key_at(&current, begin + 899 * SECOND).await, "KEY1");
        assert_eq!(settled_key_at(&current, begin + 900 * SECOND).await, "KEY2");
    }

    #[tokio::test]
    async fn many_requests_renew_once() {
        let (provider, current, begin) = numbered(true);
        let all = futures::future::join_all((0..50).map(|_| key_at(&current, begin))).await;
        assert!(all.iter().all(|key| key == "KEY1"), "{all:?}");
        assert_eq!(provider.given.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_failed_renewal_leaves_keys_until_their_end() {
        let (provider, current, begin) = numbered(true);
        assert_eq!(key_at(&current, begin).await, "KEY1");
        provider.fails.store(true, Ordering::SeqCst);
        assert_eq!(settled_key_at(&current, begin + 3595 * SECOND).await, "KEY1");
        let error = at_time(&current, begin + 3600 * SECOND).await.unwrap_err();
        assert!(matches!(error, NoCredentials::Refused(_)), "{error}");
        provider.fails.store(false, Ordering::SeqCst);
        // Not before a pause.
        assert!(at_time(&current, begin + 3600 * SECOND).await.is_err());
        assert_eq!(key_at(&current, begin + 3601 * SECOND).await, "KEY2");
    }

    #[tokio::test]
    async fn a_renewal_outlives_who_began_it() {
        let (provider, current, begin) = numbered(true);
        TEST_TIME.set(Some(begin));
        let mut impatient = Box::pin(current.current());
        assert!((&mut impatient).now_or_never().is_none());
        drop(impatient);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(provider.given.load(Ordering::SeqCst), 1);
        assert_eq!(key_at(&current, begin).await, "KEY1");
    }

    #[tokio::test]
    async fn a_provider_that_panics_is_asked_again() {
        #[derive(Debug)]
        struct Panicking(AtomicU64);
        impl ProvideCredentials for Panicking {
            fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
            where
                Self: 'a,
            {
                future::ProvideCredentials::new(async {
                    assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the first time");
                    Ok(Credentials::new("KEY", "secret", None, None, "test"))
                })
            }
        }
        let provider = SharedCredentialsProvider::new(Panicking(0.into()));
        let current = CurrentCredentials::new(provider);
        assert!(current.current().await.is_err());
        assert!(current.current().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_is_an_error() {
        #[derive(Debug)]
        struct Hanging;
        impl ProvideCredentials for Hanging {
            fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
            where
                Self: 'a,
            {
                future::ProvideCredentials::new(std::future::pending())
            }
        }
        let current = CurrentCredentials::new(SharedCredentialsProvider::new(Hanging));
        let began = tokio::time::Instant::now();
        let asked = (0..20).map(|_| current.current());
        for answer in futures::future::join_all(asked).await {
            assert!(matches!(answer, Err(NoCredentials::Late)));
        }
        assert_eq!(began.elapsed(), PROVIDER_WAIT_MAX);
    }
}
