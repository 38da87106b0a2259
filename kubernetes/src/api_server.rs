//! Asks the API server: by its URL, its CA and a token, each as a setting says. Knows the few
//! questions that the controller has. Every one has a deadline, every answer a bound.
//!
//! Token and CA are read for each question: they are small, and change under a running process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::controller::ControllerSettings;

/// Longest answer, in bytes: a page of the largest resources.
const ANSWER_BYTES_MAX: usize = 64 << 20;

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The API server; see the module.
pub struct ApiServer {
    url: String,
    ca_file: PathBuf,
    token_file: PathBuf,
    /// For each question.
    deadline: Duration,
    /// The client by the CA that was read last, and this CA.
    client: Mutex<Option<TrustedClient>>,
}

struct TrustedClient {
    ca: Vec<u8>,
    client: HttpsClient,
}

/// Why the API server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ApiServerError {
    #[error("{} can't be read", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} holds no CA that can be used", .path.display())]
    Ca { path: PathBuf },
    #[error("the API server does not answer: {message}")]
    Away { message: String },
    /// By its status, and its own words.
    #[error("the API server refuses ({status}): {message}")]
    Refused { status: u16, message: String },
}

impl ApiServerError {
    /// Returns whether it was refused with this status.
    pub fn is_status(&self, code: u16) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == code)
    }
}

impl ApiServer {
    /// Takes address, files and deadline from the settings. Asks nobody yet.
    pub fn new(settings: &ControllerSettings) -> Self {
        Self {
            url: settings.api_server.trim_end_matches('/').to_owned(),
            ca_file: settings.api_ca_file.clone(),
            token_file: settings.api_token_file.clone(),
            deadline: settings.deadline.0,
            client: Mutex::new(None),
        }
    }

    /// Gets what is at a path.
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ApiServerError> {
        self.ask(Method::GET, path, "application/json", Bytes::new()).await
    }

    /// Creates a document.
    pub async fn create_document(
        &self,
        path: &str,
        document: &Value,
    ) -> Result<(), ApiServerError> {
        let body = document.to_string().into();
        self.ask::<Value>(Method::POST, path, "application/json", body).await.map(drop)
    }

    /// Changes what is at a path, by a JSON Merge Patch (RFC 7396).
    pub async fn merge_document(&self, path: &str, change: &Value) -> Result<(), ApiServerError> {
        let body = change.to_string().into();
        self.ask::<Value>(Method::PATCH, path, "application/merge-patch+json", body).await.map(drop)
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<A, ApiServerError> {
        let away = |message: String| ApiServerError::Away { message };
        let token = read_file(&self.token_file)?;
        let token = String::from_utf8_lossy(&token);
        let url = format!("{}{path}", self.url);
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(CONTENT_TYPE, kind)
            .body(Full::new(body))
            .map_err(|error| away(error.to_string()))?;
        let client = self.trusted_client()?;
        let asked = async {
            let answer = client.request(request).await.map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                away(cause.unwrap_or_else(|| error.to_string()))
            })?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|error| away(error.to_string()))?.to_bytes()))
        };
        let (status, body): (StatusCode, Bytes) = tokio::time::timeout(self.deadline, asked)
            .await
            .map_err(|_| away("no answer within controller.deadline".to_owned()))??;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| away(error.to_string()));
        }
        let said = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let message = said["message"].as_str().unwrap_or_default().chars().take(500).collect();
        Err(ApiServerError::Refused { status: status.as_u16(), message })
    }

    /// The client by the CA as it is now. Connections of a CA that was replaced end by themselves.
    fn trusted_client(&self) -> Result<HttpsClient, ApiServerError> {
        let path = &self.ca_file;
        let ca = read_file(path)?;
        let mut known = self.client.lock();
        if let Some(known) = known.as_ref().filter(|known| known.ca == ca) {
            return Ok(known.client.clone());
        }
        let unusable = || ApiServerError::Ca { path: path.clone() };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&ca) {
            roots.add(certificate.map_err(|_| unusable())?).map_err(|_| unusable())?;
        }
        if roots.is_empty() {
            return Err(unusable());
        }
        // The provider is named: a process-wide default may be missing, or another crate's choice.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| unusable())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Over https alone: a token goes over it.
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        *known = Some(TrustedClient { ca, client: HttpsClient::clone(&client) });
        Ok(client)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ApiServerError> {
    std::fs::read(path).map_err(|source| ApiServerError::Read { path: path.to_owned(), source })
}
