//! Stores on 127.0.0.1 for the S3 client: an s3s server over any store, and a raw server that sends
//! given answers and records what it hears.
#![allow(clippy::unwrap_used, dead_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::S3;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use verbs3_settings::{ConfigSecret, TimePeriod};
use verbs3_ufs::s3::connect_store;
use verbs3_ufs::{CredentialsKind, UfsSettings};

pub const KEY: &str = "AKIDTEST";
pub const SECRET: &str = "not-much-of-a-secret";

pub fn settings(address: SocketAddr) -> UfsSettings {
    let mut settings =
        UfsSettings { endpoint: Some(format!("http://{address}")), ..UfsSettings::default() };
    settings.credentials.kind = CredentialsKind::Static;
    settings.credentials.access_key_id = Some(KEY.into());
    settings.credentials.secret_access_key = Some(ConfigSecret::new(SECRET));
    settings.deadlines.connect = TimePeriod::from_seconds(2);
    settings.deadlines.answer = TimePeriod::from_seconds(5);
    settings.deadlines.idle_body = TimePeriod::from_seconds(5);
    settings
}

/// An s3s server over a store, which checks signatures, and counts PUT and POST requests.
pub struct Server {
    pub address: SocketAddr,
    pub writes: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn over(store: impl S3) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut builder = S3ServiceBuilder::new(store);
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build();
        let writes = Arc::new(AtomicUsize::new(0));
        let counter = writes.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (service, counter) = (service.clone(), counter.clone());
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    if matches!(*request.method(), hyper::Method::PUT | hyper::Method::POST) {
                        counter.fetch_add(1, Ordering::SeqCst);
                    }
                    let service = service.clone();
                    async move { hyper::service::Service::call(&service, request).await }
                });
                tokio::spawn(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A connection that is cut is part of the tests.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, writes, task }
    }

    pub async fn client(&self) -> Arc<dyn S3> {
        connect_store(&settings(self.address)).await.unwrap()
    }
}

/// One request that the raw server heard.
#[derive(Debug)]
pub struct Heard {
    pub head: String,
    pub body: Vec<u8>,
    /// The client closed or cut the connection before the body was complete.
    pub cut: bool,
}

/// A raw server. It answers each request with the next given answer; for an empty one it waits
/// until the client hangs up.
pub struct Raw {
    pub address: SocketAddr,
    pub heard: mpsc::UnboundedReceiver<Heard>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Raw {
    pub async fn saying(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, heard) = mpsc::unbounded_channel();
        let answers = Arc::new(tokio::sync::Mutex::new(answers.into_iter()));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(talk(stream, answers.clone(), tell.clone()));
            }
        });
        Self { address, heard, task }
    }

    pub async fn client(&self) -> Arc<dyn S3> {
        connect_store(&settings(self.address)).await.unwrap()
    }
}

async fn talk(
    mut stream: TcpStream,
    answers: Arc<tokio::sync::Mutex<std::vec::IntoIter<String>>>,
    tell: mpsc::UnboundedSender<Heard>,
) {
    let mut buffer = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(buffer.drain(..head_end).collect()).unwrap();
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")
                    .map(|n| n.trim().parse().unwrap())
            })
            .unwrap_or(0);
        let mut cut = false;
        while buffer.len() < length {
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                cut = true;
                break;
            }
        }
        let body = buffer.drain(..length.min(buffer.len())).collect();
        let _ = tell.send(Heard { head, body, cut });
        let Some(answer) = answers.lock().await.next() else { return };
        if cut {
            return;
        }
        if answer.is_empty() {
            while stream.read_buf(&mut buffer).await.unwrap_or(0) > 0 {}
            return;
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        if answer.to_ascii_lowercase().contains("connection: close") {
            return;
        }
    }
}
