//! What was learnt of objects, each with the generation and the moment at which it was asked.
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

/// What the UFS said.
#[derive(Debug, Clone)]
pub(crate) enum ObjectPresence {
    Present(Arc<HeadAttributes>),
    /// The answer has a body only if a GET was asked.
    Absent(Arc<UfsAnswer>),
}

impl ObjectPresence {
    /// Whether a listing shows another state (`None`: that there is no object).
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

    /// Whether an older answer showed attributes of another state. Headers are not compared: a GET
    /// may have others than a HEAD.
    fn replaces(&self, older: &Self) -> bool {
        match (self, older) {
            (_, Self::Absent(_)) => false,
            (Self::Absent(_), Self::Present(_)) => true,
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
    /// When the question was sent.
    pub(crate) asked: WorkerInstant,
    /// What the host's own clock had missed by then.
    pub(crate) missed: Duration,
    pub(crate) found: ObjectPresence,
}

impl AttributeCacheEntry {
    /// What the host's own clock has missed since.
    fn missed_since(&self, times: ClockReading) -> Duration {
        times.missed().saturating_sub(self.missed)
    }

    /// When it was asked, as a clock that misses nothing would say. `None`: before this one began.
    pub(crate) fn asked_by(&self, times: ClockReading) -> Option<WorkerInstant> {
        let missed = u64::try_from(self.missed_since(times).as_nanos()).ok()?;
        self.asked.as_nanos().checked_sub(missed).map(WorkerInstant::from_nanos)
    }
}

/// What an asker needs of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerRequirements {
    pub(crate) checksums: bool,
    /// An error's body: a GET's client sees it.
    pub(crate) error_body: bool,
}

/// Bytes that one place of the cache stands for: attributes with usual headers take about as many.
const PLACE_BYTES: u64 = 512;

#[derive(Clone)]
struct AttributeEntryWeighter;

impl Weighter<AttributesKey, AttributeCacheEntry> for AttributeEntryWeighter {
    fn weight(&self, _: &AttributesKey, known: &AttributeCacheEntry) -> u64 {
        let headers = |headers: &[(String, Vec<u8>)]| -> u64 {
            headers.iter().map(|(name, value)| (name.len() + value.len() + 64) as u64).sum()
        };
        let bytes = match &known.found {
            ObjectPresence::Present(attributes) => {
                attributes.version.etag.len() as u64 + headers(&attributes.headers)
            }
            ObjectPresence::Absent(answer) => answer.body.len() as u64 + headers(&answer.headers),
        };
        (bytes / PLACE_BYTES).max(1)
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

    /// What may be answered to an asker that was admitted under `generation`.
    pub(crate) fn get(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
        times: ClockReading,
        ages: AnswerAgeLimits,
        needs: AnswerRequirements,
    ) -> Option<AttributeCacheEntry> {
        let known = self.entries.get(&key).filter(|known| known.generation == generation)?;
        let (age, complete) = match &known.found {
            ObjectPresence::Present(attributes) => {
                (ages.attributes, attributes.checksums_known || !needs.checksums)
            }
            ObjectPresence::Absent(answer) => {
                (ages.absence, !answer.body.is_empty() || !needs.error_body)
            }
        };
        // The truth may be older than the host's own clock says.
        let old = times.now.duration_since(known.asked) + known.missed_since(times);
        (complete && age.accepts_age(old)).then_some(known)
    }

    /// What was known last, under this generation, however old: enough to choose how to ask.
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

    /// Whether what is known under this generation is of another state than a listing showed
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

    /// Whether this answer replaces the attributes that are known under this generation; `None`:
    /// nothing is known.
    pub(crate) fn is_replaced(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
        found: &ObjectPresence,
    ) -> Option<bool> {
        let known = self.entries.peek(&key).filter(|known| known.generation == generation)?;
        Some(found.replaces(&known.found))
    }

    /// Whether the answer to the question of that moment is what is known still.
    pub(crate) fn is_still_known(
        &self,
        key: AttributesKey,
        generation: KeyGeneration,
        asked: WorkerInstant,
    ) -> bool {
        let known = self.entries.peek(&key);
        known.is_some_and(|known| known.generation == generation && known.asked == asked)
    }

    /// Whether anything is known under this generation.
    pub(crate) fn has_entry(&self, key: AttributesKey, generation: KeyGeneration) -> bool {
        self.entries.peek(&key).is_some_and(|known| known.generation == generation)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
