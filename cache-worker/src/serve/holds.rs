//! Answers `HoldsMessage`: whether this worker probably has a page of an object, for a worker that
//! may ask for it.

use verbs3_protocol::{HoldsMessage, HoldsReply};

use crate::metrics::CountedRequest;
use crate::serve_refusal::ServeRefusal;
use crate::worker::CacheWorker;

impl CacheWorker {
    pub(super) fn answer_holds(&self, holds: &HoldsMessage) -> Result<HoldsReply, ServeRefusal> {
        self.metrics.requests[CountedRequest::Holds].inc();
        self.checks.check_geometry(holds.geometry)?;
        let (object, page) = (&holds.object, holds.page.0);
        let key = self.pages.digests.attributes_key(object, holds.version_id.as_deref());
        // Only the pages matter here, not whether this worker may still answer for the attributes.
        let known = self
            .home
            .attributes
            .peek_attributes(key, self.home.coherence.current_generation(object.hash()));
        let likely = match known {
            Some(known) => self
                .pages
                .filler
                .holds_first_page(self.pages.digests.digest_version(object, &known.version), page),
            None => self.pages.filler.may_hold(object, page),
        };
        Ok(HoldsReply { likely })
    }
}
