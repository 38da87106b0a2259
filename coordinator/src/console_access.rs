//! Who may use the console, and who does: users, roles, sessions, and how often it may be tried to
//! sign in. Knows neither pages nor the cluster; `http/console` asks it.

mod roles;
mod sessions;
mod sign_in_limits;
mod users;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use roles::ConsoleRole;
use sessions::SessionTable;
pub(crate) use sessions::{SessionUse, SignedInUser, random_token};
use sign_in_limits::SignInLimits;
pub(crate) use sign_in_limits::SignInTry;
use users::KnownUser;
pub use users::{ConsoleUsers, ConsoleUsersError, PasswordHashFlaw, make_user_entry};
pub(crate) use users::{NAME_BYTES_MAX, PASSWORD_BYTES_MAX};

use crate::settings::CoordinatorConsoleSettings;

/// Passwords that are hashed at once: each takes 19 MiB and tens of milliseconds of a core.
const HASHING_MAX: usize = 2;
/// Sign-ins that wait for that.
const WAITING_MAX: usize = 16;
/// Objects that are looked up at once; each asks a store and workers.
const LOOKUPS_MAX: usize = 4;

/// State of the console of one coordinator.
pub(crate) struct Console {
    pub(crate) users: ConsoleUsers,
    pub(crate) settings: CoordinatorConsoleSettings,
    pub(crate) sessions: Mutex<SessionTable>,
    pub(crate) limits: Mutex<SignInLimits>,
    hashing: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    pub(crate) lookups: Semaphore,
    /// Key of the tickets of sign-in forms. Another one after each start.
    pub(crate) form_key: String,
}

impl Console {
    pub(crate) fn new(users: ConsoleUsers, settings: CoordinatorConsoleSettings) -> Self {
        Self {
            sessions: Mutex::new(SessionTable::new(settings.clone())),
            users,
            settings,
            limits: Mutex::new(SignInLimits::new()),
            hashing: Arc::new(Semaphore::new(HASHING_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            lookups: Semaphore::new(LOOKUPS_MAX),
            form_key: random_token(),
        }
    }

    pub(crate) fn console_users(&self) -> ConsoleUsers {
        self.users.clone()
    }

    /// Verifies a password when it is its turn. `Err`: too many wait already.
    pub(crate) async fn verify_in_turn(
        &self,
        name: &str,
        password: &str,
    ) -> Result<Option<KnownUser>, SignInsFull> {
        let (users, name, password) = (self.console_users(), name.to_owned(), password.to_owned());
        self.hash_in_turn(move || users.verify_password(&name, &password))
            .await
            .map(Option::flatten)
    }

    /// Does a piece of work that hashes a password. `Ok(None)`: it came to no end.
    async fn hash_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, SignInsFull> {
        let waiting = self.waiting.clone().try_acquire_owned().map_err(|_| SignInsFull)?;
        let hashing = self.hashing.clone().acquire_owned().await.map_err(|_| SignInsFull)?;
        let done = tokio::task::spawn_blocking(move || {
            // The work's own: it goes on where the browser hangs up.
            let _places = [waiting, hashing];
            work()
        });
        Ok(done.await.ok())
    }
}

/// As many sign-ins wait as there may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SignInsFull;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn sign_ins_that_are_cut_hash_no_more_at_once_than_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        let entry = make_user_entry("alice", ConsoleRole::Viewer, "a good password").unwrap();
        std::fs::write(&path, entry).unwrap();
        let console = Console::new(
            ConsoleUsers::read_file(&path).unwrap(),
            CoordinatorConsoleSettings::default(),
        );
        let hashed = Arc::new(AtomicUsize::new(0));
        let mut gates = Vec::new();
        for _ in 0..10 {
            let (open, gate) = oneshot::channel::<()>();
            gates.push(open);
            let hashed = hashed.clone();
            let mut cut = Box::pin(console.hash_in_turn(move || {
                let _ = gate.blocking_recv();
                hashed.fetch_add(1, Ordering::SeqCst)
            }));
            assert!(futures::poll!(&mut cut).is_pending());
        }
        assert_eq!(console.hashing.available_permits(), 0, "places are free while two hash");
        drop(gates);
        let all = console.hashing.acquire_many(HASHING_MAX as u32).await.unwrap();
        assert_eq!(hashed.load(Ordering::SeqCst), HASHING_MAX);
        drop(all);
        assert_eq!(console.waiting.available_permits(), WAITING_MAX);
    }
}
