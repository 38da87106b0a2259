//! Owns one rail over which clients that are no members are written to and read from: its
//! registration of the memory that bytes go through, in a protection domain of its own, and the
//! making of connections.
//!
//! Moves nothing: `client_connection` does.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::VerbsOptions;
use super::client_connection::{CLIENT_PIECES, ConnectionRail, VerbsClientConnection};
use super::gid_table::{choose_gid_row, read_gid_rows};
use super::rail::{ArenaPurpose, OpenRail};
use super::rail_keeper::{FirstAttempt, RailChange, RailKeeper};
use super::rail_opener::RailOpener;
use super::rail_presence::{RailPlace, RailPresence};
use super::setup_runtime::run_aside;
use super::sys::{CompletionQueue, NumberedQueuePair};
use crate::arena::Arena;
use crate::calls::HandshakeSecret;
use crate::client_memory::{ClientConnection, ClientMemoryError, ClientMemoryRail, PortGid};
use crate::settings::{FeatureSwitch, VerbsSettings};

/// Last number of a packet: they have 24 bits.
const PACKET_MAX: u32 = 0x00ff_ffff;

/// One rail for clients, which may come and go.
pub struct VerbsClientRail {
    shared: Arc<ClientRailInner>,
}

struct ClientRailInner {
    arena: Arena,
    path_mtu_max: u16,
    rail: Mutex<Option<UsableRail>>,
    /// Ends the watch over the device.
    over: CancellationToken,
    tasks: TaskTracker,
}

/// A rail that is up.
#[derive(Clone)]
struct UsableRail {
    open: Arc<OpenRail>,
    /// Cancelled when it is to be dropped.
    lost: CancellationToken,
}

impl VerbsClientRail {
    /// Starts to open the rail at `place`, in the background, and to register `arena` there. Each
    /// connection takes up to [`CLIENT_PIECES`] cells of
    /// [`CLIENT_PIECE_BYTES`](super::CLIENT_PIECE_BYTES) of it.
    pub fn start(
        place: impl Into<RailPlace>,
        settings: &VerbsSettings,
        arena: Arena,
    ) -> (Self, FirstAttempt) {
        // No peer of the cluster is called over it, so its secret is nobody's.
        let mut options = VerbsOptions::new(HandshakeSecret::new(""));
        options.settings = settings.clone();
        // Nothing is received.
        options.settings.shared_receive = FeatureSwitch::Off;
        let place = place.into();
        let presence = RailPresence::new(place.clone(), options.settings.reopen_max.0);
        let opener = RailOpener::new(place, arena.clone(), ArenaPurpose::ClientPieces, &options);
        let mut keeper = RailKeeper::new(presence, opener);
        let attempt = keeper.start_opening();
        let shared = Arc::new(ClientRailInner {
            arena,
            path_mtu_max: options.settings.path_mtu_max.unwrap_or(u16::MAX),
            rail: Mutex::new(None),
            over: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        // Ends with the rail, by `over`.
        shared.tasks.spawn(shared.clone().follow_rail(keeper));
        (Self { shared }, attempt)
    }

    /// Waits until nothing of the rail is at work. Close its connections first.
    pub async fn shutdown(&self) {
        self.shared.over.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Drop for VerbsClientRail {
    fn drop(&mut self) {
        self.shared.over.cancel();
    }
}

impl ClientRailInner {
    /// Has the rail while it can be used. Tells its connections when it can't: its device goes only
    /// without them.
    async fn follow_rail(self: Arc<Self>, mut keeper: RailKeeper) {
        let keep = async {
            loop {
                let now = match keeper.next_change().await {
                    RailChange::Up(open) => {
                        Some(UsableRail { open, lost: CancellationToken::new() })
                    }
                    RailChange::Out => None,
                };
                self.replace_rail(now);
            }
        };
        let _: Option<()> = self.over.run_until_cancelled(keep).await;
        self.replace_rail(None);
    }

    fn replace_rail(&self, rail: Option<UsableRail>) {
        let before = std::mem::replace(&mut *self.rail.lock(), rail);
        if let Some(before) = before {
            before.lost.cancel();
        }
    }

    /// Makes this side of a connection. Much of this blocks.
    fn make_connection(
        &self,
        rail: UsableRail,
        client: PortGid,
    ) -> io::Result<Option<ConnectionRail>> {
        let UsableRail { open, lost } = rail;
        let domain = &open.device.domain;
        let port = domain.query_port()?;
        // There, a path has more than a GID, and the dialect tells no more.
        if port.infiniband {
            return Ok(None);
        }
        let rows = read_gid_rows(&domain.device_folder(), open.rail.port);
        let Some(row) = choose_gid_row(&rows, open.rail.address.into(), client) else {
            return Ok(None);
        };
        let path_mtu = port.active_mtu.min(self.path_mtu_max);
        // All requests, and the beacon.
        let entries = CLIENT_PIECES as u32 + 1;
        let vector = open.device.vectors.next_vector();
        let completions = Arc::new(CompletionQueue::new(domain.clone(), entries, vector)?);
        let pair = NumberedQueuePair::new(domain, &completions, CLIENT_PIECES as u32)?;
        let first_packet = rand::rng().random_range(1..=PACKET_MAX);
        Ok(Some(ConnectionRail { open, lost, row, path_mtu, completions, pair, first_packet }))
    }
}

#[async_trait]
impl ClientMemoryRail for VerbsClientRail {
    fn suits_client(&self, gid: PortGid) -> Option<u8> {
        let rail = self.shared.rail.lock();
        let subnet = rail.as_ref()?.open.subnet;
        Some(u8::from(subnet.is_some_and(|subnet| subnet.contains_address(gid.ip_address()))))
    }

    async fn prepare_connection(
        &self,
        gid: PortGid,
    ) -> Result<Box<dyn ClientConnection>, ClientMemoryError> {
        let rail = self.shared.rail.lock().clone().ok_or(ClientMemoryError::NoRail)?;
        let shared = self.shared.clone();
        let making =
            run_aside(&self.shared.tasks, async move { shared.make_connection(rail, gid) });
        let made = making.await.flatten().map_err(ClientMemoryError::Device)?;
        let made = made.ok_or(ClientMemoryError::NoRail)?;
        let (arena, tasks) = (self.shared.arena.clone(), self.shared.tasks.clone());
        let connection =
            VerbsClientConnection::new(made, arena, tasks).map_err(ClientMemoryError::Device)?;
        Ok(Box::new(connection))
    }
}
