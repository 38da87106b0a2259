//! Checks how the maps of such histories move workers' shares of the slots.

use super::*;

/// Shares come and go in steps, so that maps follow each other.
pub(super) fn in_steps() -> ClusterOptions {
    options_moving_for(Duration::from_secs(1))
}

#[derive(Default)]
pub(super) struct Shares {
    /// When each worker's share moved last by a step.
    stepped: BTreeMap<WorkerId, LeaseInstant>,
    /// Maps that moved some.
    pub(super) maps: u64,
    /// Violation for the next check.
    too_far: Option<String>,
}

impl Shares {
    /// Counts that `after` comes into force in place of `before`. `begins`: joining workers may get
    /// their share at once.
    pub(super) fn count(
        &mut self,
        [before, after]: [&ClusterDocument; 2],
        begins: bool,
        now: LeaseInstant,
    ) {
        self.maps += u64::from(before.moving != after.moving);
        let begins = begins || before.active.members.iter().all(|member| member.draining);
        for ClusterMember { id, .. } in &after.active.members {
            let (had, has) = (before.steps_of(id), after.steps_of(id));
            if had == has || has == share_pacing::STEPS && begins {
                continue;
            }
            // A worker that was there a moment ago may come back with what it had.
            let joins = before.active.get(id).is_none();
            let last = self.stepped.insert(id.clone(), now).filter(|_| !joins);
            let soon = last
                .is_some_and(|last| now.saturating_duration_since(last) < in_steps().step_time());
            if soon || !joins && had.abs_diff(has) > 1 {
                let (last, now) = (last.map(LeaseInstant::as_nanos), now.as_nanos());
                self.too_far =
                    Some(format!("{id}: {had} to {has} steps at {now}, last at {last:?}"));
            }
        }
        self.stepped.retain(|id, _| after.active.get(id).is_some());
    }

    pub(super) fn check(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.too_far.is_none(), "{:?}", self.too_far);
        Ok(())
    }
}
