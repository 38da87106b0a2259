//! What is known of objects: attributes, absences, and the right to answer from them.
//!
//! Owns generations and open writes (`coherence`), what was learnt and when (`cache`), who asks the
//! UFS for whom (`checks`, `ask`), and which gateways may answer by themselves (`grants`, `reads`).
//! Holds no bytes of objects.

mod ask;
mod cache;
mod checks;
mod coherence;
mod doubts;
mod grants;
mod identity;
mod reads;

use std::sync::Arc;
use std::time::Duration;

use verbs3_protocol::{Attributes, Generation, KeyHash, ObjectKey, RefusalKind, UfsAnswer};

use crate::digest::AttributesKey;
use crate::fill::{Interest, Source};
use crate::standing::Right;

pub(crate) use ask::Asker;
pub(crate) use cache::{Cache, Found, Needs};
pub(crate) use checks::{Asking, Checks, Plan};
pub(crate) use coherence::Coherence;
pub(crate) use doubts::DoubtOptions;
pub(crate) use grants::{Concerned, GrantOptions, Grants, Ungranted};
pub(crate) use reads::Reads;

/// Whose attributes are asked.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) object: ObjectKey,
    pub(crate) hash: KeyHash,
    pub(crate) key: AttributesKey,
    /// A version id that the client named.
    pub(crate) version_id: Option<String>,
    pub(crate) source: Arc<Source>,
}

/// How old an answer may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    pub(crate) attributes: Age,
    pub(crate) absence: Age,
}

impl Ages {
    /// None older than that.
    pub(crate) fn at_most(self, max: Option<Duration>) -> Self {
        Self { attributes: self.attributes.at_most(max), absence: self.absence.at_most(max) }
    }
}

/// The greatest age that an asker accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Nothing that was asked before the asker came.
    AlwaysAsk,
    UpTo(Duration),
    Any,
}

impl Age {
    /// As messages carry it.
    pub(crate) fn from_ms(ms: u64) -> Self {
        match ms {
            0 => Self::AlwaysAsk,
            u64::MAX => Self::Any,
            ms => Self::UpTo(Duration::from_millis(ms)),
        }
    }

    /// No older than what the worker may answer with.
    pub(crate) fn within(self, right: Right) -> Self {
        match (self, right) {
            (age, Right::All) => age,
            (_, Right::Ask) | (Self::AlwaysAsk, _) => Self::AlwaysAsk,
            (Self::UpTo(max), Right::Since(since)) => Self::UpTo(max.min(since)),
            (Self::Any, Right::Since(since)) => Self::UpTo(since),
        }
    }

    /// No older than that.
    pub(crate) fn at_most(self, max: Option<Duration>) -> Self {
        match (self, max) {
            (age, None) | (age @ Self::AlwaysAsk, _) => age,
            (Self::UpTo(age), Some(max)) => Self::UpTo(age.min(max)),
            (Self::Any, Some(max)) => Self::UpTo(max),
        }
    }

    pub(crate) fn accepts(self, age: Duration) -> bool {
        match self {
            Self::AlwaysAsk => false,
            Self::UpTo(max) => age <= max,
            Self::Any => true,
        }
    }
}

/// What a check came to. Shared by all that waited for it.
pub(crate) enum Outcome {
    Present {
        attributes: Arc<Attributes>,
        generation: Generation,
        /// Keeps the pages that came with the answer coming, until all who waited have claimed
        /// theirs.
        coming: Option<Interest>,
    },
    Absent {
        answer: Arc<UfsAnswer>,
        generation: Generation,
    },
    /// A write passed while the UFS was asked: the answer may be older than that.
    Moved,
    /// A write is open.
    Uncertain,
    Refused(RefusalKind, String),
}
