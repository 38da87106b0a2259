//! Asks about preload jobs: the coordinators, as an operator; or an S3 endpoint, as the holder of
//! an access key, who sees and ends their own jobs alone.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use verbs3_coordinator_client::api::CoordinatorRefusal;
use verbs3_coordinator_client::{AskError, CoordinatorClient};

use crate::signed_request::RequestSigner;

/// For an answer, besides what the question itself asks to wait.
const DEADLINE: Duration = Duration::from_secs(15);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The S3 endpoint to ask, and the key to ask it with.
#[derive(Debug, Clone, Args)]
pub struct EndpointArguments {
    /// Ask this S3 endpoint in place of the coordinators, with the access key that objects are
    /// read with; it needs the right "warm"
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
    /// Access key for --endpoint
    #[arg(long, global = true, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    access_key: Option<String>,
    /// Its secret comes from the environment alone: what is on a command line, others see
    #[arg(long, global = true, hide = true, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret_key: Option<String>,
    /// Region that signatures for --endpoint name
    #[arg(long, global = true, env = "AWS_REGION", default_value = "us-east-1")]
    region: String,
}

/// Whom to ask.
pub enum JobsClient {
    Coordinators(Arc<CoordinatorClient>),
    Endpoint(Box<EndpointClient>),
}

/// An S3 endpoint, asked with an access key.
pub struct EndpointClient {
    http: Http<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    authority: String,
    signer: RequestSigner,
}

impl EndpointArguments {
    /// The endpoint's client; `None` where none is named.
    pub fn endpoint_client(&self) -> anyhow::Result<Option<JobsClient>> {
        let Some(url) = &self.endpoint else { return Ok(None) };
        let (Some(access_key), Some(secret_key)) = (&self.access_key, &self.secret_key) else {
            bail!("--endpoint needs a key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
        };
        let signer = RequestSigner::new(access_key, secret_key, &self.region);
        Ok(Some(JobsClient::Endpoint(Box::new(EndpointClient::new(url, signer)?))))
    }
}

impl JobsClient {
    /// Asks without a body. `wait`: what the question itself asks to wait. `None`: there is none.
    pub async fn get<A: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<Option<A>, AskError> {
        match self {
            Self::Coordinators(client) => client.get(path, wait).await,
            Self::Endpoint(client) => client.ask(Method::GET, path, Bytes::new(), wait).await,
        }
    }

    /// Sends `question` as JSON.
    pub async fn post_json<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        question: &Q,
    ) -> Result<Option<A>, AskError> {
        match self {
            Self::Coordinators(client) => client.post_json(path, question, Duration::ZERO).await,
            Self::Endpoint(client) => {
                let body = serde_json::to_vec(question).unwrap_or_default().into();
                client.ask(Method::POST, path, body, Duration::ZERO).await
            }
        }
    }

    /// Sends a `DELETE`, and ignores what the answer holds.
    pub async fn delete_path(&self, path: &str) -> Result<(), AskError> {
        match self {
            Self::Coordinators(client) => client.delete_path(path).await,
            Self::Endpoint(client) => client
                .ask::<serde_json::Value>(Method::DELETE, path, Bytes::new(), Duration::ZERO)
                .await
                .map(|_| ()),
        }
    }
}

impl EndpointClient {
    /// Makes a client of the endpoint at a URL. Errors when it is none. Asks nobody.
    pub fn new(url: &str, signer: RequestSigner) -> anyhow::Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        let authority = uri.authority().with_context(|| format!("{url} has no host"))?.to_string();
        // Only https asks the system for its certificates.
        let https = HttpsConnectorBuilder::new()
            .with_native_roots()
            .context("can't read the system's certificates")?;
        let http =
            Http::builder(TokioExecutor::new()).build(https.https_or_http().enable_http1().build());
        Ok(Self { http, url, authority, signer })
    }

    /// The same endpoint and connections, with another key.
    pub fn with_signer(&self, signer: RequestSigner) -> Self {
        let (http, url, authority) = (self.http.clone(), self.url.clone(), self.authority.clone());
        Self { http, url, authority, signer }
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<Option<A>, AskError> {
        let (status, body) = self.ask_status(method, path, body, wait).await?;
        self.read_answer(status, &body)
    }

    /// Asks, and returns whatever was answered.
    pub async fn ask_status(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let away = |cause: String| AskError::Away(format!("{}: {cause}", self.url));
        let url = format!("{}{path}", self.url);
        let mut request = self
            .signer
            .sign_whole(method, &url, &self.authority, body)
            .map_err(|error| away(format!("{error:#}")))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let asked = async {
            let answer =
                self.http.request(request).await.map_err(|error| away(cause_of(&error)))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|error| away(error.to_string()))?.to_bytes()))
        };
        tokio::time::timeout(DEADLINE + wait, asked)
            .await
            .map_err(|_| away("it was silent".to_owned()))?
    }

    fn read_answer<A: DeserializeOwned>(
        &self,
        status: StatusCode,
        body: &[u8],
    ) -> Result<Option<A>, AskError> {
        let text = || String::from_utf8_lossy(body).chars().take(500).collect::<String>();
        if status.is_success() {
            return serde_json::from_slice(body).map(Some).map_err(|_| {
                AskError::Away(format!("{} gave an answer that is no job: {}", self.url, text()))
            });
        }
        // S3's own refusals are XML: a wrong key, say.
        match serde_json::from_slice::<CoordinatorRefusal>(body) {
            Ok(refused) if status != StatusCode::SERVICE_UNAVAILABLE => {
                Err(AskError::Refused { url: self.url.clone(), refused: Box::new(refused) })
            }
            Ok(refused) => Err(AskError::Away(format!("{}: {}", self.url, refused.reason))),
            Err(_) => Err(AskError::Away(format!("{} answered {status}: {}", self.url, text()))),
        }
    }
}

fn cause_of(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}
