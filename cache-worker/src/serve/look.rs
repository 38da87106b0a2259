//! Answers `Look`: of many objects, whether their attributes are known, and which of their first
//! pages are here.

use verbs3_protocol::{
    BlockIndex, Here, LOOKED_OBJECTS_MAX, Look, Looked, LookedFor, ObjectKey, PageIndex,
    Reply as Message, WarmTier,
};

use super::Refused;
use crate::attributes::{Age, Ages, Found, Needs};
use crate::clock::Times;
use crate::digest::{PageKey, VersionDigest};
use crate::worker::Worker;

impl Worker {
    pub(super) fn looked(&self, look: Look) -> Result<Message, Refused> {
        self.metrics.warms.inc();
        self.standing.is_at(look.epoch).map_err(|denied| Self::denied(denied, look.epoch))?;
        self.check_geometry(look.geometry)?;
        self.source(&look.volume)?;
        if look.objects.len() > LOOKED_OBJECTS_MAX {
            let reason = format!(
                "{} objects in one message; name {LOOKED_OBJECTS_MAX} at most",
                look.objects.len()
            );
            return Err(Refused::malformed(reason));
        }
        let times = self.clock.times();
        let mut object = ObjectKey { volume: look.volume.clone(), key: String::new() };
        let mut objects = Vec::with_capacity(look.objects.len());
        for wanted in &look.objects {
            object.key.clone_from(&wanted.key);
            objects.push(self.have_of(&look, &object, wanted, times));
        }
        Ok(Message::Looked(Looked { life: self.life, objects }))
    }

    /// By the same right as an open is answered from the cache, with the checksums that clients ask
    /// for by default.
    fn have_of(
        &self,
        look: &Look,
        object: &ObjectKey,
        wanted: &LookedFor,
        times: Times,
    ) -> Option<Here> {
        let now = times.now;
        let right = self.standing.to_answer(look.epoch, object.home_slot(), times).ok()?;
        let right = right.within(self.voids.since(object, now));
        let age = Age::from_ms(look.attributes_age_ms_max).within(right);
        let ages = Ages { attributes: age, absence: Age::from_ms(0) };
        let needs = Needs { checksums: true, error_body: false };
        let generation = self.coherence.admit(object.hash(), now).ok()?;
        let ages = ages.at_most(self.coherence.doubted_age(object.hash()));
        let known = self.attributes.get(
            self.digests.attributes(object, None),
            generation,
            times,
            ages,
            needs,
        )?;
        let Found::Present(attributes) = known.found else { return None };
        let version = attributes.version.clone();
        let digest = self.digests.version(object, &version);
        let block_len = self.geometry.block_len(version.bytes, BlockIndex(0));
        let end = self
            .geometry
            .pages(&(0..block_len))
            .end
            .min(wanted.first_page.saturating_add(wanted.pages));
        let mut here = Here { version, held_bytes: 0, missing_bytes: 0 };
        for page in wanted.first_page..end {
            let is_here = self.is_page_here(digest, BlockIndex(0), page, look.tier);
            *(if is_here { &mut here.held_bytes } else { &mut here.missing_bytes }) +=
                self.geometry.page_len(block_len, PageIndex(page));
        }
        Some(here)
    }

    /// On disk alone, where that is asked.
    pub(super) fn is_page_here(
        &self,
        digest: VersionDigest,
        block: BlockIndex,
        page: u16,
        tier: WarmTier,
    ) -> bool {
        let key: PageKey = digest.page(block, page);
        tier == WarmTier::Memory && self.filler.memory().holds(key) || self.is_on_disk(key)
    }
}
