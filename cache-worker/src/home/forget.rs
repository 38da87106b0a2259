//! Answers `ForgetMessage`: drops the attributes of these keys. Blocks stay, because they belong to
//! versions, which do not change.

use verbs3_protocol::{ForgetMessage, ForgetPrefix, KeyGeneration, WriteLeaseState};

use super::{AttributeHome, ChangeReceipt, ChangeResult};
use crate::attributes::RecallScope;
use crate::clock::WorkerInstant;
use crate::metrics::CountedRequest;

impl AttributeHome {
    pub(crate) fn answer_forget(&self, forget: &ForgetMessage) -> ChangeResult {
        self.metrics.requests[CountedRequest::Forget].inc();
        self.checks.check_volume_name(&forget.volume)?;
        let hashes = self.checks.hash_keys(&forget.volume, &forget.keys)?;
        self.metrics.generations_raised.inc_by(hashes.len() as u64);
        let generation = self.coherence.raise_generations(&hashes, self.clock.now());
        Ok(ChangeReceipt {
            generation,
            hold: WriteLeaseState::Leased,
            concerned: RecallScope::Keys(hashes),
        })
    }

    /// Recalls all leases and raises no generation: the keys that begin so are not known.
    pub(crate) fn forget_prefix(&self, forget: &ForgetPrefix) -> ChangeResult {
        self.metrics.requests[CountedRequest::Forget].inc();
        self.checks.check_volume_name(&forget.volume)?;
        self.voids.add_prefix(&forget.volume, &forget.prefix, self.clock.now());
        self.grants.recall_all();
        Ok(ChangeReceipt {
            generation: KeyGeneration::default(),
            hold: WriteLeaseState::Leased,
            concerned: RecallScope::All,
        })
    }

    /// Makes void what was learnt below prefixes whose doubt is over, and ends the doubt. Recalls no
    /// leases but those that were granted in doubt.
    pub(crate) fn end_prefix_doubts(&self, now: WorkerInstant) {
        self.voids.sweep_over(now);
        let ended = self.coherence.expired_prefixes(now);
        if ended.is_empty() {
            return;
        }
        for doubted in &ended {
            self.voids.add_passing_prefix(&doubted.volume, &doubted.prefix, now);
        }
        self.grants.recall_doubted();
        self.coherence.end_prefix_doubts(&ended, now);
    }
}
