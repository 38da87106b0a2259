//! What an authenticated worker can make a gateway's NIC write, on real kernel verbs: the sentences
//! of SECURITY.md, tried. And what is left of a gateway that is gone, whatever it left unread.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::unix::AsyncFd;

use super::client::{connect_options, expect};
use super::line::WireInlet;
use super::rail::{OpenRail, Use};
use super::sender::Registered;
use super::sys::{CmId, EventChannel, EventKind, Op, SGES_MAX, Sge, Work};
use super::terms::QueueTerms;
use super::wire::{Readable, Wire, next_event, watch};
use super::{VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport};
use crate::arena::{Arena, ArenaOptions};
use crate::calls::{self, Gate, GateLimits, Header, Inlet, Kind, Outgoing, Secret, Segment};
use crate::landing::{Fill, Landing};
use crate::transport::{Connection, Incoming, Reply, Service};

const PAGE: usize = 64 << 10;
const NEEDS: &str = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh";
/// For a connection, in an emulated guest that shares its CPUs.
const PATIENCE: Duration = Duration::from_secs(60);

fn arena() -> Arena {
    Arena::map(ArenaOptions { capacity_bytes: 4 << 20, cell_bytes_max: 256 << 10, populate: false })
        .unwrap()
}

fn address() -> IpAddr {
    std::env::var("VERBS3_TEST_ADDRESS").expect(NEEDS).parse().unwrap()
}

/// With memory windows, where the device has them.
fn options() -> VerbsOptions {
    VerbsOptions { windows: true, ..without_windows() }
}

fn without_windows() -> VerbsOptions {
    let mut options = VerbsOptions::new(Secret::new("the cluster's secret"));
    options.calls.connect_deadline = PATIENCE;
    options
}

/// A page of `arena` that is somebody's by now: vouched for, and perhaps on its way to a client.
fn page(arena: &Arena, byte: u8) -> Bytes {
    let (mut writer, reader) = arena.lease(PAGE).unwrap().split();
    writer.spare().fill(byte);
    writer.advance(PAGE);
    reader.bytes(0..PAGE).unwrap()
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// Where liars are met.
struct Lair {
    rail: Arc<OpenRail>,
    events: AsyncFd<Readable<EventChannel>>,
    id: CmId,
    pages: Arena,
}

/// A worker that knows the secret, and posts what it likes.
struct Liar {
    wire: Arc<Wire>,
    inlet: WireInlet,
    evil: Bytes,
}

impl Lair {
    fn open() -> Self {
        let pages = arena();
        let (rail, _) =
            OpenRail::open(address(), pages.clone(), Use::Blocks, &options()).expect(NEEDS);
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        id.bind(SocketAddr::new(address(), 0)).unwrap();
        id.listen(4).unwrap();
        Self { rail, events: watch(channel).unwrap(), id, pages }
    }

    /// A gateway's connection, and the liar at its other end.
    async fn meet(&self, transport: &VerbsTransport) -> (Arc<dyn Connection>, Liar) {
        let to = SocketAddr::new(address(), self.id.local_port());
        let (connection, liar) = tokio::join!(transport.connect_to(to, None), self.accept());
        (connection.unwrap(), liar)
    }

    async fn accept(&self) -> Liar {
        let options = options();
        let event = next_event(&self.events).await.unwrap();
        let theirs = QueueTerms::decode(&event.private).unwrap();
        let mut id = event.request.unwrap();
        let channel = EventChannel::new().unwrap();
        id.migrate(&channel).unwrap();
        let wire = Wire::new(id, watch(channel).unwrap(), self.rail.clone(), &options).unwrap();
        let mine = wire.terms(&options);
        wire.agree(mine, theirs);
        wire.with_id(|id| id.accept(&mine.encode(), connect_options(&options))).unwrap();
        expect(&wire.event().await.unwrap(), EventKind::Established).unwrap();
        let mut inlet = WireInlet::new(wire.clone());
        let limits =
            GateLimits { connections_max: 1, handshakes_max: 1, handshakes_per_address_max: 1 };
        let (agreed, _) =
            Gate::new(limits).admit(&mut inlet, &options.calls.terms("")).await.unwrap();
        Liar { wire, inlet: inlet.bounded(agreed.frame_bytes_max), evil: page(&self.pages, 0xEE) }
    }
}

impl Liar {
    /// What the next call tells of its landing.
    async fn target(&mut self) -> Segment {
        self.called().await.1
    }

    /// The number of the next call, and what it tells of its landing.
    async fn called(&mut self) -> (u64, Segment) {
        let header = self.inlet.header().await.unwrap().unwrap();
        let body = self.inlet.body(&header, &mut Fill::default()).await.unwrap();
        (header.call, body.target[0])
    }

    /// Settles a call, as an honest worker does.
    fn answer(&self, call: u64) {
        let header = Header { last: true, ..Header::new(Kind::Part, call) };
        self.wire.state.lock().sender.push(Outgoing::new(header, Bytes::new(), Vec::new()));
        self.wire.pump();
    }

    /// Writes a page of its own to `address` with `key`.
    fn write(&self, address: u64, key: u32) {
        let mut sges = [Sge { address: 0, bytes: 0, lkey: 0 }; SGES_MAX];
        let lkey = self.wire.rail.lkey_of(&self.evil).unwrap();
        sges[0] = Sge { address: self.evil.as_ptr() as u64, bytes: PAGE as u32, lkey };
        let op = Op::Write { address, key };
        let work = Work { id: 0, op, sges, sges_used: 1, signalled: true, inline: false };
        // SAFETY: the page lives as long as the liar, who closes the wire first.
        self.wire.with_id(|id| unsafe { id.post_send(&[work]) }).unwrap();
    }

    /// Goes on until its connection is over.
    async fn expect_cut_off(self) {
        let over = tokio::time::timeout(
            Duration::from_secs(20),
            self.wire.drive(&mut |state| state.ended),
        )
        .await;
        assert!(over.is_ok(), "the device let it go on");
        self.wire.close();
    }
}

/// Without memory windows: why SECURITY.md says what it says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_worker_with_the_key_of_one_landing_reaches_the_others() {
    let (lair, memory) = (Lair::open(), arena());
    let transport = VerbsTransport::new(address(), without_windows(), memory.clone()).unwrap();
    let other = page(&memory, 0x11);
    let (connection, mut liar) = lair.meet(&transport).await;
    let _call = connection.call("".into(), Landing::lease(&memory, &[PAGE]));
    let key = liar.target().await.key;
    liar.write(other.as_ptr() as u64, key);
    let place = other.as_ptr() as usize;
    // SAFETY: a byte of a page that `other` keeps leased.
    eventually(
        "the foreign landing is written to",
        || unsafe { (place as *const u8).read_volatile() } == 0xEE,
    )
    .await;
    assert!(connection.broken().is_none());
}

/// With memory windows it reaches the landings that it was lent, while they are lent, over the
/// queue pair that they were lent over. Soft-iWARP has no windows, which is then what is shown.
/// Soft-RoCE (`check_rkey` of Linux 6.1) holds a write against the bounds of the registration below
/// the window, so there it may reach others by a key that is good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_worker_with_a_window_reaches_its_own_landing_only() {
    let (lair, memory) = (Lair::open(), arena());
    let transport = VerbsTransport::new(address(), options(), memory.clone()).unwrap();
    let device = transport.rail().unwrap().device;
    assert_eq!(transport.has_windows(), !device.starts_with("siw"), "{device}");
    if !transport.has_windows() {
        return;
    }
    let (other, (honest, mut friend)) = (page(&memory, 0x11), lair.meet(&transport).await);
    let _lent = honest.call("".into(), Landing::lease(&memory, &[PAGE]));
    let theirs = friend.target().await;
    for case in [
        "another landing's memory",
        "a landing of another connection",
        "a landing that was given back",
        "its own",
    ] {
        let (connection, mut liar) = lair.meet(&transport).await;
        let mut call = connection.call("".into(), Landing::lease(&memory, &[PAGE]));
        let (number, told) = liar.called().await;
        match case {
            "another landing's memory" => {
                let other = page(&memory, 0x11);
                liar.write(other.as_ptr() as u64, told.key);
                let place = other.as_ptr() as usize;
                eventually("it is refused, or soft-RoCE let it", || {
                    // SAFETY: a byte of a page that `other` keeps leased.
                    let reached = unsafe { (place as *const u8).read_volatile() } == 0xEE;
                    assert!(!reached || device.starts_with("rxe"), "a write outside its window");
                    reached || connection.broken().is_some()
                })
                .await;
                continue;
            }
            "a landing of another connection" => liar.write(theirs.address, theirs.key),
            "a landing that was given back" => {
                let leased = memory.usage().leased_bytes;
                liar.answer(number);
                call.next().await.unwrap();
                eventually("the landing is back", || memory.usage().leased_bytes < leased).await;
                liar.write(told.address, told.key);
            }
            _ => {
                liar.write(told.address, told.key);
                let place = told.address as usize;
                // SAFETY: a byte of the landing, which the open call keeps leased.
                eventually(
                    "its own landing is written to",
                    || unsafe { (place as *const u8).read_volatile() } == 0xEE,
                )
                .await;
                assert!(connection.broken().is_none());
                continue;
            }
        }
        liar.expect_cut_off().await;
        eventually("the gateway has dropped the connection", || connection.broken().is_some())
            .await;
        drop(call);
        assert!(other.iter().all(|&byte| byte == 0x11), "{case}");
    }
    assert!(honest.broken().is_none());
    drop((other, honest, friend, _lent));
    eventually("every landing is back", || memory.usage().leased_bytes == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_worker_reaches_nothing_but_landings() {
    for options in [options(), without_windows()] {
        reaches_nothing_but_landings(options).await;
    }
}

async fn reaches_nothing_but_landings(options: VerbsOptions) {
    let (lair, memory, gone) = (Lair::open(), arena(), arena());
    let transport = VerbsTransport::new(address(), options.clone(), memory.clone()).unwrap();
    // Of a registration that has ended.
    let stale = {
        let before = VerbsTransport::new(address(), options, gone.clone()).unwrap();
        let (connection, mut liar) = lair.meet(&before).await;
        let call = connection.call("".into(), Landing::lease(&gone, &[PAGE]));
        let told = liar.target().await;
        drop((call, connection, liar));
        before.shutdown().await;
        told
    };
    let mine = page(&memory, 0x11);
    let outside = Bytes::from(vec![0x22; PAGE]);
    let at = |bytes: &Bytes| bytes.as_ptr() as u64;
    for case in ["a stale key", "a key that nobody gave", "memory that is no landing"] {
        let (connection, mut liar) = lair.meet(&transport).await;
        let call = connection.call("".into(), Landing::lease(&memory, &[PAGE]));
        let told = liar.target().await;
        match case {
            "a stale key" => liar.write(stale.address, stale.key),
            "a key that nobody gave" => liar.write(at(&mine), told.key ^ 0x5A00),
            _ => liar.write(at(&outside), told.key),
        }
        liar.expect_cut_off().await;
        eventually("the gateway has dropped the connection", || connection.broken().is_some())
            .await;
        drop(call);
        assert!(
            mine.iter().all(|&byte| byte == 0x11) && outside.iter().all(|&byte| byte == 0x22),
            "{case}"
        );
    }
    drop(mine);
    eventually("every landing is back", || memory.usage().leased_bytes == 0).await;
}

/// A worker that never answers.
struct Mute;

#[async_trait]
impl Service for Mute {
    async fn serve(&self, request: Incoming, reply: Reply) {
        std::future::pending::<()>().await;
        drop((request, reply));
    }
}

/// Its cancels are acknowledged until it has no credit left for that, and then its worker reads no
/// further. That it hangs up reaches a reader that waits all the same: once it waited for ever, and
/// its connection's place was never free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_gateway_that_reads_no_answer_and_hangs_up_leaves_its_place() {
    let mut verbs = without_windows();
    verbs.calls.calls_in_flight_max = 8;
    let options =
        VerbsServerOptions { connections_max: 1, ..VerbsServerOptions::new(verbs.clone()) };
    let to = SocketAddr::new(address(), 0);
    let server = VerbsServer::bind(to, options, arena(), Arc::new(Mute)).await.expect(NEEDS);
    let to = server.local_addr().unwrap();
    let transport = VerbsTransport::new(address(), verbs.clone(), arena()).unwrap();
    let wire = transport.wire_to(to).await;
    calls::request(&mut WireInlet::new(wire.clone()), &verbs.calls.terms("")).await.unwrap();
    let mut call = 0;
    let may_send = &mut |state: &mut super::wire::State| state.credits.may_send();
    while tokio::time::timeout(Duration::from_secs(2), wire.drive(may_send)).await.is_ok() {
        call += 1;
        assert!(call < 10_000, "the worker goes on reading");
        {
            let sender = &mut wire.state.lock().sender;
            sender.push(Outgoing::new(Header::new(Kind::Call, call), Bytes::new(), Vec::new()));
            sender.push(Outgoing::control(Kind::Cancel, call));
        }
        wire.pump();
    }
    wire.close();
    let mut next = transport.connect_to(to, None).await;
    for _ in 0..60 {
        if next.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        next = transport.connect_to(to, None).await;
    }
    drop(next.expect("the place of the gateway that left is free"));
    transport.shutdown().await;
    server.shutdown().await;
}
