//! Owns two facts about a connection's caller: whether a signature has ever held over it, and since
//! when it carries no request. Cuts nothing: `server` does.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Version;
use prometheus::IntGauge;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use verbs3_doors::{WaitingGuest, address_group};

use crate::metrics::ConnectionCut;

/// The caller of one connection.
pub(crate) struct ConnectionCaller {
    address: IpAddr,
    guest: WaitingGuest,
    proven: AtomicBool,
    let_in: CancellationToken,
    unproven: IntGauge,
    began: Instant,
    /// Requests under way.
    active: AtomicUsize,
    /// When the last request ended, in milliseconds since the beginning.
    rested_ms: AtomicU64,
    /// True for HTTP/2, where hyper bounds no silence.
    multiplexed: AtomicBool,
}

impl ConnectionCaller {
    /// Makes a caller without a proof. It counts in `unproven` until a signature holds or the
    /// connection ends.
    pub fn new(address: IpAddr, guest: WaitingGuest, unproven: IntGauge) -> Arc<Self> {
        unproven.inc();
        Arc::new(Self {
            address: address_group(address),
            guest,
            proven: AtomicBool::new(false),
            let_in: CancellationToken::new(),
            unproven,
            began: Instant::now(),
            active: AtomicUsize::new(0),
            rested_ms: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
        })
    }

    /// Returns the address, or the network that counts as one.
    pub fn counted_address(&self) -> IpAddr {
        self.address
    }

    /// Notes that a signature holds.
    pub fn mark_proven(&self) {
        if !self.proven.swap(true, Ordering::Relaxed) {
            self.guest.let_in();
            self.let_in.cancel();
            self.unproven.dec();
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

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Counts one more request, until the returned visit is dropped. `version` tells whether the
    /// connection is HTTP/2.
    pub fn begin_request(self: &Arc<Self>, version: Version) -> CallerVisit {
        self.multiplexed.store(version >= Version::HTTP_2, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        CallerVisit(self.clone())
    }

    /// Returns whether any request of this connection is under way.
    pub fn is_busy(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Returns once an HTTP/2 connection has carried no request for `idle_max`. Pings and
    /// unfinished heads don't count as requests.
    pub async fn wait_for_idle(&self, idle_max: Duration) {
        let idle_max_ms = u64::try_from(idle_max.as_millis()).unwrap_or(u64::MAX);
        let mut wait = idle_max;
        loop {
            sleep(wait).await;
            wait = idle_max;
            if self.is_busy() || !self.multiplexed.load(Ordering::Relaxed) {
                continue;
            }
            let since_ms = self.now_ms().saturating_sub(self.rested_ms.load(Ordering::Relaxed));
            if since_ms >= idle_max_ms {
                return;
            }
            // At least 1 ms: the clock is finer than the stored milliseconds.
            wait = Duration::from_millis((idle_max_ms - since_ms).max(1));
        }
    }
}

impl Drop for ConnectionCaller {
    fn drop(&mut self) {
        if !self.proven.load(Ordering::Relaxed) {
            self.unproven.dec();
        }
    }
}

/// One request of a caller, until its answer's last byte.
pub(crate) struct CallerVisit(Arc<ConnectionCaller>);

impl Drop for CallerVisit {
    fn drop(&mut self) {
        self.0.rested_ms.store(self.0.now_ms(), Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
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
        ConnectionCaller::new(address, room.admit_guest(address).unwrap(), gauge)
    }

    #[tokio::test(start_paused = true)]
    async fn who_proves_nothing_stays_for_a_bounded_time() {
        let room = WaitingRoom::new(LIMITS);
        let stranger = caller(&room);
        assert_eq!(stranger.wait_for_overstay(MINUTE).await, ConnectionCut::Unproven);
        let known = caller(&room);
        known.mark_proven();
        known.mark_proven();
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
