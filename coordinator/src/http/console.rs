//! The console: pages of the coordinator for people, below `/console`. Owns how a browser is
//! answered; [`crate::console_access`] knows who is signed in, and [`pages`] draws. Changes go
//! through the API's own routes, which hold the rights and write the audit log.

mod browser;
mod form;
mod pages;
mod picture;
mod shown_text;
mod sign_in;
mod sparkline;
mod user_pages;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::UnprovenConnection;
use super::api_context::ApiContext;
use crate::console_access::{Console, SessionUse, SignedInUser};
use crate::metrics::CoordinatorMetrics;
use browser::{ConsoleCookie, ConsoleResponse, is_foreign_form};

/// Time between two looks at what has ended: sessions, and processes that report.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConsoleOrigin {
    pub(super) address: IpAddr,
    pub(super) is_tls: bool,
}

impl ConsoleOrigin {
    /// Returns whether nobody on a network can read along.
    fn is_private(self) -> bool {
        // A socket for both families tells IPv4 addresses in the form of IPv6.
        self.is_tls || self.address.to_canonical().is_loopback()
    }
}

impl Console {
    fn find_user(&self, headers: &HeaderMap, is_tls: bool) -> Option<SignedInUser> {
        let token = ConsoleCookie::Session.read_from(headers, is_tls)?;
        let purpose = match is_part(headers) {
            true => SessionUse::Refresh,
            false => SessionUse::ByHand,
        };
        self.sessions.lock().find_session(token, &self.users, purpose, Instant::now())
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

/// The console as browsers see it.
pub(crate) struct ConsoleSite {
    pub(crate) console: Console,
    /// What pages show, and where changes are asked for.
    pub(crate) context: Arc<ApiContext>,
    pub(crate) metrics: CoordinatorMetrics,
}

impl ConsoleSite {
    /// Ends sessions whose time is over or whose user's entry has changed, until the coordinator
    /// stops. May be cancelled at any time.
    pub(crate) async fn watch_console(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            self.console.sessions.lock().end_stale(&self.console.users, Instant::now());
            self.count_sessions();
            let reporting = self.context.activity.reporter_count();
            self.metrics.activity_reporters.set(reporting as i64);
        }
    }

    fn count_sessions(&self) {
        let sessions = self.console.sessions.lock().session_count();
        self.metrics.console_sessions.set(sessions as i64);
    }

    /// Answers a request to the console. Bodies are read only of users, and of sign-in forms.
    pub(super) async fn answer_console(
        &self,
        request: Request<Incoming>,
        origin: ConsoleOrigin,
        door: &UnprovenConnection,
    ) -> ConsoleResponse {
        if !self.console.settings.plain && !origin.is_private() {
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
            (false, "/console/sign-in") => return self.show_sign_in(origin, None),
            (true, "/console/sign-in") => {
                let answer = self.sign_in(&head.headers, body, origin).await;
                if answer.status == StatusCode::SEE_OTHER {
                    door.let_in();
                }
                return answer;
            }
            _ => {}
        }
        match self.console.find_user(&head.headers, origin.is_tls) {
            Some(user) => {
                door.let_in();
                self.answer_user(&user, head, body, origin).await
            }
            None if is_post || is_part(&head.headers) => {
                ConsoleResponse::from_sentence(StatusCode::UNAUTHORIZED, "Sign in again.")
            }
            None => ConsoleResponse::see_other("/console/sign-in"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn plain_loopback_connections_are_private_over_ipv4_and_ipv6() {
        for (address, is_own) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(ConsoleOrigin { address, is_tls: false }.is_private(), is_own, "{address}");
            assert!(ConsoleOrigin { address, is_tls: true }.is_private());
        }
    }
}
