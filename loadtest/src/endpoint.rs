//! Describes where a load goes: address, bucket, credentials, and the processes whose CPU time
//! counts as the server's.
//!
//! Owns the parsing of URLs. Accepts `http` only: TLS would measure its cipher, and the comparison
//! is of kept connections.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail, ensure};

use crate::credentials::BenchCredentials;
use crate::sign::BenchSigner;

/// Server that receives load.
#[derive(Debug)]
pub struct BenchEndpoint {
    pub label: String,
    pub address: SocketAddr,
    /// `/bucket` or `/bucket/prefix`; empty for a server of plain files.
    pub base: String,
    pub signer: BenchSigner,
    pub pids: Vec<u32>,
}

impl BenchEndpoint {
    /// Parses `[LABEL=]http://HOST:PORT/BUCKET[/PREFIX]`. Without credentials, requests are not
    /// signed.
    pub fn parse(
        text: &str,
        label: &str,
        credentials: Option<&BenchCredentials>,
        pids: &[u32],
    ) -> anyhow::Result<Self> {
        let (label, url) = match text.split_once('=') {
            Some((label, url)) if !label.contains('/') => (label, url),
            _ => (label, text),
        };
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some((scheme, _)) => bail!("{url}: {scheme} is not measured, http is"),
            None => bail!("{url} is no URL: http://HOST:PORT/BUCKET"),
        };
        let (host, path) =
            rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path.trim_matches('/')));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        ensure!(
            path.bytes().all(plain),
            "{url}: only letters, digits and -._~/ can be in the bucket and prefix"
        );
        ensure!(
            credentials.is_none() || !path.is_empty(),
            "{url} names no bucket: http://HOST:PORT/BUCKET"
        );
        let with_port = if host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let mut found =
            with_port.to_socket_addrs().with_context(|| format!("{host} is not known"))?;
        let address = found.next().with_context(|| format!("{host} has no address"))?;
        let base = if path.is_empty() { String::new() } else { format!("/{path}") };
        let signer = BenchSigner::new(host, credentials);
        Ok(Self { label: label.to_owned(), address, base, signer, pids: pids.to_vec() })
    }

    /// Returns the request's path for `key`: `/bucket/prefix/key`.
    pub fn object_path(&self, key: &str) -> String {
        format!("{}/{key}", self.base)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls_give_address_bucket_prefix_and_label() {
        let parse = |text: &str| BenchEndpoint::parse(text, "target", None, &[7]);
        let plain = parse("http://127.0.0.1:9000/demo/a/b/").unwrap();
        assert_eq!(
            (plain.label.as_str(), plain.base.as_str(), plain.object_path("k").as_str()),
            ("target", "/demo/a/b", "/demo/a/b/k")
        );
        assert_eq!(
            (plain.address.to_string().as_str(), plain.pids.as_slice()),
            ("127.0.0.1:9000", &[7][..])
        );
        let named = parse("direct=http://[::1]/x").unwrap();
        assert_eq!(
            (named.label.as_str(), named.address.to_string().as_str()),
            ("direct", "[::1]:80")
        );
        assert_eq!(parse("http://127.0.0.1:1").unwrap().object_path("k"), "/k");
        for wrong in
            ["https://127.0.0.1/x", "127.0.0.1:9000", "http://127.0.0.1/a?b", "http://127.0.0.1/ä"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let keys =
            BenchCredentials { access_key: "a".into(), secret_key: "b".into(), region: "r".into() };
        assert!(
            BenchEndpoint::parse("http://127.0.0.1:1", "t", Some(&keys), &[]).is_err(),
            "no bucket"
        );
    }
}
