//! Owns the list of connections over which a signature has held. Where all places are taken, one
//! that carries no request gives way: of the tenant with most connections, the one idle longest. So
//! nobody keeps others out by connections that are only held. Knows no socket.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection_caller::ConnectionActivity;

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
        seats.by_number.remove(&number).inspect(|seat| seat.activity.give_way()).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::Version;
    use prometheus::IntGauge;
    use tokio::time::advance;
    use verbs3_doors::{RoomLimits, WaitingRoom};

    use super::super::connection_caller::ConnectionCaller;
    use super::*;

    fn known_caller(known: &Arc<KnownConnections>, tenant: u32) -> Arc<ConnectionCaller> {
        let limits = RoomLimits { places_max: 1, per_address_max: 1, grace: Duration::ZERO };
        let guest = WaitingRoom::new(limits).admit_guest([127, 0, 0, 1].into()).unwrap();
        let unproven = IntGauge::new("unproven", "unproven").unwrap();
        let address = [127, 0, 0, 1].into();
        let caller = ConnectionCaller::new(address, guest, unproven, known.clone());
        caller.mark_proven(tenant);
        caller
    }

    #[tokio::test(start_paused = true)]
    async fn the_busiest_tenants_longest_idle_connection_gives_way() {
        let known = Arc::new(KnownConnections::default());
        let other = known_caller(&known, 2);
        let callers: Vec<_> = (0..3).map(|_| known_caller(&known, 1)).collect();
        assert!(!known.displace_idle(), "nobody is idle for long");
        advance(Duration::from_secs(2)).await;
        let busy = callers[0].begin_request(Version::HTTP_11);
        drop(callers[1].begin_request(Version::HTTP_11));
        advance(Duration::from_secs(2)).await;
        for displaced in [2, 1] {
            assert!(known.displace_idle());
            assert!(callers[displaced].activity().is_displaced(), "{displaced}");
        }
        assert!(
            !other.activity().is_displaced()
                && known.displace_idle()
                && other.activity().is_displaced()
        );
        assert!(!known.displace_idle(), "a request is under way");
        drop(busy);
        advance(Duration::from_secs(2)).await;
        assert!(known.displace_idle() && callers[0].activity().is_displaced());
        drop(callers);
        assert!(!known.displace_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_ended_is_forgotten() {
        let known = Arc::new(KnownConnections::default());
        drop(known_caller(&known, 1));
        assert!(known.0.lock().by_number.is_empty());
    }
}
