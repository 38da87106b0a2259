//! What was learnt of objects, each with the generation and the moment at which it was asked.
//!
//! Removes nothing when a write passes: an entry of an older generation is never found again.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache as Quick;
use verbs3_protocol::{Attributes, Generation, Shown, UfsAnswer, Version};

use super::Ages;
use crate::clock::{Moment, Times};
use crate::digest::{AttributesKey, DigestState};

/// What the UFS said.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    Present(Arc<Attributes>),
    /// The answer has a body only if a GET was asked.
    Absent(Arc<UfsAnswer>),
}

impl Found {
    /// Whether a listing shows another state (`None`: that there is no object).
    pub(crate) fn is_contradicted(&self, shown: Option<&Shown>) -> bool {
        match (self, shown) {
            (Self::Absent(_), None) => false,
            (Self::Absent(_), Some(_)) | (Self::Present(_), None) => true,
            (Self::Present(attributes), Some(shown)) => shown.contradicts(attributes),
        }
    }

    pub(crate) fn is_of(&self, version: &Version) -> bool {
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
pub(crate) struct Known {
    pub(crate) generation: Generation,
    /// When the question was sent.
    pub(crate) asked: Moment,
    /// What the host's own clock had missed by then.
    pub(crate) missed: Duration,
    pub(crate) found: Found,
}

impl Known {
    /// What the host's own clock has missed since.
    fn missed_since(&self, times: Times) -> Duration {
        times.missed().saturating_sub(self.missed)
    }

    /// When it was asked, as a clock that misses nothing would say. `None`: before this one began.
    pub(crate) fn asked_by(&self, times: Times) -> Option<Moment> {
        let missed = u64::try_from(self.missed_since(times).as_nanos()).ok()?;
        self.asked.nanos().checked_sub(missed).map(Moment::from_nanos)
    }
}

/// What an asker needs of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) checksums: bool,
    /// An error's body: a GET's client sees it.
    pub(crate) error_body: bool,
}

/// Bytes that one place of the cache stands for: attributes with usual headers take about as many.
const PLACE_BYTES: u64 = 512;

#[derive(Clone)]
struct Places;

impl Weighter<AttributesKey, Known> for Places {
    fn weight(&self, _: &AttributesKey, known: &Known) -> u64 {
        let headers = |headers: &[(String, Vec<u8>)]| -> u64 {
            headers.iter().map(|(name, value)| (name.len() + value.len() + 64) as u64).sum()
        };
        let bytes = match &known.found {
            Found::Present(attributes) => {
                attributes.version.etag.len() as u64 + headers(&attributes.headers)
            }
            Found::Absent(answer) => answer.body.len() as u64 + headers(&answer.headers),
        };
        (bytes / PLACE_BYTES).max(1)
    }
}

pub(crate) struct Cache {
    entries: Quick<AttributesKey, Known, Places, DigestState>,
}

impl Cache {
    pub(crate) fn new(places: usize) -> Self {
        let entries =
            Quick::with(places, places as u64, Places, DigestState::default(), Default::default());
        Self { entries }
    }

    pub(crate) fn insert(&self, key: AttributesKey, known: Known) {
        self.entries.insert(key, known);
    }

    /// What may be answered to an asker that was admitted under `generation`.
    pub(crate) fn get(
        &self,
        key: AttributesKey,
        generation: Generation,
        times: Times,
        ages: Ages,
        needs: Needs,
    ) -> Option<Known> {
        let known = self.entries.get(&key).filter(|known| known.generation == generation)?;
        let (age, complete) = match &known.found {
            Found::Present(attributes) => {
                (ages.attributes, attributes.checksums_known || !needs.checksums)
            }
            Found::Absent(answer) => (ages.absence, !answer.body.is_empty() || !needs.error_body),
        };
        // The truth may be older than the host's own clock says.
        let old = times.now.since(known.asked) + known.missed_since(times);
        (complete && age.accepts(old)).then_some(known)
    }

    /// What was known last, under this generation, however old: enough to choose how to ask.
    pub(crate) fn hint(
        &self,
        key: AttributesKey,
        generation: Generation,
    ) -> Option<Arc<Attributes>> {
        let known = self.entries.peek(&key).filter(|known| known.generation == generation)?;
        match known.found {
            Found::Present(attributes) => Some(attributes),
            Found::Absent(_) => None,
        }
    }

    /// Whether what is known under this generation is of another state than a listing showed
    /// (`None`: that there is no object).
    pub(crate) fn is_contradicted(
        &self,
        key: AttributesKey,
        generation: Generation,
        shown: Option<&Shown>,
    ) -> bool {
        let known = self.entries.peek(&key).filter(|known| known.generation == generation);
        known.is_some_and(|known| known.found.is_contradicted(shown))
    }

    /// Whether this answer replaces the attributes that are known under this generation; `None`:
    /// nothing is known.
    pub(crate) fn is_replaced(
        &self,
        key: AttributesKey,
        generation: Generation,
        found: &Found,
    ) -> Option<bool> {
        let known = self.entries.peek(&key).filter(|known| known.generation == generation)?;
        Some(found.replaces(&known.found))
    }

    /// Whether the answer to the question of that moment is what is known still.
    pub(crate) fn is_still_known(
        &self,
        key: AttributesKey,
        generation: Generation,
        asked: Moment,
    ) -> bool {
        let known = self.entries.peek(&key);
        known.is_some_and(|known| known.generation == generation && known.asked == asked)
    }

    /// Whether anything is known under this generation.
    pub(crate) fn knows(&self, key: AttributesKey, generation: Generation) -> bool {
        self.entries.peek(&key).is_some_and(|known| known.generation == generation)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
