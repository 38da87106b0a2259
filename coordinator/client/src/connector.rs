//! Connections to coordinators: plain, or over TLS with this process's certificate. The scheme of a
//! coordinator's URL says which, unless plain ones are forbidden.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;
use verbs3_certificates::NodeCertificates;

/// Certificates for connections to coordinators.
#[derive(Debug, Clone)]
pub struct CoordinatorTls {
    pub certificates: Arc<NodeCertificates>,
    /// Whether a coordinator may be asked over a plain connection.
    pub plain_allowed: bool,
}

/// Error of a question to a URL that is not `https`.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("cluster.tls.mode is \"require\", and the URL does not begin with https://")]
pub struct PlainForbidden;

/// Connects by what the certificates are at that moment.
#[derive(Clone)]
pub(crate) struct CoordinatorConnector {
    http: HttpConnector,
    tls: Option<CoordinatorTls>,
}

type ConnectorError = Box<dyn std::error::Error + Send + Sync>;
type ConnectFuture = Pin<
    Box<dyn Future<Output = Result<MaybeHttpsStream<TokioIo<TcpStream>>, ConnectorError>> + Send>,
>;

impl CoordinatorConnector {
    pub(crate) fn new(connect_deadline: Duration, tls: Option<CoordinatorTls>) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(connect_deadline));
        http.set_nodelay(true);
        http.enforce_http(tls.is_none());
        Self { http, tls }
    }
}

impl Service<Uri> for CoordinatorConnector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectorError;
    type Future = ConnectFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectorError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> ConnectFuture {
        let Some(CoordinatorTls { certificates, plain_allowed }) = &self.tls else {
            let connecting = self.http.call(uri);
            return Box::pin(async { Ok(MaybeHttpsStream::Http(connecting.await?)) });
        };
        if !plain_allowed && uri.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Box::pin(async { Err(PlainForbidden.into()) });
        }
        let config = certificates.coordinator_config();
        HttpsConnector::from((self.http.clone(), config)).call(uri)
    }
}
