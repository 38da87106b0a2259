//! How many slots of a segment each account holds: what emptying it would take from whom.

use crate::tenants::TenantAccount;

/// Slots by account. Few accounts have pages in one segment.
#[derive(Debug, Default)]
pub(super) struct SegmentHolders {
    slots: Vec<(TenantAccount, u32)>,
}

impl SegmentHolders {
    pub(super) fn add_slot(&mut self, account: TenantAccount) {
        match self.slots.iter_mut().find(|(other, _)| *other == account) {
            Some((_, count)) => *count += 1,
            None => self.slots.push((account, 1)),
        }
    }

    pub(super) fn remove_slot(&mut self, account: TenantAccount) {
        if let Some(at) = self.slots.iter().position(|(other, _)| *other == account) {
            self.slots[at].1 -= 1;
            if self.slots[at].1 == 0 {
                self.slots.swap_remove(at);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantAccount, u32)> {
        self.slots.iter().copied()
    }
}
