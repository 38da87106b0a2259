//! The requester's side of a stream: believes no descriptor, and gives back what it was handed.
//!
//! Owns the checks of what a worker hands over. The memory itself is `view`'s.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UnixStream;

use super::releases::Releases;
use super::view::{Loan, View};
use crate::calls::{
    Body, Header, Inlet, InletError, Outgoing, Outlet, Room, SEGMENT_BYTES, Segment,
};
use crate::landing::{Fill, Landing};
use crate::stream::{Intake, Outbox};
use crate::transport::TransportKind;

pub(super) struct Borrower {
    pub(super) outbox: Outbox<UnixStream>,
    pub(super) releases: Arc<Releases>,
}

impl Outlet for Borrower {
    const KIND: TransportKind = TransportKind::Shm;

    /// Nothing: a worker hands its own memory over, or copies through the stream.
    fn lend(&self, _landing: &mut Landing) -> Vec<Segment> {
        Vec::new()
    }

    async fn room(&self, bytes: u64) -> Option<Room> {
        self.outbox.room(bytes).await
    }

    async fn control_room(&self) {
        self.outbox.control_room().await;
    }

    /// Releases go ahead of whatever is sent: they cost no write of their own then.
    fn push(&self, frame: Outgoing) {
        self.releases.push_to(&self.outbox);
        self.outbox.push(frame);
    }

    fn abandon(&self, call: u64) {
        self.outbox.abandon(call);
    }

    fn flush(&self) {
        self.outbox.flush();
    }

    async fn run(&self) -> io::Result<()> {
        tokio::select! {
            written = self.outbox.run() => written,
            never = self.releases.pace(&self.outbox) => never,
        }
    }

    fn finish(&self) {
        self.outbox.finish();
    }

    fn shut_write(&self) {
        self.outbox.shut_write();
    }

    /// Pieces that are still held stay readable: they keep the lifeline, and with it the worker's
    /// pins.
    fn close(&self) {
        self.outbox.close();
    }
}

/// What a worker sends: parts in the stream, and parts by reference.
pub(super) struct FromOwner {
    pub(super) intake: Intake<UnixStream>,
    pub(super) view: Arc<View>,
    pub(super) releases: Arc<Releases>,
}

impl Inlet for FromOwner {
    async fn header(&mut self) -> Result<Option<Header>, InletError> {
        let header = self.intake.next().await?;
        match header {
            Some(header) if header.placed != (header.segments > 0) => Err(InletError::Rules(
                format!("{:?} frame that names memory and no data in it", header.kind),
            )),
            header => Ok(header),
        }
    }

    async fn body(&mut self, header: &Header, fill: &mut Fill) -> Result<Body, InletError> {
        let message_bytes = header.message_bytes as usize;
        if !header.placed {
            let message = self.intake.rest(message_bytes, fill).await?;
            return Ok(Body { message: Bytes::from(message), ..Body::default() });
        }
        // Both are bounded by the decoder. The landing's claimed range stays as it is, seen by
        // nobody.
        let described = header.segments as usize * SEGMENT_BYTES;
        let words =
            Bytes::from(self.intake.rest(described + message_bytes, &mut Fill::default()).await?);
        let data = self.borrow(&words[..described], header.data_bytes)?;
        Ok(Body { message: words.slice(described..), data: Some(data), ..Body::default() })
    }
}

impl FromOwner {
    /// The pieces that `descriptors` name: all in the arena, of `data_bytes` together, under one
    /// pin.
    fn borrow(&self, descriptors: &[u8], data_bytes: u64) -> Result<Vec<Bytes>, InletError> {
        let (descriptors, _) = descriptors.as_chunks::<SEGMENT_BYTES>();
        let mut pin = None;
        let mut sum = 0u64;
        let mut ranges = Vec::with_capacity(descriptors.len());
        for segment in descriptors.iter().map(Segment::decode) {
            let range =
                self.view.range(segment.address, segment.bytes).filter(|range| !range.is_empty());
            let Some(range) = range else {
                let Segment { address, bytes, .. } = segment;
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
        if !self.releases.take() {
            return Err(InletError::Rules("more pins than it said it would make".into()));
        }
        let loan = Loan::new(self.view.clone(), self.releases.clone(), pin, data_bytes);
        Ok(ranges.into_iter().map(|range| loan.piece(range)).collect())
    }
}
