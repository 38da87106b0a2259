//! What browsers send and obey: cookies, where a form comes from, and the headers of every answer.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use maud::Markup;

/// Nothing is taken from elsewhere, no script or style stands in a page, and no page is framed.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Answer of the console.
pub(in crate::http) struct ConsoleResponse {
    pub(super) status: StatusCode,
    content_type: &'static str,
    body: Bytes,
    location: Option<String>,
    cookies: Vec<String>,
}

impl ConsoleResponse {
    pub(super) fn from_page(status: StatusCode, page: Markup) -> Self {
        let body = page.into_string().into();
        Self { body, ..Self::empty(status, "text/html; charset=utf-8") }
    }

    pub(super) fn from_asset(content_type: &'static str, text: &'static str) -> Self {
        Self {
            body: Bytes::from_static(text.as_bytes()),
            ..Self::empty(StatusCode::OK, content_type)
        }
    }

    /// Answers with a sentence, where there is no page for it.
    pub(super) fn from_sentence(status: StatusCode, text: impl Into<String>) -> Self {
        let body = text.into().into();
        Self { body, ..Self::empty(status, "text/plain; charset=utf-8") }
    }

    /// Sends the browser to another page, by `GET`.
    pub(super) fn see_other(location: impl Into<String>) -> Self {
        let location = Some(location.into());
        Self { location, ..Self::empty(StatusCode::SEE_OTHER, "text/plain; charset=utf-8") }
    }

    fn empty(status: StatusCode, content_type: &'static str) -> Self {
        Self { status, content_type, body: Bytes::new(), location: None, cookies: Vec::new() }
    }

    pub(super) fn with_cookie(mut self, cookie: String) -> Self {
        self.cookies.push(cookie);
        self
    }

    pub(in crate::http) fn into_http(self) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let mut response = Response::new(UnsyncBoxBody::new(Full::new(self.body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(Ok(location)) = self.location.map(HeaderValue::try_from) {
            headers.insert(header::LOCATION, location);
        }
        for cookie in self.cookies.into_iter().filter_map(|text| HeaderValue::try_from(text).ok()) {
            headers.append(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// A cookie of the console. Over TLS its name says that no other host and no plain page may set it
/// (RFC 6265bis, section 4.1.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConsoleCookie {
    Session,
    /// Ties the sign-in form to the browser that asked for it.
    Form,
}

impl ConsoleCookie {
    fn cookie_name(self, is_tls: bool) -> &'static str {
        match (self, is_tls) {
            (Self::Session, true) => "__Host-verbs3-console",
            (Self::Session, false) => "verbs3-console",
            (Self::Form, true) => "__Host-verbs3-console-form",
            (Self::Form, false) => "verbs3-console-form",
        }
    }

    /// Returns the header that sets it. An empty value removes it.
    pub(super) fn set_text(self, value: &str, is_tls: bool) -> String {
        let secure = if is_tls { "; Secure" } else { "" };
        let ends = if value.is_empty() { "; Max-Age=0" } else { "" };
        let name = self.cookie_name(is_tls);
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}")
    }

    /// Reads it. Only what [`super::sessions::random_token`] draws is read.
    pub(super) fn read_from(self, headers: &HeaderMap, is_tls: bool) -> Option<&str> {
        let name = self.cookie_name(is_tls);
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| {
            let (found, value) = pair.trim().split_once('=')?;
            (found == name).then_some(value)
        });
        pairs
            .next()
            .filter(|value| value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }
}

/// Returns whether a form may come from another page than the console's. Browsers say where a form
/// comes from; what says nothing is no browser of today, and needs the form's token like all.
pub(super) fn is_foreign_form(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return true;
    }
    let Some(origin) = text("origin") else { return false };
    let host = text("host").unwrap_or_default();
    let from = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    from.is_none_or(|from| host.is_empty() || !from.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::console_access::random_token;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn forms_of_other_sites_are_foreign() {
        for (foreign, lines) in [
            (false, vec![]),
            (false, vec![("host", "c0:9500"), ("origin", "http://c0:9500")]),
            (false, vec![("host", "C0:9500"), ("origin", "https://c0:9500")]),
            (false, vec![("sec-fetch-site", "same-origin")]),
            (true, vec![("sec-fetch-site", "cross-site")]),
            (true, vec![("sec-fetch-site", "same-site")]),
            (true, vec![("host", "c0:9500"), ("origin", "http://evil")]),
            (true, vec![("host", "c0:9500"), ("origin", "http://c0:9500.evil")]),
            (true, vec![("host", "c0:9500"), ("origin", "null")]),
            (true, vec![("origin", "http://c0:9500")]),
        ] {
            assert_eq!(is_foreign_form(&headers(&lines)), foreign, "{lines:?}");
        }
    }

    #[test]
    fn a_cookie_is_hidden_from_scripts_and_other_sites() {
        let token = random_token();
        let set = ConsoleCookie::Session.set_text(&token, true);
        assert_eq!(
            set,
            format!("__Host-verbs3-console={token}; Path=/; HttpOnly; SameSite=Strict; Secure")
        );
        let found = headers(&[("cookie", &format!("a=b; __Host-verbs3-console={token}; c=d"))]);
        assert_eq!(ConsoleCookie::Session.read_from(&found, true), Some(&*token));
        // One that a plain page could have set does not count over TLS.
        assert_eq!(ConsoleCookie::Session.read_from(&found, false), None);
        assert_eq!(ConsoleCookie::Form.read_from(&found, true), None);
        for other in ["", "short", &"g".repeat(64)] {
            let found = headers(&[("cookie", &format!("verbs3-console={other}"))]);
            assert_eq!(ConsoleCookie::Session.read_from(&found, false), None, "{other}");
        }
    }

    #[test]
    fn every_answer_forbids_frames_and_foreign_content() {
        let answer = ConsoleResponse::see_other("/console").into_http();
        let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()[header::X_FRAME_OPTIONS], "DENY");
    }
}
