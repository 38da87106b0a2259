//! A receiver of OTLP that keeps the spans that it is told, each with the process that told it.
//! Judges nothing.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A span, and the `service.instance.id` of its process.
#[derive(Debug, Clone)]
pub struct Told {
    pub process: String,
    pub span: Span,
}

/// A running receiver. Ends when it is dropped.
pub struct Receiver {
    pub address: SocketAddr,
    told: Arc<Mutex<Vec<Told>>>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, told) = (listener.local_addr()?, Arc::<Mutex<Vec<Told>>>::default());
        let task = tokio::spawn(serve(listener, told.clone()));
        Ok(Self { address, told, task })
    }

    /// Settings of a process that tells all its spans here, soon.
    pub fn settings(&self) -> String {
        format!(
            "[telemetry.otlp]\nendpoint = \"http://{}\"\nsample_ratio = 0.0\ninterval = \"100ms\"",
            self.address
        )
    }

    pub fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, told: Arc<Mutex<Vec<Told>>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let told = told.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| take(request, told.clone()));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// An error closes the connection, and the process is told that its spans did not arrive.
async fn take(
    request: Request<Incoming>,
    told: Arc<Mutex<Vec<Told>>>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let message =
        ExportTraceServiceRequest::decode(request.into_body().collect().await?.to_bytes())?;
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in message.resource_spans {
        let named = resource.resource.iter().flat_map(|resource| &resource.attributes);
        let named = named.filter(|attribute| attribute.key == "service.instance.id");
        let process = named
            .filter_map(|attribute| attribute.value.as_ref()?.value.as_ref())
            .find_map(|value| match value {
                Value::StringValue(text) => Some(text.clone()),
                _ => None,
            });
        let process = process.unwrap_or_default();
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        told.extend(spans.map(|span| Told { process: process.clone(), span }));
    }
    Ok(Response::new(Full::default()))
}
