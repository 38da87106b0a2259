//! The network between a gateway and a worker: requests and answers pass, or wait until they may.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use verbs3_cache_worker::CacheWorker;
use verbs3_rdma::inprocess::{FaultHandle, InProcess, InProcessFaults, InProcessMode};
use verbs3_rdma::peer::{PeerOptions, TransportPeer};
use verbs3_rdma::transport::{CallService, IncomingCall, PeerAddress, ReplySender};

/// What runs at a worker's address, if anything does.
#[derive(Default)]
pub struct Place(Mutex<Option<Running>>);

#[derive(Clone)]
pub struct Running {
    pub worker: Arc<CacheWorker>,
    pub killed: CancellationToken,
    /// It ends in order.
    pub leaves: CancellationToken,
}

impl Place {
    pub fn set(&self, running: Option<Running>) {
        *self.0.lock() = running;
    }

    pub fn get(&self) -> Option<Running> {
        self.0.lock().clone()
    }
}

/// From one gateway to one worker, and back.
pub struct Link {
    pub peer: Arc<TransportPeer>,
    requests: watch::Sender<bool>,
    answers: FaultHandle,
}

impl Link {
    /// Answers of different calls overtake each other, and what was given up arrives all the same.
    pub fn new(name: &str, place: Arc<Place>, seed: u64) -> Self {
        let (requests, open) = watch::channel(true);
        let faults = InProcessFaults::from_seed(seed).late_replies();
        let answers = faults.fault_handle();
        let transport =
            InProcess::make_transport(Arc::new(Gate { open, place }), InProcessMode::Copy(faults));
        let address = PeerAddress::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let peer =
            Arc::new(TransportPeer::new(name, address, vec![transport], PeerOptions::default()));
        Self { peer, requests, answers }
    }

    /// What does not pass waits.
    pub fn pass(&self, requests: bool, answers: bool) {
        self.requests.send_replace(requests);
        if answers { self.answers.release_all() } else { self.answers.hold_deliveries() }
    }
}

/// A worker's address, as one gateway reaches it.
struct Gate {
    open: watch::Receiver<bool>,
    place: Arc<Place>,
}

#[async_trait]
impl CallService for Gate {
    async fn serve_call(&self, request: IncomingCall, reply: ReplySender) {
        let mut open = self.open.clone();
        if open.wait_for(|open| *open).await.is_err() {
            return;
        }
        let Some(Running { worker, killed, .. }) = self.place.get() else { return };
        killed.run_until_cancelled(worker.serve_call(request, reply)).await;
    }
}
