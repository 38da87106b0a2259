//! Owns what a queue pair takes from whom: from the end of the handshake on, sealed chunks alone.

use super::super::chunk::{CHUNK_HEADER_BYTES, ChunkError, ChunkHeader};
use super::super::session_seals::{SenderSeals, TAG_BYTES};
use super::{QueuePairWire, QueuePairWireState};
use crate::metrics::SealedMatter;

impl QueuePairWire {
    /// Checks that a chunk is from the peer of the handshake.
    pub(super) fn check_seal(
        &self,
        state: &mut QueuePairWireState,
        buffer: u16,
        header: &ChunkHeader,
    ) -> Result<(), ChunkError> {
        if !header.sealed {
            // Credits that were on their way when the handshake ended are not sealed yet.
            let said = header.payload_bytes > 0 || header.end;
            let refused = state.sealed_only || (state.proven && said);
            return if refused { Err(ChunkError::Unsealed) } else { Ok(()) };
        }
        let seal = state.received_seal.as_mut().ok_or(ChunkError::Seal)?;
        let bytes = CHUNK_HEADER_BYTES + header.payload_bytes as usize;
        let holds = self.receives.with_bytes(buffer, bytes + TAG_BYTES, |sealed| {
            sealed
                .split_last_chunk::<TAG_BYTES>()
                .is_some_and(|(chunk, tag)| seal.accepts_tag(chunk, tag))
        });
        if !holds {
            return Err(ChunkError::Seal);
        }
        state.sealed_only = true;
        if header.tags_wanted {
            state.sender.start_tagging();
        }
        Ok(())
    }

    /// Seals what is sent from now on, and demands seals from the peer, whose handshake is done.
    /// `unread` says that bytes without a seal are left of what was received.
    pub(in crate::verbs) fn start_session(&self, seals: SenderSeals, unread: bool) {
        let mut state = self.state.lock();
        state.proven = true;
        state.sender.start_sealing(seals);
        // Somebody else has sent it, behind the peer's last word of the handshake.
        if unread || state.received.iter().any(|(_, header)| !header.sealed) {
            self.metrics.rail.seals_refused[SealedMatter::Message].inc();
            state.failure.get_or_insert_with(|| ChunkError::Unsealed.to_string());
        }
    }
}
