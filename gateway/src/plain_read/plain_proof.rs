//! Proves a plain read's signature of version 4, in a header or in the URL ("Authenticating
//! Requests", S3 reference). What it does not understand it does not accept; s3s decides then.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Method, Request};

use crate::auth::{ALGORITHM, AuthIdentity, EMPTY_SHA256, ProofClock, SignatureClaim};

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// What some SDKs add to the URL to name the operation.
const OPERATION_NAME: &str = "x-id=";

/// What a request claims about its sender.
#[derive(Debug, PartialEq)]
pub(super) struct PlainProof<'a> {
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
    query: String,
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

    fn read_header<B>(text: &'a str, request: &'a Request<B>) -> Option<Self> {
        let (query, headers) = (request.uri().query().unwrap_or_default(), request.headers());
        let mut parts = text.strip_prefix(ALGORITHM)?.strip_prefix(' ')?.split(',');
        let mut part = |name| parts.next()?.trim_start_matches(' ').strip_prefix(name);
        let credential = part("Credential=")?;
        let (listed, signature) = (part("SignedHeaders=")?, part("Signature=")?);
        let (access_key, scope) = credential.split_once('/')?;
        let text_of = |name| headers.get(name)?.to_str().ok();
        let payload = text_of("x-amz-content-sha256")?;
        let plain = parts.next().is_none()
            && (payload == EMPTY_SHA256 || payload == UNSIGNED)
            && (query.is_empty() || is_operation_name(query, request.method()));
        plain.then_some(Self {
            access_key,
            scope: scope.into(),
            stamp: text_of("x-amz-date")?,
            listed: listed.into(),
            signature,
            query: query.to_owned(),
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
            && !request.headers().contains_key("x-amz-content-sha256");
        pairs.retain(|pair| !pair.starts_with("X-Amz-Signature="));
        plain.then_some(Self {
            access_key,
            scope: scope.into(),
            stamp: stamp?,
            listed: listed.into(),
            signature: signature?,
            query: pairs.join("&"),
            payload: UNSIGNED,
            expires: Some(Duration::from_secs(read_digits(expires?)?)),
        })
    }

    /// Returns whether `identity` has signed this request, now.
    pub(super) fn is_signed_by<B>(
        &self,
        identity: &AuthIdentity,
        request: &Request<B>,
        clock: ProofClock,
    ) -> bool {
        let claim = self.signature_claim();
        claim.has_plain_scope()
            && claim.is_in_time(clock, self.expires)
            && self
                .canonical_text(request)
                .is_some_and(|canonical| claim.is_signed_by(identity, &canonical))
    }

    fn signature_claim(&self) -> SignatureClaim<'_> {
        SignatureClaim {
            access_key: self.access_key,
            scope: &self.scope,
            stamp: self.stamp,
            signature: self.signature,
        }
    }

    /// Returns the text whose digest is signed. `None`: a header that is said to be signed is not
    /// there, or would be signed in another spelling.
    fn canonical_text<B>(&self, request: &Request<B>) -> Option<String> {
        let mut canonical = String::with_capacity(512);
        let (method, path) = (request.method().as_str(), request.uri().path());
        write!(canonical, "{method}\n{path}\n{}\n", self.query).ok()?;
        let mut last = "";
        for name in self.listed.split(';') {
            let value = request.headers().get(name)?.to_str().ok()?;
            let plain = name > last
                && value.trim() == value
                && !value.contains("  ")
                && !value.contains('\t');
            if !plain {
                return None;
            }
            writeln!(canonical, "{name}:{value}").ok()?;
            last = name;
        }
        write!(canonical, "\n{}\n{}", self.listed, self.payload).ok()?;
        Some(canonical)
    }
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
