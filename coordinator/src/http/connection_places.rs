//! Bounds how many connections are open, and how many of them have proved nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use verbs3_doors::{RoomLimits, WaitingGuest, WaitingRoom};

use crate::settings::CoordinatorSettings;

/// A connection younger than this is not displaced: a whole cluster may be started at once.
const STRANGER_GRACE: Duration = Duration::from_secs(1);
/// How long a displaced connection may take to end.
const DISPLACE_MAX: Duration = Duration::from_secs(1);

/// Places of connections to the API.
pub(crate) struct ConnectionPlaces {
    places: Arc<Semaphore>,
    strangers: Arc<WaitingRoom>,
}

/// A connection that may stay. It has no place yet if another one is to end for it.
pub(super) struct AdmittedConnection {
    pub(super) place: Option<OwnedSemaphorePermit>,
    pub(super) guest: WaitingGuest,
}

impl ConnectionPlaces {
    pub(crate) fn new(settings: &CoordinatorSettings) -> Self {
        Self {
            places: Arc::new(Semaphore::new(settings.connections_max as usize)),
            strangers: WaitingRoom::new(RoomLimits {
                places_max: settings.unproven_connections_max as usize,
                per_address_max: settings.unproven_per_address_max as usize,
                grace: STRANGER_GRACE,
            }),
        }
    }

    /// Lets a new connection in. `None`: it is to be closed; the log says why.
    pub(super) fn admit_connection(&self, address: SocketAddr) -> Option<AdmittedConnection> {
        let place = self.places.clone().try_acquire_owned().ok();
        if place.is_none() && !self.strangers.displace_guest(address.ip()) {
            tracing::warn!("a connection was closed: coordinator.connections_max are open");
            return None;
        }
        let Some(guest) = self.strangers.admit_guest(address.ip()) else {
            tracing::debug!(
                %address,
                "a connection was closed: too many are open that have proved nothing"
            );
            return None;
        };
        Some(AdmittedConnection { place, guest })
    }

    /// Returns a connection's place. `None`: the displaced connection did not end in time.
    pub(super) async fn take_place(
        &self,
        place: Option<OwnedSemaphorePermit>,
    ) -> Option<OwnedSemaphorePermit> {
        match place {
            Some(place) => Some(place),
            None => timeout(DISPLACE_MAX, self.places.clone().acquire_owned()).await.ok()?.ok(),
        }
    }
}
