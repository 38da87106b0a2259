//! Calls over one connection, whatever carries them: the frames, who may say what when, and who
//! owns which memory until when.
//!
//! Owns the protocol. A transport (`tcp`, `shm`, `verbs`) brings an [`FrameOutlet`] that sends frames in
//! order and puts data where it belongs, and an [`FrameInlet`] that receives them; it decides nothing
//! about calls.

mod admission_gate;
mod coalescing_waker;
#[doc(hidden)]
pub mod decoders;
mod frame;
mod handshake;
mod line_call;
mod outgoing_frame;
mod queued_bytes;
mod requester;
mod session;

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use prometheus::Histogram;
use tokio::runtime::Handle as Runtime;
use tokio_util::task::TaskTracker;

pub use handshake::HandshakeSecret;

pub(crate) use admission_gate::{AdmissionGate, GateCloser, GateLimits};
pub(crate) use frame::{
    FrameError, FrameHeader, FrameKind, HEADER_BYTES, MemorySegment, SEGMENT_BYTES, SEGMENTS_MAX,
};
pub(crate) use handshake::{
    HandshakeAgreement, HandshakeChannel, HandshakeError, HandshakeTerms, check_name,
    request_handshake,
};
pub(crate) use outgoing_frame::OutgoingFrame;
pub(crate) use queued_bytes::{QueuedBytesBudget, QueuedBytesPermit};
pub(crate) use requester::start_connection;
pub(crate) use session::{ServerSession, serve_session};

use crate::landing::{Landing, LandingFill};
use crate::transport::TransportKind;

/// The runtime of a connection's tasks, and the tracker that waits for them at the end.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionTasks<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) tasks: &'a TaskTracker,
}

/// What both sides of a connection need, whatever carries it.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// Known to every host of the cluster.
    pub secret: HandshakeSecret,
    /// Name of this host: what its peers expect it to say, and write to their logs. At most 64
    /// bytes are sent.
    pub name: String,
    /// Longest time for connecting and the handshake together.
    pub connect_deadline: Duration,
    /// Credits: calls under way on one connection. The smaller of both sides' bounds holds.
    pub calls_in_flight_max: u32,
    /// Longest message in bytes; data has no such bound. The smaller of both sides' bounds holds.
    pub frame_bytes_max: u32,
    /// Bytes that wait to be sent on one connection; a writer beyond them waits itself.
    pub write_queue_bytes_max: usize,
    /// A peer that has not acknowledged a cancel after this loses its connection, so that landings
    /// come back.
    pub cancel_ack_deadline: Duration,
}

impl CallOptions {
    /// Defaults: a connect deadline of 5 s, 256 calls in flight, messages of 64 KiB, a write queue
    /// of 8 MiB, 10 s for a cancel. The name is empty.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self {
            secret,
            name: String::new(),
            connect_deadline: Duration::from_secs(5),
            calls_in_flight_max: 256,
            frame_bytes_max: 64 << 10,
            write_queue_bytes_max: 8 << 20,
            cancel_ack_deadline: Duration::from_secs(10),
        }
    }

    /// What this side brings to a handshake. `ways` is what it tells a requester of other ways to
    /// itself.
    pub(crate) fn handshake_terms<'a>(&'a self, ways: &'a str) -> HandshakeTerms<'a> {
        HandshakeTerms {
            secret: &self.secret,
            name: &self.name,
            frame_bytes_max: self.frame_bytes_max,
            calls_in_flight_max: self.calls_in_flight_max,
            ways,
        }
    }
}

/// More control frames than a peer's calls can cause: an acknowledgement or a failure for each,
/// twice over.
pub(crate) fn controls_max(calls_in_flight_max: u32) -> usize {
    calls_in_flight_max as usize * 2 + 16
}

/// The write side of a connection. Frames arrive at the peer in the order of [`FrameOutlet::push_frame`], each
/// behind its data.
pub(crate) trait FrameOutlet: Send + Sync + 'static {
    const KIND: TransportKind;

    /// Where the seconds of calls over this one rail are counted, beside those of its kind.
    fn rail_histogram(&self) -> Option<Histogram> {
        None
    }
    /// Describes lent memory to the peer; empty where the peer does not write to it directly.
    /// Memory that was described stays described until the call is settled, or until the landing
    /// takes itself back.
    fn lend_landing(&self, landing: &mut Landing) -> Vec<MemorySegment>;
    /// Waits until `bytes` may be queued; `None` once the connection is closed. A frame larger than
    /// the whole queue waits until the queue is empty.
    fn reserve_bytes(&self, bytes: u64) -> impl Future<Output = Option<QueuedBytesPermit>> + Send;
    /// Waits while the peer makes this side answer faster than it reads the answers.
    fn control_room(&self) -> impl Future<Output = ()> + Send;
    /// Adds a frame, without sending: cheap enough for a caller that holds a lock. Follow with
    /// [`FrameOutlet::flush_frames`].
    fn push_frame(&self, frame: OutgoingFrame);
    /// Drops the parts of a call that are not on their way yet.
    fn abandon_call(&self, call: u64);
    /// Sends what can be sent now. Never waits.
    fn flush_frames(&self);
    /// Sends what callers leave, until [`FrameOutlet::finish_writes`] and an empty queue, or an error.
    fn run(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Lets [`FrameOutlet::run`] end after what is queued.
    fn finish_writes(&self);
    /// Tells the peer that nothing follows.
    fn shut_write(&self);
    /// Ends the connection and forgets everything. From its return on the peer can't write to lent
    /// memory any more.
    fn close(&self);
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InletError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the peer broke the rules of the line: {0}")]
    Rules(String),
    #[error("the stream ended in the middle of a frame")]
    Truncated,
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// What comes with a header.
#[derive(Debug, Default)]
pub(crate) struct FrameBody {
    pub(crate) message: Bytes,
    /// Where the peer lets this side write (`Call`, `Wanted`).
    pub(crate) target: Vec<MemorySegment>,
    /// The data itself, where it was handed over rather than written into the landing.
    pub(crate) data: Option<Vec<Bytes>>,
}

/// The read side of a connection. Once the future of a reader has been dropped, nothing is written
/// to a landing by this side; what the peer may still write is the [`FrameOutlet::close`]'s to end.
pub(crate) trait FrameInlet: Send {
    /// The next header; `None` when the peer closed between two frames.
    fn next_header(
        &mut self,
    ) -> impl Future<Output = Result<Option<FrameHeader>, InletError>> + Send;
    /// What belongs to `next_header`; its data into `fill`, which has exactly as much room, unless it is
    /// handed over.
    fn receive_body(
        &mut self,
        header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> impl Future<Output = Result<FrameBody, InletError>> + Send;
}

#[cfg(test)]
mod tests;
