//! The webhook process.

use std::sync::Arc;

use anyhow::Context;
use prometheus::Registry;
use verbs3_admin::ReadinessCheck;
use verbs3_certificates::{ListenerCertificates, TlsFiles};
use verbs3_config::RootSettings;
use verbs3_kubernetes::WebhookServer;
use verbs3_kubernetes::metrics::WebhookMetrics;

use super::admin_server::AdminServer;
use super::listen_endpoint::ListenEndpoint;
use crate::process::RunningProcess;

/// Serves until it is told to stop.
pub async fn run_webhook(config: RootSettings, started: RunningProcess) -> anyhow::Result<()> {
    let settings = config.webhook;
    let (certificate, key) = (settings.tls.certificate.clone(), settings.tls.key.clone());
    let files = TlsFiles {
        certificate: certificate.context("webhook.tls.certificate is missing")?,
        key: key.context("webhook.tls.key is missing")?,
    };
    let certificates = ListenerCertificates::read(&files, &["http/1.1"])?;
    let open = |address, setting| ListenEndpoint::over_any_device(address, setting).open_listener();
    let socket = open(settings.listen, "webhook.listen")?;
    let admin_socket = open(settings.admin_listen, "webhook.admin_listen")?;
    let addresses = (socket.local_addr()?, admin_socket.local_addr()?);
    let registry = Registry::new();
    let server = WebhookServer {
        settings,
        certificates: Arc::new(certificates),
        metrics: Arc::new(WebhookMetrics::new(&registry)?),
        stop: started.stop.clone(),
    };
    let readiness = vec![ReadinessCheck::until_shutdown(started.stop.clone())];
    let admin = AdminServer::start(admin_socket, registry, readiness, &config.process)?;
    started.signal_ready(addresses.0, Some(addresses.1))?;
    // Ends once every connection has: each has a deadline.
    server.serve_reviews(socket).await;
    admin.shutdown().await
}
