//! Cases of memory that another process has lent, on real kernel verbs: a device writes there, and
//! never late. Run in the VM; the device is soft-RoCE or soft-iWARP.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use verbs3_rdma::foreign_memory::{BodyPlace, ForeignMemory, STAND_IN_BYTE, StandInMemory};
use verbs3_rdma::landing::Landing;
use verbs3_rdma::settings::FeatureSwitch;
use verbs3_rdma::transport::{PeerConnection, TransportError, WayTerms};
use verbs3_rdma::verbs::{PinnedRuntime, VerbsOptions};
use verbs3_settings::TimePeriod;

use crate::placed::placed;
use crate::transport_fixture::{arena, collect, pattern, service, verbs_options, within_deadline};
use crate::verbs_faults::{served, transport};

const LENT: usize = 4 << 20;
/// A place that begins and ends within pages.
const AT: usize = 12_345;
const BODY: usize = 1 << 20;
/// A registration of that much takes far less.
const REGISTERED_WITHIN: Duration = Duration::from_millis(500);

/// A device writes into lent memory only through windows.
fn windowed() -> VerbsOptions {
    let mut options = verbs_options();
    options.settings.windows = FeatureSwitch::Auto;
    options
}

fn place_of(foreign: &Arc<ForeignMemory>) -> Arc<BodyPlace> {
    BodyPlace::new(foreign.clone(), AT as u64, BODY as u64).unwrap()
}

fn landing_at(body: &Arc<BodyPlace>) -> Option<Landing> {
    body.claim_range(0, BODY as u64).map(Landing::in_foreign_memory)
}

/// Has the body sent, and looks whether it, and nothing else, is in its place.
async fn read_into(
    connection: &Arc<dyn PeerConnection>,
    memory: &StandInMemory,
    foreign: &Arc<ForeignMemory>,
    seed: u64,
) -> Result<(), TransportError> {
    let body = place_of(foreign);
    let mut call = connection.start_call(Bytes::from(seed.to_string()), landing_at(&body));
    let answer = collect(&mut call).await?;
    assert!(answer.bytes() == pattern(seed, 0, BODY), "wrong bytes");
    drop((answer, call));
    body.close_place().await;
    assert!(memory.copy_range(AT..AT + BODY) == pattern(seed, 0, BODY));
    let around = [memory.copy_range(0..AT), memory.copy_range(AT + BODY..LENT)].concat();
    assert!(around.iter().all(|&byte| byte == STAND_IN_BYTE), "bytes beside the place");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn verbs_replies_land_in_lent_memory() {
    within_deadline(async {
        let owner = arena(8);
        let pages: Vec<_> =
            (0..4).map(|seed| placed(&owner, &pattern(seed, 0, BODY)).unwrap()).collect();
        let serves = service(move |request, reply| {
            let seed: usize = std::str::from_utf8(&request.message).unwrap().parse().unwrap();
            let pages = pages[seed].clone();
            async move {
                let _ = reply.send_last("".into(), 0, pages).await;
            }
        });
        let server = served(verbs_options(), owner, serves).await;
        let arena = arena(2);
        let connection = transport(windowed(), &arena)
            .connect_to(server.local_addr().unwrap(), &WayTerms::default())
            .await
            .unwrap();
        let (memory, foreign) = StandInMemory::allocate(LENT);
        read_into(&connection, &memory, &foreign, 0).await.unwrap();
        tokio::time::sleep(REGISTERED_WITHIN).await;
        for turn in 0..20 {
            read_into(&connection, &memory, &foreign, turn % 4).await.unwrap();
        }
        assert_eq!(arena.arena_usage().loaned_bytes, 0);
        drop(foreign);
        drop(server);
    })
    .await;
}

/// A worker that is stopped before its WRITE, and goes on when the place was given back to its owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn verbs_a_late_write_does_not_touch_a_closed_place() {
    within_deadline(async {
        let (go, wait) = sync_channel::<()>(0);
        let (tell, hear) = sync_channel::<&'static str>(4);
        let owner = arena(8);
        let pages = placed(&owner, &pattern(9, 0, BODY)).unwrap();
        let wait = Mutex::new(wait);
        let stopped = service(move |request, reply| {
            let is_late = request.message == "late";
            if is_late {
                tell.send("begun").unwrap();
                // Blocks the thread that drives this server's connection.
                wait.lock().unwrap().recv().unwrap();
            }
            let (pages, tell) = (pages.clone(), tell.clone());
            async move {
                let _ = reply.send_last("".into(), 0, pages).await;
                if is_late {
                    tell.send("answered").unwrap();
                }
            }
        });
        let runtime = PinnedRuntime::new(&[0]).unwrap();
        let options = VerbsOptions { driver: Some(runtime.rail_driver()), ..verbs_options() };
        let server = served(options, owner, stopped).await;
        let arena = arena(4);
        let mut options = windowed();
        options.calls.settings.lending_cancel_ack_deadline = TimePeriod::from_millis(200);
        let connection = transport(options, &arena)
            .connect_to(server.local_addr().unwrap(), &WayTerms::default())
            .await
            .unwrap();
        let (memory, foreign) = StandInMemory::allocate(LENT);
        // Has the memory registered: the landing of the next call is described to the worker.
        let first = place_of(&foreign);
        collect(&mut connection.start_call("first".into(), landing_at(&first))).await.unwrap();
        first.close_place().await;
        drop(first);
        tokio::time::sleep(REGISTERED_WITHIN).await;
        let body = place_of(&foreign);
        let mut call = connection.start_call("late".into(), landing_at(&body));
        assert!(tokio::time::timeout(Duration::from_millis(50), call.next()).await.is_err());
        assert_eq!(hear.recv().unwrap(), "begun");
        drop(call);
        assert!(!body.end_claims(), "the worker may still write");
        body.close_place().await;
        let before = memory.copy_range(AT..LENT);
        go.send(()).unwrap();
        assert_eq!(hear.recv().unwrap(), "answered");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(memory.copy_range(AT..LENT) == before, "a late WRITE changed lent memory");
        drop(server);
    })
    .await;
}
