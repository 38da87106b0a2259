//! Accounts of tenants that come and go.
#![allow(clippy::unwrap_used)]
use super::*;
use TenantTier::Memory;

fn accounts() -> TenantAccounts {
    let active_for = Duration::from_secs(100);
    let rules = TenantRules { share_percent: 50, active_for, reserve_percent: 0 };
    let accounts = TenantAccounts::new(rules, TableFamily::default());
    accounts.set_capacity(Memory, 1000, 0);
    accounts
}

fn tag(name: &str, weight: u32) -> Option<TenantTag> {
    TenantTag::new(name, weight)
}

#[test]
fn a_name_has_one_account_whichever_gateway_says_it() {
    let accounts = accounts();
    let [a, b] = ["a", "b"].map(|name| accounts.note_request(tag(name, 1).as_ref(), 0));
    assert_ne!(a, b);
    assert_eq!(accounts.note_request(tag("a", 1).as_ref(), 9), a);
    assert_eq!(accounts.note_request(None, 0), TenantAccount::NOBODY);
    let hash = accounts.stored_hash(b);
    assert_eq!(accounts.account_of_hash(hash), b);
    assert_eq!(TenantAccounts::default().stored_hash(TenantAccount::NOBODY), 0);
}

#[test]
fn shares_follow_tenants_that_come_and_go_and_the_last_weight() {
    let accounts = accounts();
    let kept = |account| accounts.holding(Memory, account).kept;
    let a = accounts.note_request(tag("a", 1).as_ref(), 0);
    assert_eq!(kept(a), 500);
    let b = accounts.note_request(tag("b", 3).as_ref(), 50);
    assert_eq!((kept(a), kept(b)), (125, 375));
    accounts.note_request(tag("b", 1).as_ref(), 50);
    assert_eq!((kept(a), kept(b)), (125, 375), "gateways may name other weights in turn");
    accounts.look_over(50);
    assert_eq!((kept(a), kept(b)), (250, 250));
    accounts.look_over(101);
    assert_eq!((kept(a), kept(b)), (0, 500), "the first has not asked for a while");
    assert!(accounts.party_of(b).is_alone);
    accounts.note_request(tag("a", 1).as_ref(), 101);
    assert_eq!((kept(a), kept(b)), (250, 250));
    assert!(!accounts.party_of(b).is_alone);
}

#[test]
fn strangers_have_no_share_and_jobs_have_one() {
    let accounts = accounts();
    let a = accounts.note_request(tag("a", 1).as_ref(), 0);
    accounts.note_request(None, 0);
    accounts.note_account(TenantAccount::JOBS, 0);
    let kept = |account| accounts.holding(Memory, account).kept;
    assert_eq!([TenantAccount::NOBODY, TenantAccount::JOBS, a].map(kept), [0, 250, 250]);
}

#[test]
fn tenants_beyond_the_accounts_share_one_and_bound_the_metrics() {
    let accounts = accounts();
    let name = |number: usize| format!("t{number}");
    for number in 0..TENANTS_MAX {
        let account = accounts.note_request(tag(&name(number), 1).as_ref(), 0);
        assert_eq!(account.index(), TenantAccount::FIXED + number);
    }
    for number in TENANTS_MAX..TENANTS_MAX + 3 {
        let account = accounts.note_request(tag(&name(number), 1).as_ref(), 0);
        assert_eq!(account, TenantAccount::OTHERS);
        accounts.count_evictions(Memory, account, 1);
    }
    assert_eq!(accounts.metrics.list_tables().len(), TENANTS_MAX + 1);
    assert_eq!(accounts.note_request(tag("t5", 1).as_ref(), 0).index(), TenantAccount::FIXED + 5);
}

#[test]
fn an_account_goes_to_another_once_its_tenant_left_nothing() {
    let accounts = accounts();
    let come =
        |number: usize, now_s| accounts.note_request(tag(&format!("t{number}"), 7).as_ref(), now_s);
    for number in 0..TENANTS_MAX {
        accounts.add_held(Memory, come(number, 0), 1);
    }
    let third = come(3, 0);
    assert_eq!(come(100, 0), TenantAccount::OTHERS, "each has a page");
    accounts.take_held(Memory, third, 1);
    assert_eq!(come(101, 0), TenantAccount::OTHERS, "each asked lately");
    accounts.look_over(200);
    let taken = come(102, 200);
    assert_eq!(taken, third);
    let holding = accounts.holding(Memory, taken);
    assert_eq!((holding.held, holding.weight, holding.is_active), (0, 7, true));
    assert_eq!(come(3, 200), TenantAccount::OTHERS, "it comes back too late");
    accounts.add_held(Memory, taken, 10);
    accounts.look_over(200);
    assert_eq!(accounts.metrics.list_tables().len(), TENANTS_MAX + 1);
    assert_eq!(accounts.metrics_of(TenantAccount::OTHERS).bytes[Memory].get(), 10);
    assert_eq!(accounts.metrics.select_table("t3").bytes[Memory].get(), 0);
}

#[test]
fn disk_pages_of_gone_tenants_leave_accounts_to_those_who_ask() {
    let accounts = accounts();
    for number in 0..1000 {
        let hash = tag(&format!("gone{number}"), 1).unwrap().name.stable_hash();
        accounts.add_held(TenantTier::Disk, accounts.account_of_hash(hash), 1);
    }
    for number in 0..TENANTS_MAX / 2 {
        let account = accounts.note_request(tag(&format!("t{number}"), 1).as_ref(), 0);
        assert!(account.index() >= TenantAccount::FIXED, "{number}");
    }
    let others = accounts.account_of_hash(accounts.stored_hash(TenantAccount::OTHERS));
    assert_eq!(others, TenantAccount::OTHERS, "after the next restart, too");
}

#[test]
fn pages_of_a_tenant_that_has_not_asked_yet_are_its_own() {
    let accounts = accounts();
    let hash = tag("a", 1).unwrap().name.stable_hash();
    let account = accounts.account_of_hash(hash);
    accounts.add_held(Memory, account, 10);
    accounts.look_over(0);
    assert_eq!(accounts.metrics_of(TenantAccount::OTHERS).bytes[Memory].get(), 10);
    assert_eq!(accounts.note_request(tag("a", 2).as_ref(), 0), account);
    accounts.look_over(0);
    assert_eq!(accounts.metrics_of(account).bytes[Memory].get(), 10);
    assert_eq!(accounts.metrics.list_tables().len(), 2);
}

#[test]
fn a_queue_has_places_for_each_up_to_its_part() {
    let accounts = accounts();
    let a = accounts.note_request(tag("a", 1).as_ref(), 0);
    assert!(!accounts.is_below_part(a, 10), "alone there are no parts");
    let b = accounts.note_request(tag("b", 4).as_ref(), 0);
    (0..2).for_each(|_| accounts.join_queue(a));
    assert!(!accounts.is_below_part(a, 10) && accounts.is_below_part(b, 10));
    accounts.leave_queue(a);
    assert!(accounts.is_below_part(a, 10));
}

#[test]
fn a_tag_that_no_honest_gateway_sends_does_no_harm() {
    let accounts = accounts();
    for (sent, counts) in [(0, 1), (u16::MAX, u64::from(TENANT_WEIGHT_MAX))] {
        let tag = TenantTag { weight: sent, ..tag("a", 1).unwrap() };
        let account = accounts.note_request(Some(&tag), 0);
        assert_eq!(accounts.holding(Memory, account).weight, counts);
    }
    for name in ["(jobs)", "(others)", "(nobody)"] {
        let account = accounts.note_request(tag(name, 1).as_ref(), 0);
        assert!(account.index() >= TenantAccount::FIXED, "{name}");
        accounts.add_held(Memory, account, 10);
    }
    accounts.look_over(0);
    assert_eq!(accounts.metrics_of(TenantAccount::OTHERS).bytes[Memory].get(), 30);
    assert_eq!(accounts.metrics.select_table("(jobs)").bytes[Memory].get(), 0);
}
