//! The console: pages of the coordinator for people, below `/console`. Owns who is signed in and
//! what they may do; [`pages`] draws. Changes go through the API's own routes, which hold the rights
//! and write the audit log. Off without [`ConsoleOptions`].

mod browser;
mod form;
mod pages;
mod picture;
mod roles;
mod sessions;
mod shown_text;
mod sign_in;
mod sign_in_limits;
mod sparkline;
mod user_pages;
mod users;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::admission::UnprovenConnection;
use crate::coordinator_state::CoordinatorState;
use browser::{ConsoleCookie, ConsoleResponse, is_foreign_form};
pub use roles::ConsoleRole;
use sessions::{SessionLimits, SessionTable, SessionUse, SignedInUser};
use sign_in_limits::SignInLimits;
pub use users::{ConsoleUsers, ConsoleUsersError, PasswordHashFlaw, make_user_entry};

/// Passwords that are hashed at once: each takes 19 MiB and tens of milliseconds of a core.
const HASHING_MAX: usize = 2;
/// Sign-ins that wait for that.
const WAITING_MAX: usize = 16;
/// Objects that are looked up at once; each asks a store and workers.
const LOOKUPS_MAX: usize = 4;
/// Time between two looks at what has ended: sessions, and processes that report.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    options: ConsoleOptions,
    sessions: Mutex<SessionTable>,
    limits: Mutex<SignInLimits>,
    hashing: Semaphore,
    waiting: Semaphore,
    lookups: Semaphore,
    form_key: String,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConsoleOrigin {
    pub(super) address: IpAddr,
    pub(super) is_tls: bool,
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
            form_key: sessions::random_token(),
        }
    }

    pub(crate) fn console_users(&self) -> ConsoleUsers {
        self.options.users.clone()
    }

    pub(super) fn report_every(&self) -> Duration {
        self.options.report_every
    }

    fn find_user(&self, headers: &HeaderMap, is_tls: bool) -> Option<SignedInUser> {
        let token = ConsoleCookie::Session.read_from(headers, is_tls)?;
        let purpose = match is_part(headers) {
            true => SessionUse::Refresh,
            false => SessionUse::ByHand,
        };
        self.sessions.lock().find_session(token, &self.options.users, purpose, Instant::now())
    }
}

/// Returns whether the script asks for the part of a page that changes.
fn is_part(headers: &HeaderMap) -> bool {
    headers.contains_key("x-console-part")
}

/// Returns whether a path is one of the console's.
pub(super) fn is_console_path(path: &str) -> bool {
    path == "/console" || path.starts_with("/console/")
}

impl CoordinatorState {
    /// Ends sessions whose time is over or whose user's entry has changed, until the coordinator
    /// stops. May be cancelled at any time.
    pub(crate) async fn watch_console(self: Arc<Self>) {
        let Some(console) = &self.console else { return };
        while self.stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            console.sessions.lock().end_stale(&console.options.users, Instant::now());
            self.count_sessions(console);
            let reporting = self.activity.lock().reporter_count(self.clock.now());
            self.metrics.activity_reporters.set(reporting as i64);
        }
    }

    fn count_sessions(&self, console: &Console) {
        let sessions = console.sessions.lock().session_count();
        self.metrics.console_sessions.set(sessions as i64);
    }

    /// Answers a request to the console. Bodies are read only of users, and of sign-in forms.
    pub(super) async fn answer_console(
        &self,
        console: &Console,
        request: Request<Incoming>,
        origin: ConsoleOrigin,
        door: &UnprovenConnection,
    ) -> ConsoleResponse {
        if !origin.is_tls && !console.options.plain_allowed && !origin.address.is_loopback() {
            let text = "The console is shown over TLS, or on its own host, alone.";
            return ConsoleResponse::from_sentence(StatusCode::FORBIDDEN, text);
        }
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let is_post = head.method == Method::POST;
        if !is_post && head.method != Method::GET {
            let text = "This is not done here.";
            return ConsoleResponse::from_sentence(StatusCode::METHOD_NOT_ALLOWED, text);
        }
        if is_post && is_foreign_form(&head.headers) {
            let text = "This form was sent by another page than the console's.";
            return ConsoleResponse::from_sentence(StatusCode::FORBIDDEN, text);
        }
        match (is_post, path) {
            (false, "/console/icon.svg") => {
                return ConsoleResponse::from_asset(
                    "image/svg+xml",
                    include_str!("console/icon.svg"),
                );
            }
            (false, "/console/style.css") => {
                return ConsoleResponse::from_asset(
                    "text/css; charset=utf-8",
                    include_str!("console/style.css"),
                );
            }
            (false, "/console/console.js") => {
                return ConsoleResponse::from_asset(
                    "text/javascript; charset=utf-8",
                    include_str!("console/console.js"),
                );
            }
            (false, "/console/sign-in") => return self.show_sign_in(console, origin, None),
            (true, "/console/sign-in") => {
                let answer = self.sign_in(console, &head.headers, body, origin).await;
                if answer.status == StatusCode::SEE_OTHER {
                    door.let_in();
                }
                return answer;
            }
            _ => {}
        }
        match console.find_user(&head.headers, origin.is_tls) {
            Some(user) => {
                door.let_in();
                self.answer_user(console, &user, head, body, origin).await
            }
            None if is_post || is_part(&head.headers) => {
                ConsoleResponse::from_sentence(StatusCode::UNAUTHORIZED, "Sign in again.")
            }
            None => ConsoleResponse::see_other("/console/sign-in"),
        }
    }
}
