//! Tests a connection against a peer that lies in ways which no stream transport can, over a fake
//! outlet and inlet.
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle as Runtime;
use tokio_util::task::TaskTracker;

use super::*;
use crate::arena::{Arena, ArenaOptions};
use crate::transport::{PeerConnection, ProtocolBreach, TransportError};

/// An outlet that sends nothing, and describes lent memory as it is told.
struct Mute {
    described: bool,
    rooms: QueuedBytesBudget,
}

impl FrameOutlet for Mute {
    const KIND: TransportKind = TransportKind::Verbs;

    fn lend_landing(&self, landing: &mut Landing) -> Vec<MemorySegment> {
        let bytes = landing.total_bytes() as u32;
        if self.described { vec![MemorySegment { address: 0, bytes, key: 0 }] } else { Vec::new() }
    }

    async fn reserve_bytes(&self, bytes: u64) -> Option<QueuedBytesPermit> {
        self.rooms.acquire_permit(bytes).await
    }

    async fn control_room(&self) {}

    fn push_frame(&self, _frame: OutgoingFrame) {}

    fn abandon_call(&self, _call: u64) {}

    fn flush_frames(&self) {}

    async fn run(&self) -> io::Result<()> {
        std::future::pending().await
    }

    fn finish_writes(&self) {}

    fn shut_write(&self) {}

    fn close(&self) {}
}

/// An inlet that tells one thing once the call is there, and then nothing.
struct Liar {
    says: Option<FrameHeader>,
}

impl FrameInlet for Liar {
    async fn next_header(&mut self) -> Result<Option<FrameHeader>, InletError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        match self.says.take() {
            Some(header) => Ok(Some(header)),
            None => std::future::pending().await,
        }
    }

    async fn receive_body(
        &mut self,
        _header: &FrameHeader,
        fill: &mut LandingFill,
    ) -> Result<FrameBody, InletError> {
        fill.record_placed();
        Ok(FrameBody::default())
    }
}

fn connection(described: bool, says: FrameHeader) -> Arc<dyn PeerConnection> {
    let agreed = HandshakeAgreement {
        peer_name: "liar".into(),
        frame_bytes_max: 1024,
        calls_in_flight_max: 4,
        ways: String::new(),
        requester_role: None,
    };
    let outlet = Mute { described, rooms: QueuedBytesBudget::new(1 << 20) };
    let options = CallOptions::new(HandshakeSecret::new(""));
    start_connection(
        outlet,
        Liar { says: Some(says) },
        &agreed,
        "nowhere",
        &options,
        ConnectionTasks { runtime: &Runtime::current(), tasks: &TaskTracker::new() },
    )
}

fn landing() -> Landing {
    let arena = Arena::map_memory(ArenaOptions {
        capacity_bytes: 2 << 20,
        cell_bytes_max: 256 << 10,
        populate: false,
    });
    Landing::allocate_segments(&arena.unwrap(), &[1000]).unwrap()
}

fn placed() -> FrameHeader {
    FrameHeader {
        last: true,
        placed: true,
        data_bytes: 1000,
        ..FrameHeader::new(FrameKind::Part, 1)
    }
}

#[tokio::test]
async fn old_bytes_of_an_undescribed_landing_are_never_shown() {
    let connection = connection(false, placed());
    let mut call = connection.start_call(Bytes::new(), Some(landing()));
    let error = call.next().await.unwrap_err();
    assert!(
        matches!(
            &error,
            TransportError::Protocol { breach: ProtocolBreach::UndescribedLanding, .. }
        ),
        "{error}"
    );
    assert!(connection.broken_reason().is_some());
}

#[tokio::test]
async fn data_placed_in_a_described_landing_is_vouched_for() {
    let connection = connection(true, placed());
    let mut call = connection.start_call(Bytes::new(), Some(landing()));
    let crate::transport::CallEvent::Part(part) = call.next().await.unwrap() else {
        panic!("a part is due")
    };
    assert_eq!((part.data_bytes(), part.last), (1000, true));
}
