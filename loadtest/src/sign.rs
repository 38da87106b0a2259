//! Signs requests with SigV4 in the Authorization header and lays them out as bytes. aws-sigv4 does
//! the signing.

use std::time::SystemTime;

use anyhow::Context;
use aws_credential_types::Credentials as AwsCredentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, SignableBody, SignableRequest, SigningSettings, sign,
};
use aws_sigv4::sign::v4;

use crate::credentials::BenchCredentials;

/// Region for scenarios that name none: what single-region stores expect.
const REGION: &str = "us-east-1";

/// Makes the heads of requests for one host.
#[derive(Debug, Clone)]
pub struct BenchSigner {
    credentials: Option<BenchCredentials>,
    /// `host:port` as the server should see it.
    host: String,
}

impl BenchSigner {
    /// Creates a signer. Without credentials, requests are not signed.
    pub fn new(host: &str, credentials: Option<&BenchCredentials>) -> Self {
        Self { credentials: credentials.cloned(), host: host.to_owned() }
    }

    /// Creates a signer with one key, in the usual region.
    pub fn with_key(host: &str, access_key: &str, secret_key: &str) -> Self {
        let (access_key, secret_key) = (access_key.to_owned(), secret_key.to_owned());
        Self::new(
            host,
            Some(&BenchCredentials { access_key, secret_key, region: REGION.to_owned() }),
        )
    }

    /// Returns whether requests carry a signature.
    pub fn is_signing(&self) -> bool {
        self.credentials.is_some()
    }

    /// Returns the bytes of a request for `path` (already percent-encoded). The signature is valid
    /// for 15 minutes, so the request can be sent many times.
    pub fn sign_request(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.request_head(method, path, &[], SignableBody::Bytes(body), body.len() as u64)
    }

    /// Returns a PUT whose body is made while it is sent: the signature leaves out the payload.
    pub fn streaming_put(&self, path: &str, body_bytes: u64) -> anyhow::Result<Vec<u8>> {
        self.request_head("PUT", path, &[], SignableBody::UnsignedPayload, body_bytes)
    }

    /// Returns a GET of one range, both ends inclusive.
    pub fn sign_range(&self, path: &str, first: u64, last: u64) -> anyhow::Result<Vec<u8>> {
        self.request_head(
            "GET",
            path,
            &[("range", &format!("bytes={first}-{last}"))],
            SignableBody::Bytes(b""),
            0,
        )
    }

    fn request_head(
        &self,
        method: &str,
        path: &str,
        extra: &[(&str, &str)],
        body: SignableBody<'_>,
        body_bytes: u64,
    ) -> anyhow::Result<Vec<u8>> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in extra {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(credentials) = &self.credentials {
            text.push_str(&self.signature_lines(credentials, method, path, extra, body)?);
        }
        if method == "PUT" || method == "POST" {
            text.push_str(&format!("content-length: {body_bytes}\r\n"));
        }
        text.push_str("\r\n");
        Ok(text.into_bytes())
    }

    /// Returns the lines that a signature adds.
    fn signature_lines(
        &self,
        credentials: &BenchCredentials,
        method: &str,
        path: &str,
        extra: &[(&str, &str)],
        body: SignableBody<'_>,
    ) -> anyhow::Result<String> {
        let identity = AwsCredentials::new(
            &credentials.access_key,
            &credentials.secret_key,
            None,
            None,
            "loadtest",
        )
        .into();
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&credentials.region)
            .name("s3")
            .time(SystemTime::now())
            .settings(settings)
            .build()?
            .into();
        let url = format!("http://{}{path}", self.host);
        let headers = [("host", self.host.as_str())].into_iter().chain(extra.iter().copied());
        let signable = SignableRequest::new(method, &url, headers, body)?;
        let (instructions, _) = sign(signable, &parameters).context("can't sign")?.into_parts();
        Ok(instructions.headers().map(|(name, value)| format!("{name}: {value}\r\n")).collect())
    }
}
