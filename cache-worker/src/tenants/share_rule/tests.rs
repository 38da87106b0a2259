//! The rules alone, and a tier of pages that is run by them.
#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

fn account(index: usize) -> TenantAccount {
    TenantAccount::from_index(index)
}

fn holding(held: u64, weight: u64) -> TierHolding {
    TierHolding { held, kept: 0, weight, is_active: true }
}

fn kept(capacity: u64, percent: u32, holdings: &mut [TierHolding]) {
    let weights = holdings.iter().filter(|one| one.is_active).map(|one| one.weight).sum();
    for holding in holdings {
        holding.kept = kept_bytes(capacity, percent, *holding, weights);
    }
}

#[test]
fn what_is_kept_follows_the_weights_of_the_active() {
    let mut holdings = [holding(0, 0), holding(0, 1), holding(0, 3), holding(0, 4)];
    holdings[3].is_active = false;
    kept(1000, 80, &mut holdings);
    assert_eq!(holdings.map(|one| one.kept), [0, 200, 600, 0]);
    holdings[2].is_active = false;
    kept(1000, 80, &mut holdings);
    assert_eq!(holdings.map(|one| one.kept), [0, 800, 0, 0]);
}

fn accounts(indexes: &[usize]) -> AccountSet {
    indexes.iter().fold(AccountSet::NONE, |set, &index| set.with(account(index)))
}

/// Returns whose pages may go for one of 10 bytes of each account in turn.
fn all_rights(holdings: &[TierHolding]) -> Vec<Vec<AccountSet>> {
    let rights = |by| eviction_rights(holdings.iter().copied(), 10, account(by)).sets().collect();
    (0..holdings.len()).map(rights).collect()
}

#[test]
fn only_who_is_above_its_share_loses_pages() {
    let mut holdings = [holding(0, 0), holding(300, 1), holding(700, 1)];
    kept(1000, 80, &mut holdings);
    let rights = all_rights(&holdings);
    assert_eq!(rights[1], [accounts(&[2]), accounts(&[1, 2])], "its own as a last resort");
    assert_eq!(rights[2], [accounts(&[2])]);
}

#[test]
fn who_is_at_its_share_gives_pages_of_its_own_and_no_others() {
    let mut holdings = [holding(0, 0), holding(50, 1), holding(50, 1)];
    kept(100, 100, &mut holdings);
    let rights = all_rights(&holdings);
    assert_eq!(rights[1..], [[accounts(&[1])], [accounts(&[2])]]);
    assert_eq!(rights[0], [accounts(&[0])], "a stranger has nothing to give, and gets nothing");
    // Above by less than a page: its own go first, then of who is above, too.
    holdings[2].held = 55;
    let rights = all_rights(&holdings);
    assert_eq!(rights[1], [accounts(&[1]), accounts(&[1, 2])]);
    assert_eq!(rights[2], [accounts(&[2])]);
}

#[test]
fn a_tenant_below_its_share_takes_from_one_barely_above() {
    let mut holdings = [holding(0, 0), holding(20, 1), holding(55, 1)];
    kept(100, 100, &mut holdings);
    let rights = eviction_rights(holdings.into_iter(), 10, account(1));
    assert_eq!(rights.sets().collect::<Vec<_>>(), [accounts(&[2]), accounts(&[1, 2])]);
    assert!(!rights.breaks_up_shares());
    // What is missing lies in nobody's pages, but in places of other widths.
    holdings[2].held = 50;
    assert!(eviction_rights(holdings.into_iter(), 10, account(1)).breaks_up_shares());
    assert!(!eviction_rights(holdings.into_iter(), 10, account(2)).breaks_up_shares());
    assert!(!eviction_rights(holdings.into_iter(), 10, account(0)).breaks_up_shares());
}

#[test]
fn who_holds_all_alone_may_evict_anything() {
    let mut holdings = [holding(0, 0), holding(40, 1), holding(0, 1)];
    kept(100, 100, &mut holdings);
    assert_eq!(eviction_rights(holdings.into_iter(), 1, account(1)), EvictionRights::ANY);
}

/// Of fewer pages than tenants each share is less than a page. All take turns then.
#[test]
fn shares_of_less_than_a_page_shut_nobody_out() {
    let mut holdings = [holding(0, 0), holding(10, 1), holding(0, 1)];
    kept(10, 100, &mut holdings);
    assert!(all_rights(&holdings)[2].contains(&accounts(&[1, 2])));
}

#[test]
fn a_used_page_goes_to_who_holds_less_for_its_weight() {
    let passes_to = |owner, user| super::passes_to(owner, user, 1);
    assert!(passes_to(holding(12, 1), holding(10, 1)));
    assert!(!passes_to(holding(11, 1), holding(10, 1)));
    assert!(passes_to(holding(11, 1), holding(29, 3)));
    assert!(!passes_to(holding(11, 1), holding(30, 3)));
    // Where it has gone, it stays.
    assert!(!passes_to(holding(11, 1), holding(12, 1)));
    assert!(!passes_to(holding(1280, 1), holding(1260, 1)), "within the slack");
    assert!(passes_to(holding(1280, 1), holding(1250, 1)));
    let gone = TierHolding { is_active: false, ..holding(1, 1) };
    assert!(passes_to(gone, holding(100, 1)), "its reader left");
    assert!(passes_to(holding(1, 0), holding(100, 1)), "nobody's");
    assert!(!passes_to(holding(100, 1), holding(0, 0)), "a stranger takes nothing over");
}

/// A tier of pages of one size: who holds each, and who is active.
struct ModelTier {
    capacity: u64,
    percent: u32,
    holdings: Vec<TierHolding>,
    /// The owner of each page, coldest first.
    pages: Vec<usize>,
}

impl ModelTier {
    fn count(&mut self) {
        for holding in &mut self.holdings {
            holding.held = 0;
        }
        for &owner in &self.pages {
            self.holdings[owner].held += 1;
        }
        kept(self.capacity, self.percent, &mut self.holdings);
    }

    /// Fills a page, and evicts the coldest that may be. Returns who lost it. `Err`: nobody may.
    fn fill(&mut self, by: usize) -> Result<Option<usize>, ()> {
        let mut lost = None;
        if self.pages.len() as u64 == self.capacity {
            let rights = eviction_rights(self.holdings.iter().copied(), 1, account(by));
            let coldest =
                |set: AccountSet| self.pages.iter().position(|&owner| set.contains(account(owner)));
            let at = rights.sets().find_map(coldest).ok_or(())?;
            lost = Some(self.pages.remove(at));
        }
        self.pages.push(by);
        Ok(lost)
    }

    fn use_page(&mut self, at: usize, by: usize) {
        let owner = self.pages[at];
        if owner != by && passes_to(self.holdings[owner], self.holdings[by], 1) {
            self.pages.remove(at);
            self.pages.push(by);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Random fills, uses, arrivals and departures: whoever holds its share or less loses nothing to
    /// others, and nobody is refused what is due to it. The tier stays full.
    #[test]
    fn who_is_within_its_share_loses_nothing_to_others(
        weights in prop::collection::vec(0u64..5, 2..6),
        percent in 0u32..=100,
        steps in prop::collection::vec((0u8..10, 0usize..6, 0usize..64), 1..400),
    ) {
        let holdings = weights.iter().map(|&weight| holding(0, weight)).collect::<Vec<_>>();
        let (parties, capacity) = (holdings.len(), 40);
        let mut tier = ModelTier { capacity, percent, holdings, pages: Vec::new() };
        tier.count();
        for (action, by, at) in steps {
            let by = by % parties;
            match action {
                0..=6 => {
                    let before = tier.holdings.clone();
                    let is_full = tier.pages.len() as u64 == tier.capacity;
                    match tier.fill(by) {
                        Ok(lost) => {
                            prop_assert_eq!(lost.is_some(), is_full);
                            if let Some(lost) = lost.filter(|&lost| lost != by) {
                                prop_assert!(before[lost].held > before[lost].kept);
                            }
                        }
                        Err(()) => {
                            prop_assert!(is_full && !before[by].has_due(1));
                            prop_assert!(before.iter().all(|one| one.held <= one.kept));
                        }
                    }
                }
                7 | 8 if !tier.pages.is_empty() => tier.use_page(at % tier.pages.len(), by),
                _ => tier.holdings[by].is_active = at % 2 == 0,
            }
            tier.count();
        }
    }

    /// Who keeps filling reaches what is due to it, whatever the others do; who is alone has all.
    #[test]
    fn who_asks_gets_its_share_and_who_is_alone_gets_all(
        heavy in 1u64..5, percent in 0u32..=100, turns in 200usize..400,
    ) {
        let holdings = vec![holding(0, 0), holding(0, heavy), holding(0, 1)];
        let mut tier = ModelTier { capacity: 60, percent, holdings, pages: Vec::new() };
        tier.holdings[2].is_active = false;
        tier.count();
        for _ in 0..80 {
            tier.fill(1).unwrap();
            tier.count();
        }
        prop_assert_eq!(tier.holdings[1].held, 60);
        tier.holdings[2].is_active = true;
        tier.count();
        // A scan of the other, ten pages for each of this one's.
        for turn in 0..turns {
            tier.fill(if turn % 10 == 0 { 2 } else { 1 }).unwrap();
            tier.count();
        }
        let [first, second] = [tier.holdings[1], tier.holdings[2]];
        prop_assert!(second.held >= second.kept.min(turns as u64 / 10), "{second:?}");
        prop_assert!(first.held >= first.kept, "{first:?}");
        prop_assert_eq!(first.held + second.held, 60);
    }
}
