//! The map in force, as this coordinator knows it, for whoever follows: at once if it is newer than theirs, else when it is.
//! Any coordinator publishes, leader or not.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_coordinator_client::api::MapAnswer;
use verbs3_protocol::{Epoch, Membership, Placement, SLOTS, Slot, WorkerId};

/// Maps kept to answer with what changed. Who is further behind gets the whole list.
const HISTORY_MAX: usize = 64;

pub(crate) struct Published {
    current: watch::Sender<Arc<Membership>>,
    /// The current one and those before.
    history: Mutex<VecDeque<Arc<Membership>>>,
    placement: Mutex<Option<Arc<Placement>>>,
}

impl Published {
    pub(crate) fn new() -> Self {
        let (current, _) = watch::channel(Arc::new(Membership::default()));
        Self { current, history: Mutex::default(), placement: Mutex::default() }
    }

    pub(crate) fn current(&self) -> Arc<Membership> {
        self.current.borrow().clone()
    }

    /// Ignores what is not newer: the leader's own news and the store's come in any order.
    pub(crate) fn publish(&self, membership: &Membership) {
        self.current.send_if_modified(|current| {
            let newer = membership.epoch > current.epoch;
            if newer {
                *current = Arc::new(membership.clone());
                let mut history = self.history.lock();
                history.push_back(current.clone());
                if history.len() > HISTORY_MAX {
                    history.pop_front();
                }
            }
            newer
        });
    }

    /// A map later than `epoch`; waits up to `wait` for one.
    pub(crate) async fn later_than(&self, epoch: Epoch, wait: Duration) -> Option<MapAnswer> {
        let mut follows = self.current.subscribe();
        let later = follows.wait_for(|current| current.epoch > epoch);
        let current = tokio::time::timeout(wait, later).await.ok()?.ok()?.clone();
        let known = self.history.lock().iter().find(|known| known.epoch == epoch).cloned();
        Some(match known {
            Some(known) => MapAnswer::Change(known.change_to(&current)),
            None => MapAnswer::Membership(Membership::clone(&current)),
        })
    }

    /// The table of the current map. Some CPU, the first time for each map.
    pub(crate) async fn placement(&self) -> Option<Arc<Placement>> {
        let current = self.current();
        if let Some(known) = self.placement.lock().as_ref().filter(|known| known.epoch() == current.epoch) {
            return Some(known.clone());
        }
        let made = tokio::task::spawn_blocking(move || current.placement().ok()).await.ok()??;
        let made = Arc::new(made);
        *self.placement.lock() = Some(made.clone());
        Some(made)
    }

    /// Slots that each worker owns.
    pub(crate) async fn slots(&self) -> BTreeMap<WorkerId, u32> {
        let Some(placement) = self.placement().await else { return BTreeMap::new() };
        let mut owned = vec![0u32; placement.members().len()];
        for slot in 0..SLOTS {
            owned[usize::from(placement.owners(Slot(slot as u16))[0])] += 1;
        }
        placement.members().iter().map(|member| member.id.clone()).zip(owned).collect()
    }
}
