//! What a connection makes of a peer that lies in ways which no stream transport can: over a line
//! that is made up.
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle as Runtime;
use tokio_util::task::TaskTracker;

use super::*;
use crate::arena::{Arena, ArenaOptions};
use crate::transport::{Connection, TransportError};

/// Sends nothing; says of lent memory what it is told to.
struct Mute {
    described: bool,
    rooms: Rooms,
}

impl Outlet for Mute {
    const KIND: TransportKind = TransportKind::Verbs;

    fn lend(&self, landing: &mut Landing) -> Vec<Segment> {
        let bytes = landing.bytes() as u32;
        if self.described { vec![Segment { address: 0, bytes, key: 0 }] } else { Vec::new() }
    }

    async fn room(&self, bytes: u64) -> Option<Room> {
        self.rooms.take(bytes).await
    }

    async fn control_room(&self) {}

    fn push(&self, _frame: Outgoing) {}

    fn abandon(&self, _call: u64) {}

    fn flush(&self) {}

    async fn run(&self) -> io::Result<()> {
        std::future::pending().await
    }

    fn finish(&self) {}

    fn shut_write(&self) {}

    fn close(&self) {}
}

/// Says one thing, when the call is there, and then nothing.
struct Liar {
    says: Option<Header>,
}

impl Inlet for Liar {
    async fn header(&mut self) -> Result<Option<Header>, InletError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        match self.says.take() {
            Some(header) => Ok(Some(header)),
            None => std::future::pending().await,
        }
    }

    async fn body(&mut self, _header: &Header, fill: &mut Fill) -> Result<Body, InletError> {
        fill.placed();
        Ok(Body::default())
    }
}

fn connection(described: bool, says: Header) -> Arc<dyn Connection> {
    let agreed = Agreed {
        peer_name: "liar".into(),
        frame_bytes_max: 1024,
        calls_in_flight_max: 4,
        ways: String::new(),
    };
    let outlet = Mute { described, rooms: Rooms::new(1 << 20) };
    let options = CallOptions::new(Secret::new(""));
    connect(
        outlet,
        Liar { says: Some(says) },
        &agreed,
        "nowhere",
        &options,
        (&Runtime::current(), &TaskTracker::new()),
    )
}

fn landing() -> Landing {
    let arena = Arena::map(ArenaOptions {
        capacity_bytes: 2 << 20,
        cell_bytes_max: 256 << 10,
        populate: false,
    });
    Landing::lease(&arena.unwrap(), &[1000]).unwrap()
}

fn placed() -> Header {
    Header { last: true, placed: true, data_bytes: 1000, ..Header::new(Kind::Part, 1) }
}

#[tokio::test]
async fn old_bytes_of_a_landing_that_was_not_described_are_never_shown() {
    let connection = connection(false, placed());
    let mut call = connection.call(Bytes::new(), Some(landing()));
    let error = call.next().await.unwrap_err();
    assert!(
        matches!(&error, TransportError::Protocol { reason, .. } if reason.contains("not told of")),
        "{error}"
    );
    assert!(connection.broken().is_some());
}

#[tokio::test]
async fn data_placed_in_a_described_landing_is_vouched_for() {
    let connection = connection(true, placed());
    let mut call = connection.call(Bytes::new(), Some(landing()));
    let crate::transport::Event::Part(part) = call.next().await.unwrap() else {
        panic!("a part is due")
    };
    assert_eq!((part.bytes(), part.last), (1000, true));
}
