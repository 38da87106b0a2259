//! Bounds the bodies that one address has in memory. Whoever finds no place waits for one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of all addresses. An address without a caller takes no memory.
#[derive(Debug)]
pub(super) struct AddressPlaces {
    each_max: usize,
    places: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

impl AddressPlaces {
    pub fn new(each_max: usize) -> Self {
        Self { each_max, places: Mutex::default() }
    }

    /// Waits for a place. `None` can't be: the places are never closed.
    pub async fn acquire_place(&self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        let place = {
            let mut places = self.places.lock();
            // As many as there are connections, at most. A permit and a wait hold their place.
            places.retain(|_, place| Arc::strong_count(place) > 1);
            let new_place = || Arc::new(Semaphore::new(self.each_max));
            places.entry(address).or_insert_with(new_place).clone()
        };
        place.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_address_waits_for_its_own_places_alone() {
        let places = AddressPlaces::new(1);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        let first = places.acquire_place(a).await.unwrap();
        let mut second = Box::pin(places.acquire_place(a));
        assert!((&mut second).now_or_never().is_none());
        drop(places.acquire_place(b).now_or_never().unwrap().unwrap());
        drop(first);
        drop(second.await.unwrap());
        drop(places.acquire_place(b).await);
        assert_eq!(places.places.lock().len(), 1, "addresses without callers take no memory");
    }
}
