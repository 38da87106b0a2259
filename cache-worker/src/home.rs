//! This worker as the home of keys: decides what it says of their objects, and to whom it leases
//! that.
//!
//! Judges each question by this worker's map and lease ([`crate::standing`]) and by what the asker
//! accepts. The tables of answers, open writes and leases are in [`crate::attributes`]. Sends no
//! bytes: pages belong to [`crate::pages`].

mod announce;
mod forget;
mod gone_version;
mod leases;
mod listing;
mod open_operation;
pub(crate) mod open_plan;
mod report;

use std::sync::Arc;
use std::time::Duration;

use verbs3_protocol::{KeyGeneration, WriteLeaseState};

pub(crate) use open_operation::{LearnedAttributes, OpenAttemptError, OpenOperation};

use crate::attributes::{
    AttributeCache, AttributeFetcher, CoherenceTable, KeyReadCounter, LeaseGrantTable, RecallScope,
};
use crate::clock::WorkerClock;
use crate::digest::KeyedDigester;
use crate::invalidations::InvalidationList;
use crate::metrics::{BusyReason, WorkerMetrics};
use crate::question_checks::QuestionChecks;
use crate::serve_refusal::ServeRefusal;
use crate::standing::WorkerStanding;
use crate::tenants::{TenantAccount, TenantAccounts};

/// The policy for leases to gateways.
pub(crate) struct LeaseGrantPolicy {
    /// 0: no lease is granted.
    pub(crate) length: Duration,
    pub(crate) reads_min: u32,
    pub(crate) quiet: Duration,
}

/// What this worker knows and promises as the home of keys.
pub(crate) struct AttributeHome {
    pub(crate) standing: WorkerStanding,
    pub(crate) uncertain_max: Duration,
    pub(crate) checks: Arc<QuestionChecks>,
    pub(crate) tenants: Arc<TenantAccounts>,
    pub(crate) digests: KeyedDigester,
    pub(crate) coherence: Arc<CoherenceTable>,
    pub(crate) grants: Arc<LeaseGrantTable>,
    pub(crate) reads: KeyReadCounter,
    pub(crate) leases: LeaseGrantPolicy,
    pub(crate) attributes: Arc<AttributeCache>,
    pub(crate) fetcher: Arc<AttributeFetcher>,
    pub(crate) voids: InvalidationList,
    /// Random number of this process. A client that was answered under another number asks again.
    pub(crate) life: u64,
    pub(crate) clock: Arc<dyn WorkerClock>,
    pub(crate) metrics: WorkerMetrics,
}

/// The record of a change, which its acknowledgement needs.
pub(crate) struct ChangeReceipt {
    pub(crate) generation: KeyGeneration,
    /// The state of the lease when the change was recorded.
    pub(crate) hold: WriteLeaseState,
    /// The recalled leases to wait for before the acknowledgement.
    pub(crate) concerned: RecallScope,
}

pub(crate) type ChangeResult = Result<ChangeReceipt, ServeRefusal>;

impl AttributeHome {
    /// Refuses an announcement or a report for which there is no place, and counts it.
    fn refuse_write(&self, account: TenantAccount) -> ServeRefusal {
        self.metrics.busy[BusyReason::OpenWrites].inc();
        self.tenants.metrics_of(account).write_refusals.inc();
        ServeRefusal::TooManyWrites
    }
}
