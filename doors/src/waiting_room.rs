//! Connections of guests that have not proven who they are. Owns their places and decides who gives
//! way when there is none left: the oldest guest of the busiest address. So strangers hold what
//! nobody else wants, and keep nobody out.
//!
//! Knows no socket: a guest that has to give way is told, and its connection ends itself.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::address_group;

/// Bounds of one room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomLimits {
    pub places_max: usize,
    pub per_address_max: usize,
    /// A guest that came less than this ago does not give way: the newcomer is refused. Else a
    /// crowd of honest guests that come at once would displace each other, and none would get
    /// through.
    pub grace: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct WaitingRoom {
    limits: RoomLimits,
    seats: Mutex<RoomSeats>,
}

#[derive(Debug, Default)]
struct RoomSeats {
    /// By address group, then by the order in which they came.
    by_address: HashMap<IpAddr, BTreeMap<u64, GuestSeat>>,
    count: usize,
    next: u64,
}

#[derive(Debug)]
struct GuestSeat {
    since: Instant,
    leave: CancellationToken,
}

/// One guest. Its place is free when this is dropped, or when the guest is let in.
#[derive(Debug)]
pub struct WaitingGuest {
    room: Arc<WaitingRoom>,
    group: IpAddr,
    number: u64,
    leave: CancellationToken,
}

impl RoomSeats {
    fn remove(&mut self, group: IpAddr, number: u64) -> Option<GuestSeat> {
        let seats = self.by_address.get_mut(&group)?;
        let seat = seats.remove(&number)?;
        if seats.is_empty() {
            self.by_address.remove(&group);
        }
        self.count -= 1;
        Some(seat)
    }

    /// Of one address, or of the one that has most guests.
    fn oldest_guest(&self, group: Option<IpAddr>) -> Option<(IpAddr, u64, Instant)> {
        let (group, seats) = match group {
            Some(group) => (group, self.by_address.get(&group)?),
            None => self
                .by_address
                .iter()
                .max_by_key(|(_, seats)| seats.len())
                .map(|(group, seats)| (*group, seats))?,
        };
        seats.first_key_value().map(|(number, seat)| (group, *number, seat.since))
    }

    /// Says whether a guest gave way.
    fn displace_oldest(&mut self, group: Option<IpAddr>, grace: Duration) -> bool {
        let Some((group, number, since)) = self.oldest_guest(group) else { return false };
        if since.elapsed() < grace {
            return false;
        }
        if let Some(seat) = self.remove(group, number) {
            seat.leave.cancel();
        }
        true
    }
}

impl WaitingRoom {
    /// An empty room with these bounds.
    pub fn new(limits: RoomLimits) -> Arc<Self> {
        Arc::new(Self { limits, seats: Mutex::default() })
    }

    /// A place for a newcomer. `None`: the room is full of guests that have only just come.
    pub fn admit_guest(self: &Arc<Self>, address: IpAddr) -> Option<WaitingGuest> {
        let group = address_group(address);
        let mut seats = self.seats.lock();
        let of_address = seats.by_address.get(&group).map_or(0, BTreeMap::len);
        let crowded = match () {
            () if of_address >= self.limits.per_address_max => Some(Some(group)),
            () if seats.count >= self.limits.places_max => Some(None),
            () => None,
        };
        if crowded.is_some_and(|whose| !seats.displace_oldest(whose, self.limits.grace)) {
            return None;
        }
        let (number, leave) = (seats.next, CancellationToken::new());
        seats.next += 1;
        seats.count += 1;
        let seat = GuestSeat { since: Instant::now(), leave: leave.clone() };
        seats.by_address.entry(group).or_default().insert(number, seat);
        drop(seats);
        Some(WaitingGuest { room: self.clone(), group, number, leave })
    }

    /// Has one guest give way, for someone who needs what its connection holds besides its place
    /// here.
    pub fn displace_guest(&self) -> bool {
        self.seats.lock().displace_oldest(None, self.limits.grace)
    }

    /// Guests in the room now, over all addresses. At most `places_max`.
    pub fn guests_count(&self) -> usize {
        self.seats.lock().count
    }
}

impl WaitingGuest {
    /// Returns when the guest has to give way. Never after it was let in.
    pub async fn wait_for_displacement(&self) {
        self.leave.cancelled().await;
    }

    /// Whether it has to give way.
    pub fn is_displaced(&self) -> bool {
        self.leave.is_cancelled()
    }

    /// The guest has proven who it is: it leaves the room, and gives way to nobody. Once is enough.
    pub fn let_in(&self) {
        self.room.seats.lock().remove(self.group, self.number);
    }
}

impl Drop for WaitingGuest {
    fn drop(&mut self) {
        self.let_in();
    }
}

#[cfg(test)]
mod tests;
