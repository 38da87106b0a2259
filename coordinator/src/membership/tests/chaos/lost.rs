//! Writes in such histories that are announced to a home and never reported. Whichever worker is
//! then their key's home must ask the UFS until each write's time is over.
//!
//! A home handles maps like the worker's `standing.rs` and `membership.rs`.

use super::*;

/// How long a write without a report stays open, and how long that of an unknown home may.
const UNCERTAIN: Duration = Duration::from_secs(300);
pub(super) const KEYS: usize = 4;
/// A gateway other than that of [`writing`].
const GATEWAY: u64 = 2;

/// Returns a key's home. It moves as little as the owners of slots do.
fn home(map: &MemberRoster, key: usize) -> Option<&ClusterMember> {
    let rank = |id: &WorkerId| {
        IDS.iter().position(|known| *known == id.0).map(|at| (at + key) % IDS.len())
    };
    map.members.iter().filter(|member| !member.draining).min_by_key(|member| rank(&member.id))
}

/// One process's knowledge of the keys.
#[derive(Default)]
pub(super) struct Homes {
    last: Epoch,
    /// The key and the end of each open write, by sequence.
    open: BTreeMap<u64, (usize, LeaseInstant)>,
    /// Answers to questions that were asked from then on are good.
    valid_from: [Option<LeaseInstant>; KEYS],
}

impl Homes {
    pub(super) fn give_up(&self, now: LeaseInstant) -> (Vec<OpenWriteReport>, Duration) {
        let open = self.open.iter().filter(|(_, (_, end))| *end > now);
        let told = |(&sequence, (key, end)): (&u64, &(usize, LeaseInstant))| OpenWriteReport {
            hash: *key as u64,
            gateway: GATEWAY,
            sequence,
            tenant: 0,
            remaining_ms: end.saturating_duration_since(now).as_nanos().div_ceil(1_000_000) as u64,
        };
        let uncertain =
            self.valid_from.iter().flatten().map(|from| from.saturating_duration_since(now)).max();
        (open.map(told).collect(), uncertain.unwrap_or_default())
    }

    pub(super) fn activate(
        &mut self,
        me: &WorkerId,
        activation: &MembershipActivation,
        now: LeaseInstant,
    ) {
        let MembershipActivation { membership, former, open_writes, resumes, uncertain_ms, .. } =
            activation;
        let all = open_writes.iter().chain(resumes.iter().flatten());
        for write in all.filter(|write| write.gateway == GATEWAY) {
            let end = now.saturating_add(Duration::from_millis(write.remaining_ms));
            self.open.insert(write.sequence, (write.hash as usize, end));
        }
        if self.last == membership.epoch {
            return;
        }
        let (inherited, silent) = (
            now.saturating_add(Duration::from_millis(*uncertain_ms)),
            now.saturating_add(UNCERTAIN),
        );
        for (key, valid_from) in self.valid_from.iter_mut().enumerate() {
            let homes = [home(former, key), home(membership, key)];
            *valid_from = good_from(
                (*valid_from, self.last),
                me,
                activation,
                homes,
                [now, inherited, silent],
            );
        }
        self.last = membership.epoch;
    }
}

/// Write whose writer is gone.
pub(super) struct Lost {
    sequence: u64,
    key: usize,
    end: LeaseInstant,
    /// Worker that it was announced to.
    told: String,
}

impl ChaosWorld {
    /// A writer announces a write, gets permission to go on, and is never heard of again.
    pub(super) fn lose(&mut self, worker: usize, key: usize) {
        let process = &self.workers[worker];
        let Some(map) = &process.active else { return };
        let is_home = home(map, key).is_some_and(|home| home.address == process.address);
        let leased = process.lease_until > self.now;
        if !is_home || !leased && (process.outage_until <= self.now || !self.stand_by(map)) {
            return;
        }
        let (sequence, end, told) =
            (self.lost.len() as u64, self.now.saturating_add(UNCERTAIN), process.address.clone());
        self.workers[worker].homes.open.insert(sequence, (key, end));
        self.lost.push(Lost { sequence, key, end, told });
    }

    /// Returns the homes of lost writes that answer from what they know. For each: whether it is
    /// another than the one that was told, and whether the write is uncertain there.
    fn answering(&self) -> Vec<(&Lost, bool, bool)> {
        let mut found = Vec::new();
        for process in self.processes() {
            let Some(map) = process.active.as_ref().filter(|_| process.lease_until > self.now)
            else {
                continue;
            };
            let is_home = |lost: &&Lost| {
                home(map, lost.key).is_some_and(|home| home.address == process.address)
            };
            for lost in self.lost.iter().filter(|lost| lost.end > self.now).filter(is_home) {
                let open =
                    process.homes.open.get(&lost.sequence).is_some_and(|(_, end)| *end >= lost.end);
                let asks = process.homes.valid_from[lost.key].is_none_or(|from| from >= lost.end);
                found.push((lost, lost.told != process.address, open || asks));
            }
        }
        found
    }

    pub(super) fn check_lost(&self) -> Result<(), TestCaseError> {
        for (lost, _, is_uncertain) in self.answering() {
            let left = lost.end.saturating_duration_since(self.now);
            prop_assert!(is_uncertain, "a write of key {} is forgotten for {left:?}", lost.key);
        }
        Ok(())
    }
}

/// Shows that the property means something: in such histories lost writes get other homes than
/// those that were told.
#[test]
fn histories_have_lost_writes_whose_homes_move() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut all, mut moved) = (0, 0);
    for _ in 0..100 {
        let events = events().new_tree(&mut runner).unwrap().current();
        let mut world = ChaosWorld::new();
        for event in &events {
            world.apply(event).unwrap();
            let answering = world.answering();
            all += answering.len();
            moved += answering.iter().filter(|(_, moved, _)| *moved).count();
        }
    }
    assert!(all > 1000 && moved > 100, "{all} answers, {moved} of other homes");
}
