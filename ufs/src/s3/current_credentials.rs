//! Owns the credentials that a request is signed with now, by the SDK or without it. A provider
//! makes them; they are kept until shortly before they run out, and renewed by one request for all.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_runtime_api::client::identity::Identity;
use parking_lot::RwLock;

/// How long before their end credentials are renewed. A request signed with them is still checked
/// in time.
const RENEWED_BEFORE: Duration = Duration::from_secs(10);

/// How long credentials are kept that name no end. A file of them may have changed since.
const KEPT_WITHOUT_END: Duration = Duration::from_secs(15 * 60);

/// How long a provider may take.
const PROVIDER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Reason why there is nothing to sign with.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoCredentials {
    #[error("the store's credentials can't be had")]
    Refused(#[from] CredentialsError),
    #[error("the store's credentials did not come within {} s", PROVIDER_WAIT_MAX.as_secs())]
    Late,
}

/// One store's credentials. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct CurrentCredentials {
    shared: Arc<SharedCredentials>,
}

#[derive(Debug)]
struct SharedCredentials {
    provider: SharedCredentialsProvider,
    held: RwLock<Option<HeldCredentials>>,
    renewal: tokio::sync::Mutex<()>,
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

    fn is_fresh(&self, now: SystemTime) -> bool {
        now < self.renew_at
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        self.end.is_none_or(|end| now < end)
    }
}

impl CurrentCredentials {
    pub(super) fn new(provider: SharedCredentialsProvider) -> Self {
        let (held, renewal) = (RwLock::default(), tokio::sync::Mutex::default());
        Self { shared: Arc::new(SharedCredentials { provider, held, renewal }) }
    }

    /// Returns what to sign with. Where renewal fails, credentials that have not run out go on.
    pub(super) async fn current(&self) -> Result<Identity, NoCredentials> {
        self.at_time(SystemTime::now()).await
    }

    async fn at_time(&self, now: SystemTime) -> Result<Identity, NoCredentials> {
        if let Some(identity) = self.fresh_identity(now) {
            return Ok(identity);
        }
        let _one = self.shared.renewal.lock().await;
        if let Some(identity) = self.fresh_identity(now) {
            return Ok(identity);
        }
        let provided = self.shared.provider.provide_credentials();
        let renewed = match tokio::time::timeout(PROVIDER_WAIT_MAX, provided).await {
            Ok(Ok(credentials)) => HeldCredentials::new(credentials, now),
            failed => {
                let error = match failed {
                    Ok(Err(error)) => NoCredentials::Refused(error),
                    _ => NoCredentials::Late,
                };
                return self.valid_identity(now).ok_or(error);
            }
        };
        let identity = renewed.identity.clone();
        *self.shared.held.write() = Some(renewed);
        Ok(identity)
    }

    fn fresh_identity(&self, now: SystemTime) -> Option<Identity> {
        let held = self.shared.held.read();
        held.as_ref().filter(|held| held.is_fresh(now)).map(|held| held.identity.clone())
    }

    fn valid_identity(&self, now: SystemTime) -> Option<Identity> {
        let held = self.shared.held.read();
        held.as_ref().filter(|held| held.is_valid(now)).map(|held| held.identity.clone())
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

    fn numbered(has_end: bool) -> (Numbered, CurrentCredentials, SystemTime) {
        let begin = SystemTime::now();
        let (given, fails) = (Arc::default(), Arc::default());
        let provider = Numbered { given, begin, fails, has_end };
        let current = CurrentCredentials::new(SharedCredentialsProvider::new(provider.clone()));
        (provider, current, begin)
    }

    async fn key_at(current: &CurrentCredentials, at: SystemTime) -> String {
        let identity = current.at_time(at).await.unwrap();
        identity.data::<Credentials>().unwrap().access_key_id().to_owned()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn keys_are_renewed_shortly_before_their_end() {
        let (_provider, current, begin) = numbered(true);
        assert_eq!(key_at(&current, begin).await, "KEY1");
        assert_eq!(key_at(&current, begin + 3589 * SECOND).await, "KEY1");
        assert_eq!(key_at(&current, begin + 3590 * SECOND).await, "KEY2");
    }

    #[tokio::test]
    async fn keys_without_an_end_are_asked_for_again() {
        let (_provider, current, begin) = numbered(false);
        assert_eq!(key_at(&current, begin).await, "KEY1");
        assert_eq!(key_at(&current, begin + 899 * SECOND).await, "KEY1");
        assert_eq!(key_at(&current, begin + 900 * SECOND).await, "KEY2");
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
        assert_eq!(key_at(&current, begin + 3595 * SECOND).await, "KEY1");
        let error = current.at_time(begin + 3600 * SECOND).await.unwrap_err();
        assert!(matches!(error, NoCredentials::Refused(_)), "{error}");
        provider.fails.store(false, Ordering::SeqCst);
        assert_eq!(key_at(&current, begin + 3600 * SECOND).await, "KEY2");
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
        assert!(matches!(current.current().await, Err(NoCredentials::Late)));
    }
}
