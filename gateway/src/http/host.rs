//! Which bucket a Host header names. Owns the rule: `bucket.domain` for configured domains; any other host is path style.
//!
//! s3s's own parsers take every unknown host name for a bucket, which breaks path style through `localhost` or a service name
//! as soon as one domain is configured.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The configured domains, lower case.
pub(crate) struct Domains(Vec<String>);

impl Domains {
    pub fn new(domains: &[String]) -> Self {
        Self(domains.iter().map(|domain| domain.trim_matches('.').to_ascii_lowercase()).collect())
    }
}

impl S3Host for Domains {
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
                return Ok(VirtualHost::new(domain.as_str()).with_bucket(bucket.to_ascii_lowercase()));
            }
        }
        Ok(VirtualHost::new(host))
    }
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
    fn buckets_are_taken_from_configured_domains_alone() {
        let domains = Domains::new(&["s3.example.com".into(), "gpu.local".into()]);
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
