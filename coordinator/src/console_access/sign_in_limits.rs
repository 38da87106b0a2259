//! How often it may be tried to sign in: by one address, and under one name. Bounded memory. Pure:
//! takes the time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use verbs3_doors::address_group;

/// Tries that one address has at once, and how long until it has another one.
const PER_ADDRESS: TryRate = TryRate { burst: 8.0, every: Duration::from_secs(10) };
/// The same for one name. One address alone can't use them up, so it can't keep a user out.
const PER_NAME: TryRate = TryRate { burst: 40.0, every: Duration::from_secs(2) };
/// Addresses that are remembered. Where so many have tried within minutes, the one with the most
/// tries left is forgotten: it has the least to gain by that.
const ADDRESSES_MAX: usize = 4096;
/// Names share so many counts: names that nobody has are counted like any other, so that the
/// answer does not tell them apart, and take no memory.
const NAME_SLOTS: usize = 1024;

#[derive(Clone, Copy)]
struct TryRate {
    burst: f64,
    every: Duration,
}

#[derive(Clone, Copy)]
struct TryBucket {
    left: f64,
    at: Instant,
    /// It has refused a try since it last took one.
    has_refused: bool,
}

/// Whether something may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignInTry {
    Taken,
    /// It has to wait. `is_first`: the one before did not, so this one is worth a line.
    Refused {
        is_first: bool,
    },
}

impl TryBucket {
    fn full(rate: TryRate, now: Instant) -> Self {
        Self { left: rate.burst, at: now, has_refused: false }
    }

    fn refill(&mut self, rate: TryRate, now: Instant) {
        let gained =
            now.saturating_duration_since(self.at).as_secs_f64() / rate.every.as_secs_f64();
        *self = Self { left: (self.left + gained).min(rate.burst), at: now, ..*self };
    }

    fn take_try(&mut self, rate: TryRate, now: Instant) -> SignInTry {
        self.refill(rate, now);
        if self.left >= 1.0 {
            (self.left, self.has_refused) = (self.left - 1.0, false);
            return SignInTry::Taken;
        }
        SignInTry::Refused { is_first: !std::mem::replace(&mut self.has_refused, true) }
    }
}

/// Counts tries to sign in.
pub(crate) struct SignInLimits {
    addresses: HashMap<IpAddr, TryBucket>,
    names: Vec<Option<TryBucket>>,
    /// Random, so that nobody knows which names share a count.
    hasher: RandomState,
}

impl SignInLimits {
    pub(crate) fn new() -> Self {
        Self {
            addresses: HashMap::new(),
            names: vec![None; NAME_SLOTS],
            hasher: RandomState::new(),
        }
    }

    /// Takes one try of an address.
    pub(crate) fn take_address_try(&mut self, address: IpAddr, now: Instant) -> SignInTry {
        let group = address_group(address);
        if !self.addresses.contains_key(&group) && self.addresses.len() >= ADDRESSES_MAX {
            self.addresses.retain(|_, bucket| {
                bucket.refill(PER_ADDRESS, now);
                bucket.left < PER_ADDRESS.burst
            });
            if self.addresses.len() >= ADDRESSES_MAX {
                self.forget_idlest();
            }
        }
        let bucket =
            self.addresses.entry(group).or_insert_with(|| TryBucket::full(PER_ADDRESS, now));
        bucket.take_try(PER_ADDRESS, now)
    }

    /// Takes one try of a name.
    pub(crate) fn take_name_try(&mut self, name: &str, now: Instant) -> SignInTry {
        let slot = (self.hasher.hash_one(name) % NAME_SLOTS as u64) as usize;
        let bucket = self.names[slot].get_or_insert_with(|| TryBucket::full(PER_NAME, now));
        bucket.take_try(PER_NAME, now)
    }

    /// Gives an address the try back by which somebody has signed in there. Not more of them: a
    /// user could guess at others' passwords without end.
    pub(crate) fn give_back_try(&mut self, address: IpAddr) {
        if let Some(bucket) = self.addresses.get_mut(&address_group(address)) {
            bucket.left = (bucket.left + 1.0).min(PER_ADDRESS.burst);
        }
    }

    fn forget_idlest(&mut self) {
        let buckets = self.addresses.iter();
        let idlest = buckets.max_by(|(_, one), (_, other)| one.left.total_cmp(&other.left));
        if let Some(group) = idlest.map(|(&group, _)| group) {
            self.addresses.remove(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(number))
    }

    #[test]
    fn an_address_has_a_few_tries_and_then_one_every_ten_seconds() {
        let (mut limits, start) = (SignInLimits::new(), Instant::now());
        let tries = |limits: &mut SignInLimits, number, after| {
            let now = start + Duration::from_secs(after);
            let taken = |_: &u32| limits.take_address_try(address(number), now) == SignInTry::Taken;
            (0..100).filter(taken).count()
        };
        assert_eq!(tries(&mut limits, 1, 0), 8);
        assert_eq!(tries(&mut limits, 2, 0), 8, "another address");
        assert_eq!(tries(&mut limits, 1, 9), 0);
        assert_eq!(tries(&mut limits, 1, 35), 3);
        // Who signs in gets that try back, and none of those that failed.
        limits.give_back_try(address(1));
        assert_eq!(tries(&mut limits, 1, 35), 1);
        limits.give_back_try(address(3));
        assert_eq!(tries(&mut limits, 3, 35), 8);
    }

    #[test]
    fn a_name_has_tries_whether_or_not_somebody_has_it() {
        let (mut limits, now) = (SignInLimits::new(), Instant::now());
        let mut taken = |_: &u32| limits.take_name_try("alice", now) == SignInTry::Taken;
        assert_eq!((0..1000).filter(&mut taken).count(), 40);
        let later = now + Duration::from_secs(2);
        assert_eq!(limits.take_name_try("alice", later), SignInTry::Taken);
    }

    #[test]
    fn the_first_try_that_is_refused_is_told_apart() {
        let (mut limits, start) = (SignInLimits::new(), Instant::now());
        let mut lines = |after| {
            let now = start + Duration::from_secs(after);
            let first = SignInTry::Refused { is_first: true };
            (0..100).filter(|_| limits.take_address_try(address(1), now) == first).count()
        };
        assert_eq!(lines(0), 1);
        assert_eq!(lines(1), 0);
        assert_eq!(lines(35), 1);
    }

    #[test]
    fn addresses_without_end_take_no_memory_without_end() {
        let (mut limits, start) = (SignInLimits::new(), Instant::now());
        let mut take = |number, now| limits.take_address_try(address(number), now);
        let guesses = (0..100).filter(|_| take(0, start) == SignInTry::Taken);
        assert_eq!(guesses.count(), 8);
        // Others come in all the same, and push nobody out who has used tries up.
        let many = (1..10_000).filter(|&number| take(number, start) == SignInTry::Taken);
        assert_eq!(many.count(), 9999);
        assert_ne!(take(0, start), SignInTry::Taken);
        assert_eq!(limits.addresses.len(), ADDRESSES_MAX);
        let mut take = |number, now| limits.take_address_try(address(number), now);
        let later = start + Duration::from_secs(81);
        assert_eq!(take(20_000, later), SignInTry::Taken);
        assert_eq!(limits.addresses.len(), 1);
    }
}
