//! Owns the worker's side of a stream: it hands over data that lies in its arena, and copies the
//! rest.
//!
//! `pin_registry` decides what is pinned for how long.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UnixStream;

use super::pin_registry::ShmPinRegistry;
use crate::arena::Arena;
use crate::calls::{
    FrameBody, FrameHeader, FrameInlet, FrameKind, FrameOutlet, InletError, MemorySegment,
    OutgoingFrame, QueuedBytesPermit, SEGMENT_BYTES, SEGMENTS_MAX,
};
use crate::landing::{Landing, LandingFill};
use crate::metrics::{ShmCopyReason, transport_metrics};
use crate::stream::{FrameIntake, FrameOutbox};
use crate::transport::TransportKind;

pub(super) struct ShmOwnerOutlet {
    pub(super) outbox: FrameOutbox<UnixStream>,
    pub(super) pins: Arc<ShmPinRegistry>,
    pub(super) arena: Arena,
    /// Longest part that is copied.
    pub(super) copy_bytes_max: usize,
}

impl ShmOwnerOutlet {
    /// Turns the data of a part into a reference, where that is possible and worth it.
    fn hand_over(&self, frame: &mut OutgoingFrame) {
        let bytes = frame.header.data_bytes;
        if frame.header.kind != FrameKind::Part || bytes == 0 {
            return;
        }
        match self.describe_data(frame, bytes) {
            Ok(()) => {}
            Err(reason) => {
                transport_metrics().shm_copies[reason].inc();
                transport_metrics().shm_copied_bytes[reason].inc_by(bytes);
            }
        }
    }

    fn describe_data(&self, frame: &mut OutgoingFrame, bytes: u64) -> Result<(), ShmCopyReason> {
        if bytes <= self.copy_bytes_max as u64 {
            return Err(ShmCopyReason::Small);
        }
        let pieces: Vec<&Bytes> = frame.data.iter().filter(|piece| !piece.is_empty()).collect();
        let mut segments = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (address, bytes) = (self.arena.offset_of(piece), u32::try_from(piece.len()));
            match (address, bytes) {
                (Some(address), Ok(bytes)) => {
                    segments.push(MemorySegment { address, bytes, key: 0 })
                }
                _ => return Err(ShmCopyReason::Heap),
            }
        }
        if segments.len() > SEGMENTS_MAX as usize {
            return Err(ShmCopyReason::Heap);
        }
        match self.pins.pin_data(std::mem::take(&mut frame.data), bytes) {
            Ok(pin) => {
                segments.iter_mut().for_each(|segment| segment.key = pin);
                frame.set_segments(&segments, true);
                Ok(())
            }
            Err(data) => {
                frame.data = data;
                Err(ShmCopyReason::Quota)
            }
        }
    }
}

impl FrameOutlet for ShmOwnerOutlet {
    const KIND: TransportKind = TransportKind::Shm;

    /// Lends nothing: a requester's pushes come in the stream.
    fn lend_landing(&self, _landing: &mut Landing) -> Vec<MemorySegment> {
        Vec::new()
    }

    async fn reserve_bytes(&self, bytes: u64) -> Option<QueuedBytesPermit> {
        self.outbox.reserve_bytes(bytes).await
    }

    async fn control_room(&self) {
        self.outbox.control_room().await;
    }

    fn push_frame(&self, mut frame: OutgoingFrame) {
        self.hand_over(&mut frame);
        self.outbox.push_frame(frame);
    }

    /// Drops queued parts and their pins. The requester never hears of these parts, so it will not
    /// release them.
    fn abandon_call(&self, call: u64) {
        for frame in self.outbox.take_parts(call) {
            if let Some(pin) = pin_of(&frame) {
                self.pins.release_pin(u64::from(pin));
            }
        }
    }

    fn flush_frames(&self) {
        self.outbox.flush_frames();
    }

    async fn run(&self) -> io::Result<()> {
        self.outbox.run().await
    }

    fn finish_writes(&self) {
        self.outbox.finish_writes();
    }

    fn shut_write(&self) {
        self.outbox.shut_write();
    }

    /// Closes the stream. Pins stay: the requester may look at them while it has the arena mapped.
    fn close(&self) {
        self.outbox.close();
    }
}

fn pin_of(frame: &OutgoingFrame) -> Option<u32> {
    if !frame.header.placed {
        return None;
    }
    let [_, described, _] = frame.leading_slices();
    let segment = described.first_chunk::<SEGMENT_BYTES>()?;
    Some(MemorySegment::decode(segment).key)
}

/// The inlet of a requester's frames: frames of calls, and releases, which end here.
pub(super) struct FromBorrower {
    pub(super) intake: FrameIntake<UnixStream>,
    pub(super) pins: Arc<ShmPinRegistry>,
}

impl FrameInlet for FromBorrower {
    async fn next_header(&mut self) -> Result<Option<FrameHeader>, InletError> {
        loop {
            let Some(header) = self.intake.next().await? else {
                return Ok(None);
            };
            if header.placed || header.segments > 0 {
                return Err(InletError::Rules(format!(
                    "{:?} frame of a requester that names memory",
                    header.kind
                )));
            }
            if header.kind != FrameKind::Release {
                return Ok(Some(header));
            }
            if !self.pins.release_pin(header.call) {
                return Err(InletError::Rules(format!(
                    "release of pin {}, which it does not hold",
                    header.call
                )));
            }
        }
    }

    async fn receive_body(
        &mut self,
        header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> Result<FrameBody, InletError> {
        // Bounded by `message_bytes_max`, which the decoder has checked.
        let message = self.intake.read_rest(header.message_bytes as usize, fill).await?;
        Ok(FrameBody { message: Bytes::from(message), ..FrameBody::default() })
    }
}
