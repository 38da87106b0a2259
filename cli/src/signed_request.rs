//! Signs a request to an S3 endpoint by version 4, with an access key.

use std::time::SystemTime;

use anyhow::Context;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, SignableBody, SignableRequest, SigningSettings, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;

/// An access key, and the region that its signatures name.
pub struct RequestSigner {
    credentials: Credentials,
    region: String,
}

impl RequestSigner {
    /// Takes the key. Nothing is checked before an endpoint is asked.
    pub fn new(access_key: &str, secret_key: &str, region: &str) -> Self {
        let credentials = Credentials::new(access_key, secret_key, None, None, "given");
        Self { credentials, region: region.to_owned() }
    }

    /// Makes a request whose signature covers the body's SHA-256.
    pub fn sign_whole(
        &self,
        method: Method,
        url: &str,
        authority: &str,
        body: Bytes,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let signed = self.sign_head(&method, url, authority, SignableBody::Bytes(&body))?;
        Ok(signed.method(method).uri(url).body(Full::new(body))?)
    }

    /// Makes a request whose signature says nothing of the body: hashing that takes time.
    pub fn sign_without_body(
        &self,
        method: Method,
        url: &str,
        authority: &str,
        body: Bytes,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let signed = self.sign_head(&method, url, authority, SignableBody::UnsignedPayload)?;
        Ok(signed.method(method).uri(url).body(Full::new(body))?)
    }

    fn sign_head(
        &self,
        method: &Method,
        url: &str,
        authority: &str,
        body: SignableBody<'_>,
    ) -> anyhow::Result<http::request::Builder> {
        let identity = self.credentials.clone().into();
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("s3")
            .time(SystemTime::now())
            .settings(settings)
            .build()?
            .into();
        let headers = [("host", authority)].into_iter();
        let signable = SignableRequest::new(method.as_str(), url, headers, body)?;
        let (signed, _) = sign(signable, &parameters).context("can't sign")?.into_parts();
        let request = Request::builder();
        Ok(signed.headers().fold(request, |request, (name, value)| request.header(name, value)))
    }
}
