//! Owns the transfers that clients have prepared: whose each is, what it is good for, and its task.
//!
//! A session's task has its connection from the first to the last. It waits for the order to move,
//! moves, and closes the connection; only then is the session over, and only then is anybody told
//! so. Where the task panics, its connection ends by itself, perhaps behind the session's end.
//!
//! Reads no object and parses no header.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use verbs3_rdma::client_memory::{
    ClientConnection, ClientMemoryError, ClientMemoryRail, OwnEnd, PortGid,
};

use super::hipobj_question::{PrepareQuestion, RdmaSessionId};
use super::rdma_transfer::{MoveOrder, move_order};
use super::s3_rdma_metrics::{S3RdmaMetrics, TransferOutcome};
use super::s3_rdma_settings::S3OverRdmaSettings;
use crate::auth::{IdentityStore, Tenant};
use crate::http::OutboundBody;
use crate::operations::OperationCore;
use crate::tenant_metrics::SharedResource;
use crate::tenant_places::{SharingRules, TenantPlace, TenantPlaces};

/// What the endpoints answer with.
pub(crate) struct RdmaEndpoints {
    pub sessions: Arc<RdmaSessions>,
    pub identities: Arc<IdentityStore>,
    /// Judges who may put what.
    pub core: Arc<OperationCore>,
}

/// All transfers of a gateway.
pub(crate) struct RdmaSessions {
    settings: S3OverRdmaSettings,
    /// Not set: no payload goes by RDMA.
    rails: OnceLock<Vec<Arc<dyn ClientMemoryRail>>>,
    table: Mutex<HashMap<RdmaSessionId, SessionEntry>>,
    sessions: TenantPlaces,
    transfers: TenantPlaces,
    metrics: S3RdmaMetrics,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What was prepared.
#[derive(Debug)]
pub(crate) struct PreparedTransfer {
    pub(crate) question: PrepareQuestion,
    /// The version that was found; `None` where it has no name.
    pub(crate) etag: Option<HeaderValue>,
    /// What an object is put with; none for a GET.
    pub(crate) headers: HeaderMap,
}

/// A session, as requests see it.
struct SessionEntry {
    /// Access key of who prepared it.
    owner: String,
    transfer: Arc<PreparedTransfer>,
    /// `None` once it is ordered to move.
    order: Option<SessionOrderSender>,
    /// Cancelled when it is taken to be moved: its client has come in time.
    taken: CancellationToken,
    cancel: CancellationToken,
    /// Cancelled when nothing is written or read any more.
    over: CancellationToken,
}

/// The order to move, which is given once.
pub(crate) struct SessionOrder {
    transfer: MoveOrder<OutboundBody>,
    turn: TenantPlace,
    /// Told once the session is over.
    told: oneshot::Sender<TransferOutcome>,
}

/// Gives the order, or says by `None` that there is nothing to move.
type SessionOrderSender = oneshot::Sender<Option<SessionOrder>>;

/// A session that is taken to be moved. Dropping it ends the session.
pub(crate) struct TakenSession {
    pub(crate) transfer: Arc<PreparedTransfer>,
    order: SessionOrderSender,
    over: CancellationToken,
}

/// What a session's task waits for.
struct AwaitedOrder {
    ordered: oneshot::Receiver<Option<SessionOrder>>,
    taken: CancellationToken,
    cancel: CancellationToken,
}

/// Takes a session out of the table, also where its task panics. Fields are dropped in their order:
/// the session is over behind all else.
struct SessionEnd {
    sessions: Arc<RdmaSessions>,
    id: RdmaSessionId,
    _place: TenantPlace,
    _over: DropGuard,
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        self.sessions.table.lock().remove(&self.id);
    }
}

/// Why nothing was prepared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PrepareRefusal {
    /// As many sessions are there as may be.
    NoRoom,
    /// No rail reaches the client.
    NoRail,
    Device,
}

/// Why a session is not moved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OrderRefusal {
    /// There is none of this name that is the asker's, or it was ordered already.
    Unknown,
    WrongCookie,
}

impl RdmaSessions {
    /// Makes an empty table. Nothing is prepared before `open_rails`. Fails if a metric's name is
    /// taken.
    pub fn new(
        settings: &S3OverRdmaSettings,
        rules: &SharingRules,
        registry: &Registry,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, prometheus::Error> {
        let metrics = S3RdmaMetrics::new(registry)?;
        metrics.sessions_max.set(settings.sessions_max.into());
        metrics.transfers_max.set(settings.transfers_max.into());
        let count = |resource, places_max: u32, held: &prometheus::IntGauge| {
            TenantPlaces::of_count(resource, places_max as usize, rules, held.clone())
        };
        let sessions =
            count(SharedResource::RdmaSessions, settings.sessions_max, &metrics.sessions);
        let transfers =
            count(SharedResource::RdmaTransfers, settings.transfers_max, &metrics.transfers);
        Ok(Arc::new(Self {
            settings: settings.clone(),
            rails: OnceLock::new(),
            table: Mutex::default(),
            sessions,
            transfers,
            metrics,
            tasks: TaskTracker::new(),
            stop,
        }))
    }

    /// Serves clients over these rails from now on. The first ones stay.
    pub fn open_rails(&self, rails: Vec<Arc<dyn ClientMemoryRail>>) {
        let _ = self.rails.set(rails);
    }

    /// Returns whether payloads go by RDMA at all.
    pub fn is_open(&self) -> bool {
        self.rails.get().is_some_and(|rails| !rails.is_empty())
    }

    /// Waits until every session is over. The stop token must have been cancelled.
    pub async fn drain_sessions(&self, drain_max: Duration) {
        self.tasks.close();
        let _ = timeout(drain_max, self.tasks.wait()).await;
    }

    /// Returns the most bytes of one transfer.
    pub(crate) fn transfer_bytes_max(&self) -> u64 {
        self.settings.transfer_max.0
    }

    /// Takes the turn of a transfer. `None`: it did not come in time.
    pub(crate) async fn take_turn(&self, tenant: &Arc<Tenant>) -> Option<TenantPlace> {
        self.transfers.take_place(tenant, 1, Instant::now()).await.ok()
    }

    /// Makes a session of `owner`, with a connection to its client.
    pub(crate) async fn prepare_session(
        self: &Arc<Self>,
        owner: String,
        tenant: &Arc<Tenant>,
        transfer: PreparedTransfer,
    ) -> Result<(RdmaSessionId, OwnEnd), PrepareRefusal> {
        let place = self.sessions.try_take_place(tenant, 1, Instant::now());
        let place = place.ok_or(PrepareRefusal::NoRoom)?;
        let connection = self.make_connection(transfer.question.gid).await?;
        let (id, end) = (RdmaSessionId(rand::random()), connection.own_end());
        let (order, ordered) = oneshot::channel();
        let (cancel, over) = (self.stop.child_token(), CancellationToken::new());
        let taken = CancellationToken::new();
        let entry = SessionEntry {
            owner,
            transfer: Arc::new(transfer),
            order: Some(order),
            taken: taken.clone(),
            cancel: cancel.clone(),
            over: over.clone(),
        };
        self.table.lock().insert(id, entry);
        let ending =
            SessionEnd { sessions: self.clone(), id, _place: place, _over: over.drop_guard() };
        self.tasks.spawn(async move {
            let awaited = AwaitedOrder { ordered, taken, cancel };
            let (outcome, told) = ending.sessions.run_session(connection, awaited).await;
            ending.sessions.metrics.ended[outcome].inc();
            drop(ending);
            if let Some(told) = told {
                // Its client may have gone.
                let _ = told.send(outcome);
            }
        });
        Ok((id, end))
    }

    /// Makes a connection over the rail that suits the client best. One that has no address of the
    /// client's kind leaves it to the next.
    async fn make_connection(
        &self,
        gid: PortGid,
    ) -> Result<Box<dyn ClientConnection>, PrepareRefusal> {
        let rails = self.rails.get().into_iter().flatten();
        let mut suited: Vec<_> =
            rails.filter_map(|rail| Some((rail.suits_client(gid)?, rail))).collect();
        suited.sort_by_key(|(suits, _)| std::cmp::Reverse(*suits));
        for (_, rail) in suited {
            match rail.prepare_connection(gid).await {
                Ok(connection) => return Ok(connection),
                Err(ClientMemoryError::NoRail) => {}
                Err(ClientMemoryError::NoMemory) => return Err(PrepareRefusal::NoRoom),
                Err(error @ (ClientMemoryError::Device(_) | ClientMemoryError::Refused(_))) => {
                    tracing::warn!(error = ?error, "no connection to a client can be made");
                    return Err(PrepareRefusal::Device);
                }
            }
        }
        Err(PrepareRefusal::NoRail)
    }

    /// Lives a session through. Returns behind the end of its connection.
    async fn run_session(
        &self,
        mut connection: Box<dyn ClientConnection>,
        awaited: AwaitedOrder,
    ) -> (TransferOutcome, Option<oneshot::Sender<TransferOutcome>>) {
        let AwaitedOrder { ordered, taken, cancel } = awaited;
        let expiry = async {
            sleep(self.settings.ready_wait.0).await;
            if taken.is_cancelled() {
                // Whoever has it reads the object now, under bounds of its own.
                std::future::pending::<()>().await;
            }
        };
        let order = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(TransferOutcome::Cancelled),
            () = connection.await_loss() => Err(TransferOutcome::RailLost),
            order = ordered => match order {
                Ok(Some(order)) => Ok(order),
                Ok(None) => Err(TransferOutcome::Unread),
                Err(_) => Err(TransferOutcome::Cancelled),
            },
            () = expiry => Err(TransferOutcome::Expired),
        };
        let (outcome, ordered) = match order {
            Err(outcome) => (outcome, None),
            Ok(SessionOrder { transfer, turn, mut told }) => {
                let (bytes, moved) = match &transfer {
                    MoveOrder::Download(order) => (order.bytes, &self.metrics.written_bytes),
                    MoveOrder::Upload(order) => (order.bytes, &self.metrics.read_bytes),
                };
                let moving = async {
                    transfer.await_need().await?;
                    let moving = move_order(&mut *connection, transfer);
                    let moved = timeout(self.settings.transfer_time.0, moving).await;
                    moved.unwrap_or(Err(TransferOutcome::Late))
                };
                let outcome = tokio::select! {
                    biased;
                    () = cancel.cancelled() => TransferOutcome::Cancelled,
                    () = told.closed() => TransferOutcome::Cancelled,
                    moved = moving => moved.err().unwrap_or(TransferOutcome::Done),
                };
                if outcome == TransferOutcome::Done {
                    moved.inc_by(bytes);
                }
                (outcome, Some((told, turn)))
            }
        };
        // The turn is held until the connection has ended, whose memory it stands for.
        connection.close_connection().await;
        (outcome, ordered.map(|(told, _turn)| told))
    }

    /// Takes a session to be moved, once.
    pub(crate) fn take_session(
        &self,
        id: RdmaSessionId,
        owner: &str,
        cookie: u32,
    ) -> Result<TakenSession, OrderRefusal> {
        let mut table = self.table.lock();
        // Another's session is as unknown as none.
        let entry = table.get_mut(&id).filter(|entry| entry.owner == owner);
        let entry = entry.ok_or(OrderRefusal::Unknown)?;
        if entry.transfer.question.cookie != cookie {
            return Err(OrderRefusal::WrongCookie);
        }
        let order = entry.order.take().ok_or(OrderRefusal::Unknown)?;
        entry.taken.cancel();
        Ok(TakenSession { transfer: entry.transfer.clone(), order, over: entry.over.clone() })
    }

    /// Ends a session of `owner`, if there is one. Returns once nothing of it is moved any more.
    pub(crate) async fn cancel_session(&self, id: RdmaSessionId, owner: &str) {
        let tokens = {
            let table = self.table.lock();
            let entry = table.get(&id).filter(|entry| entry.owner == owner);
            entry.map(|entry| (entry.cancel.clone(), entry.over.clone()))
        };
        if let Some((cancel, over)) = tokens {
            cancel.cancel();
            over.cancelled().await;
        }
    }
}

impl TakenSession {
    /// Has the bytes moved. Returns once nothing is moved any more.
    pub(crate) async fn move_transfer(
        self,
        transfer: MoveOrder<OutboundBody>,
        turn: TenantPlace,
    ) -> TransferOutcome {
        let (told, outcome) = oneshot::channel();
        // A session that is over meanwhile drops the order, and with it `told`.
        let _ = self.order.send(Some(SessionOrder { transfer, turn, told }));
        match outcome.await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.over.cancelled().await;
                TransferOutcome::Cancelled
            }
        }
    }

    /// Gives the session up. Returns once it is over.
    pub(crate) async fn give_up(self) {
        let _ = self.order.send(None);
        self.over.cancelled().await;
    }
}
