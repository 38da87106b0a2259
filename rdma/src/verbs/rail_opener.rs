//! Owns the opening of one rail, and what of it outlives a failed attempt or a change of address:
//! the device, with the memory that is registered already.
//!
//! Does not decide when to open. Every call here may block, since pinning memory takes long.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::VerbsOptions;
use super::pinning_turn::{PINNING_TURNS, PinningTurn};
use super::rail::{ArenaPurpose, OpenRail, RailDevice, RailIdentity};
use super::rail_presence::RailPlace;
use super::sys::{CmId, EventChannel, EventKind};
use crate::arena::Arena;
use crate::rails;

/// Opens one rail, again and again.
pub(super) struct RailOpener {
    place: RailPlace,
    arena: Arena,
    usage: ArenaPurpose,
    options: VerbsOptions,
    kept: Option<KeptDevice>,
    /// While this rail has pinned a part, and there is no memory for the rest.
    turn: Option<PinningTurn>,
}

/// A device, and the channel that reports its end.
#[derive(Clone)]
struct KeptDevice {
    device: Arc<RailDevice>,
    manager: Arc<EventChannel>,
}

impl KeptDevice {
    /// Returns true if the device was removed while no rail was open there.
    fn has_gone(&self) -> bool {
        while let Ok(Some(event)) = self.manager.next() {
            if event.kind == EventKind::DeviceRemoved {
                return true;
            }
        }
        false
    }
}

/// A rail, and the channel that reports the end of its device.
pub(super) type RailWithEvents = (Arc<OpenRail>, Arc<EventChannel>);

impl RailOpener {
    pub(super) fn new(
        place: RailPlace,
        arena: Arena,
        usage: ArenaPurpose,
        options: &VerbsOptions,
    ) -> Self {
        Self { place, arena, usage, options: options.clone(), kept: None, turn: None }
    }

    /// Opens the rail where it is now, and registers the arena. What an earlier attempt registered
    /// with the same device stays as it is.
    pub(super) fn open_rail(&mut self) -> io::Result<RailWithEvents> {
        self.kept = self.kept.take().filter(|kept| !kept.has_gone());
        let address = self.place.find_address()?;
        let manager = EventChannel::new()?;
        let anchor = CmId::new(&manager)?;
        anchor.bind(SocketAddr::new(address, 0))?;
        let kept = self.kept.take().filter(|kept| kept.device.is_usable_by(&anchor));
        let kept = match kept {
            Some(kept) => kept,
            None => {
                let (arena, usage) = (self.arena.clone(), self.usage);
                let device = Arc::new(RailDevice::new(anchor, arena, usage, &self.options)?);
                KeptDevice { device, manager }
            }
        };
        self.kept = Some(kept.clone());
        let KeptDevice { device, manager } = kept;
        let (name, port) = device.domain.device_port();
        let rail = RailIdentity { device: name, port, address };
        let registered = device.regions.register_missing(&rail.metric_label());
        let lacks_memory = |error: &io::Error| error.kind() == io::ErrorKind::OutOfMemory;
        self.turn = match &registered {
            Err(error) if lacks_memory(error) => {
                self.turn.take().or_else(|| PINNING_TURNS.try_take())
            }
            _ => None,
        };
        if let Err(error) = registered {
            if self.turn.is_none() && lacks_memory(&error) {
                self.kept = None;
            }
            return Err(error);
        }
        let subnet = rails::subnet_of(address);
        Ok((Arc::new(OpenRail { rail, subnet, device }), manager))
    }

    /// Forgets the device, which has gone: it can't go while something holds it.
    pub(super) fn forget_device(&mut self) {
        (self.kept, self.turn) = (None, None);
    }

    /// Returns whether the next attempt would take this device again.
    pub(super) fn keeps_device(&self, device: &Arc<RailDevice>) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| Arc::ptr_eq(&kept.device, device)) && !device.health.is_fatal()
    }
}
