//! Owns the connecting side of shm: the handshake, the worker's memory, and its mapping.

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::net::UnixStream;
use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::arena_offer;
use super::arena_view::ShmArenaView;
use super::borrower_halves::{FromOwner, ShmBorrowerOutlet};
use super::pin_releases::PinReleases;
use crate::calls::{
    self, CallOptions, ConnectionTasks, HandshakeAgreement, HandshakeError, controls_max,
};
use crate::metrics::transport_metrics;
use crate::stream::{FrameIntake, FrameOutbox};
use crate::transport::{
    PeerAddress, PeerConnection, PeerTransport, TransportError, TransportKind, UnreachableCause,
    WayTerms,
};

/// A transport that connects to `ShmServer`s of this host.
pub struct ShmTransport {
    calls: CallOptions,
    tasks: TaskTracker,
}

/// Result of a handshake.
struct ShmHandshake {
    stream: UnixStream,
    agreed: HandshakeAgreement,
    view: ShmArenaView,
    releases: PinReleases,
}

impl ShmTransport {
    /// Makes a transport without connections. Its connections need a tokio runtime; `shutdown`
    /// waits for their tasks.
    pub fn new(calls: CallOptions) -> Self {
        Self { calls, tasks: TaskTracker::new() }
    }

    /// Waits until the tasks of every connection have ended. Drop the connections and their calls
    /// first. Pieces that are still held stay readable.
    pub async fn shutdown(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Connects to the worker that listens on `path`.
    pub async fn connect_to(
        &self,
        path: &Path,
        terms: &WayTerms,
    ) -> Result<Arc<dyn PeerConnection>, TransportError> {
        let address = path.display().to_string();
        let ShmHandshake { stream, agreed, view, releases } =
            self.run_handshake(path, terms, &address).await?;
        let (stream, view, releases) = (Arc::new(stream), Arc::new(view), Arc::new(releases));
        let calls = &self.calls;
        let outbox = FrameOutbox::new(
            stream.clone(),
            calls.settings.write_queue_max.as_usize(),
            controls_max(agreed.calls_in_flight_max),
        );
        let outlet = ShmBorrowerOutlet { outbox, releases: releases.clone() };
        let inlet =
            FromOwner { intake: FrameIntake::new(stream, agreed.frame_bytes_max), view, releases };
        // Joined by `shutdown`.
        Ok(calls::start_connection(
            outlet,
            inlet,
            &agreed,
            &address,
            calls,
            ConnectionTasks { runtime: &Runtime::current(), tasks: &self.tasks },
        ))
    }

    async fn run_handshake(
        &self,
        path: &Path,
        way_terms: &WayTerms,
        address: &str,
    ) -> Result<ShmHandshake, TransportError> {
        let unreachable = |cause| TransportError::Unreachable { peer: address.to_owned(), cause };
        let calls = &self.calls;
        let deadline = Instant::now() + calls.settings.connect_deadline.0;
        let mut stream = tokio::time::timeout_at(deadline, UnixStream::connect(path))
            .await
            .map_err(|_| {
                unreachable(UnreachableCause::Deadline(calls.settings.connect_deadline.0))
            })?
            .map_err(|error| unreachable(error.into()))?;
        let terms = calls.ticketed_terms(way_terms.ticket.as_ref());
        let shake = async {
            let agreed = calls::request_handshake(&mut stream, &terms).await?;
            let agreed = calls::check_name(agreed, way_terms.name.as_deref())?;
            let (view, releases) = map_offer(&stream).await?;
            Ok((agreed, view, releases))
        };
        let result =
            tokio::time::timeout_at(deadline, shake).await.unwrap_or(Err(HandshakeError::Deadline));
        match result {
            Ok((agreed, view, releases)) => Ok(ShmHandshake { stream, agreed, view, releases }),
            Err(error) => {
                transport_metrics().handshakes_failed[error.handshake_failure()].inc();
                Err(TransportError::Handshake { peer: address.to_owned(), cause: Arc::new(error) })
            }
        }
    }
}

#[async_trait]
impl PeerTransport for ShmTransport {
    fn transport_kind(&self) -> TransportKind {
        TransportKind::Shm
    }

    async fn connect(&self, peer: &PeerAddress) -> Result<Arc<dyn PeerConnection>, TransportError> {
        match &peer.ways.shm {
            Some(way) => self.connect_to(way.socket_path(), &peer.way_terms()).await,
            None => Err(TransportError::Unreachable {
                peer: peer.name.clone().unwrap_or_else(|| peer.tcp.to_string()),
                cause: UnreachableCause::NoSocket,
            }),
        }
    }
}

/// Takes and maps the worker's offer, after the worker has proved the secret.
async fn map_offer(stream: &UnixStream) -> Result<(ShmArenaView, PinReleases), HandshakeError> {
    let offer = arena_offer::receive_offer(stream).await.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => HandshakeError::Malformed(error.to_string()),
        _ => HandshakeError::Lost(error),
    })?;
    let view = ShmArenaView::map_arena(&offer.memory, offer.lifeline, offer.arena_bytes).map_err(
        |error| HandshakeError::Malformed(format!("the memory that it passed is refused: {error}")),
    )?;
    Ok((view, PinReleases::new(offer.quota)))
}
