//! One rail: a port of a NIC with an address, its protection domain, and the arena's registration
//! there.
//!
//! Owns what is made once at start and shared by all connections of the rail. Makes no connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::VerbsOptions;
use super::receives::SharedRing;
use super::sys::{CmId, Domain, EventChannel, Region, Rights};
use super::windows::Windows;
use crate::arena::Arena;
use crate::metrics::{GaugeGuard, metrics};

/// A port that connections can use, as this host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rail {
    /// The device, e.g. `mlx5_0`, and its port.
    pub device: String,
    pub port: u8,
    /// rdma_cm finds the device by it.
    pub address: IpAddr,
}

impl Rail {
    /// The rail that has `address`, if one has.
    pub fn at(address: IpAddr) -> io::Result<Option<Self>> {
        let id = CmId::new(&EventChannel::new()?)?;
        id.bind(SocketAddr::new(address, 0))?;
        Ok(id.device().map(|(device, port)| Self { device, port, address }))
    }

    /// The metric label: device and port.
    pub fn label(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

/// What the arena's memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Blocks: read by the own NIC, open to nobody.
    Blocks,
    /// Landings: peers write to them.
    Landings,
}

/// A rail that is open.
pub(super) struct OpenRail {
    pub(super) rail: Rail,
    pub(super) domain: Arc<Domain>,
    /// None of them is bound once no connection is left. They end before the region.
    pub(super) windows: Option<Arc<Windows>>,
    /// Ends before `arena`, whose memory it covers.
    pub(super) region: Region,
    pub(super) usage: Use,
    /// Receive buffers of all connections, where the device has shared queues and they are to be
    /// used.
    pub(super) shared: Option<Arc<SharedRing>>,
    _registered: GaugeGuard,
    _arena: Arena,
}

impl OpenRail {
    /// Opens the device and registers all of `arena` with it: once, at start. On the channel the
    /// device's end is told; everything of the rail must go then, or the device can't.
    pub(super) fn open(
        address: IpAddr,
        arena: Arena,
        usage: Use,
        options: &VerbsOptions,
    ) -> io::Result<(Arc<Self>, Arc<EventChannel>)> {
        let channel = EventChannel::new()?;
        let anchor = CmId::new(&channel)?;
        anchor.bind(SocketAddr::new(address, 0))?;
        let domain = Arc::new(Domain::new(anchor)?);
        let (device, port) = domain.device();
        let rail = Rail { device, port, address };
        let (base, bytes) = arena.base();
        let windows = match usage {
            Use::Landings if options.windows => windows(&rail, &domain),
            _ => None,
        };
        let rights = match usage {
            Use::Blocks => Rights::Source,
            Use::Landings if windows.is_some() => Rights::Windows,
            Use::Landings => Rights::RemoteWrite,
        };
        // SAFETY: the arena, and with it the mapping, is held by this rail and dropped after the
        // region.
        let region = unsafe { Region::register(domain.clone(), base, bytes, rights) }?;
        let registered = metrics().registered_bytes.with_label_values(&[&rail.label()]);
        let registered = GaugeGuard::add(&registered, region.bytes() as u64);
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

fn windows(rail: &Rail, domain: &Arc<Domain>) -> Option<Arc<Windows>> {
    match Windows::new(&rail.label(), domain) {
        Ok(windows) => Some(Arc::new(windows)),
        Err(error) => {
            tracing::info!(
                rail = rail.label(), %error,
                "no memory windows: workers that know the secret could write to each other's \
                landings"
            );
            None
        }
    }
}

fn shared_ring(
    rail: &Rail,
    domain: &Arc<Domain>,
    options: &VerbsOptions,
) -> Option<Arc<SharedRing>> {
    match SharedRing::new(&rail.label(), domain, options) {
        Ok(ring) => Some(Arc::new(ring)),
        Err(error) => {
            tracing::info!(
                rail = rail.label(), %error,
                "no shared receive buffers: each connection has a ring of its own"
            );
            None
        }
    }
}
