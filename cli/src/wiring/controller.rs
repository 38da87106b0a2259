//! The controller process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode};
use prometheus::Registry;
use serde::de::DeserializeOwned;
use verbs3_admin::ReadinessCheck;
use verbs3_config::RootSettings;
use verbs3_coordinator_client::AskError;
use verbs3_coordinator_client::api::{CoordinatorRefusal, CoordinatorRefusalKind};
use verbs3_kubernetes::metrics::ControllerMetrics;
use verbs3_kubernetes::{PreloadController, PreloadGateway, PreloadGatewayError, PreloadKey};
use verbs3_preload::api::{JobView, PreloadJobSpec};

use super::admin_server::AdminServer;
use super::listen_endpoint::ListenEndpoint;
use crate::command::preload::jobs_client::EndpointClient;
use crate::process::RunningProcess;
use crate::signed_request::RequestSigner;

const PATH: &str = "/v1/preload";

/// Follows resources until it is told to stop.
pub async fn run_controller(config: RootSettings, started: RunningProcess) -> anyhow::Result<()> {
    let settings = config.controller;
    let endpoint = settings.endpoint.as_deref().context("controller.endpoint is missing")?;
    let gateway = SignedGateway::new(endpoint, settings.region.clone())?;
    let admin_socket =
        ListenEndpoint::over_any_device(settings.admin_listen, "controller.admin_listen")
            .open_listener()?;
    let admin_address = admin_socket.local_addr()?;
    let registry = Registry::new();
    let metrics = Arc::new(ControllerMetrics::new(&registry)?);
    let controller = PreloadController::new(settings, Arc::new(gateway), metrics);
    let listed = controller.clone();
    let readiness = vec![
        ReadinessCheck::until_shutdown(started.stop.clone()),
        ReadinessCheck::new("resources", move || match listed.is_ready() {
            true => Ok(()),
            false => Err("can't be listed".to_owned()),
        }),
    ];
    let admin = AdminServer::start(admin_socket, registry, readiness, &config.process)?;
    started.signal_ready(admin_address, Some(admin_address))?;
    controller.follow_resources(started.stop.clone()).await;
    admin.shutdown().await
}

/// The endpoint of the configuration, asked with the key of each resource.
struct SignedGateway {
    endpoint: EndpointClient,
    region: String,
}

impl SignedGateway {
    fn new(endpoint: &str, region: String) -> anyhow::Result<Self> {
        // Replaced by the key of each question.
        let nobody = RequestSigner::new("", "", &region);
        let endpoint = EndpointClient::new(endpoint, nobody).context("controller.endpoint")?;
        Ok(Self { endpoint, region })
    }

    async fn ask_endpoint<A: DeserializeOwned>(
        &self,
        key: &PreloadKey,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<A, PreloadGatewayError> {
        let PreloadKey { access_key, secret_key } = key;
        let signer = RequestSigner::new(access_key, secret_key, &self.region);
        let endpoint = self.endpoint.with_signer(signer);
        let (status, body) = endpoint
            .ask_status(method, path, body, Duration::ZERO)
            .await
            .map_err(|error| match error {
                AskError::Away(message) => PreloadGatewayError::Away { message },
                other => PreloadGatewayError::Away { message: other.to_string() },
            })?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|_| PreloadGatewayError::Away {
                message: "it gave an answer that is no job: is it a gateway of verbs3?".to_owned(),
            });
        }
        Err(gateway_error(status, &body))
    }
}

/// What an answer that is no job means.
fn gateway_error(status: StatusCode, body: &[u8]) -> PreloadGatewayError {
    if let Ok(CoordinatorRefusal { kind, reason: message, .. }) = serde_json::from_slice(body) {
        return match kind {
            CoordinatorRefusalKind::Denied | CoordinatorRefusalKind::Forbidden => {
                PreloadGatewayError::Denied { message }
            }
            CoordinatorRefusalKind::Unknown => PreloadGatewayError::Unknown,
            CoordinatorRefusalKind::Taken => PreloadGatewayError::Taken { message },
            CoordinatorRefusalKind::Unavailable | CoordinatorRefusalKind::OtherMounts => {
                PreloadGatewayError::Unavailable { message }
            }
            CoordinatorRefusalKind::OwnerFull => PreloadGatewayError::OwnerFull { message },
            CoordinatorRefusalKind::Malformed if status == StatusCode::BAD_REQUEST => {
                PreloadGatewayError::Malformed { message }
            }
            _ => PreloadGatewayError::Away { message },
        };
    }
    // S3's own refusals are XML.
    let text = String::from_utf8_lossy(body);
    let part = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.chars().take(200).collect::<String>())
    };
    let said: Vec<String> = ["Code", "Message"].iter().filter_map(|name| part(name)).collect();
    let message = match said.is_empty() {
        true => status.to_string(),
        false => format!("{status}: {}", said.join(": ")),
    };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            PreloadGatewayError::KeyRefused { message }
        }
        _ => PreloadGatewayError::Away { message },
    }
}

#[async_trait]
impl PreloadGateway for SignedGateway {
    async fn begin_job(
        &self,
        key: &PreloadKey,
        spec: &PreloadJobSpec,
    ) -> Result<JobView, PreloadGatewayError> {
        let body = serde_json::to_vec(spec).unwrap_or_default().into();
        self.ask_endpoint(key, Method::POST, PATH, body).await
    }

    async fn look_at_job(
        &self,
        key: &PreloadKey,
        id: &str,
    ) -> Result<JobView, PreloadGatewayError> {
        self.ask_endpoint(key, Method::GET, &format!("{PATH}/{id}"), Bytes::new()).await
    }

    async fn stop_job(&self, key: &PreloadKey, id: &str) -> Result<(), PreloadGatewayError> {
        let path = format!("{PATH}/{id}");
        self.ask_endpoint::<serde_json::Value>(key, Method::DELETE, &path, Bytes::new())
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_s3_and_of_coordinators_are_told_apart() {
        let error = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            gateway_error(status, body.as_bytes())
        };
        let xml = "<Error><Code>InvalidAccessKeyId</Code><Message>not here</Message></Error>";
        let message = "403 Forbidden: InvalidAccessKeyId: not here".to_owned();
        assert_eq!(error(403, xml), PreloadGatewayError::KeyRefused { message });
        let json = |kind: &str| format!(r#"{{"kind":"{kind}","reason":"r"}}"#);
        let message = || "r".to_owned();
        for (status, kind, expected) in [
            (403, "denied", PreloadGatewayError::Denied { message: message() }),
            (404, "unknown", PreloadGatewayError::Unknown),
            (429, "owner_full", PreloadGatewayError::OwnerFull { message: message() }),
            (400, "malformed", PreloadGatewayError::Malformed { message: message() }),
            (409, "taken", PreloadGatewayError::Taken { message: message() }),
            (503, "unavailable", PreloadGatewayError::Unavailable { message: message() }),
            (409, "other_mounts", PreloadGatewayError::Unavailable { message: message() }),
            (404, "malformed", PreloadGatewayError::Away { message: message() }),
        ] {
            assert_eq!(error(status, &json(kind)), expected, "{kind}");
        }
        assert!(matches!(error(502, "bad"), PreloadGatewayError::Away { .. }));
    }
}
