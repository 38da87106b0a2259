//! Owns the requester's side of a stream: it checks every descriptor of a worker, and gives back
//! what it was handed.
//!
//! `arena_view` owns the memory itself.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UnixStream;

use super::arena_view::{PinnedPartLoan, ShmArenaView};
use super::pin_releases::PinReleases;
use crate::calls::{
    FrameBody, FrameHeader, FrameInlet, FrameOutlet, InletError, MemorySegment, OutgoingFrame,
    QueuedBytesPermit, SEGMENT_BYTES,
};
use crate::landing::{Landing, LandingFill};
use crate::stream::{FrameIntake, FrameOutbox};
use crate::transport::TransportKind;

pub(super) struct ShmBorrowerOutlet {
    pub(super) outbox: FrameOutbox<UnixStream>,
    pub(super) releases: Arc<PinReleases>,
}

impl FrameOutlet for ShmBorrowerOutlet {
    const KIND: TransportKind = TransportKind::Shm;

    /// Lends nothing: a worker hands its own memory over, or copies through the stream.
    fn lend_landing(&self, _landing: &mut Landing) -> Vec<MemorySegment> {
        Vec::new()
    }

    async fn reserve_bytes(&self, bytes: u64) -> Option<QueuedBytesPermit> {
        self.outbox.reserve_bytes(bytes).await
    }

    async fn control_room(&self) {
        self.outbox.control_room().await;
    }

    /// Queues releases ahead of the frame: they cost no write of their own then.
    fn push_frame(&self, frame: OutgoingFrame) {
        self.releases.push_to(&self.outbox);
        self.outbox.push_frame(frame);
    }

    fn abandon_call(&self, call: u64) {
        self.outbox.abandon_call(call);
    }

    fn flush_frames(&self) {
        self.outbox.flush_frames();
    }

    async fn run(&self) -> io::Result<()> {
        tokio::select! {
            written = self.outbox.run() => written,
            never = self.releases.send_releases(&self.outbox) => never,
        }
    }

    fn finish_writes(&self) {
        self.outbox.finish_writes();
    }

    fn shut_write(&self) {
        self.outbox.shut_write();
    }

    /// Closes the stream. Pieces that are still held stay readable: they keep the lifeline, and
    /// with it the worker's pins.
    fn close(&self) {
        self.outbox.close();
    }
}

/// The inlet of a worker's frames: parts in the stream, and parts by reference.
pub(super) struct FromOwner {
    pub(super) intake: FrameIntake<UnixStream>,
    pub(super) view: Arc<ShmArenaView>,
    pub(super) releases: Arc<PinReleases>,
}

impl FrameInlet for FromOwner {
    async fn next_header(&mut self) -> Result<Option<FrameHeader>, InletError> {
        let header = self.intake.next().await?;
        match header {
            Some(header) if header.placed != (header.segments > 0) => Err(InletError::Rules(
                format!("{:?} frame that names memory and no data in it", header.kind),
            )),
            header => Ok(header),
        }
    }

    async fn receive_body(
        &mut self,
        header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> Result<FrameBody, InletError> {
        let message_bytes = header.message_bytes as usize;
        if !header.placed {
            let message = self.intake.read_rest(message_bytes, fill).await?;
            return Ok(FrameBody { message: Bytes::from(message), ..FrameBody::default() });
        }
        // The decoder bounds both. The landing's claimed range stays as it is, and nobody sees it.
        let described = header.segments as usize * SEGMENT_BYTES;
        let words = Bytes::from(
            self.intake.read_rest(described + message_bytes, &mut LandingFill::default()).await?,
        );
        let data = self.borrow_pieces(&words[..described], header.data_bytes)?;
        Ok(FrameBody {
            message: words.slice(described..),
            data: Some(data),
            ..FrameBody::default()
        })
    }
}

impl FromOwner {
    /// Borrows the pieces that `descriptors` name: all in the arena, of `data_bytes` together,
    /// under one pin.
    fn borrow_pieces(&self, descriptors: &[u8], data_bytes: u64) -> Result<Vec<Bytes>, InletError> {
        let (descriptors, _) = descriptors.as_chunks::<SEGMENT_BYTES>();
        let mut pin = None;
        let mut sum = 0u64;
        let mut ranges = Vec::with_capacity(descriptors.len());
        for segment in descriptors.iter().map(MemorySegment::decode) {
            let range = self
                .view
                .checked_range(segment.address, segment.bytes)
                .filter(|range| !range.is_empty());
            let Some(range) = range else {
                let MemorySegment { address, bytes, .. } = segment;
                return Err(InletError::Rules(format!(
                    "{bytes} bytes at {address} lie outside its memory"
                )));
            };
            if *pin.get_or_insert(segment.key) != segment.key {
                return Err(InletError::Rules("a part under two pins".into()));
            }
            sum += u64::from(segment.bytes);
            ranges.push(range);
        }
        let Some(pin) = pin.filter(|_| sum == data_bytes) else {
            return Err(InletError::Rules(format!(
                "{sum} bytes handed over where {data_bytes} were said"
            )));
        };
        if !self.releases.admit_pin() {
            return Err(InletError::Rules("more pins than it said it would make".into()));
        }
        let loan = PinnedPartLoan::new(self.view.clone(), self.releases.clone(), pin, data_bytes);
        Ok(ranges.into_iter().map(|range| loan.borrow_piece(range)).collect())
    }
}
