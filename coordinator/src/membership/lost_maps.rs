//! Owns what the leader learns of maps that its store has lost: somebody emptied it, or put an older
//! copy back, while processes went on.
//!
//! A leader takes the map that it finds. A process that follows a map which was never in force by
//! this store shows that others have been home since. Then no lease, hand-over or knowledge under
//! the found map counts any more. The leader brings another map into force, above all that it heard
//! of, once nobody can answer under a lost one.
//!
//! Does not know the members of lost maps. Unless one of them says that it has given up the newest,
//! all of them may be cut off and go on: they are waited for until `coordinator.outage` is over.

use verbs3_coordinator_client::api::WorkerLeaseRenewal;
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::{Epoch, MemberRoster};

use super::cluster_document::LostMap;
use super::{ClusterDocument, MembershipController};

/// How far above the leader's own first epoch a lost one may be. Epochs begin with seconds, so these
/// are 17 years of clocks that were ahead. A leader that believed in any epoch would soon have none
/// left to give out.
const LEAD_MAX: u64 = 1 << 29;

/// Most lost maps that one leadership believes in. Each delays the next map, so a broken worker
/// could otherwise put it off for ever.
const SHOWN_MAX: u32 = 64;

/// What one leadership knows of lost maps.
pub(super) struct LostMaps {
    elected: LeaseInstant,
    /// Highest epoch of the document that this leadership found.
    found: Epoch,
    /// Highest epoch when it began. Its own maps are above.
    begun: Epoch,
    /// What an earlier leader heard of, and has not replaced.
    stored: Option<LostMap>,
    /// Newest lost map that anybody follows; 0: none.
    newest: Epoch,
    /// Newest lost map that a worker has said to have given up.
    given_up: Epoch,
    /// No map has come into force since `newest` was heard of.
    is_due: bool,
    /// Epoch of the map that is to follow `newest`. The one below it is unused, too.
    planned: Option<Epoch>,
    /// How many lost maps were shown.
    shown: u32,
    /// Gateways have shown a lost map that nobody had shown before. They do so once in a leadership,
    /// or a broken one could end all that workers know as often as it likes.
    shown_by_follower: bool,
    /// Nobody was told yet of `newest`.
    is_news: bool,
}

impl LostMaps {
    /// Creates the state of a leader that begins with this document. It knows of the loss alone that
    /// an earlier leader has stored.
    pub(super) fn new(document: &ClusterDocument, elected: LeaseInstant) -> Self {
        let (highest, none) = (document.highest, Epoch(0));
        Self {
            elected,
            found: highest,
            begun: highest,
            stored: document.lost,
            newest: document.lost.map_or(none, |lost| lost.epoch),
            given_up: none,
            is_due: document.lost.is_some(),
            planned: None,
            shown: 0,
            shown_by_follower: false,
            is_news: false,
        }
    }

    /// Returns whether a map above the lost ones has to come into force.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns whether a worker has given up the newest lost map, which another one has to replace.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_due && self.given_up >= self.newest
    }

    /// Returns the epoch of the next map when `highest` was used last.
    pub(super) fn plan_epoch(&mut self, highest: Epoch) -> Epoch {
        if !self.is_due {
            return Epoch(highest.0 + 1);
        }
        // One for the map, and one that stands for the maps before it.
        let epoch = Epoch(highest.max(self.newest).0 + 2);
        self.planned = Some(epoch);
        epoch
    }

    /// Returns whether a map of this epoch was planned with the knowledge of all lost ones.
    pub(super) fn is_planned(&self, epoch: Epoch) -> bool {
        !self.is_due || self.planned == Some(epoch)
    }

    /// Records that a map above the lost ones is in force.
    pub(super) fn record_replacement(&mut self) {
        (self.is_due, self.planned) = (false, None);
    }
}

impl MembershipController {
    /// Tells a new leader the highest epoch of the document that it found. Between that one and the
    /// epoch that it began with, the store has never given one out.
    pub fn expect_lost_maps(&mut self, found: Epoch) {
        self.lost.found = found;
    }

    /// Hears which map a gateway or another coordinator follows. Returns whether it shows a loss.
    pub fn hear_follower(&mut self, epoch: Epoch) -> bool {
        // It takes any newer map by itself.
        let is_ahead = epoch > self.document.active.epoch;
        let may_show = self.lost.is_due || !self.lost.shown_by_follower;
        let shows = is_ahead && may_show && self.hear_lost_map(epoch);
        self.lost.shown_by_follower |= shows;
        shows
    }

    /// Hears from a renewal that its worker answers under a lost map no more.
    pub(super) fn hear_lost_map_given_up(&mut self, asked: &WorkerLeaseRenewal) {
        if asked.active != asked.knows && self.is_lost_map(asked.knows) {
            self.lost.given_up = self.lost.given_up.max(asked.knows);
        }
    }

    /// Returns the document that has to be stored because a lost map was heard of.
    pub(super) fn document_of_loss(&self) -> Option<ClusterDocument> {
        let epoch = self.lost_map_in_use()?;
        if self.document.lost.is_some_and(|stored| stored.epoch == epoch) {
            return None;
        }
        let lost = Some(LostMap { epoch, found: self.lost.found, begun: self.lost.begun });
        Some(ClusterDocument { lost, ..self.document.clone() })
    }

    /// Returns the newest lost map that was heard of since the last call.
    pub fn take_lost_map(&mut self) -> Option<Epoch> {
        std::mem::take(&mut self.lost.is_news).then_some(self.lost.newest)
    }

    /// Returns the lost map that another one has yet to replace.
    pub(super) fn lost_map_in_use(&self) -> Option<Epoch> {
        self.lost.is_due.then_some(self.lost.newest)
    }

    fn is_lost_map(&self, epoch: Epoch) -> bool {
        let is_coming = self.change.as_ref().is_some_and(|change| change.membership.epoch == epoch);
        let is_later = epoch > self.document.active.epoch && !is_coming;
        let own = (self.lost.found, self.lost.begun);
        let stored = self.lost.stored.map(|lost| (lost.found, lost.begun));
        let mut never_given = [own].into_iter().chain(stored);
        let is_never_given = never_given.any(|(found, begun)| epoch > found && epoch <= begun);
        let is_plausible = epoch.0 <= self.lost.begun.0.saturating_add(LEAD_MAX);
        is_plausible && (is_later || is_never_given)
    }

    /// Hears which map somebody has. Returns whether it was a lost one that nobody knew of.
    pub(super) fn hear_lost_map(&mut self, epoch: Epoch) -> bool {
        // Followers may see a map while its document is being written.
        let is_news = epoch > self.lost.newest && self.lost.shown < SHOWN_MAX;
        if self.activating || !is_news || !self.is_lost_map(epoch) {
            return false;
        }
        self.lost.newest = epoch;
        self.lost.shown += 1;
        (self.lost.is_due, self.lost.planned, self.lost.is_news) = (true, None, true);
        // It was planned as if the map in force had been the last one.
        self.change = None;
        true
    }

    /// Returns the moment from which on nobody answers under a lost map. A leader before this one
    /// may have granted leases for as long as its leadership was certain.
    pub(super) fn lost_leases_end(&self) -> LeaseInstant {
        if !self.lost.is_due {
            return LeaseInstant::default();
        }
        let settings = &self.options.settings;
        let leases = settings.leadership.0.saturating_add(settings.lease.0);
        let until = self.lost.elected.saturating_add(leases);
        // Its workers may all be cut off, and go on with writes among themselves.
        if self.lost.is_given_up() { until } else { until.saturating_add(settings.outage.0) }
    }

    /// Returns what is told as the map before `active`. After a loss that is the found map under an
    /// epoch that nobody knows: who answered under it last has missed other homes of its slots.
    pub(super) fn map_before(&self, active: &MemberRoster) -> MemberRoster {
        let before = self.document.active.clone();
        if self.lost.is_due {
            MemberRoster { epoch: Epoch(active.epoch.0 - 1), ..before }
        } else {
            before
        }
    }
}
