//! The worker's side of a stream: hands over what lies in its arena, and copies the rest.
//!
//! Owns the choice between the two. What is pinned for how long is `pins`'.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UnixStream;

use super::pins::Pins;
use crate::arena::Arena;
use crate::calls::{
    Body, Header, Inlet, InletError, Kind, Outgoing, Outlet, Room, SEGMENT_BYTES, SEGMENTS_MAX,
    Segment,
};
use crate::landing::{Fill, Landing};
use crate::metrics::metrics;
use crate::stream::{Intake, Outbox};
use crate::transport::TransportKind;

pub(super) struct Owner {
    pub(super) outbox: Outbox<UnixStream>,
    pub(super) pins: Arc<Pins>,
    pub(super) arena: Arena,
    /// Parts up to this length are copied.
    pub(super) copy_bytes_max: usize,
}

impl Owner {
    /// Makes the data of a part a reference to it, where that is possible and worth it.
    fn hand_over(&self, frame: &mut Outgoing) {
        let bytes = frame.header.data_bytes;
        if frame.header.kind != Kind::Part || bytes == 0 {
            return;
        }
        match self.describe(frame, bytes) {
            Ok(()) => {}
            Err(reason) => {
                metrics().shm_copies.with_label_values(&[reason]).inc();
                metrics().shm_copied_bytes.with_label_values(&[reason]).inc_by(bytes);
            }
        }
    }

    fn describe(&self, frame: &mut Outgoing, bytes: u64) -> Result<(), &'static str> {
        if bytes <= self.copy_bytes_max as u64 {
            return Err("small");
        }
        let pieces: Vec<&Bytes> = frame.data.iter().filter(|piece| !piece.is_empty()).collect();
        let mut segments = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (address, bytes) = (self.arena.offset_of(piece), u32::try_from(piece.len()));
            match (address, bytes) {
                (Some(address), Ok(bytes)) => segments.push(Segment { address, bytes, key: 0 }),
                _ => return Err("heap"),
            }
        }
        if segments.len() > SEGMENTS_MAX as usize {
            return Err("heap");
        }
        match self.pins.pin(std::mem::take(&mut frame.data), bytes) {
            Ok(pin) => {
                segments.iter_mut().for_each(|segment| segment.key = pin);
                frame.describe(&segments, true);
                Ok(())
            }
            Err(data) => {
                frame.data = data;
                Err("quota")
            }
        }
    }
}

impl Outlet for Owner {
    const KIND: TransportKind = TransportKind::Shm;

    /// Nothing: what a requester pushes comes in the stream.
    fn lend(&self, _landing: &mut Landing) -> Vec<Segment> {
        Vec::new()
    }

    async fn room(&self, bytes: u64) -> Option<Room> {
        self.outbox.room(bytes).await
    }

    async fn control_room(&self) {
        self.outbox.control_room().await;
    }

    fn push(&self, mut frame: Outgoing) {
        self.hand_over(&mut frame);
        self.outbox.push(frame);
    }

    /// The requester never hears of these parts, so it will not release them.
    fn abandon(&self, call: u64) {
        for frame in self.outbox.take_parts(call) {
            if let Some(pin) = pin_of(&frame) {
                self.pins.release(u64::from(pin));
            }
        }
    }

    fn flush(&self) {
        self.outbox.flush();
    }

    async fn run(&self) -> io::Result<()> {
        self.outbox.run().await
    }

    fn finish(&self) {
        self.outbox.finish();
    }

    fn shut_write(&self) {
        self.outbox.shut_write();
    }

    /// Pins stay: the requester may look at them for as long as it has the arena mapped.
    fn close(&self) {
        self.outbox.close();
    }
}

fn pin_of(frame: &Outgoing) -> Option<u32> {
    if !frame.header.placed {
        return None;
    }
    let [_, described, _] = frame.words();
    let segment = described.first_chunk::<SEGMENT_BYTES>()?;
    Some(Segment::decode(segment).key)
}

/// What a requester sends: frames of calls, and releases, which end here.
pub(super) struct FromBorrower {
    pub(super) intake: Intake<UnixStream>,
    pub(super) pins: Arc<Pins>,
}

impl Inlet for FromBorrower {
    async fn header(&mut self) -> Result<Option<Header>, InletError> {
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
            if header.kind != Kind::Release {
                return Ok(Some(header));
            }
            if !self.pins.release(header.call) {
                return Err(InletError::Rules(format!(
                    "release of pin {}, which it does not hold",
                    header.call
                )));
            }
        }
    }

    async fn body(&mut self, header: &Header, fill: &mut Fill) -> Result<Body, InletError> {
        // Bounded by `message_bytes_max`, which the decoder has checked.
        let message = self.intake.rest(header.message_bytes as usize, fill).await?;
        Ok(Body { message: Bytes::from(message), ..Body::default() })
    }
}
