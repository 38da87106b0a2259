//! Owns the list of connections over which a signature has held, and which of them end in favour of
//! others. Knows no socket.
//!
//! Some connections are left to newcomers, so that everybody gets as far as a signature. Who then
//! finds no place among the known ones gets that of a connection that is idle, or of one of a tenant
//! with more of them, be it busy: that one ends after its answer. Where the newcomer's own tenant
//! has most, its new connection ends after its first answer. So a tenant that has filled all places
//! keeps nobody else out, and is not kept out itself.

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

/// One place in this many is left to newcomers.
const NEWCOMER_PART: usize = 16;

/// Connections of known callers; see the module.
pub(crate) struct KnownConnections {
    places_max: usize,
    seats: Mutex<KnownSeats>,
}

#[derive(Default)]
struct KnownSeats {
    by_number: HashMap<u64, KnownSeat>,
    /// By tenant, how many of them are its own.
    held: HashMap<u32, usize>,
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
    /// Makes the list for a server with so many connections.
    pub(crate) fn for_connections(connections_max: usize) -> Self {
        let places_max = connections_max - connections_max / NEWCOMER_PART;
        Self { places_max, seats: Mutex::default() }
    }

    /// Adds a connection that a tenant has signed over. Returns its number.
    pub(super) fn add_connection(&self, tenant: u32, activity: Arc<ConnectionActivity>) -> u64 {
        let mut seats = self.seats.lock();
        let number = seats.next;
        seats.next += 1;
        if seats.by_number.len() >= self.places_max && !seats.make_room_for(tenant) {
            activity.displaced.cancel();
            return number;
        }
        seats.by_number.insert(number, KnownSeat { tenant, activity });
        *seats.held.entry(tenant).or_default() += 1;
        number
    }

    /// Removes a connection that has ended.
    pub(super) fn remove_connection(&self, number: u64) {
        self.seats.lock().remove(number);
    }

    /// Has one idle connection give way. Returns whether there was one.
    pub(super) fn displace_idle(&self) -> bool {
        let mut seats = self.seats.lock();
        if seats.fruitless.is_some_and(|at| at.elapsed() < SEARCH_PAUSE) {
            return false;
        }
        let found = seats.displace_longest_idle(0);
        if !found {
            seats.fruitless = Some(Instant::now());
        }
        found
    }
}

impl KnownSeats {
    fn remove(&mut self, number: u64) -> Option<KnownSeat> {
        let seat = self.by_number.remove(&number)?;
        if let Some(held) = self.held.get_mut(&seat.tenant) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&seat.tenant);
            }
        }
        Some(seat)
    }

    fn held_by(&self, tenant: u32) -> usize {
        self.held.get(&tenant).copied().unwrap_or_default()
    }

    /// Has a connection give way to a new one of this tenant. `false`: none should.
    fn make_room_for(&mut self, tenant: u32) -> bool {
        let own = self.held_by(tenant);
        self.displace_longest_idle(own) || self.displace_of_larger(own)
    }

    /// Displaces an idle connection: of the tenant with most connections, the one idle longest.
    /// Tenants with fewer than `held_min` are left in peace.
    fn displace_longest_idle(&mut self, held_min: usize) -> bool {
        let idle = self.by_number.iter().filter_map(|(number, seat)| {
            let held = self.held_by(seat.tenant);
            let idle = seat.activity.idle_time().filter(|idle| *idle >= IDLE_MIN)?;
            (held >= held_min).then_some((held, idle, *number))
        });
        let found = idle.max();
        found.is_some_and(|(.., number)| self.displace(number))
    }

    /// Displaces a connection of the tenant with most of them, be it busy, if that has more than a
    /// tenant with `own` and one more would.
    fn displace_of_larger(&mut self, own: usize) -> bool {
        let larger = self.by_number.iter().filter_map(|(number, seat)| {
            let held = self.held_by(seat.tenant);
            (held > own + 1).then(|| (held, seat.activity.idle_time(), *number))
        });
        let found = larger.max();
        found.is_some_and(|(.., number)| self.displace(number))
    }

    fn displace(&mut self, number: u64) -> bool {
        self.remove(number).inspect(|seat| seat.activity.displaced.cancel()).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::time::advance;

    use super::*;

    fn known_connection(known: &KnownConnections, tenant: u32) -> Arc<ConnectionActivity> {
        let activity = Arc::new(ConnectionActivity::default());
        known.add_connection(tenant, activity.clone());
        activity
    }

    #[tokio::test(start_paused = true)]
    async fn the_busiest_tenants_longest_idle_connection_gives_way() {
        let known = KnownConnections::for_connections(100);
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

    /// A busy connection is displaced, too.
    #[tokio::test(start_paused = true)]
    async fn a_tenant_with_fewer_connections_displaces_one_with_more() {
        // 30 of 32: two are left to newcomers.
        let known = KnownConnections::for_connections(32);
        let busy = |tenant| {
            let activity = Arc::new(ConnectionActivity::default());
            activity.begin_request();
            known.add_connection(tenant, activity.clone());
            activity
        };
        let ended = |of: &[Arc<ConnectionActivity>]| {
            of.iter().filter(|activity| activity.displaced.is_cancelled()).count()
        };
        let of_one: Vec<_> = (0..30).map(|_| busy(1)).collect();
        assert_eq!(ended(&of_one), 0);
        assert!(busy(1).displaced.is_cancelled(), "it has most: its newest ends");
        let of_other: Vec<_> = (0..15).map(|_| busy(2)).collect();
        assert_eq!((ended(&of_one), ended(&of_other)), (15, 0));
        assert!(busy(2).displaced.is_cancelled(), "both have half");
        let third = busy(3);
        assert_eq!(ended(&of_one) + ended(&of_other), 16);
        // What is idle goes first, but for no tenant with more.
        third.end_request();
        advance(2 * IDLE_MIN).await;
        assert!(busy(2).displaced.is_cancelled() && !third.displaced.is_cancelled());
        assert!(!busy(4).displaced.is_cancelled() && third.displaced.is_cancelled());
    }

    #[test]
    fn a_connection_that_has_ended_is_forgotten() {
        let known = KnownConnections::for_connections(100);
        let number = known.add_connection(1, Arc::new(ConnectionActivity::default()));
        known.remove_connection(number);
        assert!(known.seats.lock().by_number.is_empty());
    }
}
