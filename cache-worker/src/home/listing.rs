//! Answers `ListingMessage`: compares the cached attributes of these keys with a listing, and drops
//! those that differ. Caches nothing: a listing has fewer attributes than an object. The answers of
//! checks under way are compared with the listing too. A lease on attributes that are no longer
//! cached here is recalled.

use verbs3_protocol::{KeyGeneration, ListingMessage, ObjectKey, WriteLeaseState};

use super::{AttributeHome, ChangeReceipt, ChangeResult};
use crate::attributes::RecallScope;
use crate::metrics::CountedRequest;

impl AttributeHome {
    pub(crate) fn answer_listed(&self, listed: ListingMessage) -> ChangeResult {
        self.metrics.requests[CountedRequest::Listed].inc();
        self.checks.check_volume_and_keys(&listed.volume, listed.entries.len())?;
        let now = self.clock.now();
        let mut object = ObjectKey { volume: listed.volume, key: String::new() };
        let (mut newest, mut void) = (KeyGeneration::default(), Vec::new());
        for entry in listed.entries {
            object.key = entry.key;
            let hash = object.hash();
            let key = self.digests.attributes_key(&object, None);
            // First, before the generation is read: what a check installs from here on is held
            // against it there, and what one has installed is under the generation below.
            self.fetcher.checks.note_listed(key, entry.shown.as_ref());
            // While a write is open nothing is answered from here, and its report makes all void.
            let Ok(generation) = self.coherence.admit_key(hash, now) else { continue };
            if self.attributes.is_contradicted(key, generation, entry.shown.as_ref())
                || self.is_leased_unseen(hash, key, generation)
            {
                newest = newest.max(self.coherence.raise_generations(&[hash], now));
                void.push(hash);
                self.metrics.listing_contradictions.inc();
                self.metrics.generations_raised.inc();
            }
        }
        let concerned = if void.is_empty() { RecallScope::Nobody } else { RecallScope::Keys(void) };
        Ok(ChangeReceipt { generation: newest, hold: WriteLeaseState::Leased, concerned })
    }
}
