//! Owns one open rail: a port of a NIC with an address, its protection domain, and the arena's
//! registration there. All connections of the rail share it.
//!
//! Makes no connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::VerbsOptions;
use super::receive_buffers::SharedRing;
use super::sys::{CmId, EventChannel, MemoryRegion, ProtectionDomain, RegionAccess};
use super::window_pool::MemoryWindowPool;
use crate::arena::Arena;
use crate::metrics::{GaugeGuard, rail_metrics};

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
}

/// A rail that is open.
pub(super) struct OpenRail {
    pub(super) rail: RailIdentity,
    pub(super) domain: Arc<ProtectionDomain>,
    /// Declared before the region, which windows must not outlive. None is bound once no connection
    /// is left.
    pub(super) windows: Option<Arc<MemoryWindowPool>>,
    /// Ends before `arena`, whose memory it covers.
    pub(super) region: MemoryRegion,
    pub(super) usage: ArenaPurpose,
    /// Receive buffers of all connections, where the device has shared queues and the options allow
    /// them.
    pub(super) shared: Option<Arc<SharedRing>>,
    _registered: GaugeGuard,
    _arena: Arena,
}

impl OpenRail {
    /// Opens the device and registers all of `arena` with it, once, at start. The returned channel
    /// reports the device's end. Drop everything of the rail then, or the device can't go.
    pub(super) fn open_device(
        address: IpAddr,
        arena: Arena,
        usage: ArenaPurpose,
        options: &VerbsOptions,
    ) -> io::Result<(Arc<Self>, Arc<EventChannel>)> {
        let channel = EventChannel::new()?;
        let anchor = CmId::new(&channel)?;
        anchor.bind(SocketAddr::new(address, 0))?;
        let domain = Arc::new(ProtectionDomain::new(anchor)?);
        let (device, port) = domain.device_port();
        let rail = RailIdentity { device, port, address };
        let (base, bytes) = arena.mapped_range();
        let windows = match usage {
            ArenaPurpose::Landings if options.windows => make_window_pool(&rail, &domain),
            _ => None,
        };
        let rights = match usage {
            ArenaPurpose::Blocks => RegionAccess::Source,
            ArenaPurpose::Landings if windows.is_some() => RegionAccess::Windows,
            ArenaPurpose::Landings => RegionAccess::RemoteWrite,
        };
        // SAFETY: the arena, and with it the mapping, is held by this rail and dropped after the
        // region.
        let region = unsafe { MemoryRegion::register_memory(domain.clone(), base, bytes, rights) }?;
        let registered = rail_metrics(&rail.metric_label()).registered_bytes;
        let registered = GaugeGuard::add_to(&registered, region.len_bytes() as u64);
        let shared =
            if options.shared_receive { shared_ring(&rail, &domain, options) } else { None };
        let open = Self {
            rail,
            domain,
            windows,
            region,
            usage,
            shared,
            _registered: registered,
            _arena: arena,
        };
        Ok((Arc::new(open), channel))
    }
}

fn make_window_pool(
    rail: &RailIdentity,
    domain: &Arc<ProtectionDomain>,
) -> Option<Arc<MemoryWindowPool>> {
    match MemoryWindowPool::new(&rail.metric_label(), domain) {
        Ok(windows) => Some(Arc::new(windows)),
        Err(error) => {
            tracing::info!(
                rail = rail.metric_label(), %error,
                "no memory windows: workers that know the secret could write to each other's \
                landings"
            );
            None
        }
    }
}

fn shared_ring(
    rail: &RailIdentity,
    domain: &Arc<ProtectionDomain>,
    options: &VerbsOptions,
) -> Option<Arc<SharedRing>> {
    match SharedRing::new(&rail.metric_label(), domain, options) {
        Ok(ring) => Some(Arc::new(ring)),
        Err(error) => {
            tracing::info!(
                rail = rail.metric_label(), %error,
                "no shared receive buffers: each connection has a ring of its own"
            );
            None
        }
    }
}
