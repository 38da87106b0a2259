//! SigV4 by hand, so that requests can be wrong in one place at a time.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

pub const ACCESS_KEY: &str = "AKOWNER";
pub const SECRET_KEY: &str = "owner-secret";
pub const REGION: &str = "us-east-1";

pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// One request to be signed; what is in it goes out as it stands.
#[derive(Clone)]
pub struct Request {
    pub method: &'static str,
    /// Percent-encoded.
    pub path: String,
    /// `a=b&c=` in order, percent-encoded.
    pub query: String,
    pub headers: Vec<(String, String)>,
    pub payload: String,
    pub access_key: String,
    pub secret_key: String,
    pub time: OffsetDateTime,
    /// Of the scope.
    pub service: &'static str,
}

/// What chunks are signed with.
#[derive(Clone)]
pub struct Seed {
    pub signature: String,
    scope: String,
    stamp: String,
    key: Vec<u8>,
}

impl Request {
    pub fn new(method: &'static str, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            query: String::new(),
            headers: Vec::new(),
            payload: "UNSIGNED-PAYLOAD".to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            time: OffsetDateTime::now_utc(),
            service: "s3",
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn query(mut self, query: &str) -> Self {
        self.query = query.to_owned();
        self
    }

    pub fn payload(mut self, payload: &str) -> Self {
        self.payload = payload.to_owned();
        self
    }

    pub fn by(mut self, access_key: &str, secret_key: &str) -> Self {
        (self.access_key, self.secret_key) = (access_key.to_owned(), secret_key.to_owned());
        self
    }

    fn stamp(&self) -> String {
        self.time.format(format_description!("[year][month][day]T[hour][minute][second]Z")).unwrap()
    }

    fn seed(&self, stamp: &str) -> Seed {
        let day = &stamp[..8];
        let key = hmac(format!("AWS4{}", self.secret_key).as_bytes(), day);
        let key = hmac(&hmac(&hmac(&key, REGION), self.service), "aws4_request");
        Seed {
            signature: String::new(),
            scope: format!("{day}/{REGION}/{}/aws4_request", self.service),
            stamp: stamp.to_owned(),
            key,
        }
    }

    /// The head of the request, ready to be sent, and the seed for its chunks.
    pub fn signed(&self, host: &str) -> (String, Seed) {
        let stamp = self.stamp();
        let mut headers = self.headers.clone();
        headers.extend([
            ("host".to_owned(), host.to_owned()),
            ("x-amz-date".to_owned(), stamp.clone()),
            ("x-amz-content-sha256".to_owned(), self.payload.clone()),
        ]);
        headers.sort();
        let names = headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{names}\n{}",
            self.method, self.path, self.query, self.payload
        );
        let mut seed = self.seed(&stamp);
        let to_sign =
            format!("AWS4-HMAC-SHA256\n{stamp}\n{}\n{}", seed.scope, sha256(canonical.as_bytes()));
        seed.signature = hex::encode(hmac(&seed.key, &to_sign));
        let question = if self.query.is_empty() { "" } else { "?" };
        let mut head =
            format!("{} {}{question}{} HTTP/1.1\r\n", self.method, self.path, self.query);
        for (name, value) in &headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!(
            "authorization: AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={names}, \
            Signature={}\r\nconnection: close\r\n\r\n",
            self.access_key, seed.scope, seed.signature
        ));
        (head, seed)
    }

    /// The head of the same request as a presigned URL.
    pub fn presigned(&self, host: &str, expires_s: u32) -> String {
        let stamp = self.stamp();
        let seed = self.seed(&stamp);
        let credential = format!("{}/{}", self.access_key, seed.scope).replace('/', "%2F");
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={stamp}&X-Amz-Expires={expires_s}&X-Amz-SignedHeaders=host"
        );
        let canonical = format!(
            "{}\n{}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD",
            self.method, self.path
        );
        let to_sign =
            format!("AWS4-HMAC-SHA256\n{stamp}\n{}\n{}", seed.scope, sha256(canonical.as_bytes()));
        let signature = hex::encode(hmac(&seed.key, &to_sign));
        format!(
            "{} {}?{query}&X-Amz-Signature={signature} HTTP/1.1\r\nhost: {host}\r\nconnection: \
            close\r\n\r\n",
            self.method, self.path
        )
    }
}

/// A signature that is no request's.
pub struct SignedText {
    pub stamp: String,
    pub scope: String,
    pub signature: String,
}

/// Signs the digest of a text by the keys and the time of a request.
pub fn sign_scope(request: &Request, digest: &str) -> SignedText {
    let stamp = request.stamp();
    let Seed { scope, key, .. } = request.seed(&stamp);
    let to_sign = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}");
    SignedText { signature: hex::encode(hmac(&key, &to_sign)), stamp, scope }
}

impl Seed {
    fn next(&mut self, algorithm: &str, rest: &str) -> String {
        let to_sign =
            format!("{algorithm}\n{}\n{}\n{}\n{rest}", self.stamp, self.scope, self.signature);
        self.signature = hex::encode(hmac(&self.key, &to_sign));
        self.signature.clone()
    }

    pub fn chunk(&mut self, data: &[u8]) -> String {
        let rest = format!("{}\n{}", sha256(b""), sha256(data));
        self.next("AWS4-HMAC-SHA256-PAYLOAD", &rest)
    }

    pub fn trailer(&mut self, trailers: &str) -> String {
        self.next("AWS4-HMAC-SHA256-TRAILER", &sha256(trailers.as_bytes()))
    }
}
