//! Owns the slots that chunks are made in: which are free, which one is being filled, and which the
//! NIC may still read.

use std::collections::VecDeque;

use super::chunk::CHUNK_HEADER_BYTES;
use super::sys::RegisteredBuffer;

/// Slots for chunks that only give credits. They must go out even when everything else waits.
pub(super) const GRANT_SLOTS: u16 = 2;

/// A chunk that is being filled.
pub(super) struct UnsentChunk {
    pub(super) slot: u16,
    pub(super) filled: usize,
}

/// The slots of one sender.
pub(super) struct ChunkSlots {
    chunk_bytes: usize,
    /// From this one on, slots are for grants.
    slots: u16,
    open: Option<UnsentChunk>,
    free: Vec<u16>,
    free_for_grants: Vec<u16>,
    /// Slots that the NIC may still read, by request.
    held: VecDeque<(u64, u16)>,
}

impl ChunkSlots {
    pub(super) fn new(slots: u16, chunk_bytes: u32) -> Self {
        Self {
            chunk_bytes: chunk_bytes as usize,
            slots,
            open: None,
            free: (0..slots).collect(),
            free_for_grants: (slots..slots + GRANT_SLOTS).collect(),
            held: VecDeque::new(),
        }
    }

    /// Returns the bytes of all slots.
    pub(super) fn buffer_bytes(slots: u16, chunk_bytes: u32) -> usize {
        usize::from(slots + GRANT_SLOTS) * chunk_bytes as usize
    }

    /// Returns where a slot begins in the buffer.
    pub(super) fn place_of(&self, slot: u16) -> usize {
        usize::from(slot) * self.chunk_bytes
    }

    /// The chunk that is being filled.
    pub(super) fn open_chunk(&self) -> Option<&UnsentChunk> {
        self.open.as_ref()
    }

    /// Returns true if less than half of the slots, or not all of those for grants, are free.
    pub(super) fn is_running_short(&self) -> bool {
        self.free.len() < usize::from(self.slots / 2)
            || self.free_for_grants.len() < usize::from(GRANT_SLOTS)
    }

    /// Opens a chunk in a free slot. Returns `false` where there is none.
    pub(super) fn open_next(&mut self) -> bool {
        self.open = self.free.pop().map(|slot| UnsentChunk { slot, filled: 0 });
        self.open.is_some()
    }

    /// Opens a chunk that only gives credits.
    pub(super) fn open_grant(&mut self) -> bool {
        let Some(slot) = self.free_for_grants.pop() else {
            return false;
        };
        self.open = Some(UnsentChunk { slot, filled: 0 });
        true
    }

    /// Copies as many bytes as the open chunk takes, up to `payload_bytes_max`. Returns their
    /// count.
    pub(super) fn pack_bytes(
        &mut self,
        bytes: &[u8],
        payload_bytes_max: usize,
        buffer: &RegisteredBuffer,
    ) -> usize {
        let Some(open) = &mut self.open else {
            return 0;
        };
        let taken = bytes.len().min(payload_bytes_max - open.filled);
        let at = usize::from(open.slot) * self.chunk_bytes + CHUNK_HEADER_BYTES + open.filled;
        buffer.write(at, &bytes[..taken]);
        open.filled += taken;
        taken
    }

    /// Takes the chunk that was filled. It has its slot until [`ChunkSlots::release_slots`].
    pub(super) fn take_open(&mut self) -> Option<UnsentChunk> {
        self.open.take()
    }

    /// Keeps a slot until the request is complete.
    pub(super) fn hold_slot(&mut self, request: u64, slot: u16) {
        self.held.push_back((request, slot));
    }

    /// Frees the slots of all requests up to `id`.
    pub(super) fn release_slots(&mut self, id: u64) {
        while let Some((_, slot)) = self.held.pop_front_if(|(held, _)| *held <= id) {
            let list = if slot < self.slots { &mut self.free } else { &mut self.free_for_grants };
            list.push(slot);
        }
    }
}
