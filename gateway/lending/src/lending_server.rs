//! Accepts clients and bounds them: strangers have a deadline that nothing renews, and give way
//! when places are needed (`verbs3_doors`). Owns the tasks.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use verbs3_doors::{RoomLimits, WaitingGuest, WaitingRoom};
use verbs3_metrics::GaugeGuard;

use crate::lending_handshake::{
    HandshakeEnd, LendingClient, prove_client, receive_claim, take_memory,
};
use crate::lending_host::LendingHost;
use crate::lending_metrics::{LendingCut, LendingMetrics};
use crate::lending_session::serve_client;
use crate::lending_socket::LendingListener;
use crate::lending_stop::LendingStop;

/// Pause after an error of `accept` (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A stranger does not give way for this long after it came.
const STRANGER_GRACE: Duration = Duration::from_secs(1);

/// Bounds on clients. Those on how many there are, and on all their memory, are the host's.
#[derive(Debug, Clone, Copy)]
pub struct LendingLimits {
    /// Connections over which no signature has held, half of them of one user.
    pub strangers_max: usize,
    /// From a connection's beginning until its memory is there.
    pub handshake_max: Duration,
    /// Most bytes that one client may lend.
    pub memory_bytes_max: u64,
    /// Most reads of one client under way.
    pub reads_in_flight_max: u32,
}

/// Serves clients that lend memory.
pub struct LendingServer<H> {
    host: Arc<H>,
    limits: LendingLimits,
    metrics: LendingMetrics,
    strangers: Arc<WaitingRoom>,
    stop: LendingStop,
    tasks: TaskTracker,
}

impl<H: LendingHost> LendingServer<H> {
    /// Makes a server. `tasks` gets a task for the socket and one for each client; `stop` ends them.
    pub fn new(
        host: Arc<H>,
        limits: LendingLimits,
        metrics: LendingMetrics,
        stop: LendingStop,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        let strangers = WaitingRoom::new(RoomLimits {
            places_max: limits.strangers_max,
            per_address_max: limits.strangers_max.div_ceil(2),
            grace: STRANGER_GRACE,
        });
        Arc::new(Self { host, limits, metrics, strangers, stop, tasks })
    }

    /// Accepts clients until the stop.
    pub fn serve_socket(self: Arc<Self>, mut listener: LendingListener) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let stop = self.stop.stop.clone();
            while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
                match accepted {
                    Ok(stream) => self.clone().admit_stream(stream),
                    Err(error) => {
                        warn!(%error, "a client that would lend memory could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }

    fn admit_stream(self: Arc<Self>, stream: UnixStream) {
        let Ok(peer) = stream.peer_cred() else { return };
        // A local peer has no address. Its user stands for one: users don't displace each other.
        let user = IpAddr::V4(Ipv4Addr::from(peer.uid()));
        let Some(stranger) = self.strangers.admit_guest(user) else {
            self.metrics.cut[LendingCut::Crowded].inc();
            return;
        };
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            self.serve_stream(stream, stranger).await;
        });
    }

    async fn serve_stream(&self, mut stream: UnixStream, stranger: WaitingGuest) {
        let (uid, pid) =
            stream.peer_cred().map_or((None, None), |peer| (Some(peer.uid()), peer.pid()));
        let Some(client) = self.shake_hands(&mut stream, stranger).await else { return };
        let bytes = client.memory.mapping.mapped_bytes();
        info!(uid, pid, bytes, "a process lends memory");
        let reads_max = self.limits.reads_in_flight_max;
        let metrics = self.metrics.clone();
        let served = serve_client(client, stream, reads_max, metrics, &self.stop);
        let _ = self.stop.cut.run_until_cancelled(served).await;
        info!(uid, pid, bytes, "a process has taken its memory back");
    }

    async fn shake_hands(
        &self,
        stream: &mut UnixStream,
        stranger: WaitingGuest,
    ) -> Option<LendingClient<H::Guest>> {
        let bytes_max = self.limits.memory_bytes_max;
        let handshake = async {
            let shown = GaugeGuard::add_to(&self.metrics.strangers, 1);
            let received = tokio::select! {
                received = receive_claim(stream, bytes_max) => received?,
                () = stranger.wait_for_displacement() => return Ok(None),
            };
            let guest = prove_client(stream, &*self.host, stranger, received).await?;
            drop(shown);
            take_memory(stream, guest, bytes_max).await.map(Some)
        };
        let shaken = tokio::select! {
            shaken = timeout(self.limits.handshake_max, handshake) => shaken,
            () = self.stop.stop.cancelled() => return None,
        };
        match shaken {
            Ok(Ok(Some(client))) => return Some(client),
            Ok(Ok(None)) => self.metrics.cut[LendingCut::Displaced].inc(),
            Ok(Err(HandshakeEnd::Refused(refusal))) => {
                self.metrics.refused[refusal.into()].inc();
                debug!(%refusal, "a client that would lend memory is refused");
            }
            Ok(Err(HandshakeEnd::Gone(error))) => debug!(%error, "a client hung up"),
            Err(_) => self.metrics.cut[LendingCut::Late].inc(),
        }
        None
    }
}
