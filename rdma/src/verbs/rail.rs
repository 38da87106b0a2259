//! One rail: a port of a NIC with an address, its protection domain, and the arena's registration there.
//!
//! Owns what is made once at start and shared by all connections of the rail. Makes no connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::sys::{CmId, Domain, EventChannel, EventKind, Region, Rights};
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
    /// Ends before `arena`, whose memory it covers.
    pub(super) region: Region,
    pub(super) usage: Use,
    /// Where the device's end is told, if nobody else hears of it.
    channel: Arc<EventChannel>,
    lost: AtomicBool,
    _registered: GaugeGuard,
    arena: Arena,
}

impl OpenRail {
    /// Opens the device and registers all of `arena` with it: once, at start.
    pub(super) fn open(address: IpAddr, arena: Arena, usage: Use) -> io::Result<Arc<Self>> {
        let channel = EventChannel::new()?;
        let anchor = CmId::new(&channel)?;
        anchor.bind(SocketAddr::new(address, 0))?;
        let domain = Arc::new(Domain::new(anchor)?);
        let (device, port) = domain.device();
        let rail = Rail { device, port, address };
        let (base, bytes) = arena.base();
        let rights = match usage {
            Use::Blocks => Rights::Source,
            Use::Landings => Rights::RemoteWrite,
        };
        // SAFETY: the arena, and with it the mapping, is held by this rail and dropped after the region.
        let region = unsafe { Region::register(domain.clone(), base, bytes, rights) }?;
        let registered = metrics().registered_bytes.with_label_values(&[&rail.label()]);
        let registered = GaugeGuard::add(&registered, region.bytes() as u64);
        let lost = AtomicBool::new(false);
        Ok(Arc::new(Self { rail, domain, region, usage, channel, lost, _registered: registered, arena }))
    }

    /// The same rail, opened anew: its device was removed, and may be back.
    pub(super) fn reopen(&self) -> io::Result<Arc<Self>> {
        Self::open(self.rail.address, self.arena.clone(), self.usage)
    }

    /// The device was removed. Nothing works on it any more, even if one of the same name is back.
    pub(super) fn is_lost(&self) -> bool {
        while let Ok(Some(event)) = self.channel.next() {
            if event.kind == EventKind::DeviceRemoved {
                self.set_lost();
            }
        }
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn set_lost(&self) {
        self.lost.store(true, Ordering::Release);
    }
}
