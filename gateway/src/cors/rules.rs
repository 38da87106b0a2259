//! Decides which of a bucket's CORS rules applies to a request, and what it allows (S3 User Guide,
//! "Using cross-origin resource sharing"). Pure.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use s3s::dto::CORSRule;

/// The request headers that an answer depends on, for caches on the way to the browser.
const VARY: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Headers, Access-Control-Request-Method",
);

/// The rules of one bucket, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CorsRuleList(Vec<CorsRuleEntry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct CorsRuleEntry {
    origins: Vec<String>,
    methods: Vec<String>,
    /// Lower case.
    headers: Vec<String>,
    exposed: Vec<String>,
    max_age_s: Option<i32>,
}

impl CorsRuleList {
    /// Takes the rules of a bucket's configuration, in its order. Names of allowed headers become
    /// lower case.
    pub fn from_config(rules: Vec<CORSRule>) -> Self {
        let rule = |rule: CORSRule| CorsRuleEntry {
            origins: rule.allowed_origins,
            methods: rule.allowed_methods,
            headers: rule
                .allowed_headers
                .into_iter()
                .flatten()
                .map(|name| name.to_ascii_lowercase())
                .collect(),
            exposed: rule.expose_headers.unwrap_or_default(),
            max_age_s: rule.max_age_seconds,
        };
        Self(rules.into_iter().map(rule).collect())
    }

    /// Returns whether the bucket has no rules, so that no other origin is allowed anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the headers of the answer to a cross-origin request. The first rule that allows
    /// origin, method and all headers gives them. `None`: no rule does. `asked`: the headers that a
    /// preflight names, lower case.
    pub fn answer_headers(
        &self,
        origin: &HeaderValue,
        method: &str,
        asked: &[String],
    ) -> Option<HeaderMap> {
        let from = std::str::from_utf8(origin.as_bytes()).ok()?;
        let meets = |rule: &&CorsRuleEntry| {
            rule.origins.iter().any(|pattern| matches_pattern(pattern, from))
                && rule.methods.iter().any(|allowed| allowed == method)
                && asked
                    .iter()
                    .all(|name| rule.headers.iter().any(|pattern| matches_pattern(pattern, name)))
        };
        let rule = self.0.iter().find(meets)?;
        let mut headers = HeaderMap::new();
        // A rule for everyone answers `*`, for which browsers send no credentials (Fetch Standard,
        // "CORS check").
        if rule.origins.iter().any(|pattern| pattern == "*") {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        } else {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers
                .insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        insert_list(&mut headers, header::ACCESS_CONTROL_ALLOW_METHODS, &rule.methods);
        insert_list(&mut headers, header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
        insert_list(&mut headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, &rule.exposed);
        if let Some(seconds) = rule.max_age_s {
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
        }
        headers.insert(header::VARY, VARY);
        Some(headers)
    }
}

/// Inserts a comma-separated list. Leaves out a value that can't be a header (the store let it in).
fn insert_list(headers: &mut HeaderMap, name: HeaderName, values: &[String]) {
    if let Ok(value) = HeaderValue::try_from(values.join(", "))
        && !values.is_empty()
    {
        headers.insert(name, value);
    }
}

/// Returns whether a text matches a pattern, which may have one `*` for any text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
    }
}

/// Returns the names in `Access-Control-Request-Headers`, lower case.
pub(super) fn requested_headers(headers: &HeaderMap) -> Vec<String> {
    let lists = headers
        .get_all(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .iter()
        .filter_map(|list| list.to_str().ok());
    let names = lists.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CORSRule {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        CORSRule {
            allowed_origins: own(origins),
            allowed_methods: own(methods),
            allowed_headers: Some(own(headers)),
            expose_headers: Some(own(&["ETag", "x-amz-meta-a"])),
            id: None,
            max_age_seconds: Some(600),
        }
    }

    fn allowed(
        rules: &CorsRuleList,
        origin: &'static str,
        method: &str,
        asked: &[&str],
    ) -> Option<String> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        let headers = rules.answer_headers(&HeaderValue::from_static(origin), method, &asked)?;
        Some(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN].to_str().unwrap().to_owned())
    }

    #[test]
    fn the_first_rule_that_allows_all_of_a_request_answers_it() {
        let rules = CorsRuleList::from_config(vec![
            rule(&["https://a.test"], &["GET"], &["X-Amz-*"]),
            rule(&["https://*.b.test"], &["PUT", "GET"], &["content-type"]),
            rule(&["*"], &["HEAD"], &["*"]),
        ]);
        for (origin, method, asked, wanted) in [
            ("https://a.test", "GET", &["x-amz-date"][..], Some("https://a.test")),
            ("https://a.test", "GET", &["x-amz-date", "range"], None),
            ("https://a.test", "PUT", &[], None),
            ("https://a.test", "get", &[], None),
            ("https://a.test", "HEAD", &["anything"], Some("*")),
            ("https://x.b.test", "PUT", &["content-type"], Some("https://x.b.test")),
            ("https://b.test", "PUT", &[], None),
            ("https://a.test.evil", "GET", &[], None),
            ("null", "HEAD", &[], Some("*")),
        ] {
            assert_eq!(
                allowed(&rules, origin, method, asked).as_deref(),
                wanted,
                "{method} from {origin} with {asked:?}"
            );
        }
    }

    #[test]
    fn a_rule_allows_what_it_says_and_credentials_to_named_origins() {
        let rules = CorsRuleList::from_config(vec![
            rule(&["https://a.test"], &["GET", "PUT"], &["*"]),
            rule(&["*"], &["HEAD"], &[]),
        ]);
        let named = rules
            .answer_headers(
                &HeaderValue::from_static("https://a.test"),
                "PUT",
                &["range".to_owned()],
            )
            .unwrap();
        for (name, wanted) in [
            ("access-control-allow-origin", "https://a.test"),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-methods", "GET, PUT"),
            ("access-control-allow-headers", "range"),
            ("access-control-expose-headers", "ETag, x-amz-meta-a"),
            ("access-control-max-age", "600"),
        ] {
            assert_eq!(named[name], wanted, "{name}");
        }
        assert!(named["vary"].to_str().unwrap().starts_with("Origin"));
        let all =
            rules.answer_headers(&HeaderValue::from_static("https://z.test"), "HEAD", &[]).unwrap();
        assert!(
            !all.contains_key("access-control-allow-credentials")
                && !all.contains_key("access-control-allow-headers")
        );
    }

    #[test]
    fn one_star_stands_for_anything_and_overlaps_with_nothing() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("https://*.x", "https://y.x", true),
            ("", "", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), wanted, "{pattern} {text}");
        }
    }
}
