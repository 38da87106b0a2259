//! Owns the rates of several stores, all alike: each store has one of its own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::fair_rate::FairRate;

/// A [`FairRate`] for each store, made when it is first asked for.
#[derive(Debug)]
pub struct FairRates {
    /// 0: there is no bound.
    bytes_per_second: u64,
    rates: RwLock<HashMap<String, Arc<FairRate>>>,
}

impl FairRates {
    /// Makes the rates. 0: any.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, rates: RwLock::default() }
    }

    /// Returns the rate of a store. `None`: it has no bound. The names are of a configuration, so
    /// they are few.
    pub fn find_rate(&self, store: &str) -> Option<Arc<FairRate>> {
        if self.bytes_per_second == 0 {
            return None;
        }
        if let Some(rate) = self.rates.read().get(store) {
            return Some(rate.clone());
        }
        let make = || Arc::new(FairRate::new(self.bytes_per_second));
        Some(self.rates.write().entry(store.to_owned()).or_insert_with(make).clone())
    }

    /// Returns how many wait, over all stores.
    pub fn waiting_count(&self) -> usize {
        self.rates.read().values().map(|rate| rate.waiting_count()).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::FairParty;

    #[test]
    fn each_store_has_its_own_rate_or_none() {
        let party = FairParty { number: 1, weight: 1, is_alone: false };
        let (rates, any) = (FairRates::new(10), FairRates::new(0));
        let [one, other] = ["one", "other"].map(|store| rates.find_rate(store).unwrap());
        assert!(one.try_take_bytes(party, 10) && other.try_take_bytes(party, 10));
        assert!(!rates.find_rate("one").unwrap().try_take_bytes(party, 10));
        assert!(any.find_rate("one").is_none());
    }
}
