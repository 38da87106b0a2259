//! The audit log: one line for each change that the API was asked for, under a target of its own.
//! Says who asked, for what, and how it ended. Reads are left out, unless they were forbidden.

use http::StatusCode;
use verbs3_coordinator_client::api::CoordinatorRefusal;

use super::request::CoordinatorRequest;
use super::response::CoordinatorResponse;
use super::route::Route;

/// Target of the lines, for filters: `log.level = "warn,verbs3::audit=info"`.
pub(super) const AUDIT_TARGET: &str = "verbs3::audit";
/// Longest part of a body that a line holds, in letters. Lists of objects may be longer.
const ARGUMENTS_MAX: usize = 2048;

/// A request under way. It gets its line when it is answered, or when it is dropped before: a caller
/// who hangs up ends its handling, but perhaps not what it has begun.
pub(super) struct AuditedRequest<'a> {
    route: &'static Route,
    asked: &'a CoordinatorRequest,
    is_answered: bool,
}

impl<'a> AuditedRequest<'a> {
    pub(super) fn begin(route: &'static Route, asked: &'a CoordinatorRequest) -> Self {
        Self { route, asked, is_answered: false }
    }

    /// Writes the line of an answer, if the request is one to be accounted for.
    pub(super) fn conclude(mut self, response: &CoordinatorResponse) {
        self.is_answered = true;
        let status = response.status;
        let is_forbidden = status == StatusCode::FORBIDDEN;
        // Sent to the leader, which writes the line.
        let is_elsewhere = status == StatusCode::MISDIRECTED_REQUEST;
        if !(self.route.is_audited || is_forbidden) || is_elsewhere {
            return;
        }
        let reason = (!status.is_success())
            .then(|| serde_json::from_slice::<CoordinatorRefusal>(&response.body).ok())
            .flatten()
            .map(|refusal| refusal.reason);
        self.write_line(Some((status, reason)), if is_forbidden { "forbidden" } else { "asked" });
    }

    fn write_line(&self, answer: Option<(StatusCode, Option<String>)>, ending: &str) {
        let Self { route, asked, .. } = self;
        // Debug form: what a client wrote must not begin a line of its own.
        let (path, query, arguments) = (&asked.path, public_query(&asked.query), shown_body(asked));
        let owner = asked.query_text("owner");
        let owner = owner.as_ref().map(tracing::field::debug);
        let (status, reason) = answer.map_or((None, None), |(status, reason)| {
            (Some(status.as_u16()), reason.map(tracing::field::debug))
        });
        let (who, action) = (&asked.caller, route.name);
        if status == Some(StatusCode::FORBIDDEN.as_u16()) {
            tracing::warn!(
                target: AUDIT_TARGET, %who, action, ?path, ?query, ?arguments, owner, status, reason,
                "{ending}"
            );
        } else {
            tracing::info!(
                target: AUDIT_TARGET, %who, action, ?path, ?query, ?arguments, owner, status, reason,
                "{ending}"
            );
        }
    }
}

impl Drop for AuditedRequest<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.route.is_audited {
            self.write_line(
                None,
                "asked; the caller hung up before the answer, and it may have been done",
            );
        }
    }
}

/// The query without the token that a store may show there.
fn public_query(query: &str) -> String {
    let shown: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("token=")).collect();
    shown.join("&")
}

fn shown_body(asked: &CoordinatorRequest) -> String {
    // Written anew, so that blanks push nothing out of the line.
    let value = serde_json::from_slice::<serde_json::Value>(&asked.body);
    let body = value.map_or_else(
        |_| String::from_utf8_lossy(&asked.body).into_owned(),
        |value| value.to_string(),
    );
    let mut text: String = body.chars().take(ARGUMENTS_MAX).collect();
    if text.len() < body.len() {
        text.push_str(&format!("… ({} bytes)", asked.body.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_written_down() {
        assert_eq!(public_query("ufs=a&token=hush&warm=true"), "ufs=a&warm=true");
        assert_eq!(public_query(""), "");
    }
}
