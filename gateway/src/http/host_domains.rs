//! Owns the rule which bucket a Host header names: `bucket.domain` for configured domains; any
//! other host is path style. Also checks that a request names one host.
//!
//! s3s's own parsers take every unknown host name for a bucket. With one domain configured, path
//! style through `localhost` or a service name would break.

use http::{HeaderMap, Uri, header};
use s3s::host::{S3Host, VirtualHost};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The configured domains, lower case.
pub(crate) struct HostDomains(Vec<String>);

impl HostDomains {
    /// Takes the domains. They lose dots at their ends and become lower case.
    pub fn new(domains: &[String]) -> Self {
        Self(domains.iter().map(|domain| domain.trim_matches('.').to_ascii_lowercase()).collect())
    }
}

impl S3Host for HostDomains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = without_port(host);
        for domain in &self.0 {
            let Some(cut) = name.len().checked_sub(domain.len()) else { continue };
            let Some((front, end)) = name.split_at_checked(cut) else { continue };
            if !end.eq_ignore_ascii_case(domain) {
                continue;
            }
            if front.is_empty() {
                return Ok(VirtualHost::new(domain.as_str()));
            }
            if let Some(bucket) = front.strip_suffix('.').filter(|bucket| !bucket.is_empty()) {
                return Ok(
                    VirtualHost::new(domain.as_str()).with_bucket(bucket.to_ascii_lowercase())
                );
            }
        }
        Ok(VirtualHost::new(host))
    }
}

/// Refuses a request that names two hosts. HTTP/2 has `:authority`, and HTTP/1 may name one in the
/// target. Otherwise each reader would choose for itself which one was signed and which one names
/// the bucket (RFC 9113 section 8.3.1, RFC 9112 section 3.2).
pub(super) fn check_single_host(uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, other) = (hosts.next(), hosts.next());
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    let same = match (host, authority) {
        (Some(host), Some(authority)) => host.as_bytes().eq_ignore_ascii_case(authority),
        (None, _) | (_, None) => true,
    };
    if same && other.is_none() {
        return Ok(());
    }
    Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "The request names more than one host"))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_request_names_one_host() {
        for (uri, hosts, taken) in [
            ("/b/k", &["a:1"][..], true),
            ("/b/k", &[], true),
            ("http://a:1/b/k", &[], true),
            ("http://a:1/b/k", &["A:1"], true),
            ("http://a:1/b/k", &["b:1"], false),
            ("http://a:1/b/k", &["a"], false),
            ("/b/k", &["a:1", "b:1"], false),
            ("/b/k", &["a:1", "a:1"], false),
        ] {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.parse().unwrap());
            }
            assert_eq!(
                check_single_host(&uri.parse().unwrap(), &headers).is_ok(),
                taken,
                "{uri} {hosts:?}"
            );
        }
    }

    #[test]
    fn buckets_are_taken_from_configured_domains_alone() {
        let domains = HostDomains::new(&["s3.example.com".into(), "gpu.local".into()]);
        for (host, bucket) in [
            ("train.s3.example.com", Some("train")),
            ("Train.S3.Example.com:9000", Some("train")),
            ("my.data.gpu.local:80", Some("my.data")),
            ("s3.example.com", None),
            ("gpu.local:9000", None),
            ("evils3.example.com", None),
            (".s3.example.com", None),
            ("localhost:9000", None),
            ("verbs3.namespace.svc", None),
            ("ü.x", None),
        ] {
            assert_eq!(domains.parse_host_header(host).unwrap().bucket(), bucket, "{host}");
        }
    }
}
