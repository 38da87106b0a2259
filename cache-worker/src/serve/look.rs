//! Answers `ObjectLookMessage`: says of many objects whether their attributes are known, and which
//! of their first pages are here.

use verbs3_protocol::{
    BlockIndex, LOOKED_OBJECTS_MAX, LookedFor, ObjectHoldings, ObjectKey, ObjectLookMessage,
    ObjectLookReply, PageIndex,
};

use crate::attributes::{AnswerAgeLimits, AnswerRequirements, AttributeMaxAge, ObjectPresence};
use crate::clock::ClockReading;
use crate::metrics::CountedRequest;
use crate::serve_refusal::ServeRefusal;
use crate::worker::CacheWorker;

impl CacheWorker {
    pub(super) fn answer_look(
        &self,
        look: ObjectLookMessage,
    ) -> Result<ObjectLookReply, ServeRefusal> {
        self.metrics.requests[CountedRequest::Warm].inc();
        self.home
            .standing
            .is_at(look.epoch)
            .map_err(|denied| ServeRefusal::for_denial(denied, look.epoch))?;
        self.checks.check_geometry(look.geometry)?;
        self.checks.check_volume(&look.volume)?;
        if look.objects.len() > LOOKED_OBJECTS_MAX {
            return Err(ServeRefusal::ObjectCount(look.objects.len()));
        }
        let times = self.clock.read_times();
        let mut object = ObjectKey { volume: look.volume.clone(), key: String::new() };
        let mut objects = Vec::with_capacity(look.objects.len());
        for wanted in &look.objects {
            object.key.clone_from(&wanted.key);
            objects.push(self.have_of(&look, &object, wanted, times));
        }
        Ok(ObjectLookReply { life: self.home.life, objects })
    }

    /// Looks up one object under the same conditions as an open from the cache, with the checksums
    /// that clients request by default.
    fn have_of(
        &self,
        look: &ObjectLookMessage,
        object: &ObjectKey,
        wanted: &LookedFor,
        times: ClockReading,
    ) -> Option<ObjectHoldings> {
        let now = times.now;
        let right = self.home.standing.to_answer(look.epoch, object.home_slot(), times).ok()?;
        let (hash, coherence) = (object.hash(), &self.home.coherence);
        // Ending a doubt adds an invalidation first, so read doubts before invalidations.
        let doubted = coherence.doubted_age(object, hash);
        let right = right.limit_to_age(self.home.voids.latest_age(object, now));
        let age = AttributeMaxAge::from_ms(look.attributes_age_ms_max).limit_to_right(right);
        let absence = AttributeMaxAge::from_ms(0);
        let ages = AnswerAgeLimits { attributes: age, absence, accepts_doubted: false };
        let needs = AnswerRequirements { checksums: true, error_body: false };
        let generation = coherence.admit_key(hash, now).ok()?;
        let doubted_since = coherence.doubted_age(object, hash);
        let ages = ages.limit_to_doubt(doubted).limit_to_doubt(doubted_since);
        let known = self.home.attributes.get(
            self.pages.digests.attributes_key(object, None),
            generation,
            times,
            ages,
            needs,
        )?;
        let ObjectPresence::Present(attributes) = known.found else { return None };
        let version = attributes.version.clone();
        let digest = self.pages.digests.digest_version(object, &version);
        let block_len = self.checks.geometry.block_len(version.bytes, BlockIndex(0));
        let end = self
            .checks
            .geometry
            .touched_pages(&(0..block_len))
            .end
            .min(wanted.first_page.saturating_add(wanted.pages));
        let mut here = ObjectHoldings { version, held_bytes: 0, missing_bytes: 0 };
        for page in wanted.first_page..end {
            let is_here = self.pages.is_page_here(digest, BlockIndex(0), page, look.tier);
            *(if is_here { &mut here.held_bytes } else { &mut here.missing_bytes }) +=
                self.checks.geometry.page_len(block_len, PageIndex(page));
        }
        Some(here)
    }
}
