//! Owns an outgoing frame: header, descriptors, message and data.

use std::sync::Arc;

use bytes::Bytes;

use super::frame::{FrameHeader, FrameKind, HEADER_BYTES, MemorySegment, SEGMENT_BYTES};
use super::queued_bytes::QueuedBytesPermit;

pub(crate) struct OutgoingFrame {
    pub(crate) header: FrameHeader,
    pub(crate) message: Bytes,
    pub(crate) data: Vec<Bytes>,
    /// Peer memory that this side may write the data to; empty where there is none.
    pub(crate) target: Arc<[MemorySegment]>,
    /// Header, and below it the descriptors of lent memory, in wire format.
    head: [u8; HEADER_BYTES],
    described: Vec<u8>,
    /// `None` for control frames. They are few: each belongs to a call that the peer was allowed to
    /// make.
    room: Option<QueuedBytesPermit>,
}

impl OutgoingFrame {
    pub(crate) fn new(mut header: FrameHeader, message: Bytes, data: Vec<Bytes>) -> Self {
        header.message_bytes = message.len() as u32;
        header.data_bytes = data.iter().map(|piece| piece.len() as u64).sum();
        let head = header.encode();
        Self {
            header,
            message,
            data,
            target: Arc::default(),
            head,
            described: Vec::new(),
            room: None,
        }
    }

    pub(crate) fn control_frame(kind: FrameKind, call: u64) -> Self {
        Self::new(FrameHeader::new(kind, call), Bytes::new(), Vec::new())
    }

    pub(crate) fn with_permit(mut self, room: QueuedBytesPermit) -> Self {
        self.room = Some(room);
        self
    }

    /// Adds descriptors of memory that this side lends.
    pub(crate) fn with_segments(mut self, segments: &[MemorySegment]) -> Self {
        self.set_segments(segments, self.header.placed);
        self
    }

    pub(crate) fn with_target(mut self, target: Arc<[MemorySegment]>) -> Self {
        self.target = target;
        self
    }

    /// Sets the frame's descriptors. `placed` says that its data does not travel in the stream.
    pub(crate) fn set_segments(&mut self, segments: &[MemorySegment], placed: bool) {
        self.header.segments = segments.len() as u32;
        self.header.placed = placed;
        self.head = self.header.encode();
        self.described.clear();
        self.described.reserve(segments.len() * SEGMENT_BYTES);
        segments.iter().for_each(|segment| self.described.extend_from_slice(&segment.encode()));
    }

    /// Records that the data does not travel in the stream. `data_tag` is its keyed tag, or zeroes.
    pub(crate) fn mark_placed(&mut self, data_tag: [u8; 16]) {
        self.header.data_tag = data_tag;
        self.set_segments(&[], true);
    }

    /// Returns true for a control frame, which does not count towards the queue's bytes.
    pub(crate) fn is_control(&self) -> bool {
        self.room.is_none()
    }

    /// Returns true for a part of `call`. A requester that gave up the call has no use for it.
    pub(crate) fn is_part_of(&self, call: u64) -> bool {
        self.header.call == call && self.header.kind == FrameKind::Part
    }

    /// Returns header, descriptors and message, in this order.
    pub(crate) fn leading_slices(&self) -> [&[u8]; 3] {
        [&self.head, &self.described, &self.message]
    }

    /// Returns the whole frame, for transports that send data in the stream.
    pub(crate) fn wire_slices(&self) -> impl Iterator<Item = &[u8]> {
        self.leading_slices().into_iter().chain(self.data.iter().map(|piece| &piece[..]))
    }

    pub(crate) fn wire_bytes(&self) -> usize {
        self.wire_slices().map(<[u8]>::len).sum()
    }
}
