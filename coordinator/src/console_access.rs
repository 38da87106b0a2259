//! Who may use the console, and who does: users, roles, sessions, and how often it may be tried to
//! sign in. Knows neither pages nor the cluster; `http/console` asks it.

mod roles;
mod sessions;
mod sign_in_limits;
mod users;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use roles::ConsoleRole;
use sessions::{SessionLimits, SessionTable};
pub(crate) use sessions::{SessionUse, SignedInUser, random_token};
use sign_in_limits::SignInLimits;
pub(crate) use sign_in_limits::SignInTry;
pub use users::{ConsoleUsers, ConsoleUsersError, PasswordHashFlaw, make_user_entry};
pub(crate) use users::{NAME_BYTES_MAX, PASSWORD_BYTES_MAX};

/// Passwords that are hashed at once: each takes 19 MiB and tens of milliseconds of a core.
const HASHING_MAX: usize = 2;
/// Sign-ins that wait for that.
const WAITING_MAX: usize = 16;
/// Objects that are looked up at once; each asks a store and workers.
const LOOKUPS_MAX: usize = 4;

/// Settings of the console.
#[derive(Debug, Clone)]
pub struct ConsoleOptions {
    pub users: ConsoleUsers,
    /// Plain connections from other hosts are taken, too.
    pub plain_allowed: bool,
    pub sessions_max: usize,
    pub session_idle: Duration,
    pub session_age: Duration,
    /// Time between two reports of each gateway and worker.
    pub report_every: Duration,
}

/// State of the console of one coordinator.
pub(crate) struct Console {
    pub(crate) options: ConsoleOptions,
    pub(crate) sessions: Mutex<SessionTable>,
    pub(crate) limits: Mutex<SignInLimits>,
    pub(crate) hashing: Semaphore,
    pub(crate) waiting: Semaphore,
    pub(crate) lookups: Semaphore,
    /// Key of the tickets of sign-in forms. Another one after each start.
    pub(crate) form_key: String,
}

impl Console {
    pub(crate) fn new(options: ConsoleOptions) -> Self {
        let limits = SessionLimits {
            sessions_max: options.sessions_max,
            idle_max: options.session_idle,
            age_max: options.session_age,
        };
        Self {
            options,
            sessions: Mutex::new(SessionTable::new(limits)),
            limits: Mutex::new(SignInLimits::new()),
            hashing: Semaphore::new(HASHING_MAX),
            waiting: Semaphore::new(WAITING_MAX),
            lookups: Semaphore::new(LOOKUPS_MAX),
            form_key: random_token(),
        }
    }

    pub(crate) fn console_users(&self) -> ConsoleUsers {
        self.options.users.clone()
    }
}
