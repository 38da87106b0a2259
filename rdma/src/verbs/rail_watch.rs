//! Owns what an open rail hears of its device: that it fails or goes, that its port goes down or
//! comes back, that its address may have changed.
//!
//! Reads the device's events, off the data path: the tasks of connections hear of their own by
//! [`PairWatch`](super::sys::PairWatch). Decides nothing.

use std::io;
use std::sync::Arc;

use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::rail::RailDevice;
use super::readable_source::{ReadableSource, next_event, watch_readable};
use super::sys::{DeviceEvents, DeviceReport, EventChannel, EventKind};

/// News of a rail's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RailNews {
    /// It was removed, or has failed. Drop everything of the rail, or it can't go.
    DeviceGone,
    PortDown,
    PortBack,
    /// The address moved to another port, or is another one. A listener there hears nothing more.
    AddressMoved,
    /// Some address of the device changed, perhaps the rail's.
    AddressesChanged,
}

/// The watch over the device of one rail.
pub(super) struct RailWatch {
    manager: AsyncFd<ReadableSource<EventChannel>>,
    events: AsyncFd<ReadableSource<DeviceEvents>>,
    reports: watch::Receiver<DeviceReport>,
    port: u8,
    /// What was told already.
    told: DeviceReport,
}

impl RailWatch {
    /// Watches `device`, of which `manager` reports the end. Needs a runtime.
    pub(super) fn new(device: &RailDevice, manager: Arc<EventChannel>) -> io::Result<Self> {
        let events = DeviceEvents::new(&device.domain, &device.health)?;
        let (_, port) = device.domain.device_port();
        let mut reports = device.health.subscribe();
        let told = DeviceReport::new(reports.borrow().readdressed);
        // The port may be down from the beginning.
        if let Ok(attributes) = device.domain.query_port() {
            device.health.record_port(port, attributes.is_down);
        }
        reports.mark_changed();
        Ok(Self {
            manager: watch_readable(manager)?,
            events: watch_readable(Arc::new(events))?,
            reports,
            port,
            told,
        })
    }

    /// Waits for the next news. An error means that nothing more will be heard. May be cancelled.
    pub(super) async fn next_news(&mut self) -> io::Result<RailNews> {
        loop {
            tokio::select! {
                event = next_event(&self.manager) => match event?.kind {
                    EventKind::DeviceRemoved => return Ok(RailNews::DeviceGone),
                    EventKind::AddressChanged => return Ok(RailNews::AddressMoved),
                    _ => {}
                },
                ready = self.events.readable() => {
                    let mut ready = ready?;
                    self.events.get_ref().0.take_events();
                    ready.clear_ready();
                }
                changed = self.reports.changed() => changed.map_err(io::Error::other)?,
            }
            let report = *self.reports.borrow();
            if let Some(news) = self.compare_report(report) {
                return Ok(news);
            }
        }
    }

    /// Returns what is new in `report`. There may be more: the watch looks again.
    fn compare_report(&mut self, report: DeviceReport) -> Option<RailNews> {
        let told = std::mem::replace(&mut self.told, report);
        if report.is_fatal {
            Some(RailNews::DeviceGone)
        } else if report.is_port_down(self.port) != told.is_port_down(self.port) {
            if report.readdressed != told.readdressed {
                // For the next look.
                self.told.readdressed = told.readdressed;
                self.reports.mark_changed();
            }
            let is_down = report.is_port_down(self.port);
            Some(if is_down { RailNews::PortDown } else { RailNews::PortBack })
        } else if report.readdressed != told.readdressed {
            Some(RailNews::AddressesChanged)
        } else {
            None
        }
    }
}
