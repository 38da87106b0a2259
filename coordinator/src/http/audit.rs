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

/// Writes a line, if the request is one to be accounted for.
pub(super) fn audit_request(
    route: &Route,
    asked: &CoordinatorRequest,
    response: &CoordinatorResponse,
) {
    let status = response.status;
    let is_forbidden = status == StatusCode::FORBIDDEN;
    // Sent to the leader, which writes the line.
    let is_elsewhere = status == StatusCode::MISDIRECTED_REQUEST;
    if !(route.is_audited || is_forbidden) || is_elsewhere {
        return;
    }
    let reason = (!status.is_success())
        .then(|| serde_json::from_slice::<CoordinatorRefusal>(&response.body).ok())
        .flatten()
        .map(|refusal| refusal.reason);
    // Debug form: what a client wrote must not begin a line of its own.
    let (path, query, arguments) = (&asked.path, public_query(&asked.query), shown_body(asked));
    let owner = asked.query_text("owner");
    if is_forbidden {
        tracing::warn!(
            target: AUDIT_TARGET, who = %asked.caller, action = route.name, ?path, ?query, ?arguments,
            owner = owner.map(tracing::field::debug), status = status.as_u16(),
            reason = reason.map(tracing::field::debug), "forbidden"
        );
    } else {
        tracing::info!(
            target: AUDIT_TARGET, who = %asked.caller, action = route.name, ?path, ?query, ?arguments,
            owner = owner.map(tracing::field::debug), status = status.as_u16(),
            reason = reason.map(tracing::field::debug), "asked"
        );
    }
}

/// A request that is not answered yet. A caller who hangs up ends its handling, but perhaps not what
/// it has begun: then that is the line.
pub(super) struct UnansweredRequest<'a>(Option<(&'static Route, &'a CoordinatorRequest)>);

impl<'a> UnansweredRequest<'a> {
    pub(super) fn begin(route: &'static Route, asked: &'a CoordinatorRequest) -> Self {
        Self(route.is_audited.then_some((route, asked)))
    }

    /// Notes that there is an answer.
    pub(super) fn conclude(mut self) {
        self.0 = None;
    }
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        let Some((route, asked)) = self.0.take() else { return };
        let (path, query, arguments) = (&asked.path, public_query(&asked.query), shown_body(asked));
        let owner = asked.query_text("owner");
        tracing::info!(
            target: AUDIT_TARGET, who = %asked.caller, action = route.name, ?path, ?query, ?arguments,
            owner = owner.map(tracing::field::debug),
            "asked; the caller hung up before the answer, and it may have been done"
        );
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
