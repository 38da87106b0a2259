//! Tests what an authenticated worker can make a gateway's NIC write, on real kernel verbs: the
//! claims of docs/trust/cluster.md. Also tests that nothing is left of a gateway that is gone, even
//! with frames unread.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use verbs3_settings::TimePeriod;

use crate::arena::{Arena, ArenaOptions};
use crate::calls::{
    self, AdmissionGate, FrameHeader, FrameInlet, FrameKind, GateLimits, HandshakeSecret,
    HandshakeSide, MemorySegment, OutgoingFrame, SessionKey,
};
use crate::landing::{Landing, LandingFill};
use crate::settings::FeatureSwitch;
use crate::transport::{CallService, IncomingCall, PeerConnection, ReplySender, WayTerms};
use crate::verbs::chunk_sender::LocalKeyLookup;
use crate::verbs::queue_pair_wire::QueuePairWire;
use crate::verbs::queue_terms::QueueTerms;
use crate::verbs::rail::{ArenaPurpose, OpenRail};
use crate::verbs::rail_connector::{connect_options, expect_event};
use crate::verbs::rail_opener::RailOpener;
use crate::verbs::readable_source::{ReadableSource, next_event, watch_readable};
use crate::verbs::session_seals::{SenderSeals, SessionSeals};
use crate::verbs::sys::{
    CmId, EventChannel, EventKind, GatherElement, SGES_MAX, WorkOperation, WorkRequest,
};
use crate::verbs::wire_halves::WireInlet;
use crate::verbs::{VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport};

const PAGE: usize = 64 << 10;
const NEEDS: &str = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh";
/// Deadline for a connection in an emulated guest that shares its CPUs.
const PATIENCE: Duration = Duration::from_secs(60);

fn test_arena() -> Arena {
    Arena::map_memory(ArenaOptions {
        capacity_bytes: 4 << 20,
        cell_bytes_max: 256 << 10,
        populate: false,
    })
    .unwrap()
}

fn test_address() -> IpAddr {
    std::env::var("VERBS3_TEST_ADDRESS").expect(NEEDS).parse().unwrap()
}

/// Enables memory windows, where the device has them.
fn test_options() -> VerbsOptions {
    let mut options = without_windows();
    options.settings.windows = FeatureSwitch::Auto;
    options
}

fn without_windows() -> VerbsOptions {
    let mut options = VerbsOptions::new(HandshakeSecret::new("the cluster's secret"));
    if test_address().is_loopback() {
        // The fake provider tells of a refused WRITE by an event, and no sign of life may find it.
        options.settings.heartbeat = TimePeriod::from_seconds(3600);
    }
    options.calls.settings.connect_deadline = TimePeriod(PATIENCE);
    options
}

/// Returns a filled page of `arena`: vouched for, and perhaps on its way to a client.
fn filled_page(arena: &Arena, byte: u8) -> Bytes {
    let (mut writer, reader) = arena.allocate_cell(PAGE).unwrap().split_writer_reader();
    writer.spare_bytes().fill(byte);
    writer.publish_bytes(PAGE);
    reader.pinned_bytes(0..PAGE).unwrap()
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// A listener for hostile workers.
struct HostileListener {
    rail: Arc<OpenRail>,
    events: AsyncFd<ReadableSource<EventChannel>>,
    id: CmId,
    pages: Arena,
}

/// A worker that knows the secret, and posts what it likes.
struct HostileWorker {
    wire: Arc<QueuePairWire>,
    inlet: WireInlet,
    evil: Bytes,
}

impl HostileListener {
    fn open_rail() -> Self {
        let pages = test_arena();
        let mut opener = RailOpener::new(
            test_address().into(),
            pages.clone(),
            ArenaPurpose::Blocks,
            &test_options(),
        );
        let (rail, _) = opener.open_rail().expect(NEEDS);
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        id.bind(SocketAddr::new(test_address(), 0)).unwrap();
        id.start_listening(4).unwrap();
        Self { rail, events: watch_readable(channel).unwrap(), id, pages }
    }

    /// Connects a gateway, with the hostile worker at the other end.
    async fn connect_pair(
        &self,
        transport: &VerbsTransport,
    ) -> (Arc<dyn PeerConnection>, HostileWorker) {
        let to = SocketAddr::new(test_address(), self.id.local_port());
        let any = WayTerms::default();
        let (connection, liar) =
            tokio::join!(transport.connect_to(to, &any), self.accept_gateway());
        (connection.unwrap(), liar)
    }

    async fn accept_gateway(&self) -> HostileWorker {
        let options = test_options();
        let event = next_event(&self.events).await.unwrap();
        let theirs = QueueTerms::decode(&event.private).unwrap();
        let mut id = event.request.unwrap();
        let channel = EventChannel::new().unwrap();
        id.move_to_channel(&channel).unwrap();
        let (events, driver) = (watch_readable(channel).unwrap(), Handle::current());
        let wire = QueuePairWire::new(id, events, self.rail.clone(), &options, &driver).unwrap();
        let mine = wire.queue_terms(&options);
        wire.set_peer_terms(mine, theirs);
        wire.with_pair(|pair| pair.accept(&mine.encode(), connect_options(&options))).unwrap();
        expect_event(&wire.next_cm_event().await.unwrap(), EventKind::Established).unwrap();
        let mut inlet = WireInlet::new(wire.clone());
        let limits =
            GateLimits { connections_max: 1, handshakes_max: 1, handshakes_per_address_max: 1 };
        let (agreed, _) = AdmissionGate::new(limits)
            .accept_peer(&mut inlet, &options.calls.handshake_terms(""))
            .await
            .unwrap();
        HostileWorker {
            wire,
            inlet: inlet.with_session(agreed.frame_bytes_max),
            evil: filled_page(&self.pages, 0xEE),
        }
    }
}

impl HostileWorker {
    /// Returns the landing that the next call describes.
    async fn next_target(&mut self) -> MemorySegment {
        self.next_call().await.1
    }

    /// Returns the number of the next call, and the landing that it describes.
    async fn next_call(&mut self) -> (u64, MemorySegment) {
        let header = self.inlet.next_header().await.unwrap().unwrap();
        let body = self.inlet.receive_body(&header, &mut LandingFill::default()).await.unwrap();
        (header.call, body.target[0])
    }

    /// Returns the number of the next call, which lends no memory.
    async fn next_bare_call(&mut self) -> u64 {
        let header = self.inlet.next_header().await.unwrap().unwrap();
        self.inlet.receive_body(&header, &mut LandingFill::default()).await.unwrap();
        header.call
    }

    fn with_seals<T>(&self, liar: impl FnOnce(&mut SenderSeals) -> T) -> T {
        liar(self.wire.state.lock().sender.seals_mut().as_mut().expect("a session"))
    }

    /// Settles a call, as an honest worker does.
    fn settle_call(&self, call: u64) {
        let header = FrameHeader { last: true, ..FrameHeader::new(FrameKind::Part, call) };
        self.wire.state.lock().sender.push(OutgoingFrame::new(header, Bytes::new(), Vec::new()));
        self.wire.pump_sends();
    }

    /// Writes a page of its own to `address` with `key`.
    fn write(&self, address: u64, key: u32) {
        let mut sges = [GatherElement { address: 0, bytes: 0, lkey: 0 }; SGES_MAX];
        let lkey = self.wire.rail.lkey_of(&self.evil).unwrap();
        sges[0] = GatherElement { address: self.evil.as_ptr() as u64, bytes: PAGE as u32, lkey };
        let op = WorkOperation::Write { address, key };
        let work = WorkRequest { id: 0, op, sges, sges_used: 1, signalled: true, inline: false };
        // SAFETY: the page lives as long as the liar, who closes the wire first.
        self.wire.with_pair(|pair| unsafe { pair.post_send(&[work]) }).unwrap();
    }

    /// Waits until its connection is over.
    async fn expect_cut_off(self) {
        let over = tokio::time::timeout(
            Duration::from_secs(20),
            self.wire.drive_until(&mut |state| state.ended),
        )
        .await;
        assert!(over.is_ok(), "the device let it go on");
        self.wire.close();
    }
}

/// Shows the case without memory windows, which docs/trust/cluster.md describes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_worker_with_the_key_of_a_landing_reaches_the_others() {
    let (lair, memory) = (HostileListener::open_rail(), test_arena());
    let transport = VerbsTransport::new(test_address(), without_windows(), memory.clone()).unwrap();
    let other = filled_page(&memory, 0x11);
    let (connection, mut liar) = lair.connect_pair(&transport).await;
    let _call = connection.start_call("".into(), Landing::allocate_segments(&memory, &[PAGE]));
    let key = liar.next_target().await.key;
    liar.write(other.as_ptr() as u64, key);
    let place = other.as_ptr() as usize;
    // SAFETY: a byte of a page that `other` keeps loaned.
    let is_written = || unsafe { (place as *const u8).read_volatile() } == 0xEE;
    wait_until("the foreign landing is written to", is_written).await;
    assert!(connection.broken_reason().is_none());
}

/// Shows that with memory windows a worker reaches only landings lent to it, while they are lent,
/// over the queue pair that they were lent over. Soft-iWARP has no windows, and the test then shows
/// that. Soft-RoCE (`check_rkey` of Linux 6.1) checks a write against the bounds of the
/// registration below the window. So there a good key may reach other landings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_worker_with_a_window_reaches_its_own_landing_only() {
    let (lair, memory) = (HostileListener::open_rail(), test_arena());
    let transport = VerbsTransport::new(test_address(), test_options(), memory.clone()).unwrap();
    let device = transport.current_rail().unwrap().device;
    assert_eq!(transport.has_windows(), !device.starts_with("siw"), "{device}");
    if !transport.has_windows() {
        return;
    }
    let (other, (honest, mut friend)) =
        (filled_page(&memory, 0x11), lair.connect_pair(&transport).await);
    let _lent = honest.start_call("".into(), Landing::allocate_segments(&memory, &[PAGE]));
    let theirs = friend.next_target().await;
    for case in [
        "another landing's memory",
        "a landing of another connection",
        "a landing that was given back",
        "its own",
    ] {
        let (connection, mut liar) = lair.connect_pair(&transport).await;
        let mut call =
            connection.start_call("".into(), Landing::allocate_segments(&memory, &[PAGE]));
        let (number, told) = liar.next_call().await;
        match case {
            "another landing's memory" => {
                let other = filled_page(&memory, 0x11);
                liar.write(other.as_ptr() as u64, told.key);
                let place = other.as_ptr() as usize;
                wait_until("it is refused, or soft-RoCE let it", || {
                    // SAFETY: a byte of a page that `other` keeps loaned.
                    let reached = unsafe { (place as *const u8).read_volatile() } == 0xEE;
                    assert!(!reached || device.starts_with("rxe"), "a write outside its window");
                    reached || connection.broken_reason().is_some()
                })
                .await;
                continue;
            }
            "a landing of another connection" => liar.write(theirs.address, theirs.key),
            "a landing that was given back" => {
                let loaned = memory.arena_usage().loaned_bytes;
                liar.settle_call(number);
                call.next().await.unwrap();
                wait_until("the landing is back", || memory.arena_usage().loaned_bytes < loaned)
                    .await;
                liar.write(told.address, told.key);
            }
            _ => {
                liar.write(told.address, told.key);
                let place = told.address as usize;
                // SAFETY: a byte of the landing, which the open call keeps loaned.
                let is_written = || unsafe { (place as *const u8).read_volatile() } == 0xEE;
                wait_until("its own landing is written to", is_written).await;
                assert!(connection.broken_reason().is_none());
                continue;
            }
        }
        liar.expect_cut_off().await;
        wait_until("the gateway has dropped the connection", || {
            connection.broken_reason().is_some()
        })
        .await;
        drop(call);
        assert!(other.iter().all(|&byte| byte == 0x11), "{case}");
    }
    assert!(honest.broken_reason().is_none());
    drop((other, honest, friend, _lent));
    wait_until("every landing is back", || memory.arena_usage().loaned_bytes == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_worker_reaches_nothing_but_landings() {
    for options in [test_options(), without_windows()] {
        reaches_nothing_but_landings(options).await;
    }
}

async fn reaches_nothing_but_landings(options: VerbsOptions) {
    let (lair, memory, gone) = (HostileListener::open_rail(), test_arena(), test_arena());
    let transport = VerbsTransport::new(test_address(), options.clone(), memory.clone()).unwrap();
    // A landing whose registration has ended.
    let stale = {
        let before = VerbsTransport::new(test_address(), options, gone.clone()).unwrap();
        let (connection, mut liar) = lair.connect_pair(&before).await;
        let call = connection.start_call("".into(), Landing::allocate_segments(&gone, &[PAGE]));
        let told = liar.next_target().await;
        drop((call, connection, liar));
        before.shutdown().await;
        told
    };
    let mine = filled_page(&memory, 0x11);
    let outside = Bytes::from(vec![0x22; PAGE]);
    let at = |bytes: &Bytes| bytes.as_ptr() as u64;
    for case in ["a stale key", "a key that nobody gave", "memory that is no landing"] {
        let (connection, mut liar) = lair.connect_pair(&transport).await;
        let call = connection.start_call("".into(), Landing::allocate_segments(&memory, &[PAGE]));
        let told = liar.next_target().await;
        match case {
            "a stale key" => liar.write(stale.address, stale.key),
            "a key that nobody gave" => liar.write(at(&mine), told.key ^ 0x5A00),
            _ => liar.write(at(&outside), told.key),
        }
        liar.expect_cut_off().await;
        wait_until("the gateway has dropped the connection", || {
            connection.broken_reason().is_some()
        })
        .await;
        drop(call);
        assert!(
            mine.iter().all(|&byte| byte == 0x11) && outside.iter().all(|&byte| byte == 0x22),
            "{case}"
        );
    }
    drop(mine);
    wait_until("every landing is back", || memory.arena_usage().loaned_bytes == 0).await;
}

/// Shows that what another host sends into a connection, in the worker's name, is no answer of the
/// worker. Its host has no key, so it sends without a seal, or with one of another session, or
/// what the worker has sent before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_host_that_answers_in_a_workers_name_is_refused() {
    let (lair, memory) = (HostileListener::open_rail(), test_arena());
    let transport = VerbsTransport::new(test_address(), test_options(), memory.clone()).unwrap();
    let foreign = || {
        let session = SessionKey::from_bytes([7; 32]);
        let SessionSeals { chunks_sent, data_sent, .. } =
            SessionSeals::new(&session, HandshakeSide::Server);
        SenderSeals { chunks: chunks_sent, data: data_sent, tags_wanted: false }
    };
    for case in ["no seal", "the seal of another session", "an answer once more", "the worker"] {
        let (connection, mut liar) = lair.connect_pair(&transport).await;
        let mut first = connection.start_call("".into(), None);
        let number = liar.next_bare_call().await;
        liar.settle_call(number);
        first.next().await.unwrap();
        let mut call = connection.start_call("".into(), None);
        let number = liar.next_bare_call().await;
        match case {
            "no seal" => *liar.wire.state.lock().sender.seals_mut() = None,
            "the seal of another session" => {
                *liar.wire.state.lock().sender.seals_mut() = Some(foreign());
            }
            "an answer once more" => liar.with_seals(|seals| seals.chunks.repeat_count()),
            _ => {}
        }
        liar.settle_call(number);
        let settled = tokio::time::timeout(Duration::from_secs(20), call.next()).await.unwrap();
        let (is_honest, reason) = (case == "the worker", connection.broken_reason());
        assert_eq!(settled.is_ok(), is_honest, "{case}: {settled:?}");
        assert_eq!(reason.is_none(), is_honest, "{case}: {reason:?}");
        if let Some(reason) = reason {
            let wanted = if case == "no seal" { "Unsealed" } else { "Seal" };
            assert!(format!("{reason:?}").contains(wanted), "{case}: {reason:?}");
        }
    }
}

/// Shows that data is given to nobody where its worker has not tagged it so: another host has
/// written it, or over it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_host_that_writes_a_landing_gives_no_data_with_tags() {
    let mut options = without_windows();
    options.settings.data_tags = true;
    let (lair, memory) = (HostileListener::open_rail(), test_arena());
    let transport = VerbsTransport::new(test_address(), options, memory.clone()).unwrap();
    for case in ["written over", "not tagged", "tagged for other bytes", "the worker's"] {
        let (connection, mut liar) = lair.connect_pair(&transport).await;
        let landing = Landing::allocate_segments(&memory, &[PAGE]);
        let mut call = connection.start_call("".into(), landing);
        let (number, target) = liar.next_call().await;
        let mut page = vec![0x33; PAGE];
        if case == "written over" {
            page[PAGE - 1] ^= 1;
        } else if case == "the worker's" {
            page = liar.evil.to_vec();
        }
        let tag = match case {
            "not tagged" => [0; 16],
            _ => liar
                .with_seals(|seals| seals.data.compute_tag(number, 0, std::iter::once(&page[..]))),
        };
        liar.write(target.address, target.key);
        let header = FrameHeader { last: true, ..FrameHeader::new(FrameKind::Part, number) };
        let mut part = OutgoingFrame::new(header, Bytes::new(), Vec::new());
        part.header.data_bytes = PAGE as u64;
        part.mark_placed(tag);
        liar.wire.state.lock().sender.push(part);
        liar.wire.pump_sends();
        let settled = tokio::time::timeout(Duration::from_secs(20), call.next()).await.unwrap();
        assert_eq!(settled.is_ok(), case == "the worker's", "{case}: {settled:?}");
    }
}

/// A worker that never answers.
struct SilentService;

#[async_trait]
impl CallService for SilentService {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        std::future::pending::<()>().await;
        drop((request, reply));
    }
}

/// Shows that a hang-up reaches a waiting reader. The gateway's cancels are acknowledged until its
/// worker has no credit left, and then the worker reads no further. Its reader once waited for
/// ever, and the connection's place was never free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn hostile_gateway_that_reads_no_answer_frees_its_place() {
    let mut verbs = without_windows();
    verbs.calls.settings.calls_in_flight_max = 8;
    let options =
        VerbsServerOptions { connections_max: 1, ..VerbsServerOptions::new(verbs.clone()) };
    let to = SocketAddr::new(test_address(), 0);
    let server =
        VerbsServer::bind(to, options, test_arena(), Arc::new(SilentService)).await.expect(NEEDS);
    let to = server.local_addr().unwrap();
    let transport = VerbsTransport::new(test_address(), verbs.clone(), test_arena()).unwrap();
    let wire = transport.wire_to(to).await;
    let mut inlet = WireInlet::new(wire.clone());
    let agreed =
        calls::request_handshake(&mut inlet, &verbs.calls.handshake_terms("")).await.unwrap();
    let _session = inlet.with_session(agreed.frame_bytes_max);
    let mut call = 0;
    let may_send = &mut |state: &mut crate::verbs::queue_pair_wire::QueuePairWireState| {
        state.credits.may_send()
    };
    while tokio::time::timeout(Duration::from_secs(2), wire.drive_until(may_send)).await.is_ok() {
        call += 1;
        assert!(call < 10_000, "the worker goes on reading");
        {
            let sender = &mut wire.state.lock().sender;
            sender.push(OutgoingFrame::new(
                FrameHeader::new(FrameKind::Call, call),
                Bytes::new(),
                Vec::new(),
            ));
            sender.push(OutgoingFrame::control_frame(FrameKind::Cancel, call));
        }
        wire.pump_sends();
    }
    wire.close();
    let mut next = transport.connect_to(to, &WayTerms::default()).await;
    for _ in 0..60 {
        if next.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        next = transport.connect_to(to, &WayTerms::default()).await;
    }
    drop(next.expect("the place of the gateway that left is free"));
    transport.shutdown().await;
    server.shutdown().await;
}
