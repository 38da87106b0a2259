//! Proves a plain read's signature of version 4, in a header or in the URL ("Authenticating
//! Requests", S3 reference). Demands of it what `http/sigv4_demands.rs` and `http/signed_url.rs`
//! demand of all others. What it does not understand it does not accept; these and s3s decide then.

use std::borrow::Cow;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Method, Request};
use sha2::{Digest, Sha256};

use crate::auth::{
    ALGORITHM, AuthIdentity, EMPTY_SHA256, ProofClock, Sha256Digest, SignatureClaim,
};
use crate::http::URL_EXPIRES_S_MAX;

/// What a header signs even if it is not listed: its value is the last line of the signed text.
const PAYLOAD_HASH: &str = "x-amz-content-sha256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// What some SDKs add to the URL to name the operation.
const OPERATION_NAME: &str = "x-id=";

/// What a request claims about its sender.
#[derive(Debug, PartialEq)]
pub(crate) struct PlainProof<'a> {
    pub(super) access_key: &'a str,
    /// `DAY/REGION/s3/aws4_request`
    scope: Cow<'a, str>,
    /// `YYYYMMDDTHHMMSSZ`
    stamp: &'a str,
    /// Names of the signed headers, in their order, separated by semicolons.
    listed: Cow<'a, str>,
    /// 64 hexadecimal digits.
    signature: &'a str,
    /// The query as it is signed.
    query: Cow<'a, str>,
    payload: &'a str,
    /// How long a URL is valid. `None`: a header, whose stamp has to be of now.
    expires: Option<Duration>,
}

impl<'a> PlainProof<'a> {
    /// Reads the claim. `None`: it is not of the plain form.
    pub(super) fn read_proof<B>(request: &'a Request<B>) -> Option<Self> {
        match request.headers().get(AUTHORIZATION) {
            Some(value) => Self::read_header(value.to_str().ok()?, request),
            None => Self::read_url(request.uri().query()?, request),
        }
    }

    /// Reads the claim of a request that is for no object and has no body. It may leave the hash of
    /// its payload out.
    pub(crate) fn read_control<B>(request: &'a Request<B>) -> Option<Self> {
        let headers = request.headers();
        if headers.len() != headers.keys_len() {
            // Of a header that comes twice, one would not be signed.
            return None;
        }
        let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let hash = headers.get(PAYLOAD_HASH);
        let payload = hash.map_or(Some(EMPTY_SHA256), |hash| hash.to_str().ok())?;
        Self::read_authorization(text, payload, request).filter(|proof| proof.query.is_empty())
    }

    /// Returns whether the signature is said to cover a header.
    pub(crate) fn lists_header(&self, name: &str) -> bool {
        self.listed.split(';').any(|listed| listed == name)
    }

    pub(crate) fn access_key(&self) -> &'a str {
        self.access_key
    }

    fn read_header<B>(text: &'a str, request: &'a Request<B>) -> Option<Self> {
        let payload = request.headers().get(PAYLOAD_HASH)?.to_str().ok()?;
        Self::read_authorization(text, payload, request)
    }

    fn read_authorization<B>(
        text: &'a str,
        payload: &'a str,
        request: &'a Request<B>,
    ) -> Option<Self> {
        let (query, headers) = (request.uri().query().unwrap_or_default(), request.headers());
        let mut parts = text.strip_prefix(ALGORITHM)?.strip_prefix(' ')?.split(',');
        let mut part = |name| parts.next()?.trim_start_matches(' ').strip_prefix(name);
        let credential = part("Credential=")?;
        let (listed, signature) = (part("SignedHeaders=")?, part("Signature=")?);
        let (access_key, scope) = credential.split_once('/')?;
        let text_of = |name| headers.get(name)?.to_str().ok();
        let plain = parts.next().is_none()
            && (payload == EMPTY_SHA256 || payload == UNSIGNED)
            && (query.is_empty() || is_operation_name(query, request.method()));
        plain.then_some(Self {
            access_key,
            scope: scope.into(),
            stamp: text_of("x-amz-date")?,
            listed: listed.into(),
            signature,
            query: query.into(),
            payload,
            expires: None,
        })
    }

    fn read_url<B>(query: &'a str, request: &Request<B>) -> Option<Self> {
        let mut pairs: Vec<&str> = query.split('&').collect();
        // No name is the beginning of another one, so pairs are in the order of their names.
        pairs.sort_unstable();
        let mut values = [None; 6];
        let names = ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"];
        for pair in &pairs {
            if is_operation_name(pair, request.method()) {
                continue;
            }
            let (name, value) = pair.strip_prefix("X-Amz-")?.split_once('=')?;
            let at = names.iter().position(|known| *known == name)?;
            if values[at].replace(value).is_some() {
                return None;
            }
        }
        let [algorithm, credential, stamp, expires, listed, signature] = values;
        let credential = credential?;
        let (access_key, scope) = credential.split_once("%2F")?;
        if credential.contains('/') || listed?.contains(';') {
            return None;
        }
        // Anything else would be signed in another spelling than it is sent in.
        let scope = scope.replace("%2F", "/");
        let listed = listed?.replace("%3B", ";");
        let plain = algorithm? == ALGORITHM
            && !scope.contains('%')
            && !listed.contains('%')
            && !request.headers().contains_key(PAYLOAD_HASH);
        pairs.retain(|pair| !pair.starts_with("X-Amz-Signature="));
        let expires_s = read_digits(expires?).filter(|&seconds| seconds <= URL_EXPIRES_S_MAX)?;
        plain.then_some(Self {
            access_key,
            scope: scope.into(),
            stamp: stamp?,
            listed: listed.into(),
            signature: signature?,
            query: pairs.join("&").into(),
            payload: UNSIGNED,
            expires: Some(Duration::from_secs(expires_s)),
        })
    }

    /// Returns whether `identity` has signed this request, now.
    pub(super) fn is_signed_by<B>(
        &self,
        identity: &AuthIdentity,
        request: &Request<B>,
        clock: ProofClock,
    ) -> bool {
        self.is_signed_for(&["s3"], identity, request, clock)
    }

    /// The same for a signature that is for one of these services.
    pub(crate) fn is_signed_for<B>(
        &self,
        services: &[&str],
        identity: &AuthIdentity,
        request: &Request<B>,
        clock: ProofClock,
    ) -> bool {
        let claim = self.signature_claim();
        claim.has_scope_of(services)
            && claim.is_in_time(clock, self.expires)
            && self
                .canonical_digest(request)
                .is_some_and(|canonical| claim.is_signed_by(identity, canonical))
    }

    fn signature_claim(&self) -> SignatureClaim<'_> {
        SignatureClaim {
            access_key: self.access_key,
            scope: &self.scope,
            stamp: self.stamp,
            signature: self.signature,
        }
    }

    /// Returns the digest of the canonical request. `None`: a header that is said to be signed is
    /// not there, or would be signed in another spelling; or one that has to be signed is not.
    fn canonical_digest<B>(&self, request: &Request<B>) -> Option<Sha256Digest> {
        let mut canonical = Sha256::new();
        let mut write = |parts: &[&str]| parts.iter().for_each(|part| canonical.update(part));
        let (method, path) = (request.method().as_str(), request.uri().path());
        write(&[method, "\n", path, "\n", &self.query, "\n"]);
        let (mut last, mut has_host, mut amz_listed) = ("", false, 0);
        for name in self.listed.split(';') {
            let value = request.headers().get(name)?.to_str().ok()?;
            let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
            if name <= last || !is_lower || !is_signed_as_sent(value) {
                return None;
            }
            write(&[name, ":", value, "\n"]);
            has_host |= name == "host";
            amz_listed += usize::from(must_be_listed(name));
            last = name;
        }
        // Listed names are there and differ, so equal counts mean that none is left out.
        let amz_sent =
            request.headers().keys().filter(|name| must_be_listed(name.as_str())).count();
        if !has_host || amz_listed != amz_sent {
            return None;
        }
        write(&["\n", &self.listed, "\n", self.payload]);
        Some(canonical.finalize())
    }
}

/// Returns whether a header's value has no white space that signers fold or cut off.
fn is_signed_as_sent(value: &str) -> bool {
    let bytes = value.as_bytes();
    let folds = |pair: &[u8]| pair == b"  ";
    !bytes.contains(&b'\t')
        && !bytes.starts_with(b" ")
        && !bytes.ends_with(b" ")
        && !bytes.windows(2).any(folds)
}

/// Returns whether a header has to be signed, besides `host`: what S3 obeys must not be added by
/// somebody else.
fn must_be_listed(name: &str) -> bool {
    name.starts_with("x-amz-") && name != PAYLOAD_HASH
}

/// Returns whether a query's pair only names the operation that the method stands for.
fn is_operation_name(pair: &str, method: &Method) -> bool {
    let operation = if *method == Method::HEAD { "HeadObject" } else { "GetObject" };
    pair.strip_prefix(OPERATION_NAME) == Some(operation)
}

fn read_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests;
