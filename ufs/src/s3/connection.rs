//! Owns connections to a store: how many, how long they may take, and TLS. Wraps the SDK's HTTP
//! client; knows no S3.
//!
//! The SDK's own read timeout counts the time of a request's body, so it would cut every long
//! upload. Here the clock runs only while the client waits for the store.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use s3s::StdError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::{CaFileDefect, ConnectError};
use crate::settings::{CredentialsKind, UfsDeadlinesSettings, UfsSettings};

/// Error: all places are taken. It differs from other timeouts because the remedy differs.
#[derive(Debug, thiserror::Error)]
#[error(
    "all {limit} connections are in use and none came free within {waited_ms} ms; raise \
    ufs.limits.connections_max or slow down"
)]
pub(super) struct NoPlace {
    limit: usize,
    waited_ms: u128,
}

/// The connections to a store. Both ways share them, and their bound.
pub(super) struct StoreConnections {
    /// For the SDK's requests to the store, and to the services that give out its credentials.
    pub(super) client: SharedHttpClient,
    /// For requests to the store that are made without the SDK.
    pub(super) connector: SharedHttpConnector,
}

/// Makes the connections to a store. Opens none yet.
pub(super) fn build_connections(
    settings: &UfsSettings,
    tls: bool,
) -> Result<StoreConnections, ConnectError> {
    let trust = match &settings.ca_file {
        Some(path) => TrustStore::empty().with_pem_certificate(read_certificates(path)?),
        // Credentials services are reached by TLS even where the store is not. With static or no
        // credentials and a store without TLS, the machine needs no certificates.
        None => TrustStore::default().with_native_roots(
            tls || !matches!(
                settings.credentials.kind,
                CredentialsKind::Static | CredentialsKind::Anonymous
            ),
        ),
    };
    let context = TlsContext::builder()
        .with_trust_store(trust)
        .build()
        .expect("a trust store is all it takes");
    let keep_alive = settings.deadlines.keep_alive.0;
    let places_max = settings.limits.connections_max.max(1) as usize;
    let connector = move |connector_settings: Option<&HttpConnectorSettings>| {
        let mut connector = Connector::builder()
            .enable_tcp_nodelay(true)
            .pool_idle_timeout(keep_alive)
            .pool_max_idle_per_host(places_max);
        if let Some(settings) = connector_settings {
            connector = connector.connector_settings(settings.clone());
        }
        connector
            .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
            .tls_context(context.clone())
            .build()
    };
    let places = Arc::new(Semaphore::new(places_max));
    let limits = Arc::new(ConnectionLimits { places, places_max, deadlines: settings.deadlines });
    let of_store =
        HttpConnectorSettings::builder().connect_timeout(settings.deadlines.connect.0).build();
    let to_store = SharedHttpConnector::new(LimitedConnector {
        inner: SharedHttpConnector::new(connector(Some(&of_store))),
        limits: limits.clone(),
    });
    let client = LimitedClient {
        to_store: to_store.clone(),
        elsewhere: Builder::new().build_with_connector_fn(move |settings, _| connector(settings)),
        limits,
    };
    Ok(StoreConnections { client: SharedHttpClient::new(client), connector: to_store })
}

/// Reads the file's text and checks it: the HTTP client would panic on a bad one.
fn read_certificates(path: &std::path::Path) -> Result<Vec<u8>, ConnectError> {
    let wrong = |defect| ConnectError::CaFile { path: path.to_owned(), defect };
    let text = std::fs::read(path).map_err(|error| wrong(error.into()))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut text.as_slice()) {
        let certificate = certificate.map_err(|error| wrong(error.into()))?;
        roots.add(certificate).map_err(|error| wrong(error.into()))?;
    }
    if roots.is_empty() {
        return Err(wrong(CaFileDefect::Empty));
    }
    Ok(text)
}

#[derive(Debug)]
struct ConnectionLimits {
    places: Arc<Semaphore>,
    places_max: usize,
    deadlines: UfsDeadlinesSettings,
}

#[derive(Debug)]
struct LimitedClient {
    to_store: SharedHttpConnector,
    /// For services whose clients have deadlines of their own.
    elsewhere: SharedHttpClient,
    limits: Arc<ConnectionLimits>,
}

#[derive(Debug)]
struct LimitedConnector {
    inner: SharedHttpConnector,
    limits: Arc<ConnectionLimits>,
}

impl HttpClient for LimitedClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let connect = Some(self.limits.deadlines.connect.0);
        if settings.connect_timeout() == connect && settings.read_timeout().is_none() {
            return self.to_store.clone();
        }
        let inner = self.elsewhere.http_connector(settings, components);
        SharedHttpConnector::new(LimitedConnector { inner, limits: self.limits.clone() })
    }
}

impl HttpConnector for LimitedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, limits) = (self.inner.clone(), self.limits.clone());
        HttpConnectorFuture::new(async move {
            let deadlines = limits.deadlines;
            let connect = deadlines.connect.0;
            let Ok(permit) = timeout(connect, limits.places.clone().acquire_owned()).await else {
                let error = NoPlace { limit: limits.places_max, waited_ms: connect.as_millis() };
                return Err(ConnectorError::timeout(error.into()));
            };
            let permit = permit.expect("the semaphore is never closed");
            let mut response = send_with_deadline(inner, request, deadlines).await?;
            let body = std::mem::replace(response.body_mut(), SdkBody::taken());
            let timer = Box::pin(sleep_until(Instant::now()));
            let body = S3AnswerBody {
                inner: body,
                idle: deadlines.idle_body.0,
                timer,
                armed: false,
                permit: Some(permit),
            };
            *response.body_mut() = SdkBody::from_body_1_x(body);
            Ok(response)
        })
    }
}

/// Sends a request and waits for the answer's headers.
async fn send_with_deadline(
    inner: SharedHttpConnector,
    mut request: HttpRequest,
    deadlines: UfsDeadlinesSettings,
) -> Result<HttpResponse, ConnectorError> {
    let progress =
        Arc::new(Mutex::new(S3RequestProgress { moved: Instant::now(), waits_for_client: false }));
    // A body in memory is taken at once, and stays one. It may be sent again on a fresh connection
    // if its own was stale.
    if request.body().bytes().is_none() {
        let body = std::mem::replace(request.body_mut(), SdkBody::taken());
        *request.body_mut() =
            SdkBody::from_body_1_x(WatchedBody { inner: body, progress: progress.clone() });
    }
    // The connection has its own deadline, in the connector's settings.
    let answer_max = deadlines.connect.0 + deadlines.answer.0;
    let call = inner.call(request);
    tokio::pin!(call);
    loop {
        let deadline = progress.lock().answer_deadline(answer_max);
        tokio::select! {
            response = &mut call => return response,
            () = sleep_until(deadline) => {
                if progress.lock().answer_deadline(answer_max) <= Instant::now() {
                    let text = format!("no answer within {} ms", answer_max.as_millis());
                    let late = io::Error::new(io::ErrorKind::TimedOut, text);
                    return Err(ConnectorError::timeout(late.into()));
                }
            }
        }
    }
}

/// Progress of a request: when it last moved, and which side must act.
struct S3RequestProgress {
    moved: Instant,
    waits_for_client: bool,
}

impl S3RequestProgress {
    /// Returns when the store is late. It is never late while the client's bytes are awaited.
    fn answer_deadline(&self, answer_max: Duration) -> Instant {
        let since = if self.waits_for_client { Instant::now() } else { self.moved };
        since + answer_max
    }
}

/// A request's body that records when its bytes are taken.
struct WatchedBody {
    inner: SdkBody,
    progress: Arc<Mutex<S3RequestProgress>>,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        *self.progress.lock() =
            S3RequestProgress { moved: Instant::now(), waits_for_client: frame.is_pending() };
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        Body::size_hint(&self.inner)
    }
}

/// An answer's body. It bounds its own silence, and keeps its place until it has ended.
struct S3AnswerBody {
    inner: SdkBody,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    armed: bool,
    permit: Option<OwnedSemaphorePermit>,
}

impl Body for S3AnswerBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.armed = false;
                if !matches!(frame, Some(Ok(_))) {
                    this.permit = None;
                }
                Poll::Ready(frame)
            }
            Poll::Pending => {
                if !this.armed {
                    this.timer.as_mut().reset(Instant::now() + this.idle);
                    this.armed = true;
                }
                ready!(this.timer.as_mut().poll(cx));
                this.permit = None;
                let text = format!("the store sent nothing for {} ms", this.idle.as_millis());
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, text).into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        Body::size_hint(&self.inner)
    }
}
