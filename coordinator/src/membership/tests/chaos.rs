//! Random histories of workers, leaders and a network that loses and delays. They test what
//! coherence rests on:
//!
//! 1. A worker answers from what it knows, under epoch E and with a lease by its own clock, only
//!    while no later map has come into force.
//! 2. No later map comes into force while every member of E would confirm E and its time for
//!    outages is not over.
//! 3. So no home answers with less than what was acknowledged, even if write notices went by way of
//!    the leaders ([`writing`]).
//! 4. A write that is announced and never reported keeps its key uncertain for its time, whichever
//!    worker is its home then ([`lost`]).
//! 5. No map moves a remaining worker by more than a step of its share, or sooner than a step's
//!    time after the last ([`shares`]).
//!
//! Workers run the real [`WorkerLease`]; leaders the real [`MembershipController`].

mod events;
mod lost;
mod shares;
mod writing;

use std::collections::BTreeMap;

use proptest::prelude::*;
use verbs3_coordinator_client::worker_lease::{WorkerLease, WorkerLeaseDuty};

use super::*;
use crate::relay_queues::RelayQueues;
use events::{Event, events};
use lost::{Homes, Lost};
use shares::{Shares, in_steps};
use writing::{Asker, KeyState, Writer};

/// Returns from when on a worker's checks of a key are good, as in its `standing.rs`. `known`: the
/// present value and its map. `inherited` and `silent`: the ends of what was handed over, and of
/// what nobody could tell.
fn good_from(
    (known, last): (Option<LeaseInstant>, Epoch),
    me: &WorkerId,
    activation: &MembershipActivation,
    [before, after]: [Option<&ClusterMember>; 2],
    [now, inherited, silent]: [LeaseInstant; 3],
) -> Option<LeaseInstant> {
    match before.map(|home| &home.id) {
        _ if after.is_none_or(|home| home.id != *me) => None,
        Some(before) if before == me && activation.former.epoch == last => known,
        _ if activation.resumes.is_some() => Some(inherited),
        _ if activation.restarted => Some(silent),
        None if last == Epoch(0) => Some(now),
        Some(before) if before != me && activation.handed_over.contains(before) => Some(inherited),
        _ => Some(silent),
    }
}

const IDS: [&str; 4] = ["a", "b", "c", "d"];

struct Worker {
    tenure: WorkerLease,
    address: String,
    /// 0: it does not say.
    place: u64,
    active: Option<MemberRoster>,
    lease_until: LeaseInstant,
    outage_until: LeaseInstant,
    registered: bool,
    /// Question that the leader has or will have, and when it was sent.
    asked: Option<(LeaseInstant, Question)>,
    answer: Option<(LeaseInstant, WorkerLeaseGrant)>,
    key: KeyState,
    homes: Homes,
}

#[derive(Clone)]
enum Question {
    Register,
    Renew(WorkerLeaseRenewal),
}

impl Worker {
    /// Returns what it hands over of both.
    fn give_up(&self, now: LeaseInstant) -> (Option<Vec<OpenWriteReport>>, Duration) {
        let ((lost, uncertain), writing) = (self.homes.give_up(now), self.key.give_up(now));
        (Some([lost, writing.0].concat()), uncertain.max(writing.1))
    }
}

struct ChaosWorld {
    now: LeaseInstant,
    /// Document as the store has it.
    document: ClusterDocument,
    cluster: MembershipController,
    /// Document that is being written: the store has it already, or will, or never will.
    writing: Option<ClusterDocument>,
    workers: Vec<Worker>,
    /// Processes that were cut off when their worker moved: they go on by themselves.
    ghosts: Vec<Worker>,
    late: Vec<Option<(Question, String)>>,
    lives: u64,
    maps: u64,
    shares: Shares,
    /// The pending map was begun while joining workers got their share at once.
    begun: bool,
    /// Queues of the leader.
    relays: RelayQueues<Asker>,
    writer: Writer,
    lost: Vec<Lost>,
}

impl ChaosWorld {
    fn new() -> Self {
        let document = ClusterDocument::new(Epoch(100), 2);
        let cluster =
            MembershipController::new(in_steps(), document.clone(), LeaseInstant::default());
        let mut world = Self {
            now: LeaseInstant::default(),
            document,
            cluster,
            writing: None,
            workers: Vec::new(),
            ghosts: Vec::new(),
            late: vec![None; IDS.len()],
            lives: 0,
            maps: 0,
            shares: Shares::default(),
            begun: false,
            relays: Self::relays(0),
            writer: Writer::new(),
            lost: Vec::new(),
        };
        for (number, name) in IDS.iter().enumerate() {
            // The last ones say where they listen once they are started again.
            let place = if number < 2 { world.other_place() } else { 0 };
            let worker = world.fresh(format!("{name}:9400"), place);
            world.workers.push(worker);
        }
        world
    }

    fn other_place(&self) -> u64 {
        1000 + self.lives
    }

    /// Starts a process again where the previous one was.
    fn restarted(&mut self, worker: usize) -> Worker {
        let Worker { address, place, .. } = &self.workers[worker];
        let place = if *place == 0 { self.other_place() } else { *place };
        self.fresh(address.clone(), place)
    }

    fn fresh(&mut self, address: String, place: u64) -> Worker {
        self.lives += 1;
        let never = LeaseInstant::default();
        Worker {
            tenure: WorkerLease::new(WorkerIncarnation(format!("life {}", self.lives))),
            address,
            place,
            active: None,
            lease_until: never,
            outage_until: never,
            registered: false,
            asked: None,
            answer: None,
            key: KeyState::default(),
            homes: Homes::default(),
        }
    }

    fn ask(
        &mut self,
        worker: usize,
        question: &Question,
        incarnation: WorkerIncarnation,
        address: &str,
    ) -> Option<WorkerLeaseGrant> {
        let id = WorkerId(IDS[worker].into());
        let result = match question {
            Question::Register => {
                let asked = WorkerRegistration {
                    address: address.to_owned(),
                    place: self.workers[worker].place,
                    ..registration(IDS[worker], &incarnation.0)
                };
                self.cluster.register_worker(asked, self.now)
            }
            Question::Renew(renewal) => self.cluster.renew_lease(&id, renewal, self.now),
        };
        match result {
            Ok(granted) => {
                let heard = if let Question::Renew(renewal) = question {
                    renewal.heard.clone()
                } else {
                    Vec::new()
                };
                let answered = self.relays.take_answers(&id, heard);
                self.writer.answers.extend(answered);
                let words = if let Question::Renew(_) = question {
                    self.relays.hand_out(&id)
                } else {
                    Vec::new()
                };
                Some(WorkerLeaseGrant { words, ..granted })
            }
            Err(MembershipError::Unknown(_) | MembershipError::Superseded(_)) => {
                self.workers[worker].registered = false;
                None
            }
            Err(_) => None,
        }
    }

    fn apply(&mut self, event: &Event) -> Result<(), TestCaseError> {
        // No two events are at one moment.
        self.now = self.now.saturating_add(Duration::from_nanos(1));
        match *event {
            Event::Pass { ms } => self.now = self.now.saturating_add(Duration::from_millis(ms)),
            Event::Send { worker } => {
                let state = &mut self.workers[worker];
                let question = match state.registered {
                    true => Question::Renew(state.tenure.next_renewal()),
                    false => Question::Register,
                };
                if let Some((_, lost)) = state.asked.take() {
                    self.late[worker] = Some((lost, state.address.clone()));
                }
                state.answer = None;
                state.asked = Some((self.now, question));
            }
            Event::Arrive { worker } => {
                let Some((sent, question)) = self.workers[worker].asked.clone() else {
                    return Ok(());
                };
                let state = &self.workers[worker];
                let (incarnation, address) =
                    (state.tenure.worker_incarnation().clone(), state.address.clone());
                let granted = self.ask(worker, &question, incarnation, &address);
                self.workers[worker].asked = None;
                self.workers[worker].answer = granted.map(|granted| (sent, granted));
            }
            Event::Round { worker } => {
                for part in
                    [Event::Send { worker }, Event::Arrive { worker }, Event::Answer { worker }]
                {
                    self.apply(&part)?;
                }
            }
            Event::Settle => {
                for _ in 0..2 {
                    self.apply(&Event::Persisted)?;
                    self.apply(&Event::Step)?;
                }
                self.apply(&Event::Persisted)?;
            }
            Event::ArriveLate { worker } => {
                // Of this process, or of one before it.
                let Some((Question::Renew(renewal), address)) = self.late[worker].take() else {
                    return Ok(());
                };
                let incarnation = renewal.incarnation.clone();
                self.ask(worker, &Question::Renew(renewal), incarnation, &address);
            }
            Event::Answer { worker } => self.answered(worker),
            Event::Step => {
                let under_way = self.cluster.change.is_some() && self.begun;
                self.begun = under_way || self.cluster.pace.is_cluster_start(self.now);
                if self.writing.is_none()
                    && let MembershipStep::Persist(document) = self.cluster.decide_step(self.now)
                {
                    // Durable from some moment on; the worst for the workers is at once.
                    self.store(*document.clone());
                    self.writing = Some(*document);
                }
            }
            Event::Persisted => {
                if let Some(document) = self.writing.take() {
                    self.cluster.confirm_persisted(document, self.now);
                }
            }
            Event::NewLeader => {
                self.writing = None;
                let document =
                    ClusterDocument { term: self.document.term + 1, ..self.document.clone() };
                self.store(document.clone());
                self.relays = Self::relays(document.term);
                self.cluster = MembershipController::new(in_steps(), document, self.now);
            }
            Event::Crash { worker } => {
                self.workers[worker] = self.restarted(worker);
            }
            Event::Move { worker } => {
                let place = self.other_place();
                let moved = self.fresh(format!("{}:{}", IDS[worker], self.lives), place);
                let ghost = std::mem::replace(&mut self.workers[worker], moved);
                self.ghosts.push(ghost);
            }
            Event::Replace { worker } => {
                // Nobody can tell for a process that does not say where it is.
                if self.workers[worker].place == 0 {
                    return Ok(());
                }
                let (address, place) = (self.workers[worker].address.clone(), self.other_place());
                let other = self.fresh(address, place);
                let ghost = std::mem::replace(&mut self.workers[worker], other);
                self.ghosts.push(ghost);
            }
            Event::Leave { worker } => {
                let state = &mut self.workers[worker];
                // It answers no more, whether or not the coordinator hears of it.
                (state.active, state.lease_until) = (None, LeaseInstant::default());
                let (writes, uncertain) = state.give_up(self.now);
                let leave = state.tenure.make_departure(writes, uncertain);
                let _ = self.cluster.record_departure(&WorkerId(IDS[worker].into()), leave);
                self.workers[worker] = self.restarted(worker);
            }
            Event::Drain { worker, draining } => {
                let _ = self.cluster.set_draining(&WorkerId(IDS[worker].into()), draining);
            }
            Event::Write => self.write(),
            Event::Follow => self.follow(),
            Event::Tell { lost, older } => self.tell(lost, older),
            Event::Told { which } => self.told(which),
            Event::Attempt => {
                let (worker, lost, older) = (0, false, false);
                for part in [Event::Follow, Event::Write, Event::Tell { lost, older }] {
                    self.apply(&part)?;
                }
                // What is relayed is fetched, and answered.
                for part in [Event::Round { worker }, Event::Round { worker }] {
                    self.apply(&part)?;
                }
                self.told(self.writer.answers.len().saturating_sub(1));
            }
            Event::HangUp => self.relays.clear(),
            Event::HearLate { worker, which } => self.hear_late(worker, which),
            Event::Read { slow } => self.read(slow)?,
            Event::Lose { worker, key } => self.lose(worker, key),
        }
        Ok(())
    }

    fn store(&mut self, document: ClusterDocument) {
        if document.active.epoch != self.document.active.epoch {
            self.maps += 1;
            self.shares.count([&self.document, &document], self.begun, self.now);
        }
        self.document = document;
    }

    fn answered(&mut self, worker: usize) {
        let now = self.now;
        let state = &mut self.workers[worker];
        let Some((sent, granted)) = state.answer.take() else { return };
        state.registered = true;
        for duty in state.tenure.apply_grant(sent, granted) {
            match duty {
                WorkerLeaseDuty::Lease { until, outage_until } => {
                    (state.lease_until, state.outage_until) = (until, outage_until);
                }
                WorkerLeaseDuty::GiveUp => state.active = None,
                WorkerLeaseDuty::Prepare(epoch) => {
                    state.active = None;
                    let (writes, uncertain) = state.give_up(now);
                    state.tenure.confirm_prepare(epoch, writes, uncertain);
                }
                WorkerLeaseDuty::Hear(words) => {
                    let heard = writing::hear_all(state, words, now);
                    state.tenure.record_heard_words(heard);
                }
                WorkerLeaseDuty::Activate(activation) => {
                    state.tenure.confirm_activation(activation.membership.epoch);
                    state.key.activate(&WorkerId(IDS[worker].into()), &activation, now);
                    state.homes.activate(&WorkerId(IDS[worker].into()), &activation, now);
                    state.active = Some(activation.membership);
                }
            }
        }
    }

    /// All processes that somebody may reach. An address may lead to several.
    fn processes(&self) -> impl Iterator<Item = &Worker> {
        self.ghosts.iter().chain(&self.workers)
    }

    fn processes_mut(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.workers.iter_mut().chain(&mut self.ghosts)
    }

    fn check(&self) -> Result<(), TestCaseError> {
        self.shares.check()?;
        for worker in self.processes() {
            let Some(map) = &worker.active else { continue };
            // A process is asked under a map only if the map names it at this address.
            if map.members.iter().all(|member| member.address != worker.address) {
                continue;
            }
            let newest = self.document.active.epoch;
            if worker.lease_until > self.now {
                prop_assert_eq!(map.epoch, newest, "{} answers under an old map", worker.address);
            }
            if worker.outage_until > self.now && self.stand_by(map) {
                prop_assert_eq!(
                    map.epoch,
                    newest,
                    "{} takes writes under an old map",
                    worker.address
                );
            }
        }
        self.check_lost()
    }

    /// Returns whether all members confirm the map.
    fn stand_by(&self, map: &MemberRoster) -> bool {
        map.members.iter().all(|member| self.stands_by(member, map))
    }

    fn stands_by(&self, member: &ClusterMember, map: &MemberRoster) -> bool {
        let mut there = self.processes().filter(|process| process.address == member.address);
        there.any(|process| process.active.as_ref().is_some_and(|active| active.epoch == map.epoch))
    }
}

/// `ROUNDS`, or enough for each run of the tests.
fn rounds() -> u32 {
    std::env::var("ROUNDS").map_or(1000, |text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]
    /// Nobody answers under a replaced map, answers less than was acknowledged, or forgets a lost
    /// write.
    #[test]
    fn no_history_breaks_a_promise_of_the_membership(
        events in events()
    ) {
        let mut world = ChaosWorld::new();
        for event in &events {
            world.apply(event)?;
            world.check()?;
        }
    }
}

/// Shows that the properties above mean something: in such histories maps come into force, and
/// leases are held.
#[test]
fn histories_have_maps_leases_and_relayed_writes() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut maps, mut steps, mut leases, mut relayed, mut known) = (0, 0, 0, 0, 0);
    for _ in 0..100 {
        let events = events().new_tree(&mut runner).unwrap().current();
        let mut world = ChaosWorld::new();
        for event in &events {
            world.apply(event).unwrap();
            leases += world
                .workers
                .iter()
                .filter(|w| w.active.is_some() && w.lease_until > world.now)
                .count();
        }
        (maps, steps) = (maps + world.maps, steps + world.shares.maps);
        (relayed, known) = (relayed + world.writer.relayed, known + world.writer.known_reads);
    }
    assert!(
        maps > 100 && steps > 10 && leases > 5000,
        "{maps} maps, {steps} steps, {leases} leases"
    );
    assert!(
        relayed > 30 && known > 150,
        "{relayed} writes were relayed, {known} reads answered from what was known"
    );
}
