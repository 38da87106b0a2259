//! Owns the places of connections whose guests have not proven who they are. When no place is left,
//! a guest of the address with most guests must give way. So strangers only hold places that nobody
//! else wants, and keep nobody out.
//!
//! Knows no socket: it signals a guest that must give way, and the guest's connection ends itself.
//!
//! # Who gives way to whom
//! A guest is left in peace for `grace`, shared among all guests of its address: of ten, each for a
//! tenth. So whoever fills the room from few addresses would have to come anew far more often than
//! anybody can. Of those whose time is over, the oldest of the address with most guests gives way.
//! Nobody gives way to a newcomer whose address has as many guests or more, but that address' own.

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
    /// A guest that is younger does not give way, if it is the only one of its address; see the
    /// module. Otherwise honest guests that come in a crowd would displace each other, and none
    /// would get through.
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

    /// Displaces the oldest guest of one address group, if it has been here for `grace`. Returns
    /// whether it gave way.
    fn displace_of_group(&mut self, group: IpAddr, grace: Duration) -> bool {
        let Some((number, seat)) = self.by_address.get(&group).and_then(BTreeMap::first_key_value)
        else {
            return false;
        };
        if seat.since.elapsed() < grace {
            return false;
        }
        let number = *number;
        self.displace_guest(group, number)
    }

    /// Displaces a guest in favour of a newcomer of this address group; see the module. Returns
    /// whether one gave way.
    fn displace_for(&mut self, newcomer: IpAddr, grace: Duration) -> bool {
        let own = self.by_address.get(&newcomer).map_or(0, BTreeMap::len);
        let overdue = self.by_address.iter().filter_map(|(group, seats)| {
            let (number, seat) = seats.first_key_value()?;
            let may_displace = seats.len() > own || *group == newcomer;
            let age = seat.since.elapsed();
            let is_over = age.saturating_mul(seats.len() as u32) >= grace;
            (may_displace && is_over).then_some((seats.len(), age, *group, *number))
        });
        let Some((.., group, number)) = overdue.max() else { return false };
        self.displace_guest(group, number)
    }

    fn displace_guest(&mut self, group: IpAddr, number: u64) -> bool {
        self.remove(group, number).inspect(|seat| seat.leave.cancel()).is_some()
    }
}

impl WaitingRoom {
    /// Creates an empty room with these bounds.
    pub fn new(limits: RoomLimits) -> Arc<Self> {
        Arc::new(Self { limits, seats: Mutex::default() })
    }

    /// Gives a newcomer a place. `None`: its address holds all that it may, or the room is full, and
    /// nobody gives way yet.
    pub fn admit_guest(self: &Arc<Self>, address: IpAddr) -> Option<WaitingGuest> {
        let (group, grace) = (address_group(address), self.limits.grace);
        let mut seats = self.seats.lock();
        let of_address = seats.by_address.get(&group).map_or(0, BTreeMap::len);
        let has_place = match () {
            () if of_address >= self.limits.per_address_max => {
                seats.displace_of_group(group, grace)
            }
            () if seats.count >= self.limits.places_max => seats.displace_for(group, grace),
            () => true,
        };
        if !has_place {
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

    /// Displaces one guest for a newcomer that needs a resource of its connection other than the
    /// place here. Returns whether one gave way.
    pub fn displace_guest(&self, newcomer: IpAddr) -> bool {
        self.seats.lock().displace_for(address_group(newcomer), self.limits.grace)
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

    /// Returns a token that is cancelled when the guest must give way; never, once it was let in.
    pub fn displacement_token(&self) -> CancellationToken {
        self.leave.clone()
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
