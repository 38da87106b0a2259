//! Owns one open rail: a port of a NIC with an address, its protection domain, and the arena's
//! registration there. All connections of the rail share it.
//!
//! Makes no connection, and does not decide when to open (`rail_opener`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use super::VerbsOptions;
use super::completion_vectors::CompletionVectors;
use super::foreign_regions::ForeignTable;
use super::message_events::MessageEvents;
use super::rail_regions::RailRegions;
use super::receive_buffers::SharedRing;
use super::sys::{CmId, DeviceHealth, EventChannel, ProtectionDomain, RegionAccess, RegionTerms};
use super::window_pool::MemoryWindowPool;
use crate::arena::Arena;
use crate::cpu_affinity::{CpuSet, process_cpus};
use crate::rails::RailSubnet;

/// The identity of a port that connections can use, as this host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailIdentity {
    /// The device, e.g. `mlx5_0`, and its port.
    pub device: String,
    pub port: u8,
    /// rdma_cm finds the device by this address.
    pub address: IpAddr,
}

impl RailIdentity {
    /// Finds the rail that has `address`, if there is one.
    pub fn find_by_address(address: IpAddr) -> io::Result<Option<Self>> {
        let id = CmId::new(&EventChannel::new()?)?;
        id.bind(SocketAddr::new(address, 0))?;
        Ok(id.device_port().map(|(device, port)| Self { device, port, address }))
    }

    /// Returns the metric label: device and port.
    pub fn metric_label(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

/// The purpose of the arena's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArenaPurpose {
    /// Blocks: this host's NIC reads them, and they are open to nobody.
    Blocks,
    /// Landings: peers write to them.
    Landings,
    /// Pieces of clients' payloads: this host's NIC reads them, and writes into them what it has
    /// read. They are open to nobody.
    ClientPieces,
}

/// A rail that is open: a device, at one of its addresses.
pub(super) struct OpenRail {
    pub(super) rail: RailIdentity,
    pub(super) subnet: Option<RailSubnet>,
    pub(super) device: Arc<RailDevice>,
}

impl OpenRail {
    /// Returns true if `other` is this rail, at the same address.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.device, &other.device) && self.rail == other.rail
    }
}

/// What a rail has of its device. Stays, with its registrations, when the rail's address changes.
pub(super) struct RailDevice {
    pub(super) domain: Arc<ProtectionDomain>,
    pub(super) health: Arc<DeviceHealth>,
    pub(super) vectors: CompletionVectors,
    /// Declared before the regions, which windows must not outlive. None is bound once no
    /// connection is left.
    pub(super) windows: Option<Arc<MemoryWindowPool>>,
    pub(super) regions: RailRegions,
    /// What else is registered: memory of other processes of this host.
    pub(super) foreign: ForeignTable,
    pub(super) usage: ArenaPurpose,
    /// Receive buffers of all connections, where the device has shared queues and the options allow
    /// them.
    pub(super) shared: Option<Arc<SharedRing>>,
    /// Some CPU of this process is at the device's socket, or the kernel does not tell.
    pub(super) is_near: bool,
    /// Whether connections may wait for messages alone.
    pub(super) message_events: MessageEvents,
    /// Linux's soft-RoCE, some habits of which need care.
    pub(super) is_soft_roce: bool,
    /// READs that the device has on their way at once, for one queue pair.
    pub(super) reads_max: u8,
}

impl RailDevice {
    /// Takes the device that `anchor` is bound to. Registers nothing of `arena` yet: see
    /// [`RailRegions::register_missing`].
    pub(super) fn new(
        anchor: CmId,
        arena: Arena,
        usage: ArenaPurpose,
        options: &VerbsOptions,
    ) -> io::Result<Self> {
        let domain = Arc::new(ProtectionDomain::new(anchor)?);
        let health = DeviceHealth::of_device(&domain);
        if health.is_fatal() {
            return Err(io::Error::other("its device has failed, and connections still hold it"));
        }
        let (device, port) = domain.device_port();
        let label = format!("{device}:{port}");
        let windows = match usage {
            ArenaPurpose::Landings if options.settings.windows.is_wanted() => {
                make_window_pool(&label, &domain)
            }
            _ => None,
        };
        let access = match usage {
            ArenaPurpose::Blocks => RegionAccess::Source,
            ArenaPurpose::ClientPieces => RegionAccess::Receive,
            ArenaPurpose::Landings if windows.is_some() => RegionAccess::Windows,
            ArenaPurpose::Landings => RegionAccess::RemoteWrite,
        };
        let terms = RegionTerms { access, relaxed: options.settings.relaxed_ordering.is_wanted() };
        let regions = RailRegions::new(domain.clone(), arena, terms);
        let foreign = ForeignTable::new(domain.clone(), terms);
        let shared = if options.settings.shared_receive.is_wanted() {
            shared_ring(&label, &domain, options)
        } else {
            None
        };
        let folder = domain.device_folder();
        let (count, cpus) = (domain.vector_count(), options.driver_cpus());
        let vectors = CompletionVectors::choose_near(count, &folder, Path::new("/proc"), &cpus);
        tracing::debug!(rail = label, vectors = ?vectors.chosen(), %cpus, "completion vectors");
        let near = CpuSet::near_device(&folder);
        let reads_max = domain.query_capabilities().map_or(1, |able| able.reads_max);
        let is_soft_roce = is_soft_roce(&folder);
        // Soft-RoCE tells nothing of errors in this way, and soft-iWARP nothing at all (Linux 6.1).
        let is_soft = is_soft_roce || domain.is_soft_iwarp();
        let message_events =
            MessageEvents::new(options.settings.message_events.is_wanted() && !is_soft);
        Ok(Self {
            domain,
            health,
            vectors,
            windows,
            regions,
            foreign,
            usage,
            shared,
            is_near: near.is_empty() || near.shares_cpu_with(&process_cpus()),
            message_events,
            is_soft_roce,
            reads_max,
        })
    }

    /// Returns true if `id` is bound to this device and port, and the device works.
    pub(super) fn is_usable_by(&self, id: &CmId) -> bool {
        !self.health.is_fatal()
            && id.device_context() == Some(self.domain.device_context())
            && id.device_port() == Some(self.domain.device_port())
    }
}

/// Returns whether the device that `folder` describes is Linux's soft-RoCE. Hardware describes
/// itself as other things.
fn is_soft_roce(folder: &Path) -> bool {
    let description = std::fs::read_to_string(folder.join("node_desc"));
    description.is_ok_and(|description| description.trim() == "rxe")
}

fn make_window_pool(rail: &str, domain: &Arc<ProtectionDomain>) -> Option<Arc<MemoryWindowPool>> {
    match MemoryWindowPool::new(rail, domain) {
        Ok(windows) => Some(Arc::new(windows)),
        Err(error) => {
            tracing::info!(
                rail, %error,
                "no memory windows: workers that know the secret could write to each other's \
                landings"
            );
            None
        }
    }
}

fn shared_ring(
    rail: &str,
    domain: &Arc<ProtectionDomain>,
    options: &VerbsOptions,
) -> Option<Arc<SharedRing>> {
    match SharedRing::new(rail, domain, options) {
        Ok(ring) => Some(Arc::new(ring)),
        Err(error) => {
            tracing::info!(
                rail, %error,
                "no shared receive buffers: each connection has a ring of its own"
            );
            None
        }
    }
}
