//! Bounds how many places each key (an address, an identity) may hold. Owns the counts, not the
//! places.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts the places that each key holds. Keys without a place take no memory.
#[derive(Debug)]
pub struct KeyShares<K> {
    each_max: usize,
    counts: Mutex<HashMap<K, usize>>,
}

/// One place of a key; dropping it gives the place back.
#[derive(Debug)]
pub struct KeyShare<K: Eq + Hash> {
    shares: Arc<KeyShares<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> KeyShares<K> {
    /// Creates the counts. `each_max` is the number of places that one key may hold at once.
    pub fn new(each_max: usize) -> Arc<Self> {
        Arc::new(Self { each_max, counts: Mutex::default() })
    }

    /// Takes a place. `None`: the key holds all that it may.
    pub fn take_share(self: &Arc<Self>, key: &K) -> Option<KeyShare<K>> {
        let mut counts = self.counts.lock();
        match counts.get_mut(key) {
            Some(count) if *count >= self.each_max => return None,
            Some(count) => *count += 1,
            None if self.each_max == 0 => return None,
            None => drop(counts.insert(key.clone(), 1)),
        }
        drop(counts);
        Some(KeyShare { shares: self.clone(), key: key.clone() })
    }
}

impl<K: Eq + Hash> Drop for KeyShare<K> {
    fn drop(&mut self) {
        let mut counts = self.shares.counts.lock();
        let Some(count) = counts.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_key_takes_its_share_and_nothing_of_others() {
        let shares = KeyShares::new(2);
        let first = shares.take_share(&"a").unwrap();
        let _second = shares.take_share(&"a").unwrap();
        assert!(shares.take_share(&"a").is_none());
        assert!(shares.take_share(&"b").is_some());
        drop(first);
        assert!(shares.take_share(&"a").is_some());
        assert_eq!(shares.counts.lock().len(), 1, "keys that hold nothing take no memory");
    }
}
