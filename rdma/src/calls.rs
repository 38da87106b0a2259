//! Owns the call protocol of one connection, over any transport: the frames, who may send what
//! when, and who owns which memory until when.
//!
//! A transport (`tcp`, `shm`, `verbs`) brings a [`FrameOutlet`] and a [`FrameInlet`]. The outlet
//! sends frames in order and puts data where it belongs; the inlet receives both. A transport
//! decides nothing about calls.

mod admission_gate;
mod call_credits;
mod coalescing_waker;
mod connection_start;
#[doc(hidden)]
pub mod decoders;
mod frame;
mod handshake;
mod inlet_error;
mod line_call;
mod outgoing_frame;
mod pending_call;
mod queued_bytes;
mod requester;
mod session;

use std::future::Future;
use std::io;

use bytes::Bytes;
use prometheus::Histogram;
use tokio::runtime::Handle as Runtime;
use tokio_util::task::TaskTracker;

pub use frame::{FrameError, FrameKind, HeaderField, PROTOCOL_VERSION};
pub use handshake::{HandshakeError, HandshakeSecret};

pub(crate) use crate::keyed_mac::{HandshakeSide, SessionKey};
pub(crate) use admission_gate::{AdmissionGate, GateCloser, GateLimits};
pub(crate) use connection_start::start_connection;
pub(crate) use frame::{FrameHeader, HEADER_BYTES, MemorySegment, SEGMENT_BYTES, SEGMENTS_MAX};
pub(crate) use handshake::{
    HandshakeAgreement, HandshakeChannel, HandshakeTerms, check_name, request_handshake,
};
pub(crate) use inlet_error::InletError;
pub(crate) use outgoing_frame::OutgoingFrame;
pub(crate) use pending_call::{InProcessPull, PendingCall};
pub(crate) use queued_bytes::{QueuedBytesBudget, QueuedBytesPermit};
pub(crate) use session::{ServerSession, serve_session};

use crate::landing::{Landing, LandingFill};
use crate::settings::TcpSettings;
use crate::transport::TransportKind;
use crate::way_ticket::{TicketRules, WayTicket};

/// The runtime of a connection's tasks, and the tracker that waits for them at the end.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionTasks<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) tasks: &'a TaskTracker,
}

/// What both sides of a connection need, whatever carries it.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// Every host of the cluster knows this secret.
    pub secret: HandshakeSecret,
    /// Name of this host. Its peers expect it in the handshake and write it to their logs. At most
    /// 64 bytes are sent.
    pub name: String,
    /// Bounds and deadlines of calls, over every way.
    pub settings: TcpSettings,
    /// Tickets that this host gives over TLS, and wants over ways that have none. `None`: there is
    /// no TLS, or this host serves nobody.
    pub tickets: Option<TicketRules>,
}

impl CallOptions {
    /// The default settings, no name and no tickets.
    pub fn new(secret: HandshakeSecret) -> Self {
        Self { secret, name: String::new(), settings: TcpSettings::default(), tickets: None }
    }

    /// Returns what this side brings to a handshake, without tickets. `ways` tells a requester the
    /// other ways to this host.
    pub(crate) fn handshake_terms<'a>(&'a self, ways: &'a str) -> HandshakeTerms<'a> {
        HandshakeTerms {
            secret: &self.secret,
            name: &self.name,
            frame_bytes_max: self.settings.frame_max.as_u32(),
            calls_in_flight_max: self.settings.calls_in_flight_max,
            ways,
            ticket: None,
            rules: None,
        }
    }

    /// Returns what this side brings where certificates can't be shown: the ticket that it has, or
    /// its rules for those of others.
    pub(crate) fn ticketed_terms<'a>(
        &'a self,
        ticket: Option<&'a WayTicket>,
    ) -> HandshakeTerms<'a> {
        HandshakeTerms { ticket, rules: self.tickets.as_ref(), ..self.handshake_terms("") }
    }
}

/// Returns a bound above the control frames that a peer's calls can cause: an acknowledgement or a
/// failure for each call, twice over.
pub(crate) fn controls_max(calls_in_flight_max: u32) -> usize {
    calls_in_flight_max as usize * 2 + 16
}

/// The write side of a connection. Frames arrive at the peer in the order of
/// [`FrameOutlet::push_frame`], each behind its data.
pub(crate) trait FrameOutlet: Send + Sync + 'static {
    const KIND: TransportKind;

    /// Returns the histogram of call seconds over this one rail, beside the histogram of its kind.
    fn rail_histogram(&self) -> Option<Histogram> {
        None
    }
    /// Describes lent memory to the peer. Returns nothing where the peer does not write to it
    /// directly.
    ///
    /// The description holds until the call is settled, or until the landing takes itself back.
    fn lend_landing(&self, landing: &mut Landing) -> Vec<MemorySegment>;
    /// Waits until `bytes` may be queued. Returns `None` once the connection is closed. A frame
    /// larger than the whole queue waits until the queue is empty.
    fn reserve_bytes(&self, bytes: u64) -> impl Future<Output = Option<QueuedBytesPermit>> + Send;
    /// Waits while the peer causes control frames faster than it reads them.
    fn control_room(&self) -> impl Future<Output = ()> + Send;
    /// Queues a frame without sending it. This is cheap enough for a caller that holds a lock. Call
    /// [`FrameOutlet::flush_frames`] afterwards.
    fn push_frame(&self, frame: OutgoingFrame);
    /// Drops the queued parts of a call; parts already sent stay.
    fn abandon_call(&self, call: u64);
    /// Sends what can be sent now. Never waits.
    fn flush_frames(&self);
    /// Sends what callers queue. Ends with an error, or after [`FrameOutlet::finish_writes`] once
    /// the queue is empty.
    fn run(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Lets [`FrameOutlet::run`] end once the queue is empty.
    fn finish_writes(&self);
    /// Tells the peer that nothing follows.
    fn shut_write(&self);
    /// Waits for what [`FrameOutlet::close`] would hold up its thread for. Where it is left out, or
    /// cancelled, `close` takes longer. Nothing else drives the connection meanwhile.
    fn prepare_close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
    /// Ends the connection and forgets everything. Once it has returned, the peer can no longer
    /// write to lent memory.
    fn close(&self);
}

/// The descriptors, message and data that follow a header.
#[derive(Debug, Default)]
pub(crate) struct FrameBody {
    pub(crate) message: Bytes,
    /// Memory that the peer lets this side write to (`Call`, `Wanted`).
    pub(crate) target: Vec<MemorySegment>,
    /// The data, where it was handed over instead of written into the landing.
    pub(crate) data: Option<Vec<Bytes>>,
}

/// The read side of a connection. Once a reader's future has been dropped, this side writes to no
/// landing. [`FrameOutlet::close`] ends the peer's own writes.
pub(crate) trait FrameInlet: Send {
    /// Reads the next header. Returns `None` when the peer closed between two frames.
    fn next_header(
        &mut self,
    ) -> impl Future<Output = Result<Option<FrameHeader>, InletError>> + Send;
    /// Receives what belongs to `header`. Data goes into `fill`, which has exactly as much room,
    /// unless the data is handed over.
    fn receive_body(
        &mut self,
        header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> impl Future<Output = Result<FrameBody, InletError>> + Send;
}

#[cfg(test)]
mod tests;
