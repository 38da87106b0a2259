//! Owns the rule which bucket a Host header names: `bucket.domain` for configured domains; any
//! other host is path style. Also checks that a request names one host, and that it is this one.
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

    /// Returns the domain that a host is in, and the bucket before it. The bucket is empty where the
    /// host is the domain itself.
    fn find_domain<'a>(&'a self, host: &'a str) -> Option<(&'a str, &'a str)> {
        let name = without_port(host);
        self.0.iter().find_map(|domain| {
            let (front, end) = name.split_at_checked(name.len().checked_sub(domain.len())?)?;
            if !end.eq_ignore_ascii_case(domain) {
                return None;
            }
            let bucket = if front.is_empty() { front } else { front.strip_suffix('.')? };
            (front.is_empty() || !bucket.is_empty()).then_some((domain.as_str(), bucket))
        })
    }
}

/// The names by which clients reach this gateway. What is signed for another endpoint is signed with
/// that one's name, so whoever relays it here is refused.
pub(crate) struct OwnHosts {
    /// Host names and addresses, with a port or for any port. Empty: any host.
    names: Vec<String>,
    domains: HostDomains,
}

impl OwnHosts {
    /// Takes the names, and the domains, whose buckets are names too.
    pub fn new(names: &[String], domains: &[String]) -> Self {
        Self { names: names.to_vec(), domains: HostDomains::new(domains) }
    }

    /// Refuses a request that names another host, or none.
    pub fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| uri.authority().map(|authority| authority.as_str()));
        let is_own = host.is_some_and(|host| {
            let is_host = |name: &String| {
                name.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(without_port(host))
            };
            self.names.iter().any(is_host) || self.domains.find_domain(host).is_some()
        });
        if is_own {
            return Ok(());
        }
        let said = "The request names another host; gateway.own_hosts lists the names of this one";
        Err(S3Error::with_message(S3ErrorCode::InvalidRequest, said))
    }
}

impl S3Host for HostDomains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        Ok(match self.find_domain(host) {
            Some((domain, "")) => VirtualHost::new(domain),
            Some((domain, bucket)) => {
                VirtualHost::new(domain).with_bucket(bucket.to_ascii_lowercase())
            }
            None => VirtualHost::new(host),
        })
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
    fn a_gateway_answers_to_its_own_names_alone() {
        let names = ["gpu-07".to_owned(), "10.0.0.7:9000".into(), "[fd00::7]:9000".into()];
        let hosts = OwnHosts::new(&names, &["s3.example.com".into()]);
        for (uri, host, own) in [
            ("/b/k", Some("gpu-07"), true),
            ("/b/k", Some("GPU-07:9000"), true),
            ("/b/k", Some("10.0.0.7:9000"), true),
            ("/b/k", Some("10.0.0.7:9001"), false),
            ("/b/k", Some("10.0.0.7"), false),
            ("/b/k", Some("[fd00::7]:9000"), true),
            ("/b/k", Some("s3.example.com:9000"), true),
            ("/b/k", Some("train.s3.example.com"), true),
            ("/b/k", Some("evils3.example.com"), false),
            ("/b/k", Some("gpu-08"), false),
            ("/b/k", Some(""), false),
            ("/b/k", None, false),
            ("http://gpu-07/b/k", None, true),
            ("http://gpu-08/b/k", None, false),
        ] {
            let headers = host.map(|host| (header::HOST, host.parse().unwrap()));
            let headers = HeaderMap::from_iter(headers);
            let checked = hosts.check_host(&uri.parse().unwrap(), &headers);
            assert_eq!(checked.is_ok(), own, "{uri} {host:?}");
            let any = OwnHosts::new(&[], &["s3.example.com".into()]);
            assert!(any.check_host(&uri.parse().unwrap(), &headers).is_ok());
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
