//! The tables of object attributes: what is known of objects and absences, and what makes it void.
//! [`crate::home`] decides what is answered from them, and what a writer's message changes in them.
//!
//! Keeps generations (`generation_slots`) and open writes (`coherence_table`), how tenants share
//! their places (`account_places`), what lost writes leave (`doubt_tracker`, `write_scopes`), the
//! answers and their ages (`attribute_cache`), the checks under way (`check_table`), and the leases
//! that gateways have (`lease_grants`, `read_counter`).
//!
//! A check is one question to the UFS about one object (`attribute_fetcher`). It may bring first
//! pages along. Their bytes go to `fill` at once: no bytes of objects are kept here.

mod account_places;
mod attribute_cache;
mod attribute_fetcher;
mod check_table;
mod coherence_table;
mod doubt_tracker;
mod generation_slots;
mod kept_answers;
mod lease_grants;
mod read_counter;
mod size_guess;
mod write_scopes;

use std::sync::Arc;
use std::time::Duration;

use verbs3_protocol::{
    ContentVersion, HeadAttributes, KeyGeneration, KeyHash, ObjectKey, UfsAnswer, WorkerRefusal,
};

use crate::digest::{AttributesKey, KeyedDigester};
use crate::fill::{FillTarget, RunInterest, VolumeSource};
use crate::standing::AnswerRight;
use crate::tenants::{AccountSet, TenantAccount};

pub(crate) use attribute_cache::{AnswerRequirements, AttributeCache, ObjectPresence};
pub(crate) use attribute_fetcher::AttributeFetcher;
pub(crate) use check_table::{
    AttributeCheckPlan, AttributeCheckTable, FirstBytesPlan, PendingAttributeRead,
};
pub(crate) use coherence_table::{CoherenceTable, HandedWrite, WrittenKeys};
pub(crate) use doubt_tracker::DoubtOptions;
pub(crate) use lease_grants::{
    GrantOptions, LeaseGrantError, LeaseGrantTable, NewLease, RecallScope,
};
pub(crate) use read_counter::KeyReadCounter;
pub(crate) use size_guess::ObjectSizeGuess;

/// The object whose attributes are requested.
#[derive(Clone)]
pub(crate) struct AttributeQuery {
    pub(crate) object: ObjectKey,
    pub(crate) hash: KeyHash,
    pub(crate) key: AttributesKey,
    /// A version id that the client named.
    pub(crate) version_id: Option<String>,
    pub(crate) source: Arc<VolumeSource>,
    /// For whom it is asked.
    pub(crate) account: TenantAccount,
}

impl AttributeQuery {
    /// Returns what to fill for a version of the object.
    pub(crate) fn fill_target(
        &self,
        version: &ContentVersion,
        digests: &KeyedDigester,
    ) -> Arc<FillTarget> {
        Arc::new(FillTarget {
            source: self.source.clone(),
            object: self.object.clone(),
            version: version.clone(),
            digest: digests.digest_version(&self.object, version),
            account: self.account,
        })
    }
}

/// The greatest ages that an answer may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerAgeLimits {
    pub(crate) attributes: AttributeMaxAge,
    pub(crate) absence: AttributeMaxAge,
    /// Answers that were learnt in doubt count, because the key is in doubt now.
    pub(crate) accepts_doubted: bool,
}

impl AnswerAgeLimits {
    /// Lowers both limits to what is believed of a key in doubt. `None`: it is in no doubt.
    pub(crate) fn limit_to_doubt(self, age_max: Option<Duration>) -> Self {
        Self {
            attributes: self.attributes.at_most(age_max),
            absence: self.absence.at_most(age_max),
            accepts_doubted: self.accepts_doubted || age_max.is_some(),
        }
    }
}

/// The greatest age that an asker accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeMaxAge {
    /// Accepts only answers that were requested after the asker arrived.
    AlwaysAsk,
    UpTo(Duration),
    Any,
}

impl AttributeMaxAge {
    /// Decodes the age limit of a message.
    pub(crate) fn from_ms(ms: u64) -> Self {
        match ms {
            0 => Self::AlwaysAsk,
            u64::MAX => Self::Any,
            ms => Self::UpTo(Duration::from_millis(ms)),
        }
    }

    /// Lowers the limit to what the worker has the right to answer.
    pub(crate) fn limit_to_right(self, right: AnswerRight) -> Self {
        match (self, right) {
            (age, AnswerRight::All) => age,
            (_, AnswerRight::Ask) | (Self::AlwaysAsk, _) => Self::AlwaysAsk,
            (Self::UpTo(max), AnswerRight::Since(since)) => Self::UpTo(max.min(since)),
            (Self::Any, AnswerRight::Since(since)) => Self::UpTo(since),
        }
    }

    /// Lowers the limit to `max`. `None` leaves it unchanged.
    pub(crate) fn at_most(self, max: Option<Duration>) -> Self {
        match (self, max) {
            (age, None) | (age @ Self::AlwaysAsk, _) => age,
            (Self::UpTo(age), Some(max)) => Self::UpTo(age.min(max)),
            (Self::Any, Some(max)) => Self::UpTo(max),
        }
    }

    pub(crate) fn accepts_age(self, age: Duration) -> bool {
        match self {
            Self::AlwaysAsk => false,
            Self::UpTo(max) => age <= max,
            Self::Any => true,
        }
    }
}

/// The result of a check, shared by all its waiters.
pub(crate) enum AttributeCheckOutcome {
    Present {
        attributes: Arc<HeadAttributes>,
        generation: KeyGeneration,
        /// Keeps the run going that fills the answer's pages, until every waiter has claimed its
        /// own.
        coming: Option<RunInterest>,
    },
    Absent {
        answer: Arc<UfsAnswer>,
        generation: KeyGeneration,
    },
    /// A write passed while the UFS was asked: the answer may be older than the write.
    Moved,
    /// A write is open.
    Uncertain,
    Refused(WorkerRefusal),
    /// None of these tenants got a turn to ask. A read of another one asks again.
    NoTurn {
        refusal: WorkerRefusal,
        asked: AccountSet,
    },
}
