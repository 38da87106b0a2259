//! Bounds on peers that have not proven who they are, and on what a single peer may hold. Every
//! listening side uses them.
#![forbid(unsafe_code)]

mod address;
mod key_shares;
mod waiting_room;

pub use address::address_group;
pub use key_shares::{KeyShare, KeyShares};
pub use waiting_room::{RoomLimits, WaitingGuest, WaitingRoom};
