//! Owns the list of connections over which a signature has held. Where all places are taken, one
//! that carries no request gives way: of the tenant with most connections, the one idle longest. So
//! nobody keeps others out by connections that are only held. Knows no socket.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A connection that has been idle for less does not give way: its client is about to use it.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// Least time between two searches that may find nothing. Each looks at every connection.
const SEARCH_PAUSE: Duration = Duration::from_millis(10);

/// Connections of known callers; see the module.
#[derive(Default)]
pub(crate) struct KnownConnections(Mutex<KnownSeats>);

#[derive(Default)]
struct KnownSeats {
    by_number: HashMap<u64, KnownSeat>,
    next: u64,
    /// When a search found nothing.
    fruitless: Option<Instant>,
}

struct KnownSeat {
    tenant: u32,
    activity: Arc<ConnectionActivity>,
}

/// Whether a connection carries requests, and whether it has to end.
pub(super) struct ConnectionActivity {
    began: Instant,
    /// Requests under way.
    active: AtomicUsize,
    /// When the last request ended, in milliseconds since the beginning.
    rested_ms: AtomicU64,
    displaced: CancellationToken,
}

impl Default for ConnectionActivity {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            active: AtomicUsize::new(0),
            rested_ms: AtomicU64::new(0),
            displaced: CancellationToken::new(),
        }
    }
}

impl ConnectionActivity {
    /// Counts one more request.
    pub(super) fn begin_request(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one less.
    pub(super) fn end_request(&self) {
        self.rested_ms.store(self.now_ms(), Ordering::Relaxed);
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns for how long no request has been under way; `None`: one is.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        let is_idle = self.active.load(Ordering::Relaxed) == 0;
        let idle_ms = self.now_ms().saturating_sub(self.rested_ms.load(Ordering::Relaxed));
        is_idle.then(|| Duration::from_millis(idle_ms))
    }

    /// Returns once the connection has to end in favour of others.
    pub(super) async fn wait_for_displacement(&self) {
        self.displaced.cancelled().await;
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl KnownConnections {
    /// Adds a connection that a tenant has signed over. Returns its number.
    pub(super) fn add_connection(&self, tenant: u32, activity: Arc<ConnectionActivity>) -> u64 {
        let mut seats = self.0.lock();
        let number = seats.next;
        seats.next += 1;
        seats.by_number.insert(number, KnownSeat { tenant, activity });
        number
    }

    /// Removes a connection that has ended.
    pub(super) fn remove_connection(&self, number: u64) {
        self.0.lock().by_number.remove(&number);
    }

    /// Has one idle connection give way. `false`: there is none.
    pub(super) fn displace_idle(&self) -> bool {
        let mut seats = self.0.lock();
        if seats.fruitless.is_some_and(|at| at.elapsed() < SEARCH_PAUSE) {
            return false;
        }
        let mut held: HashMap<u32, usize> = HashMap::new();
        for seat in seats.by_number.values() {
            *held.entry(seat.tenant).or_default() += 1;
        }
        let idle = seats.by_number.iter().filter_map(|(number, seat)| {
            let idle = seat.activity.idle_time().filter(|idle| *idle >= IDLE_MIN)?;
            Some((held.get(&seat.tenant).copied(), idle, *number))
        });
        let Some((_, _, number)) = idle.max() else {
            seats.fruitless = Some(Instant::now());
            return false;
        };
        seats.by_number.remove(&number).inspect(|seat| seat.activity.displaced.cancel()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn known_connection(known: &KnownConnections, tenant: u32) -> Arc<ConnectionActivity> {
        let activity = Arc::new(ConnectionActivity::default());
        known.add_connection(tenant, activity.clone());
        activity
    }

    #[tokio::test(start_paused = true)]
    async fn the_busiest_tenants_longest_idle_connection_gives_way() {
        let known = KnownConnections::default();
        let other = known_connection(&known, 2);
        let of_one: Vec<_> = (0..3).map(|_| known_connection(&known, 1)).collect();
        assert!(!known.displace_idle(), "nobody is idle for long");
        advance(Duration::from_secs(2)).await;
        of_one[0].begin_request();
        of_one[1].begin_request();
        of_one[1].end_request();
        advance(Duration::from_secs(2)).await;
        for displaced in [2, 1] {
            assert!(known.displace_idle());
            assert!(of_one[displaced].displaced.is_cancelled(), "{displaced}");
        }
        assert!(!other.displaced.is_cancelled());
        assert!(known.displace_idle() && other.displaced.is_cancelled());
        assert!(!known.displace_idle(), "a request is under way");
        of_one[0].end_request();
        advance(Duration::from_secs(2)).await;
        assert!(known.displace_idle() && of_one[0].displaced.is_cancelled());
        assert!(!known.displace_idle());
    }

    #[test]
    fn a_connection_that_has_ended_is_forgotten() {
        let known = KnownConnections::default();
        let number = known.add_connection(1, Arc::new(ConnectionActivity::default()));
        known.remove_connection(number);
        assert!(known.0.lock().by_number.is_empty());
    }
}
