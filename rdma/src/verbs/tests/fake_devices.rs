//! Tests of rails whose devices misbehave, over the fake provider of `tests/fake-verbs`: ports that
//! go down, devices that fail, addresses that change, registrations that fail.
//!
//! Each test has a device of its own: 127.0.P.N is port 1 of a device of profile P.
#![allow(clippy::unwrap_used)]

mod driving;
mod lent_memory;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use verbs3_settings::TimePeriod;

use crate::arena::{Arena, ArenaOptions};
use crate::calls::{HandshakeError, HandshakeSecret};
use crate::landing::Landing;
use crate::metrics::rail_metrics;
use crate::settings::FeatureSwitch;
use crate::transport::{
    CallEvent, CallService, IncomingCall, PeerConnection, PeerTransport, ReplySender,
    TransportError, WayTerms,
};
use crate::verbs::rail::RailDevice;
use crate::verbs::sys::{CmId, CmQueuePair, EventChannel};
use crate::verbs::{RailPlace, VerbsOptions, VerbsServer, VerbsServerOptions, VerbsTransport};

/// What the fake provider does to a device when its address is resolved with one of these ports
/// (`tests/fake-verbs/fake_cm.c`).
const ADDRESS_CHANGE: u16 = 1;
const FATAL: u16 = 3;
const PORT_DOWN: u16 = 4;
const PORT_UP: u16 = 5;
const GID_CHANGE: u16 = 6;
const STUCK: u16 = 7;
const DISASSOCIATED: u16 = 8;

/// Bytes of a message, and of the data beside it.
const MESSAGE: usize = 48 << 10;

fn make_happen(what: u16, device: IpAddr) {
    let id = CmId::new(&EventChannel::new().unwrap()).unwrap();
    let to = SocketAddr::new(device, what);
    let bystander = "127.0.0.99".parse().unwrap();
    id.resolve_address(bystander, to, Duration::from_secs(1)).unwrap();
}

fn test_options() -> VerbsOptions {
    let mut options = VerbsOptions::new(HandshakeSecret::new("the cluster's secret"));
    options.settings.reopen_max = TimePeriod::from_millis(100);
    // What ends a connection here is what its device says.
    options.settings.heartbeat = TimePeriod::from_seconds(3600);
    options.calls.settings.connect_deadline = TimePeriod::from_seconds(60);
    options.calls.settings.cancel_ack_deadline = TimePeriod::from_seconds(60);
    options
}

fn test_arena(mebibytes: usize) -> Arena {
    let capacity_bytes = mebibytes << 20;
    Arena::map_memory(ArenaOptions { capacity_bytes, cell_bytes_max: 256 << 10, populate: false })
        .unwrap()
}

/// Answers no call, and tells when one has come.
#[derive(Default)]
struct SilentService {
    called: Arc<Notify>,
}

#[async_trait]
impl CallService for SilentService {
    async fn serve_call(&self, _request: IncomingCall, _reply: ReplySender) {
        self.called.notify_one();
        std::future::pending::<()>().await;
    }
}

struct EchoService;

#[async_trait]
impl CallService for EchoService {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let data = vec![request.message.clone()];
        let _ = reply.send_last(request.message, 0, data).await;
    }
}

/// Both sides over one device.
struct TestRail {
    server: VerbsServer,
    transport: VerbsTransport,
    memory: Arena,
}

impl TestRail {
    async fn open_at(place: RailPlace) -> Self {
        Self::open_with(place, test_options(), test_options(), Arc::new(EchoService)).await
    }

    async fn open_with(
        place: RailPlace,
        server: VerbsOptions,
        requester: VerbsOptions,
        service: Arc<dyn CallService>,
    ) -> Self {
        Self::open_over(place, server, requester, test_arena(4), service).await
    }

    /// The same with a server's arena whose pages the service gives.
    async fn open_over(
        place: RailPlace,
        server: VerbsOptions,
        requester: VerbsOptions,
        pages: Arena,
        service: Arc<dyn CallService>,
    ) -> Self {
        let (server, opened) =
            VerbsServer::start(place.clone(), 0, VerbsServerOptions::new(server), pages, service);
        assert!(opened.first_error().await.is_none());
        let memory = test_arena(4);
        let (transport, opened) = VerbsTransport::start(place, requester, memory.clone());
        assert!(opened.first_error().await.is_none());
        let rail = Self { server, transport, memory };
        wait_until("both sides are up", || rail.is_up()).await;
        rail
    }

    fn is_up(&self) -> bool {
        self.server.local_addr().is_some() && self.transport.current_rail().is_some()
    }

    fn rail_device(&self) -> Arc<RailDevice> {
        self.transport.rail_device().unwrap()
    }

    async fn connect_both(&self) -> Result<Arc<dyn PeerConnection>, TransportError> {
        self.transport.connect_to(self.server.local_addr().unwrap(), &WayTerms::default()).await
    }

    async fn assert_works(&self) -> Arc<dyn PeerConnection> {
        let connection = self.connect_both().await.unwrap();
        let message = Bytes::from(vec![7; MESSAGE]);
        let landing = Landing::allocate_segments(&self.memory, &[MESSAGE]);
        let mut call = connection.start_call(message.clone(), landing);
        let CallEvent::Part(part) = call.next().await.unwrap() else { panic!("a part was due") };
        assert!(part.message == message && part.data.concat() == message, "wrong bytes");
        connection
    }
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_port_that_goes_down_takes_its_rail_out_until_it_is_back() {
    let address: IpAddr = "127.0.0.21".parse().unwrap();
    let rail = TestRail::open_at(address.into()).await;
    let (connection, device) = (rail.assert_works().await, Arc::as_ptr(&rail.rail_device()));
    let listened = rail.server.local_addr();
    make_happen(PORT_DOWN, address);
    wait_until("both sides say that it is down", || {
        rail.server.local_addr().is_none() && rail.transport.current_rail().is_none()
    })
    .await;
    wait_until("the connection is over", || connection.broken_reason().is_some()).await;
    make_happen(PORT_UP, address);
    wait_until("both sides are up again", || rail.is_up()).await;
    assert_eq!(rail.server.local_addr(), listened, "the port is kept");
    assert_eq!(Arc::as_ptr(&rail.rail_device()), device, "nothing was registered anew");
    rail.assert_works().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_device_that_fails_ends_connections_and_opens_anew() {
    let address: IpAddr = "127.0.0.22".parse().unwrap();
    let rail = TestRail::open_at(address.into()).await;
    let connection = rail.assert_works().await;
    let device = Arc::downgrade(&rail.rail_device());
    make_happen(FATAL, address);
    wait_until("the connection is over", || connection.broken_reason().is_some()).await;
    wait_until("every landing is back", || rail.memory.arena_usage().loaned_bytes == 0).await;
    drop(connection);
    wait_until("nothing holds the device", || device.strong_count() == 0).await;
    wait_until("both sides are up again", || rail.is_up()).await;
    rail.assert_works().await;
}

/// Ends a connection in the middle of a call. Returns how many bytes of the landing are not lent
/// again, and how many queue pairs were counted as surviving.
async fn end_in_a_call(address: &str, trouble: Option<u16>) -> (u64, u64) {
    let address: IpAddr = address.parse().unwrap();
    let service = Arc::new(SilentService::default());
    let called = service.called.clone();
    let rail = TestRail::open_with(address.into(), test_options(), test_options(), service).await;
    let survivors = rail_metrics(&rail.transport.rail_label().unwrap()).queue_pairs_surviving;
    let connection = rail.connect_both().await.unwrap();
    let landing = Landing::allocate_segments(&rail.memory, &[MESSAGE]);
    let mut call = connection.start_call("".into(), landing);
    tokio::select! {
        event = call.next() => panic!("nobody answers: {event:?}"),
        () = called.notified() => {}
    }
    for news in trouble.into_iter().chain([PORT_DOWN]) {
        make_happen(news, address);
    }
    assert!(call.next().await.is_err(), "the connection is over");
    drop((call, connection));
    rail.transport.shutdown().await;
    rail.server.shutdown().await;
    (rail.memory.arena_usage().asked_bytes, survivors.get())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_queue_pair_that_survives_keeps_the_memory_lent_over_it() {
    // With memory windows, and without; each has two sides.
    for address in ["127.0.0.27", "127.0.5.27"] {
        assert_eq!(end_in_a_call(address, Some(STUCK)).await, (MESSAGE as u64, 2), "{address}");
    }
    // One that is not destroyed, but stopped, writes nothing any more.
    assert_eq!(end_in_a_call("127.0.5.28", None).await, (0, 0));
    // Nor does one whose device the kernel has taken away.
    assert_eq!(end_in_a_call("127.0.0.31", Some(DISASSOCIATED)).await, (0, 0));
}

/// Moves a rail to the other address of its device.
async fn moves_at(news: u16, host: u8) {
    let (now, place) = (Arc::new(AtomicU8::new(host)), RailPlace::new);
    let looked_up = now.clone();
    let place = place(0, "moving", move || {
        Ok(IpAddr::from([127, 0, 0, looked_up.load(Ordering::Relaxed)]))
    });
    let rail = TestRail::open_at(place).await;
    let (connection, device) = (rail.assert_works().await, Arc::as_ptr(&rail.rail_device()));
    let there = IpAddr::from([127, 0, 0, host + 128]);
    now.store(host + 128, Ordering::Relaxed);
    make_happen(news, [127, 0, 0, host].into());
    wait_until("both sides have the new address", || {
        rail.server.local_addr().is_some_and(|address| address.ip() == there)
            && rail.transport.current_rail().is_some_and(|rail| rail.address == there)
    })
    .await;
    assert_eq!(Arc::as_ptr(&rail.rail_device()), device, "nothing was registered anew");
    assert!(connection.broken_reason().is_none(), "its path is as good as before");
    rail.assert_works().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_rail_follows_its_address_and_keeps_what_is_registered() {
    moves_at(ADDRESS_CHANGE, 23).await;
    moves_at(GID_CHANGE, 24).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_rail_without_an_address_still_hears_of_its_port() {
    let address: IpAddr = "127.0.0.26".parse().unwrap();
    let is_there = Arc::new(AtomicU8::new(1));
    let looked_up = is_there.clone();
    let place = RailPlace::new(0, "away", move || match looked_up.load(Ordering::Relaxed) {
        1 => Ok(address),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    });
    let rail = TestRail::open_at(place).await;
    let connection = rail.assert_works().await;
    is_there.store(0, Ordering::Relaxed);
    make_happen(GID_CHANGE, address);
    wait_until("both sides are down", || {
        rail.server.local_addr().is_none() && rail.transport.current_rail().is_none()
    })
    .await;
    assert!(connection.broken_reason().is_none(), "its path is as good as before");
    make_happen(PORT_DOWN, address);
    wait_until("the connection is over", || connection.broken_reason().is_some()).await;
    is_there.store(1, Ordering::Relaxed);
    make_happen(PORT_UP, address);
    wait_until("both sides are up again", || rail.is_up()).await;
    rail.assert_works().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_device_of_short_regions_has_the_arena_in_several() {
    let address: IpAddr = "127.0.2.21".parse().unwrap();
    let transport = VerbsTransport::new(address, test_options(), test_arena(15)).unwrap();
    let regions = &transport.rail_device().unwrap().regions;
    // It takes 5 MiB, and an extent is 2 MiB: three regions of 4 MiB, and one of the rest.
    assert_eq!(regions.count_registered(), (4, 4));
}

/// Its device takes no more than the four regions that the arena needs, and refuses the third once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_registration_that_fails_goes_on_where_it_ended() {
    let address: IpAddr = "127.0.3.21".parse().unwrap();
    let mut options = test_options();
    options.settings.shared_receive = FeatureSwitch::Off;
    let (transport, opened) = VerbsTransport::start(address, options, test_arena(16));
    assert!(opened.first_error().await.is_some(), "the third registration succeeded");
    wait_until("the rail is up", || transport.current_rail().is_some()).await;
    assert_eq!(transport.rail_device().unwrap().regions.count_registered(), (4, 4));
}

/// Two rails whose arenas do not both fit into what may be locked: the one that failed first keeps
/// its part and becomes whole, and the other waits for its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_rails_without_room_for_both_open_one_by_one() {
    let open = |address: &str| {
        let address: IpAddr = address.parse().unwrap();
        let mut options = test_options();
        options.settings.shared_receive = FeatureSwitch::Off;
        VerbsTransport::start(address, options, test_arena(16))
    };
    let (first, opened) = open("127.0.10.21");
    assert!(opened.first_error().await.is_some(), "the third registration succeeded");
    let (second, opened) = open("127.0.10.22");
    assert!(opened.first_error().await.is_some(), "the third registration succeeded");
    wait_until("one of them is up", || first.current_rail().is_some()).await;
    assert!(second.current_rail().is_none());
    drop(first);
    wait_until("the other is up", || second.current_rail().is_some()).await;
}

/// Its device refuses an arena whose transfers keep their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_arena_has_relaxed_ordering_unless_that_is_off() {
    let address: IpAddr = "127.0.6.21".parse().unwrap();
    let open = |relaxed_ordering| {
        let mut options = test_options();
        options.settings.relaxed_ordering = relaxed_ordering;
        VerbsTransport::new(address, options, test_arena(4)).err()
    };
    assert!(open(FeatureSwitch::Auto).is_none() && open(FeatureSwitch::Off).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_registration_keeps_nobody_waiting() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let place = RailPlace::new(0, "slow", move || {
        // As long as a registration of hundreds of gigabytes.
        let _ = wait.lock().recv();
        Ok("127.0.0.25".parse().unwrap())
    });
    let options = VerbsServerOptions::new(test_options());
    let (server, opened) =
        VerbsServer::start(place, 0, options, test_arena(4), Arc::new(EchoService));
    assert_eq!(server.local_addr(), None);
    go.send(()).unwrap();
    assert!(opened.first_error().await.is_none());
    wait_until("it listens", || server.local_addr().is_some()).await;
}

/// Its device completes messages as WRITEs with immediate data. Such a completion says nothing of
/// what is in the buffer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_completion_of_another_operation_is_no_message() {
    let address: IpAddr = "127.0.7.21".parse().unwrap();
    let rail = TestRail::open_at(address.into()).await;
    let error = rail.connect_both().await.err().unwrap();
    assert!(
        matches!(&error, TransportError::Handshake { cause, .. }
            if matches!(**cause, HandshakeError::Lost(_))),
        "{error}"
    );
}

/// Its device refuses to send for a queue pair without the timer, on either side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_queue_pairs_have_a_short_rnr_timer() {
    for (address, path_mtu_max) in [("127.0.6.22", None), ("127.0.6.23", Some(1024))] {
        let address: IpAddr = address.parse().unwrap();
        let mut options = test_options();
        options.settings.path_mtu_max = path_mtu_max;
        let service = Arc::new(EchoService);
        let rail = TestRail::open_with(address.into(), options.clone(), options, service).await;
        rail.assert_works().await;
        let wire = rail.transport.wire_to(rail.server.local_addr().unwrap()).await;
        // 0.64 ms, as verbs encode it.
        assert_eq!(wire.with_pair(CmQueuePair::rnr_timer).unwrap(), 12, "{path_mtu_max:?}");
    }
}

/// Its device refuses a connection whose sides have not the same type of service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_connection_has_its_type_of_service_on_both_sides() {
    let with_tos = |tos| {
        let mut options = test_options();
        options.settings.tos = tos;
        options
    };
    let place = |host| RailPlace::from(IpAddr::from([127, 0, 6, host]));
    let service = Arc::new(EchoService);
    let rail =
        TestRail::open_with(place(24), with_tos(Some(104)), with_tos(Some(104)), service.clone())
            .await;
    rail.assert_works().await;
    // The device does compare.
    let rail = TestRail::open_with(place(25), with_tos(None), with_tos(Some(104)), service).await;
    assert!(rail.connect_both().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the fake verbs provider: tests/fake-verbs/run.sh"]
async fn fake_server_without_room_for_a_handshake_says_so() {
    let address: IpAddr = "127.0.0.29".parse().unwrap();
    let mut options = test_options();
    options.settings.handshakes_max = 0;
    let service = Arc::new(EchoService);
    let rail = TestRail::open_with(address.into(), options, test_options(), service).await;
    let error = rail.connect_both().await.err().unwrap();
    assert!(error.is_about_room(), "{error}");
}
