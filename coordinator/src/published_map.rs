//! Owns the map in force as this coordinator knows it, and serves it to followers. A follower with
//! an older map is answered at once; others wait for a newer one. Every coordinator publishes,
//! leader or not.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use verbs3_coordinator_client::api::MapAnswer;
use verbs3_coordinator_client::hot_blocks::HotList;
use verbs3_protocol::{Epoch, HashSlot, MemberRoster, PlacementMap, SLOTS, WorkerId};

/// Maps kept to answer with changes only. A follower further behind gets the whole list.
const HISTORY_MAX: usize = 64;

/// The leader's list of hot blocks: its version and its encoding. Version 0: this coordinator does
/// not lead, or has not heard enough yet.
pub(crate) struct HotPublished {
    current: watch::Sender<(u64, Bytes)>,
}

impl HotPublished {
    pub(crate) fn new() -> Self {
        Self { current: watch::channel((0, Bytes::new())).0 }
    }

    pub(crate) fn publish_list(&self, list: &HotList) {
        self.current
            .send_replace((list.version, serde_json::to_vec(list).unwrap_or_default().into()));
    }

    /// Withdraws the list, because this coordinator no longer leads.
    pub(crate) fn withdraw_list(&self) {
        self.current.send_replace((0, Bytes::new()));
    }

    /// Returns a list of another version than `seen`. Waits up to `wait` for one, or until the list
    /// is withdrawn.
    pub(crate) async fn other_than(&self, seen: u64, wait: Duration) -> Option<Bytes> {
        let mut follows = self.current.subscribe();
        let began_with = follows.borrow_and_update().0;
        let news =
            follows.wait_for(|(version, _)| *version != seen && (*version != 0 || began_with != 0));
        let (version, encoded) = tokio::time::timeout(wait, news).await.ok()?.ok()?.clone();
        (version != 0).then_some(encoded)
    }
}

pub(crate) struct PublishedMap {
    current: watch::Sender<Arc<MemberRoster>>,
    /// The current map and those before it.
    history: Mutex<VecDeque<Arc<MemberRoster>>>,
    placement: Mutex<Option<Arc<PlacementMap>>>,
    answers: Mutex<EncodedMapAnswers>,
}

/// Encoded answers about the current map, by the epoch that the follower knew. Thousands ask the
/// same at one moment.
#[derive(Default)]
struct EncodedMapAnswers {
    current: Epoch,
    encoded: HashMap<Option<Epoch>, Bytes>,
}

impl PublishedMap {
    pub(crate) fn new() -> Self {
        let (current, _) = watch::channel(Arc::new(MemberRoster::default()));
        Self {
            current,
            history: Mutex::default(),
            placement: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    pub(crate) fn current_map(&self) -> Arc<MemberRoster> {
        self.current.borrow().clone()
    }

    /// Publishes a map unless it is not newer: the leader's own news and the store's come in any
    /// order.
    pub(crate) fn publish_map(&self, membership: &MemberRoster) {
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

    /// Returns a map later than `epoch` as a [`MapAnswer`] in JSON. Waits up to `wait` for one.
    pub(crate) async fn later_than(&self, epoch: Epoch, wait: Duration) -> Option<Bytes> {
        let mut follows = self.current.subscribe();
        let later = follows.wait_for(|current| current.epoch > epoch);
        let current = tokio::time::timeout(wait, later).await.ok()?.ok()?.clone();
        Some(self.encode_answer(epoch, &current))
    }

    /// Encodes the current map for a follower that knows the map of `epoch`.
    pub(crate) fn encode_answer(&self, epoch: Epoch, current: &MemberRoster) -> Bytes {
        let known = self.history.lock().iter().find(|known| known.epoch == epoch).cloned();
        // Held during encoding, so that others wait for the result instead of repeating the work.
        let mut answers = self.answers.lock();
        if answers.current != current.epoch {
            *answers = EncodedMapAnswers { current: current.epoch, encoded: HashMap::new() };
        }
        let encoded =
            answers.encoded.entry(known.as_ref().map(|known| known.epoch)).or_insert_with(|| {
                let answer = match &known {
                    Some(known) => MapAnswer::Change(known.change_to(current)),
                    None => MapAnswer::Membership(current.clone()),
                };
                serde_json::to_vec(&answer).unwrap_or_default().into()
            });
        encoded.clone()
    }

    /// Returns the current map's placement table. Its first use for each map costs some CPU.
    pub(crate) async fn current_placement(&self) -> Option<Arc<PlacementMap>> {
        let current = self.current_map();
        if let Some(known) =
            self.placement.lock().as_ref().filter(|known| known.map_epoch() == current.epoch)
        {
            return Some(known.clone());
        }
        let made =
            tokio::task::spawn_blocking(move || current.build_placement().ok()).await.ok()??;
        let made = Arc::new(made);
        *self.placement.lock() = Some(made.clone());
        Some(made)
    }

    /// Returns how many slots each worker owns.
    pub(crate) async fn count_owned_slots(&self) -> BTreeMap<WorkerId, u32> {
        let Some(placement) = self.current_placement().await else { return BTreeMap::new() };
        let mut owned = vec![0u32; placement.map_members().len()];
        for slot in 0..SLOTS {
            owned[usize::from(placement.slot_owners(HashSlot(slot as u16))[0])] += 1;
        }
        placement.map_members().iter().map(|member| member.id.clone()).zip(owned).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use verbs3_protocol::ClusterMember;

    use super::*;

    /// The map of an epoch has one member, whose name says which.
    fn map(epoch: u64) -> MemberRoster {
        let id = WorkerId(format!("w{epoch}"));
        let address = format!("{id}:9400");
        let member =
            ClusterMember { id, address, weight: 1.0, zone: String::new(), draining: false };
        MemberRoster::new(Epoch(epoch), 2, vec![member])
    }

    /// After every tenth epoch from 10 to `last`.
    fn published(last: u64) -> PublishedMap {
        let published = PublishedMap::new();
        (1..=last / 10).for_each(|tenth| published.publish_map(&map(tenth * 10)));
        published
    }

    async fn told(published: &PublishedMap, epoch: u64) -> Option<MapAnswer> {
        let answer = published.later_than(Epoch(epoch), Duration::ZERO).await?;
        Some(serde_json::from_slice(&answer).unwrap())
    }

    #[tokio::test]
    async fn who_knows_a_map_that_is_remembered_is_told_what_changed() {
        let published = published(1000);
        for known in [370, 500, 990] {
            let answer = told(&published, known).await.unwrap();
            assert!(
                matches!(&answer, MapAnswer::Change(change) if change.from == Epoch(known)),
                "{known}: {answer:?}"
            );
            assert_eq!(answer.resolve_membership(Some(&map(known))), Some(map(1000)));
        }
    }

    #[tokio::test]
    async fn a_follower_of_a_forgotten_or_unknown_map_gets_the_whole_map() {
        let published = published(1000);
        // None, one that is forgotten, and some between two.
        for known in [0, 10, 360, 365, 995] {
            let answer = told(&published, known).await.unwrap();
            assert!(
                matches!(&answer, MapAnswer::Membership(all) if *all == map(1000)),
                "{known}: {answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_follower_of_this_map_or_a_later_one_waits_for_a_newer_one() {
        let published = Arc::new(published(1000));
        for known in [1000, 1001, 5000] {
            assert!(told(&published, known).await.is_none(), "{known}");
        }
        let asker = published.clone();
        let waits =
            tokio::spawn(
                async move { asker.later_than(Epoch(1005), Duration::from_secs(600)).await },
            );
        // Neither one of before, nor one that is still older than what is known.
        published.publish_map(&map(990));
        published.publish_map(&map(1004));
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        published.publish_map(&map(1010));
        let answer: MapAnswer = serde_json::from_slice(&waits.await.unwrap().unwrap()).unwrap();
        assert_eq!(answer.resolve_membership(Some(&map(1005))), Some(map(1010)));
    }
}
