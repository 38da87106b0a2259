//! Owns two facts about a connection's caller: whether a signature has ever held over it, and since
//! when it carries no request. Cuts nothing: `server` does.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Version;
use prometheus::IntGauge;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use verbs3_doors::{WaitingGuest, address_group};

use super::known_connections::{ConnectionActivity, KnownConnections};
use crate::metrics::ConnectionCut;

/// The caller of one connection.
pub(crate) struct ConnectionCaller {
    address: IpAddr,
    guest: WaitingGuest,
    proven: AtomicBool,
    let_in: CancellationToken,
    unproven: IntGauge,
    activity: Arc<ConnectionActivity>,
    /// True for HTTP/2, where hyper bounds no silence.
    multiplexed: AtomicBool,
    known: Arc<KnownConnections>,
    /// Its number there, once it is known.
    known_number: OnceLock<u64>,
}

impl ConnectionCaller {
    /// Makes a caller without a proof. It counts in `unproven` until a signature holds or the
    /// connection ends.
    pub fn new(
        address: IpAddr,
        guest: WaitingGuest,
        unproven: IntGauge,
        known: Arc<KnownConnections>,
    ) -> Arc<Self> {
        unproven.inc();
        Arc::new(Self {
            address: address_group(address),
            guest,
            proven: AtomicBool::new(false),
            let_in: CancellationToken::new(),
            unproven,
            activity: Arc::new(ConnectionActivity::default()),
            multiplexed: AtomicBool::new(false),
            known,
            known_number: OnceLock::new(),
        })
    }

    /// Returns the address, or the network that counts as one.
    pub fn counted_address(&self) -> IpAddr {
        self.address
    }

    /// Notes that a signature of this tenant holds. From then on the connection counts as the
    /// tenant's.
    pub fn mark_proven(&self, tenant: u32) {
        if !self.proven.swap(true, Ordering::Relaxed) {
            self.guest.let_in();
            self.let_in.cancel();
            self.unproven.dec();
            let _ = self.known_number.set(self.known.add_connection(tenant, self.activity.clone()));
        }
    }

    /// Returns whether a signature has held over the connection.
    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Returns when a connection without a request has to end, and why.
    pub async fn wait_for_dismissal(&self, idle_max: Duration) -> ConnectionCut {
        tokio::select! {
            () = self.wait_for_idle(idle_max) => ConnectionCut::Idle,
            () = self.activity.wait_for_displacement() => ConnectionCut::Displaced,
        }
    }

    /// Returns when an unknown caller has been here for too long. Never returns for a known one.
    pub async fn wait_for_overstay(&self, proof_max: Duration) -> ConnectionCut {
        tokio::select! {
            () = self.let_in.cancelled() => std::future::pending().await,
            () = self.guest.wait_for_displacement() => ConnectionCut::Displaced,
            () = sleep(proof_max) => ConnectionCut::Unproven,
        }
    }

    /// Counts one more request, until the returned visit is dropped. `version` tells whether the
    /// connection is HTTP/2.
    pub fn begin_request(self: &Arc<Self>, version: Version) -> CallerVisit {
        self.multiplexed.store(version >= Version::HTTP_2, Ordering::Relaxed);
        self.activity.begin_request();
        CallerVisit(self.clone())
    }

    /// Returns whether any request of this connection is under way.
    pub fn is_busy(&self) -> bool {
        self.activity.idle_time().is_none()
    }

    /// Returns once an HTTP/2 connection has carried no request for `idle_max`. Pings and
    /// unfinished heads don't count as requests.
    pub async fn wait_for_idle(&self, idle_max: Duration) {
        let mut wait = idle_max;
        loop {
            sleep(wait).await;
            wait = idle_max;
            let Some(idle) = self.activity.idle_time() else { continue };
            if !self.multiplexed.load(Ordering::Relaxed) {
                continue;
            }
            if idle >= idle_max {
                return;
            }
            // At least 1 ms: the clock is finer than the stored milliseconds.
            wait = (idle_max - idle).max(Duration::from_millis(1));
        }
    }
}

impl Drop for ConnectionCaller {
    fn drop(&mut self) {
        if !self.is_proven() {
            self.unproven.dec();
        }
        if let Some(number) = self.known_number.get() {
            self.known.remove_connection(*number);
        }
    }
}

/// One request of a caller, until its answer's last byte.
pub(crate) struct CallerVisit(Arc<ConnectionCaller>);

impl Drop for CallerVisit {
    fn drop(&mut self) {
        self.0.activity.end_request();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use tokio::time::timeout;
    use verbs3_doors::{RoomLimits, WaitingRoom};

    use super::*;

    const LIMITS: RoomLimits =
        RoomLimits { places_max: 1, per_address_max: 1, grace: Duration::ZERO };
    const MINUTE: Duration = Duration::from_secs(60);

    fn caller(room: &Arc<WaitingRoom>) -> Arc<ConnectionCaller> {
        let address = Ipv4Addr::LOCALHOST.into();
        let gauge = IntGauge::new("unproven", "unproven").unwrap();
        let known = Arc::new(KnownConnections::for_connections(usize::MAX));
        ConnectionCaller::new(address, room.admit_guest(address).unwrap(), gauge, known)
    }

    #[tokio::test(start_paused = true)]
    async fn who_proves_nothing_stays_for_a_bounded_time() {
        let room = WaitingRoom::new(LIMITS);
        let stranger = caller(&room);
        assert_eq!(stranger.wait_for_overstay(MINUTE).await, ConnectionCut::Unproven);
        let known = caller(&room);
        known.mark_proven(1);
        known.mark_proven(1);
        assert!(timeout(10 * MINUTE, known.wait_for_overstay(MINUTE)).await.is_err());
        assert_eq!((known.unproven.get(), room.guests_count()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_multiplexed_connection_without_requests_is_idle() {
        let caller = caller(&WaitingRoom::new(LIMITS));
        let idles =
            async |minutes| timeout(minutes * MINUTE, caller.wait_for_idle(MINUTE)).await.is_ok();
        drop(caller.begin_request(Version::HTTP_11));
        assert!(!idles(10).await, "hyper bounds the silence of HTTP/1");
        let visit = caller.begin_request(Version::HTTP_2);
        assert!(!idles(10).await);
        drop(visit);
        assert!(idles(3).await);
    }
}
