//! Tenants inside a worker: an account for each, with what it holds of memory and disks, and what
//! of that others must leave to it.
//!
//! Owns the accounts and the rules of shares. Evicts nothing, and queues nobody: the tiers and the
//! fills ask it. A page is counted once, for the tenant that filled it or, where several use it, for
//! the one of them that holds less for its weight. So it is evicted when nobody who uses it is below
//! its share, and stays when one of them leaves.

mod account_holdings;
mod account_table;
mod share_rule;
mod waiting_accounts;

pub(crate) use account_holdings::AccountHoldings;
pub(crate) use account_table::{TenantAccounts, TenantRules, TenantTier, WorkerTenantMetrics};
pub(crate) use share_rule::{ACCOUNTS_MAX, AccountSet, EvictionRights, TenantAccount};
pub(crate) use waiting_accounts::{TurnsRefused, WaitingAccounts};
