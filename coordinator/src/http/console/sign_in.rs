//! Signing in. A stranger's form is short, tries are few, and the answer does not say whether a
//! name is known.

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode};
use hyper::body::Incoming;
use sha2::Sha256;
use tokio::time::Instant;
use verbs3_coordinator_client::proof::wall_clock_ms;

use super::browser::{ConsoleCookie, ConsoleResponse};
use super::form::{ConsoleForm, STRANGER_FORM_BYTES_MAX};
use super::pages::{PageContent, PageFrame, draw_sign_in};
use super::{ConsoleOrigin, ConsoleSite};
use crate::console_access::{
    Console, NAME_BYTES_MAX, PASSWORD_BYTES_MAX, SignInTry, SignedInUser, random_token,
};
use crate::http::audit::AUDIT_TARGET;

/// How long a sign-in form is good for, in seconds.
const TICKET_SECONDS: u64 = 3600;

impl Console {
    fn ticket_mac(&self, ends: u64, nonce: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.form_key.as_bytes()).ok()?;
        mac.update(format!("{ends}.{nonce}").as_bytes());
        Some(mac)
    }

    /// Makes what a sign-in form holds. Nothing is kept of it.
    fn make_ticket(&self, nonce: &str) -> String {
        let ends = now_seconds() + TICKET_SECONDS;
        let mac = self.ticket_mac(ends, nonce).map(|mac| mac.finalize().into_bytes());
        let digits: String = mac.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        format!("{ends}.{digits}")
    }

    fn is_own_ticket(&self, ticket: &str, nonce: &str) -> bool {
        let Some((ends, digits)) = ticket.split_once('.') else { return false };
        let Ok(ends) = ends.parse::<u64>() else { return false };
        let byte = |at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
        let (Some(bytes), Some(mac)) = (bytes, self.ticket_mac(ends, nonce)) else { return false };
        now_seconds() < ends && mac.verify_slice(&bytes).is_ok()
    }
}

fn now_seconds() -> u64 {
    wall_clock_ms() / 1000
}

impl ConsoleSite {
    pub(super) fn show_sign_in(
        &self,
        origin: ConsoleOrigin,
        refusal: Option<(StatusCode, &str)>,
    ) -> ConsoleResponse {
        let nonce = random_token();
        let (status, text) = refusal.map_or((StatusCode::OK, None), |(s, text)| (s, Some(text)));
        let still = Some(draw_sign_in(&self.console.make_ticket(&nonce), text));
        // Strangers are not told the cluster's name.
        let frame = PageFrame { cluster: "", title: "Sign in", tab: None, user: None };
        let page = frame.draw_page(PageContent { live: None, still });
        ConsoleResponse::from_page(status, page)
            .with_cookie(ConsoleCookie::Form.set_text(&nonce, origin.is_tls))
    }

    pub(super) async fn sign_in(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        origin: ConsoleOrigin,
    ) -> ConsoleResponse {
        let console = &self.console;
        let refuse = |status, text: &str| self.show_sign_in(origin, Some((status, text)));
        let late = "Too many tries. Wait a little, then try again.";
        // Before anything is read.
        let tried = console.limits.lock().take_address_try(origin.address, Instant::now());
        if let SignInTry::Refused { is_first } = tried {
            if is_first {
                audit_failure(None, origin, "too many tries of this address");
            }
            return refuse(StatusCode::TOO_MANY_REQUESTS, late);
        }
        let form = match ConsoleForm::read_body(headers, body, STRANGER_FORM_BYTES_MAX).await {
            Ok(form) => form,
            Err(flaw) => return refuse(StatusCode::BAD_REQUEST, &flaw.to_string()),
        };
        let nonce = ConsoleCookie::Form.read_from(headers, origin.is_tls).unwrap_or_default();
        let ticket = form.field("ticket").unwrap_or_default();
        if nonce.is_empty() || !console.is_own_ticket(ticket, nonce) {
            return refuse(StatusCode::FORBIDDEN, "This form is too old. Try again.");
        }
        let name = form.field("name").unwrap_or_default();
        let password = form.field("password").unwrap_or_default();
        if name.len() > NAME_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
            return refuse(StatusCode::UNAUTHORIZED, "Name or password is wrong.");
        }
        let known_name = console.users.find_user(name).map(|_| name);
        let tried = console.limits.lock().take_name_try(name, Instant::now());
        if let SignInTry::Refused { is_first } = tried {
            if is_first {
                audit_failure(known_name, origin, "too many tries of this name");
            }
            return refuse(StatusCode::TOO_MANY_REQUESTS, late);
        }
        let Ok(verified) = console.verify_in_turn(name, password).await else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, late);
        };
        let Some(known) = verified else {
            audit_failure(known_name, origin, "wrong name or password");
            return refuse(StatusCode::UNAUTHORIZED, "Name or password is wrong.");
        };
        tracing::info!(
            target: AUDIT_TARGET, who = %format_args!("console/{name}"), action = "console_sign_in",
            address = %origin.address, "signed in"
        );
        console.limits.lock().give_back_try(origin.address);
        let token = {
            let mut sessions = console.sessions.lock();
            if let Some(before) = ConsoleCookie::Session.read_from(headers, origin.is_tls) {
                sessions.end_session(before);
            }
            sessions.begin_session(name, known, Instant::now())
        };
        self.count_sessions();
        ConsoleResponse::see_other("/console")
            .with_cookie(ConsoleCookie::Session.set_text(&token, origin.is_tls))
            .with_cookie(ConsoleCookie::Form.set_text("", origin.is_tls))
    }

    /// Ends the session of a user.
    pub(super) fn sign_out(
        &self,
        user: &SignedInUser,
        headers: &HeaderMap,
        origin: ConsoleOrigin,
    ) -> ConsoleResponse {
        if let Some(token) = ConsoleCookie::Session.read_from(headers, origin.is_tls) {
            self.console.sessions.lock().end_session(token);
        }
        self.count_sessions();
        tracing::info!(
            target: AUDIT_TARGET, who = %format_args!("console/{}", user.name),
            action = "console_sign_out", address = %origin.address, "signed out"
        );
        ConsoleResponse::see_other("/console/sign-in")
            .with_cookie(ConsoleCookie::Session.set_text("", origin.is_tls))
    }
}

/// Writes a line on a sign-in that failed. Names of nobody are left out: they may be passwords that
/// were typed into the wrong field.
fn audit_failure(known_name: Option<&str>, origin: ConsoleOrigin, reason: &str) {
    let who = known_name.map_or_else(|| "nobody".to_owned(), |name| format!("console/{name}"));
    tracing::warn!(
        target: AUDIT_TARGET, %who, action = "console_sign_in", address = %origin.address, reason,
        "refused"
    );
}
