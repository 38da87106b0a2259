//! Where each tenant writes: for a tenant and a volume, the longest prefix that all keys of its open
//! writes begin with. Doubts that find no other place put that prefix in doubt. A tenant that may
//! write below a prefix can't put anything else in doubt so.
//!
//! A prefix only grows shorter while it is used, by an open write or by a doubt. So it covers each
//! key that was ever doubted by it.
//!
//! Scopes are few. The last of them are for tenants that have none, so each tenant finds one. Where
//! there is none, a write has no scope: if it is lost and finds no other place, its bucket is in
//! doubt, whatever else lies there. More is doubted then, and no doubt is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use verbs3_protocol::ObjectVolume;

use crate::clock::WorkerInstant;
use crate::tenants::{ACCOUNTS_MAX, TenantAccount, TenantAccounts};

/// Scopes that are kept apart. Reads are checked against those in doubt, and announcements look for
/// their own.
const SCOPES_MAX: usize = 256;

/// Scopes that are used by who has none yet: one for each account.
const FIRST_SCOPES: usize = ACCOUNTS_MAX;

/// Number of a scope, valid while something of it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteScopeNumber(u16);

/// A prefix that was in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DoubtedPrefix {
    pub(crate) volume: ObjectVolume,
    pub(crate) prefix: String,
}

struct WriteScope {
    account: TenantAccount,
    volume: ObjectVolume,
    prefix: String,
    /// Open writes that name the scope.
    open: usize,
    doubted_until: Option<WorkerInstant>,
}

impl WriteScope {
    fn is_used(&self) -> bool {
        self.open > 0 || self.doubted_until.is_some()
    }
}

/// The scopes in use.
#[derive(Default)]
pub(super) struct WriteScopeTable {
    scopes: Mutex<Vec<Option<WriteScope>>>,
    /// Spares reads the lock while nothing is in doubt.
    doubted: AtomicUsize,
    tenants: Arc<TenantAccounts>,
}

impl WriteScopeTable {
    pub(super) fn new(tenants: Arc<TenantAccounts>) -> Self {
        Self { tenants, ..Self::default() }
    }

    /// Returns the scope of these keys, which now counts `keys.len()` open writes more. `None`:
    /// there are too many scopes, or too many of this account.
    pub(super) fn enter_scope(
        &self,
        account: TenantAccount,
        volume: &ObjectVolume,
        keys: &[String],
    ) -> Option<WriteScopeNumber> {
        let first = keys.first()?;
        let mut scopes = self.scopes.lock();
        let is_own = |scope: &WriteScope| scope.account == account && scope.volume == *volume;
        let known = scopes.iter().position(|scope| scope.as_ref().is_some_and(is_own));
        let index = match known {
            Some(index) => index,
            None => free_scope(&mut scopes, account)?,
        };
        let scope = scopes[index].get_or_insert_with(|| WriteScope {
            account,
            volume: volume.clone(),
            prefix: first.clone(),
            open: 0,
            doubted_until: None,
        });
        for key in keys {
            let length = shared_bytes(&scope.prefix, key);
            scope.prefix.truncate(length);
        }
        scope.open += keys.len();
        Some(WriteScopeNumber(index as u16))
    }

    /// Counts so many open writes less.
    pub(super) fn leave_scope(&self, number: WriteScopeNumber, writes: usize) {
        self.change_scope(number, |scope| scope.open -= writes);
    }

    /// Puts the scope in doubt. One of its open writes was lost sight of, and still counts.
    pub(super) fn doubt_scope(&self, number: WriteScopeNumber, until: WorkerInstant) {
        self.change_scope(number, |scope| {
            if scope.doubted_until.is_none() {
                self.doubted.fetch_add(1, Ordering::SeqCst);
                // While a doubt counts for an account, that becomes no other tenant's.
                self.tenants.add_notes(scope.account, 1);
            }
            scope.doubted_until = scope.doubted_until.max(Some(until));
        });
    }

    fn change_scope(&self, number: WriteScopeNumber, change: impl FnOnce(&mut WriteScope)) {
        let mut scopes = self.scopes.lock();
        let place = &mut scopes[usize::from(number.0)];
        if let Some(scope) = place.as_mut() {
            change(scope);
        }
        if place.as_ref().is_some_and(|scope| !scope.is_used()) {
            *place = None;
        }
    }

    /// Returns whether a key is in doubt by its prefix.
    pub(super) fn is_doubted(&self, volume: &ObjectVolume, key: &str) -> bool {
        self.doubted.load(Ordering::SeqCst) > 0
            && self.scopes.lock().iter().flatten().any(|scope| {
                scope.doubted_until.is_some()
                    && key.starts_with(&scope.prefix)
                    && scope.volume.means_name_of(volume)
            })
    }

    /// Returns what is no longer in doubt. What was learnt under it has to be void before
    /// [`WriteScopeTable::forget_expired`].
    pub(super) fn find_expired(&self, now: WorkerInstant) -> Vec<DoubtedPrefix> {
        if self.doubted_count() == 0 {
            return Vec::new();
        }
        let scopes = self.scopes.lock();
        let expired = scopes.iter().flatten().filter(|scope| scope.is_over(now));
        expired
            .map(|WriteScope { volume, prefix, .. }| DoubtedPrefix {
                volume: volume.clone(),
                prefix: prefix.clone(),
            })
            .collect()
    }

    /// Ends the doubts that expired by `now` and whose prefix is among `ended`. One that has grown
    /// shorter since, or was doubted anew, stays until the next call.
    pub(super) fn forget_expired(&self, ended: &[DoubtedPrefix], now: WorkerInstant) {
        for place in self.scopes.lock().iter_mut() {
            let Some(scope) = place.as_mut() else { continue };
            let is_ended = |end: &DoubtedPrefix| {
                end.volume == scope.volume && scope.prefix.starts_with(&end.prefix)
            };
            if scope.is_over(now) && ended.iter().any(is_ended) {
                scope.doubted_until = None;
                self.doubted.fetch_sub(1, Ordering::SeqCst);
                self.tenants.remove_notes(scope.account, 1);
                if !scope.is_used() {
                    *place = None;
                }
            }
        }
    }

    pub(super) fn doubted_count(&self) -> usize {
        self.doubted.load(Ordering::SeqCst)
    }
}

impl WriteScope {
    fn is_over(&self, now: WorkerInstant) -> bool {
        self.doubted_until.is_some_and(|until| until <= now)
    }
}

/// Finds a place for another scope of an account.
fn free_scope(scopes: &mut Vec<Option<WriteScope>>, account: TenantAccount) -> Option<usize> {
    let (mut used, mut has_some) = (0, false);
    for scope in scopes.iter().flatten() {
        used += 1;
        has_some |= scope.account == account;
    }
    let free = SCOPES_MAX - used;
    if free == 0 || (has_some && free <= FIRST_SCOPES) {
        return None;
    }
    let index = scopes.iter().position(Option::is_none).unwrap_or(scopes.len());
    if index == scopes.len() {
        scopes.push(None);
    }
    Some(index)
}

/// Returns how many bytes two keys have in common from their beginning on, in whole letters.
fn shared_bytes(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(one, other)| one == other).map(|(letter, _)| letter.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> WorkerInstant {
        WorkerInstant::default().saturating_add(Duration::from_secs(seconds))
    }

    fn volume(name: &str) -> ObjectVolume {
        ObjectVolume::new("u", name)
    }

    fn enter(scopes: &WriteScopeTable, keys: &[&str]) -> WriteScopeNumber {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        scopes.enter_scope(TenantAccount::NOBODY, &volume("a"), &keys).unwrap()
    }

    #[test]
    fn a_doubt_covers_all_keys_and_nothing_beside_their_prefix() {
        let scopes = WriteScopeTable::default();
        let number = enter(&scopes, &["eve/1/aé", "eve/1/aè"]);
        assert!(!scopes.is_doubted(&volume("a"), "eve/1/aé"));
        scopes.doubt_scope(number, at(10));
        let doubted = |key| scopes.is_doubted(&volume("a"), key);
        assert_eq!(
            ["eve/1/aé", "eve/1/aè", "eve/2", "bob"].map(doubted),
            [true, true, false, false]
        );
        assert_eq!(enter(&scopes, &["eve/2"]), number);
        assert_eq!(["eve/1/aé", "eve/2", "bob"].map(doubted), [true, true, false]);
        assert!(!scopes.is_doubted(&volume("b"), "eve/2"), "another volume");
    }

    #[test]
    fn a_doubt_ends_only_after_what_it_covered_was_named() {
        let scopes = WriteScopeTable::default();
        let number = enter(&scopes, &["eve/1"]);
        scopes.doubt_scope(number, at(10));
        scopes.leave_scope(number, 1);
        assert!(scopes.find_expired(at(9)).is_empty() && scopes.doubted_count() == 1);
        let ended = scopes.find_expired(at(10));
        assert_eq!(ended.len(), 1);
        // Between the two it comes to cover more.
        assert_eq!(enter(&scopes, &["eve/2"]), number);
        scopes.forget_expired(&ended, at(10));
        assert!(scopes.is_doubted(&volume("a"), "eve/2"), "it was not made void");
        let ended = scopes.find_expired(at(10));
        scopes.forget_expired(&ended, at(10));
        assert!(!scopes.is_doubted(&volume("a"), "eve/1") && scopes.doubted_count() == 0);
        scopes.leave_scope(number, 1);
        assert!(scopes.scopes.lock().iter().all(Option::is_none), "nothing is left of it");
    }

    #[test]
    fn scopes_are_bounded_and_each_account_can_have_one() {
        let scopes = WriteScopeTable::default();
        let key = ["k".to_owned()];
        let enter = |account, number: usize| {
            scopes.enter_scope(account, &volume(&number.to_string()), &key)
        };
        let (eve, others) = (TenantAccount::JOBS, TenantAccount::NOBODY);
        let first = enter(eve, 0).unwrap();
        let many = SCOPES_MAX - FIRST_SCOPES;
        assert!((1..many).all(|number| enter(eve, number).is_some()));
        assert_eq!((enter(eve, many), enter(eve, 0)), (None, Some(first)));
        assert!(enter(others, 0).is_some(), "it had none");
        assert_eq!(enter(others, 1), None);
        scopes.leave_scope(first, 2);
        assert_eq!(enter(eve, many), None, "the last one is for who has none");
        assert_eq!(enter(TenantAccount::OTHERS, 0), Some(first), "its place is free again");
        let used = scopes.scopes.lock().iter().flatten().count();
        assert!(used <= SCOPES_MAX);
    }
}
