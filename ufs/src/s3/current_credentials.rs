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
    Ended,
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
    clock: fn(&CredentialsState) -> SystemTime,
}

#[derive(Debug, Default)]
struct CredentialsState {
    held: Option<HeldCredentials>,
    /// The renewal under way, for all who have nothing to sign with meanwhile.
    renewal: Option<Renewal>,
    /// When the last one ended, and its error.
    renewed: Option<(SystemTime, Option<NoCredentials>)>,
    #[cfg(test)]
    test_time: Option<SystemTime>,
}

type Renewal = Shared<BoxFuture<'static, Result<Identity, NoCredentials>>>;

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
        let state = Mutex::default();
        let clock = |_: &CredentialsState| SystemTime::now();
        Self { shared: Arc::new(SharedCredentials { provider, state, clock }) }
    }

    /// Returns what to sign with. Nobody waits for a renewal while there are keys that have not run
    /// out. A renewal goes on when whoever began it has left.
    pub(super) async fn current(&self) -> Result<Identity, NoCredentials> {
        let renewal = {
            let mut state = self.shared.state.lock();
            let now = (self.shared.clock)(&state);
            let valid = state.held.as_ref().filter(|held| held.is_valid(now));
            let is_fresh = valid.is_some_and(|held| now < held.renew_at);
            let valid = valid.map(|held| held.identity.clone());
            match (valid, state.awaits_renewal(now)) {
                (Some(identity), _) if is_fresh => return Ok(identity),
                (valid, Ok(())) => {
                    let renewal = self.begin_renewal();
                    state.renewal = Some(renewal.clone());
                    if let Some(identity) = valid {
                        return Ok(identity);
                    }
                    renewal
                }
                (Some(identity), Err(_)) => return Ok(identity),
                (None, Err(RenewalHold::UnderWay(renewal))) => renewal,
                (None, Err(RenewalHold::Failed(error))) => return Err(error),
            }
        };
        renewal.await
    }

    fn begin_renewal(&self) -> Renewal {
        let shared = self.shared.clone();
        let task = tokio::spawn(async move { shared.renew().await });
        async move { task.await.unwrap_or(Err(NoCredentials::Ended)) }.boxed().shared()
    }
}

/// Why no renewal begins now.
enum RenewalHold {
    UnderWay(Renewal),
    Failed(NoCredentials),
}

impl CredentialsState {
    fn awaits_renewal(&self, now: SystemTime) -> Result<(), RenewalHold> {
        if let Some(renewal) = &self.renewal {
            return Err(RenewalHold::UnderWay(renewal.clone()));
        }
        match &self.renewed {
            Some((at, error)) if now < *at + RENEWAL_PAUSE => {
                Err(RenewalHold::Failed(error.clone().unwrap_or(NoCredentials::Ended)))
            }
            _ => Ok(()),
        }
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
        let now = (self.clock)(&state);
        state.renewal = None;
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

    fn test_clock(state: &CredentialsState) -> SystemTime {
        state.test_time.unwrap()
    }

    fn numbered(has_end: bool) -> (Numbered, CurrentCredentials, SystemTime) {
        let begin = SystemTime::now();
        let (given, fails) = (Arc::default(), Arc::default());
        let provider = Numbered { given, begin, fails, has_end };
        let (state, clock) = (Mutex::default(), test_clock as fn(&CredentialsState) -> SystemTime);
        let shared = SharedCredentialsProvider::new(provider.clone());
        let shared = Arc::new(SharedCredentials { provider: shared, state, clock });
        (provider, CurrentCredentials { shared }, begin)
    }

    async fn at_time(
        current: &CurrentCredentials,
        at: SystemTime,
    ) -> Result<String, NoCredentials> {
        current.shared.state.lock().test_time = Some(at);
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
        current.shared.state.lock().test_time = Some(begin);
        let mut impatient = Box::pin(current.current());
        assert!((&mut impatient).now_or_never().is_none());
        drop(impatient);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(provider.given.load(Ordering::SeqCst), 1);
        assert_eq!(key_at(&current, begin).await, "KEY1");
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
