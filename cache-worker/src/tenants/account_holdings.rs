//! What each account holds of one thing: what emptying it would take from whom.

use super::TenantAccount;

/// Slots or bytes of an extent or a segment, by account. Few accounts have pages in one.
#[derive(Debug, Default)]
pub(crate) struct AccountHoldings {
    amounts: Vec<(TenantAccount, u64)>,
}

impl AccountHoldings {
    pub(crate) fn add_amount(&mut self, account: TenantAccount, amount: u64) {
        match self.amounts.iter_mut().find(|(other, _)| *other == account) {
            Some((_, sum)) => *sum += amount,
            None => self.amounts.push((account, amount)),
        }
    }

    pub(crate) fn remove_amount(&mut self, account: TenantAccount, amount: u64) {
        if let Some(at) = self.amounts.iter().position(|(other, _)| *other == account) {
            self.amounts[at].1 = self.amounts[at].1.saturating_sub(amount);
            if self.amounts[at].1 == 0 {
                self.amounts.swap_remove(at);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.amounts.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantAccount, u64)> {
        self.amounts.iter().copied()
    }
}
