//! The rules of shares in a tier, over numbers. Pure: no lock, no clock.

/// Number of an account. Small, and of this process alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TenantAccount(u8);

impl TenantAccount {
    /// Strangers, and workers that copy pages to each other. Nothing is kept for it.
    pub(crate) const NOBODY: Self = Self(0);
    /// Preload jobs.
    pub(crate) const JOBS: Self = Self(1);
    /// All tenants that came when every account was taken.
    pub(crate) const OTHERS: Self = Self(2);
    /// Accounts that are not of one tenant.
    pub(super) const FIXED: usize = 3;

    /// Returns the account of a number below [`ACCOUNTS_MAX`].
    pub(super) fn from_index(index: usize) -> Self {
        debug_assert!(index < ACCOUNTS_MAX);
        Self(index as u8)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Tenants with an account of their own. Every account is looked at for an eviction, and each has
/// series of metrics.
pub(super) const TENANTS_MAX: usize = 64;

/// All accounts; they fit into the bits of an [`AccountSet`].
pub(crate) const ACCOUNTS_MAX: usize = TenantAccount::FIXED + TENANTS_MAX;

/// Some of the accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccountSet(u128);

impl AccountSet {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(u128::MAX);

    #[must_use]
    pub(crate) fn with(self, account: TenantAccount) -> Self {
        Self(self.0 | 1 << account.0)
    }

    #[must_use]
    pub(crate) fn united_with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the accounts of this set that are not in the other one.
    pub(crate) fn list_missing(self, other: Self) -> impl Iterator<Item = TenantAccount> {
        let missing = Self(self.0 & !other.0);
        (0..ACCOUNTS_MAX).map(TenantAccount::from_index).filter(move |&one| missing.contains(one))
    }

    pub(crate) fn contains(self, account: TenantAccount) -> bool {
        self.0 >> account.0 & 1 == 1
    }

    /// The same by the number of the account.
    pub(crate) fn contains_index(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }
}

/// Whose pages may be evicted: sets of accounts, each tried if no page of the one before it can be
/// evicted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EvictionRights {
    sets: [AccountSet; 3],
    /// The evictor stays within its share with the page.
    has_due: bool,
    breaks_up_shares: bool,
}

impl EvictionRights {
    /// Where there is nothing to share.
    pub(crate) const ANY: Self =
        Self { sets: [AccountSet::ALL; 3], has_due: false, breaks_up_shares: false };

    /// Returns the sets to try, one after the other.
    pub(crate) fn sets(self) -> impl Iterator<Item = AccountSet> {
        let mut tried = AccountSet::NONE;
        self.sets.into_iter().filter(move |&set| std::mem::replace(&mut tried, set) != set)
    }

    /// Returns the sets to try before any other way to make room. Whom room is due gives no page of
    /// its own while others can be made to.
    pub(crate) fn first_sets(self) -> impl Iterator<Item = AccountSet> {
        self.sets().filter(move |&set| !self.has_due || set != self.sets[2])
    }

    /// Returns whether the evictor may empty a whole extent or segment of others that hold no more
    /// than their share: it is below its own, and nobody is above. Then what is free lies in places
    /// of other widths, and it would never get its share.
    pub(crate) fn breaks_up_shares(self) -> bool {
        self.breaks_up_shares
    }

    /// Returns the largest set.
    pub(crate) fn widest_set(self) -> AccountSet {
        self.sets[2]
    }
}

/// An account of one tier.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TierHolding {
    pub(super) held: u64,
    /// What of it others must leave.
    pub(super) kept: u64,
    /// 0: nothing is due to it.
    pub(super) weight: u64,
    pub(super) is_active: bool,
}

impl TierHolding {
    /// Whether it holds what is kept for it, and `bytes` besides.
    pub(super) fn can_lose(&self, bytes: u64) -> bool {
        self.held > 0 && self.held >= self.kept.saturating_add(bytes)
    }

    /// Whether it holds more than what is kept for it, by however little.
    fn is_above(&self) -> bool {
        self.held > self.kept
    }

    /// Whether `bytes` more are still within what is kept for it.
    pub(super) fn has_due(&self, bytes: u64) -> bool {
        self.held.saturating_add(bytes) <= self.kept
    }
}

/// Returns what of `amount` is due to one of the active accounts.
pub(super) fn due_part(amount: u64, weight: u64, weights: u64) -> u64 {
    let part = u128::from(amount) * u128::from(weight) / u128::from(weights.max(1));
    u64::try_from(part).unwrap_or(amount)
}

/// Returns what others must leave to an account: its part of `percent` of the capacity, if it is
/// active. `weights` is the sum over all active accounts.
pub(super) fn kept_bytes(capacity: u64, percent: u32, holding: TierHolding, weights: u64) -> u64 {
    match holding.is_active {
        true => due_part(due_part(capacity, percent.into(), 100), holding.weight, weights),
        false => 0,
    }
}

/// Returns whose pages of `bytes` may be evicted for a page of `evictor`. First come those that stay
/// within their share without one. An evictor that is at its share gives a page of its own next, one
/// below its share only after all who are above theirs by less than a page. So whoever holds its
/// share or less loses nothing to others.
pub(super) fn eviction_rights(
    holdings: impl Iterator<Item = TierHolding>,
    bytes: u64,
    evictor: TenantAccount,
) -> EvictionRights {
    let (mut spare, mut above) = (AccountSet::NONE, AccountSet::NONE);
    let (mut others_hold, mut has_due) = (false, false);
    for (index, holding) in holdings.enumerate() {
        let account = TenantAccount::from_index(index);
        if account == evictor {
            has_due = holding.has_due(bytes);
        } else {
            others_hold |= holding.held > 0;
        }
        if holding.can_lose(bytes) {
            spare = spare.with(account);
        }
        if holding.is_above() {
            above = above.with(account);
        }
    }
    if !others_hold {
        return EvictionRights::ANY;
    }
    let second = if has_due { above } else { spare.with(evictor) };
    let breaks_up_shares = has_due && above == AccountSet::NONE;
    EvictionRights { sets: [spare, second, above.with(evictor)], has_due, breaks_up_shares }
}

/// Part of what an owner holds by which it must hold more than a user, or a page that both use would
/// go back and forth with each use.
const SLACK_DIVISOR: u64 = 64;

/// Returns whether a page of `bytes` that `user` has just used is counted for it from now on, and no
/// longer for `owner`: if that one went away, or holds more for its weight, and still would without
/// the page. So a page that two use stays as long as one of them is below its share, and each pays
/// its part of what they use together.
pub(super) fn passes_to(owner: TierHolding, user: TierHolding, bytes: u64) -> bool {
    if user.weight == 0 || !user.is_active {
        return false;
    }
    if owner.weight == 0 || !owner.is_active {
        return true;
    }
    let left = owner.held.saturating_sub(bytes.max(owner.held / SLACK_DIVISOR));
    let ours = u128::from(user.held + bytes) * u128::from(owner.weight);
    ours <= u128::from(left) * u128::from(user.weight)
}

#[cfg(test)]
mod tests;
