//! Owns the places of connections whose guests have not proven who they are. When no place is left,
//! the oldest guest of the busiest address must give way. So strangers only hold places that nobody
//! else wants, and keep nobody out.
//!
//! Knows no socket: it signals a guest that must give way, and the guest's connection ends itself.

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
    /// A guest younger than this does not give way: the newcomer is refused. Otherwise honest
    /// guests that come in a crowd would displace each other, and none would get through.
    pub grace: Duration,
}

/// Waiting room of a listening side; see the module.
#[derive(Debug)]
pub struct WaitingRoom {
    limits: RoomLimits,
    seats: Mutex<RoomSeats>,
}

#[derive(Debug, Default)]
struct RoomSeats {
    /// By address group, then by order of arrival.
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

    /// Returns the oldest guest of this address group, or, without one, of the group with most
    /// guests.
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

    /// Displaces the oldest guest. Returns whether a guest gave way.
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
    /// Creates an empty room with these bounds.
    pub fn new(limits: RoomLimits) -> Arc<Self> {
        Arc::new(Self { limits, seats: Mutex::default() })
    }

    /// Gives a newcomer a place. `None`: the room is full of guests that have only just come.
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

    /// Displaces one guest for a peer that needs a resource of its connection other than the place
    /// here.
    pub fn displace_guest(&self) -> bool {
        self.seats.lock().displace_oldest(None, self.limits.grace)
    }

    /// Returns the number of guests in the room, over all addresses. At most `places_max`.
    pub fn guests_count(&self) -> usize {
        self.seats.lock().count
    }
}

impl WaitingGuest {
    /// Waits until the guest must give way. Never returns once the guest was let in.
    pub async fn wait_for_displacement(&self) {
        self.leave.cancelled().await;
    }

    /// Returns whether the guest must give way.
    pub fn is_displaced(&self) -> bool {
        self.leave.is_cancelled()
    }

    /// Lets in a guest that has proven who it is: it leaves the room, and can't be displaced. Later
    /// calls have no effect.
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
