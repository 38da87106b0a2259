//! Decides which waiting job gets the next place, and which running one gives its place back to
//! somebody who waits. Pure.
//!
//! Guests' jobs are those of owners and of notifications. They leave one place to operators: they
//! may last as long as they like.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::job::PreloadJob;
use crate::job_record::PreloadJobRecord;
use crate::notification::NOTIFIED;

/// Those who count as one where guests share their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestParty<'a> {
    Tenant(&'a str),
    /// An owner whose tenant is not known.
    Owner(&'a str),
    Notifications,
}

/// Returns the party of a guest's job; `None`: the job is an operator's.
fn guest_party(record: &PreloadJobRecord) -> Option<GuestParty<'_>> {
    match (&record.owner, &record.tenant) {
        (Some(_), Some(tenant)) => Some(GuestParty::Tenant(tenant)),
        (Some(owner), None) => Some(GuestParty::Owner(&owner.0)),
        (None, _) => record.id.starts_with(NOTIFIED).then_some(GuestParty::Notifications),
    }
}

/// The unfinished jobs at one moment, and the places that there are.
pub(crate) struct JobTurns<'a> {
    waiting: Vec<&'a Arc<PreloadJob>>,
    running_guests: Vec<&'a Arc<PreloadJob>>,
    guest_places: usize,
}

impl<'a> JobTurns<'a> {
    pub(crate) fn new(jobs: impl Iterator<Item = &'a Arc<PreloadJob>>, places: usize) -> Self {
        let (mut waiting, mut running_guests) = (Vec::new(), Vec::new());
        for job in jobs {
            if job.is_waiting() {
                waiting.push(job);
            } else if job.is_running() && guest_party(&job.record).is_some() {
                running_guests.push(job);
            }
        }
        Self { waiting, running_guests, guest_places: places.saturating_sub(1).max(1) }
    }

    /// Returns the job to run next. Of guests' jobs it is one of the party of which the fewest run.
    /// Within a party, and between guests and operators, priority decides, then age.
    pub(crate) fn next_job(&self) -> Option<&'a Arc<PreloadJob>> {
        let priority = |job: &Arc<PreloadJob>| Reverse(job.record.spec.priority);
        let age = |job: &Arc<PreloadJob>| job.record.created_ms;
        let guest = self.waiting_guests().filter(|_| self.has_guest_place());
        let guest = guest.min_by_key(|job| (self.running_beside(job), priority(job), age(job)));
        let operators = self.waiting.iter().copied();
        let operators = operators.filter(|job| guest_party(&job.record).is_none());
        let operator = operators.min_by_key(|job| (priority(job), age(job)));
        let both = [guest, operator].into_iter().flatten();
        both.min_by_key(|job| (priority(job), self.running_beside(job), age(job)))
    }

    /// Returns the running job that has to give its place back: the youngest one of the party that
    /// holds most, where a party waits that would still hold no more with that place. So a party
    /// alone may hold all places, and one of two at most half of them, rounded up. `are_all_taken`:
    /// there is no free place for anybody.
    pub(crate) fn find_yielding_job(&self, are_all_taken: bool) -> Option<&'a Arc<PreloadJob>> {
        if self.has_guest_place() && !are_all_taken {
            return None;
        }
        // One at a time: where its place goes decides whether another one has to.
        if self.running_guests.iter().any(|job| job.is_giving_way()) {
            return None;
        }
        let fewest = self.waiting_guests().map(|job| self.running_beside(job)).min()?;
        let running = self.running_guests.iter().copied();
        let youngest =
            running.max_by_key(|job| (self.running_beside(job), job.record.created_ms))?;
        (self.running_beside(youngest) > fewest + 1).then_some(youngest)
    }

    fn has_guest_place(&self) -> bool {
        self.running_guests.len() < self.guest_places
    }

    fn waiting_guests(&self) -> impl Iterator<Item = &'a Arc<PreloadJob>> + '_ {
        self.waiting.iter().copied().filter(|job| guest_party(&job.record).is_some())
    }

    /// Returns how many jobs run of the party of `job`, that one included. Of operators, who share
    /// with nobody, none.
    fn running_beside(&self, job: &PreloadJob) -> usize {
        let Some(party) = guest_party(&job.record) else { return 0 };
        let is_beside = |other: &&&Arc<PreloadJob>| guest_party(&other.record) == Some(party);
        self.running_guests.iter().filter(is_beside).count()
    }
}
