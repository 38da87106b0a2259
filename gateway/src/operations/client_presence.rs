//! Owns what an announced write holds once its client has gone: the tenant's place among the requests
//! under way, besides that among the requests to the store. So a client that goes away early gains
//! nothing: a tenant can't have more writes under way than requests. What is over a bound is refused
//! when it comes, before its announcement.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus::IntGauge;
use verbs3_metrics::GaugeGuard;

use crate::http_exchange::{HeldPlaces, HttpExchange};

/// What the task of a write holds for a client that has gone.
#[derive(Default)]
pub(super) struct LeftWritePlaces(Mutex<Option<LeftWrite>>);

struct LeftWrite {
    _places: HeldPlaces,
    _counted: GaugeGuard,
}

/// A client that waits for its write. Dropping it while the write goes on leaves its places to the
/// write's task.
pub(super) struct ClientPresence {
    exchange: Arc<HttpExchange>,
    task: Weak<LeftWritePlaces>,
    left_writes: IntGauge,
}

impl ClientPresence {
    /// Makes the presence of a client. The write's task holds the other part until its end.
    pub fn of_write(
        exchange: Arc<HttpExchange>,
        left_writes: IntGauge,
    ) -> (Self, Arc<LeftWritePlaces>) {
        let places = Arc::new(LeftWritePlaces::default());
        let task = Arc::downgrade(&places);
        (Self { exchange, task, left_writes }, places)
    }
}

impl Drop for ClientPresence {
    fn drop(&mut self) {
        // Otherwise the write is over, and its answer on its way.
        if let Some(task) = self.task.upgrade() {
            let counted = GaugeGuard::add_to(&self.left_writes, 1);
            let left = LeftWrite { _places: self.exchange.take_places(), _counted: counted };
            *task.0.lock() = Some(left);
        }
    }
}
