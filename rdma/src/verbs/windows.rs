//! Memory windows of a rail: a landing is opened for the one queue pair that it is lent over, and
//! closed before its memory is leased again.
//!
//! Owns the windows that are not in use, and what a landing's memory waits for. The requests go
//! through `Sender`, in order with the frames that tell the keys.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;

use super::sys::{Domain, Op, Region, Window};
use super::wire::Wire;
use crate::arena::CellHold;
use crate::calls::Segment;
use crate::landing::TakeBack;
use crate::metrics::{GaugeGuard, metrics};

/// Windows of one rail.
pub(super) struct Windows {
    domain: Arc<Domain>,
    spare: Mutex<Vec<Open>>,
    made: IntGauge,
    bound: IntGauge,
}

/// One window, counted.
pub(super) struct Open {
    window: Window,
    _made: GaugeGuard,
}

impl Windows {
    /// Makes one, since a device that says it has windows may have none left.
    pub(super) fn new(rail: &str, domain: &Arc<Domain>) -> io::Result<Self> {
        if !domain.capabilities()?.windows {
            return Err(io::Error::other("its device has no memory windows of type 2"));
        }
        let gauge = |state: &str| metrics().windows.with_label_values(&[rail, state]);
        let windows = Self {
            domain: domain.clone(),
            spare: Mutex::default(),
            made: gauge("made"),
            bound: gauge("bound"),
        };
        let first = windows.make()?;
        windows.spare.lock().push(first);
        Ok(windows)
    }

    fn make(&self) -> io::Result<Open> {
        let window = Window::new(self.domain.clone())?;
        Ok(Open { window, _made: GaugeGuard::add(&self.made, 1) })
    }

    /// Windows over `places` of `region`: what binds them, and what the peer is told. `None` where
    /// the device has no more.
    pub(super) fn open(
        self: &Arc<Self>,
        region: &Region,
        places: &[(usize, usize)],
    ) -> Option<(Bound, Vec<Op>, Vec<Segment>)> {
        let mut windows = {
            let mut spare = self.spare.lock();
            let kept = spare.len().saturating_sub(places.len());
            spare.split_off(kept)
        };
        while windows.len() < places.len() {
            match self.make() {
                Ok(window) => windows.push(window),
                Err(error) => {
                    tracing::debug!(%error, "a reply travels in the stream");
                    self.spare.lock().append(&mut windows);
                    return None;
                }
            }
        }
        let (mut ops, mut segments) =
            (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
        for (open, &(address, bytes)) in windows.iter_mut().zip(places) {
            ops.push(open.window.bind(region, address as u64, bytes as u32));
            segments.push(Segment {
                address: address as u64,
                bytes: bytes as u32,
                key: open.window.key(),
            });
        }
        let count = GaugeGuard::add(&self.bound, windows.len() as u64);
        Some((Bound { windows, _count: count }, ops, segments))
    }

    /// For use again. They must not be bound.
    pub(super) fn put_back(&self, mut bound: Bound) {
        self.spare.lock().append(&mut bound.windows);
    }
}

/// The windows of one landing, bound or about to be. Dropping them closes them at once, which is
/// slow where the queue pair is alive and necessary where it is not.
pub(super) struct Bound {
    windows: Vec<Open>,
    _count: GaugeGuard,
}

impl Bound {
    pub(super) fn invalidations(&self) -> Vec<Op> {
        self.windows.iter().map(|open| open.window.invalidate()).collect()
    }
}

/// Memory that goes back when the windows over it are closed.
pub(super) struct Closing {
    pub(super) bound: Bound,
    pub(super) held: Vec<CellHold>,
}

/// In a landing that is lent through windows.
pub(super) struct Lent {
    pub(super) wire: Arc<Wire>,
    pub(super) number: u64,
}

impl TakeBack for Lent {
    fn take_back(self: Box<Self>, held: Vec<CellHold>) {
        self.wire.close_windows(self.number, held);
    }
}
