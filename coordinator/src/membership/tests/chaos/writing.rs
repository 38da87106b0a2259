//! One key in such histories: a gateway writes it and can't reach worker `a`. Its notices go there
//! by way of the leaders, and readers ask the key's homes.
//!
//! A home handles announcements, reports and maps like the worker's `standing.rs` and
//! `attributes/coherence_table.rs`. The leader's real [`RelayQueues`] and the worker's real
//! [`WorkerLease`] carry the notices.

use std::collections::BTreeMap;

use verbs3_coordinator_client::api::{HeardWord, OpenWriteReport, RelayedWord};
use verbs3_protocol::{
    AnnounceMessage, NoticeAnswer, ObjectVolume, RefusalKind, ReportMessage, WorkerRefusal,
    WriteId, WriteNotice, WriteOutcome,
};
use verbs3_settings::ByteSize;

use super::*;
use crate::relay_queues::RelayQueues;
use crate::settings::CoordinatorSettings;

/// How long a write without a report stays open.
pub(super) const UNCERTAIN: Duration = Duration::from_secs(60);
/// Worker that the writing gateway can't reach.
pub(super) const CUT_OFF: &str = "a";

/// The key's home, which moves with every map.
pub(super) fn home(map: &MemberRoster) -> Option<&ClusterMember> {
    let owners: Vec<&ClusterMember> =
        map.members.iter().filter(|member| !member.draining).collect();
    owners.get(usize::try_from(map.epoch.0).unwrap() % owners.len().max(1)).copied()
}

/// One process's knowledge of the key.
#[derive(Default)]
pub(super) struct KeyState {
    generation: u64,
    /// Version, its generation, and when its check was sent.
    known: Option<(u64, u64, LeaseInstant)>,
    /// A check at the UFS that is under way.
    checking: Option<(u64, u64, LeaseInstant)>,
    /// Announced writes, and when they are given up.
    open: BTreeMap<u64, LeaseInstant>,
    /// Answers to questions that were asked from then on are good.
    valid_from: Option<LeaseInstant>,
    last: Epoch,
}

impl KeyState {
    pub(super) fn give_up(&self, now: LeaseInstant) -> (Vec<OpenWriteReport>, Duration) {
        let open = self.open.iter().filter(|(_, end)| **end > now);
        let told = |(&sequence, end): (&u64, &LeaseInstant)| OpenWriteReport {
            hash: 1,
            gateway: 1,
            tenant: 0,
            sequence,
            remaining_ms: u64::try_from(
                end.saturating_duration_since(now).as_nanos().div_ceil(1_000_000),
            )
            .unwrap(),
        };
        (
            open.map(told).collect(),
            self.valid_from.map(|from| from.saturating_duration_since(now)).unwrap_or_default(),
        )
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
        for write in all.filter(|write| write.gateway == 1) {
            self.open.insert(
                write.sequence,
                now.saturating_add(Duration::from_millis(write.remaining_ms)),
            );
        }
        if self.last == membership.epoch {
            return;
        }
        let inherited = now.saturating_add(Duration::from_millis(*uncertain_ms).min(UNCERTAIN));
        let silent = now.saturating_add(UNCERTAIN);
        let homes = [home(former), home(membership)];
        self.valid_from = good_from(
            (self.valid_from, self.last),
            me,
            activation,
            homes,
            [now, inherited, silent],
        );
        self.last = membership.epoch;
    }

    fn note(&mut self, word: &WriteNotice, now: LeaseInstant) {
        self.generation += 1;
        match word {
            WriteNotice::Announce(announce) => {
                self.open.insert(announce.write.sequence, now.saturating_add(UNCERTAIN));
            }
            WriteNotice::Report(report) => {
                self.open.remove(&report.write.sequence);
            }
        }
    }

    fn is_open(&self, now: LeaseInstant) -> bool {
        self.open.values().any(|end| *end > now)
    }
}

/// Whoever waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    version: u64,
    phase: Phase,
    epoch: Epoch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Announcing,
    /// The UFS may be written now.
    Sending,
    Reporting,
}

/// The writing gateway, and the UFS.
pub(super) struct Writer {
    map: MemberRoster,
    version: u64,
    phase: Phase,
    /// Version in the UFS.
    stored: u64,
    /// Version that the client was told of.
    acknowledged: u64,
    /// Answers in flight to the gateway.
    pub(super) answers: Vec<(Asker, NoticeAnswer)>,
    /// Every notice ever sent: any of them may arrive once more, however late.
    sent: Vec<WriteNotice>,
    /// Writes whose report was acknowledged by the unreachable home.
    pub(super) relayed: u64,
    /// Reads that were answered from what a home knew.
    pub(super) known_reads: u64,
}

impl Writer {
    pub(super) fn new() -> Self {
        let map = MemberRoster::default();
        let (version, phase, stored, acknowledged) = (0, Phase::Idle, 0, 0);
        let (answers, sent) = (Vec::new(), Vec::new());
        Self {
            map,
            version,
            phase,
            stored,
            acknowledged,
            answers,
            sent,
            relayed: 0,
            known_reads: 0,
        }
    }

    /// Returns the notice that must be sent now, and its receiver.
    fn word(&self) -> Option<(ClusterMember, WriteNotice)> {
        let (epoch, home) = (self.map.epoch, home(&self.map)?.clone());
        let (volume, keys) = (ObjectVolume("store/bucket".into()), vec!["k".to_owned()]);
        let write = WriteId { gateway: 1, sequence: self.version };
        let word = match self.phase {
            Phase::Announcing => WriteNotice::Announce(AnnounceMessage {
                volume,
                keys,
                write,
                epoch,
                uncertain_ms: 60_000,
            }),
            Phase::Reporting => WriteNotice::Report(ReportMessage {
                volume,
                keys,
                write,
                epoch,
                outcome: WriteOutcome::Done,
            }),
            Phase::Idle | Phase::Sending => return None,
        };
        Some((home, word))
    }

    fn asker(&self) -> Asker {
        Asker { version: self.version, phase: self.phase, epoch: self.map.epoch }
    }
}

/// A process hears a notice.
pub(super) fn hear(process: &mut Worker, word: &WriteNotice, now: LeaseInstant) -> NoticeAnswer {
    let refused = |kind| NoticeAnswer::Refused(WorkerRefusal { kind, reason: String::new() });
    if process.active.as_ref().is_none_or(|active| active.epoch != word.map_epoch()) {
        return refused(RefusalKind::WrongEpoch(Epoch(0)));
    }
    let heard = match (process.lease_until > now, process.outage_until > now) {
        (true, _) => NoticeAnswer::Done,
        (false, true) => NoticeAnswer::Unleased,
        (false, false) => return refused(RefusalKind::NoLease),
    };
    process.key.note(word, now);
    heard
}

pub(super) fn hear_all(
    process: &mut Worker,
    words: Vec<RelayedWord>,
    now: LeaseInstant,
) -> Vec<HeardWord> {
    let hear =
        |RelayedWord { id, notice }| HeardWord { id, heard: hear(process, &notice.word, now) };
    words.into_iter().map(hear).collect()
}

impl ChaosWorld {
    pub(super) fn relays(term: u64) -> RelayQueues<Asker> {
        let settings = CoordinatorSettings {
            relays_max: 8,
            relays_memory: ByteSize::from_mib(1),
            ..CoordinatorSettings::default()
        };
        RelayQueues::new(&settings, term << 32)
    }

    /// The gateway begins a write, or continues the present one.
    pub(super) fn write(&mut self) {
        let writer = &mut self.writer;
        match writer.phase {
            Phase::Idle => (writer.version, writer.phase) = (writer.version + 1, Phase::Announcing),
            Phase::Sending => (writer.stored, writer.phase) = (writer.version, Phase::Reporting),
            Phase::Announcing | Phase::Reporting => {}
        }
    }

    pub(super) fn follow(&mut self) {
        self.writer.map = self.document.active.clone();
    }

    /// The gateway tells the home, directly or through the leader. `lost`: the direct answer is
    /// lost. `older`: the older of several processes at the address is told.
    pub(super) fn tell(&mut self, lost: bool, older: bool) {
        let Some((home, word)) = self.writer.word() else { return };
        self.writer.sent.push(word.clone());
        let asker = self.writer.asker();
        if home.id.0 == CUT_OFF {
            if self.cluster.relay_refusal(&home.id, word.map_epoch(), self.now).is_none() {
                let _ = self.relays.enqueue_word(&home.id, word.into(), asker);
            }
            return;
        }
        let now = self.now;
        let there = self.processes_mut().filter(|process| process.address == home.address);
        let process = there.reduce(|newer, next| if older { next } else { newer });
        let heard = process.map(|process| hear(process, &word, now));
        self.writer.answers.extend(heard.filter(|_| !lost).map(|heard| (asker, heard)));
    }

    /// The gateway has an answer.
    pub(super) fn told(&mut self, which: usize) {
        let answers = &mut self.writer.answers;
        if answers.is_empty() {
            return;
        }
        let (asker, heard) = answers.swap_remove(which % answers.len());
        let counts = match heard {
            NoticeAnswer::Done => true,
            NoticeAnswer::Unleased => self.all_stand_by(),
            NoticeAnswer::Refused(_) => false,
        };
        let relayed = home(&self.writer.map).is_some_and(|home| home.id.0 == CUT_OFF);
        let writer = &mut self.writer;
        // A gateway that has followed another map has started anew.
        if !counts || asker != writer.asker() {
            return;
        }
        match writer.phase {
            Phase::Announcing => writer.phase = Phase::Sending,
            Phase::Reporting => {
                (writer.acknowledged, writer.phase) = (writer.version, Phase::Idle);
                writer.relayed += u64::from(relayed);
            }
            Phase::Idle | Phase::Sending => {}
        }
    }

    /// Returns whether all members that the gateway can ask confirm the map.
    fn all_stand_by(&self) -> bool {
        let map = &self.writer.map;
        map.members.iter().all(|member| member.id.0 != CUT_OFF && self.stands_by(member, map))
    }

    /// A notice that was sent once arrives again, at any process of the worker.
    pub(super) fn hear_late(&mut self, worker: usize, which: usize) {
        let sent = &self.writer.sent;
        let Some(word) = sent.get(which % sent.len().max(1)).cloned() else { return };
        let now = self.now;
        hear(&mut self.workers[worker], &word, now);
        if let Some(ghost) = self.ghosts.last_mut() {
            hear(ghost, &word, now);
        }
    }

    /// Readers ask the process that their maps name as the home. `slow`: the UFS's answer is
    /// delayed.
    pub(super) fn read(&mut self, slow: bool) -> Result<(), TestCaseError> {
        let (now, stored, acknowledged) = (self.now, self.writer.stored, self.writer.acknowledged);
        for process in self.workers.iter_mut().chain(&mut self.ghosts) {
            let known = read_at(process, now, stored, slow);
            self.writer.known_reads += u64::from(known.is_some());
            let right = known.is_none_or(|version| version >= acknowledged);
            prop_assert!(right, "{} answers {known:?}, {acknowledged} was told", process.address);
        }
        Ok(())
    }
}

/// Returns what the process answers from what it knows; `None`: it asks the UFS, or is not asked.
fn read_at(process: &mut Worker, now: LeaseInstant, stored: u64, slow: bool) -> Option<u64> {
    let map = process.active.as_ref()?;
    if home(map).is_none_or(|home| home.address != process.address) {
        return None;
    }
    let (is_leased, key) = (process.lease_until > now, &mut process.key);
    let is_valid = |asked: LeaseInstant| key.valid_from.is_some_and(|from| asked >= from);
    if let Some((version, generation, asked)) = key.known
        && is_leased
        && generation == key.generation
        && !key.is_open(now)
        && is_valid(asked)
    {
        return Some(version);
    }
    // It asks the UFS, which is always right. Its answer may be kept under the generation of the
    // question.
    let checked = (stored, key.generation, now);
    let ended = if slow { key.checking.replace(checked) } else { Some(checked) };
    if let Some(checked @ (_, generation, _)) = ended
        && generation == key.generation
        && !key.is_open(now)
    {
        key.known = Some(checked);
    }
    None
}
