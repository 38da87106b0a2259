//! Stand-ins for the services that give out credentials, and a store that knows them. Owns the keys
//! that were given.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::CreateBucketInput;
use s3s::service::S3ServiceBuilder;
use s3s::{S3, S3Request, S3Result, s3_error};
use tokio::net::TcpListener;
use verbs3_ufs::local::{LocalOptions, LocalStore};

/// How long keys live. More than the 10 s before the end at which the SDK fetches new ones.
pub const LIFETIME: Duration = Duration::from_secs(13);

/// What the process finds in its environment, and assumes its role with.
pub const BASE_KEY: &str = "AKIDBASE";
pub const BASE_SECRET: &str = "hush-base-secret";

#[derive(Debug, Clone)]
pub struct Key {
    pub kind: &'static str,
    pub access: String,
    pub secret: String,
    pub token: String,
    pub given: SystemTime,
    pub until: SystemTime,
}

pub type Keys = Arc<Mutex<Vec<Key>>>;

/// STS, IMDSv2 and the source of a credentials process.
pub struct Issuer {
    pub address: String,
    pub keys: Keys,
    complaints: Arc<Mutex<Vec<String>>>,
}

struct Desk {
    keys: Keys,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    pub async fn start() -> Self {
        let (keys, complaints) = (Keys::default(), Arc::<Mutex<Vec<String>>>::default());
        let desk = Arc::new(Desk { keys: keys.clone(), complaints: complaints.clone() });
        let address = serve(move |request: Request<Incoming>| {
            let desk = desk.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body =
                    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
                desk.answer(&parts.method, parts.uri.path(), &parts.headers, &body)
            }
        })
        .await;
        Self { address, keys, complaints }
    }

    /// Requests that were not what the service expects.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap().clone()
    }
}

impl Desk {
    fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: &str,
    ) -> Response<Full<Bytes>> {
        const PROFILE: &str = "/latest/meta-data/iam/security-credentials/";
        let header = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        match (method.as_str(), path) {
            ("PUT", "/latest/api/token") => {
                self.expect(
                    !header("x-aws-ec2-metadata-token-ttl-seconds").is_empty(),
                    "a token without a ttl",
                );
                let mut answer = text("hush-session");
                answer.headers_mut().insert("x-aws-ec2-metadata-token-ttl-seconds", 21600.into());
                answer
            }
            ("GET", path) if path.starts_with(PROFILE) => {
                self.expect(
                    header("x-aws-ec2-metadata-token") == "hush-session",
                    "metadata without the session token",
                );
                match &path[PROFILE.len()..] {
                    "" => text("gpu-node"),
                    "gpu-node" => text(&self.give("machine").document("Token")),
                    _ => status(StatusCode::NOT_FOUND),
                }
            }
            ("GET", "/process") => text(&self.give("process").document("SessionToken")),
            ("POST", "/") => self.sts(header("authorization"), body),
            _ => {
                self.expect(false, &format!("{method} {path}"));
                status(StatusCode::NOT_FOUND)
            }
        }
    }

    fn sts(&self, authorization: &str, body: &str) -> Response<Full<Bytes>> {
        let has = |pair: &str| body.split('&').any(|found| found == pair);
        let (action, kind) = if has("Action=AssumeRoleWithWebIdentity") {
            self.expect(has("WebIdentityToken=hush-identity-token"), "another identity token");
            self.expect(
                has("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fweb") && has("RoleSessionName=verbs3"),
                body,
            );
            ("AssumeRoleWithWebIdentity", "web")
        } else {
            self.expect(has("Action=AssumeRole") && has("ExternalId=hush-external-id"), body);
            self.expect(
                authorization.contains(&format!("Credential={BASE_KEY}/")),
                "assumed with another key",
            );
            ("AssumeRole", "role")
        };
        let Key { access, secret, token, until, .. } = self.give(kind);
        text(&format!(
            "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials>\
             <AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>\
             <Expiration>{}</Expiration></Credentials></{action}Result></{action}Response>",
            stamp(until)
        ))
    }

    fn give(&self, kind: &'static str) -> Key {
        let mut keys = self.keys.lock().unwrap();
        let number = keys.len();
        let given = SystemTime::now();
        let (access, secret) = (format!("ASIA{kind}{number}"), format!("hush-secret-{number}"));
        let key = Key {
            kind,
            access,
            secret,
            token: format!("hush-token-{number}"),
            given,
            until: given + LIFETIME,
        };
        keys.push(key.clone());
        key
    }

    fn expect(&self, right: bool, complaint: &str) {
        if !right {
            self.complaints.lock().unwrap().push(complaint.to_owned());
        }
    }
}

impl Key {
    /// As metadata and credential processes give it.
    fn document(&self, token: &str) -> String {
        let Self { access, secret, token: session, until, .. } = self;
        format!(
            "{{\"Code\":\"Success\",\"Type\":\"AWS-HMAC\",\"Version\":1,\"LastUpdated\":\"{0}\",\"AccessKeyId\":\"{access}\",\
             \"SecretAccessKey\":\"{secret}\",\"{token}\":\"{session}\",\"Expiration\":\"{0}\"}}",
            stamp(*until)
        )
    }
}

/// RFC 3339, to the second.
fn stamp(moment: SystemTime) -> String {
    let seconds = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let moment = aws_sdk_s3::primitives::DateTime::from_secs(i64::try_from(seconds).unwrap());
    moment.fmt(aws_sdk_s3::primitives::DateTimeFormat::DateTime).unwrap()
}

/// A store that verifies signatures against the keys that were given.
pub struct VerifyingStore {
    pub address: String,
    ledger: Arc<Ledger>,
}

struct Ledger {
    keys: Keys,
    uses: Mutex<HashMap<String, usize>>,
    refused: Mutex<Vec<String>>,
}

struct Guard(Arc<Ledger>);

#[async_trait::async_trait]
impl S3Auth for Guard {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let keys = self.0.keys.lock().unwrap();
        match keys.iter().find(|key| key.access == access_key) {
            Some(key) if key.until > SystemTime::now() => {
                *self.0.uses.lock().unwrap().entry(access_key.to_owned()).or_default() += 1;
                Ok(key.secret.as_str().into())
            }
            found => {
                let why = if found.is_some() { "over" } else { "unknown" };
                self.0.refused.lock().unwrap().push(format!("{access_key} is {why}"));
                Err(s3_error!(InvalidAccessKeyId))
            }
        }
    }
}

impl VerifyingStore {
    pub async fn start(folder: &Path, buckets: &[&str], keys: Keys) -> Self {
        let store = LocalStore::open_store(LocalOptions {
            sync: false,
            ..LocalOptions::new(folder.join("store"))
        })
        .unwrap();
        for bucket in buckets {
            let input = CreateBucketInput { bucket: (*bucket).to_owned(), ..Default::default() };
            store.create_bucket(made(input)).await.unwrap();
        }
        let ledger = Arc::new(Ledger { keys, uses: Mutex::default(), refused: Mutex::default() });
        let mut builder = S3ServiceBuilder::new(store);
        builder.set_auth(Guard(ledger.clone()));
        let (service, book) = (builder.build(), ledger.clone());
        let address = serve(move |request: Request<Incoming>| {
            book.check_token(request.headers());
            let service = service.clone();
            async move { Service::call(&service, request).await.unwrap() }
        })
        .await;
        Self { address, ledger }
    }

    pub fn uses(&self, access_key: &str) -> usize {
        self.ledger.uses.lock().unwrap().get(access_key).copied().unwrap_or_default()
    }

    pub fn refused(&self) -> Vec<String> {
        self.ledger.refused.lock().unwrap().clone()
    }
}

impl Ledger {
    /// Temporary keys are worth nothing without the token that came with them.
    fn check_token(&self, headers: &HeaderMap) {
        let of = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (token, authorization) = (of("x-amz-security-token"), of("authorization"));
        let keys = self.keys.lock().unwrap();
        if !keys.iter().any(|key| {
            key.token == token && authorization.contains(&format!("Credential={}/", key.access))
        }) {
            self.refused.lock().unwrap().push(format!("token {token:?} with {authorization:?}"));
        }
    }
}

fn made<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: Method::PUT,
        uri: http::Uri::from_static("/"),
        headers: HeaderMap::new(),
        extensions: http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

fn text(text: &str) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())))
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

/// Serves on loopback until the test ends; gives the address.
async fn serve<F, Fut, B>(answer: F) -> String
where
    F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                // How a connection ends is no concern here.
                let _ = Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}
