//! The cache of answers about objects, each with the generation and the moment of its request.
//!
//! Removes nothing when a write passes: an entry of an older generation is never found again.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache as Quick;
use verbs3_protocol::{ContentVersion, HeadAttributes, KeyGeneration, ListedAttributes, UfsAnswer};

use super::AnswerAgeLimits;
use crate::clock::{ClockReading, WorkerInstant};
use crate::digest::{AttributesKey, DigestState};

/// The UFS's answer about an object.
#[derive(Debug, Clone)]
pub(crate) enum ObjectPresence {
    Present(Arc<HeadAttributes>),
    /// The answer has a body only if a GET was sent.
    Absent(Arc<UfsAnswer>),
}

impl ObjectPresence {
    /// Returns whether a listing shows another state (`None`: that there is no object).
    pub(crate) fn is_contradicted(&self, shown: Option<&ListedAttributes>) -> bool {
        match (self, shown) {
            (Self::Absent(_), None) => false,
            (Self::Absent(_), Some(_)) | (Self::Present(_), None) => true,
            (Self::Present(attributes), Some(shown)) => shown.contradicts_attributes(attributes),
        }
    }

    pub(crate) fn is_of(&self, version: &ContentVersion) -> bool {
        match self {
            Self::Present(attributes) => attributes.version == *version,
            Self::Absent(_) => false,
        }
    }

    /// Returns whether an older answer showed another state. Headers are not compared: a GET may
    /// have others than a HEAD.
    fn replaces(&self, older: &Self) -> bool {
        match (self, older) {
            (Self::Absent(_), Self::Absent(_)) => false,
            (Self::Absent(_), Self::Present(_)) | (Self::Present(_), Self::Absent(_)) => true,
            (Self::Present(new), Self::Present(old)) => {
                new.version != old.version
                    || new.last_modified.zip(old.last_modified).is_some_and(|(new, old)| new != old)
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct AttributeCacheEntry {
    pub(crate) generation: KeyGeneration,
    /// When the request was sent.
    pub(crate) asked: WorkerInstant,
    /// Time that the host's own clock had missed by then.
    pub(crate) missed: Duration,
    /// The store was asked while it could still complete a lost write of the key. The answer counts
    /// only until that doubt ends.
    pub(crate) in_doubt: bool,
    pub(crate) found: ObjectPresence,
}

impl AttributeCacheEntry {
    /// Returns what the host's own clock has missed since.
    fn missed_since(&self, times: ClockReading) -> Duration {
        times.missed().saturating_sub(self.missed)
    }

    /// Returns when the request was sent, by a clock that misses nothing. `None`: before this clock
    /// began.
    pub(crate) fn asked_by(&self, times: ClockReading) -> Option<WorkerInstant> {
        let missed = u64::try_from(self.missed_since(times).as_nanos()).ok()?;
        self.asked.as_nanos().checked_sub(missed).map(WorkerInstant::from_nanos)
    }
}

/// The properties that an answer must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerRequirements {
    pub(crate) checksums: bool,
    /// An error needs its body, because the client sent a GET and sees it.
    pub(crate) error_body: bool,
}

/// Bytes for one unit of the cache's capacity. Attributes with usual headers take about as many.
const PLACE_BYTES: u64 = 512;

#[derive(Clone)]
struct AttributeEntryWeighter;

impl Weighter<AttributesKey, AttributeCacheEntry> for AttributeEntryWeighter {
    fn weight(&self, _: &AttributesKey, known: &AttributeCacheEntry) -> u64 {
        let bytes = match &known.found {
            ObjectPresence::Present(attributes) => {
                attributes.version.etag.len() + attributes.headers.memory_bytes()
            }
            ObjectPresence::Absent(answer) => answer.body.len() + answer.headers.memory_bytes(),
        };
        (bytes as u64 / PLACE_BYTES).max(1)
    }
}

pub(crate) struct AttributeCache {
    entries: Quick<AttributesKey, AttributeCacheEntry, AttributeEntryWeighter, DigestState>,
}

impl AttributeCache {
    pub(crate) fn new(places: usize) -> Self {
        let entries = Quick::with(
            places,
            places as u64,
            AttributeEntryWeighter,
            DigestState::default(),
            Default::default(),
        );
        Self { entries }
    }

    pub(crate) fn insert(&self, key: AttributesKey, known: AttributeCacheEntry) {
        self.entries.insert(key, known);
    }

    /// Returns what may be answered to a read that was admitted under `generation`.
    pub(crate) fn get(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
        times: ClockReading,
        ages: AnswerAgeLimits,
        needs: AnswerRequirements,
    ) -> Option<AttributeCacheEntry> {
        let counts = |known: &AttributeCacheEntry| {
            known.generation == generation && (ages.accepts_doubted || !known.in_doubt)
        };
        let known = self.entries.get(&key).filter(counts)?;
        let (age, complete) = match &known.found {
            ObjectPresence::Present(attributes) => {
                (ages.attributes, attributes.checksums_known || !needs.checksums)
            }
            ObjectPresence::Absent(answer) => {
                (ages.absence, !answer.body.is_empty() || !needs.error_body)
            }
        };
        // The answer may be older than the host's own clock says.
        let old = times.now.duration_since(known.asked) + known.missed_since(times);
        (complete && age.accepts_age(old)).then_some(known)
    }

    /// Returns the last answer under this generation, however old: enough to choose how to ask.
    pub(crate) fn peek_attributes(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
    ) -> Option<Arc<HeadAttributes>> {
        let known = self.entries.peek(&key).filter(|known| known.generation == generation)?;
        match known.found {
            ObjectPresence::Present(attributes) => Some(attributes),
            ObjectPresence::Absent(_) => None,
        }
    }

    /// Returns whether the entry under this generation shows another state than a listing did
    /// (`None`: that there is no object).
    pub(crate) fn is_contradicted(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
        shown: Option<&ListedAttributes>,
    ) -> bool {
        let known = self.entries.peek(&key).filter(|known| known.generation == generation);
        known.is_some_and(|known| known.found.is_contradicted(shown))
    }

    /// Returns whether this answer shows another state than what is known under this generation;
    /// `None`: nothing is known.
    pub(crate) fn is_replaced(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
        found: &ObjectPresence,
    ) -> Option<bool> {
        let known = self.entries.peek(&key).filter(|known| known.generation == generation)?;
        Some(found.replaces(&known.found))
    }

    /// Returns whether the answer to the request of that moment is still the cached one.
    pub(crate) fn is_still_known(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
        asked: WorkerInstant,
    ) -> bool {
        let known = self.entries.peek(&key);
        known.is_some_and(|known| known.generation == generation && known.asked == asked)
    }

    /// Returns whether anything is known under this generation.
    pub(crate) fn has_entry(&self, key: AttributesKey, generation: KeyGeneration) -> bool {
        self.entries.peek(&key).is_some_and(|known| known.generation == generation)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
