//! Bounds on peers that have not proven who they are, and on what a single peer may hold; whose turn
//! it is where something is scarce; files of unix sockets. Every listening side uses them.
#![forbid(unsafe_code)]

mod address;
mod fair_places;
mod fair_queue;
mod fair_rate;
mod fair_rates;
mod key_shares;
mod rare_warning;
mod socket_file;
mod waiting_room;

pub use address::address_group;
pub use fair_places::{FairPermit, FairPlaces, FairRefusal};
pub use fair_queue::{FairLimits, FairParty, FairQueue, QueueAnswer};
pub use fair_rate::FairRate;
pub use fair_rates::FairRates;
pub use key_shares::{KeyShare, KeyShares};
pub use rare_warning::RareWarning;
pub use socket_file::{NAME_LOOK, NameHolder, NamedSocket, SocketFileOptions, connect_named};
pub use waiting_room::{RoomLimits, WaitingGuest, WaitingRoom};
