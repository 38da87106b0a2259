#![allow(clippy::unwrap_used)]
use super::*;
use crate::tenants::TenantRules;
use proptest::prelude::*;
use verbs3_metrics::TableFamily;
use verbs3_protocol::TenantTag;

const KEYS: usize = 3;
const DOUBT: Duration = Duration::from_secs(60);
const DOUBT_AGE: Duration = Duration::from_secs(5);
const UNCERTAIN_MAX: Duration = Duration::from_millis(50);

fn coherence(slots: usize, open_max: usize) -> CoherenceTable {
    coherence_for(slots, open_max, 2, Arc::default())
}

fn coherence_for(
    slots: usize,
    open_max: usize,
    keys_max: usize,
    tenants: Arc<TenantAccounts>,
) -> CoherenceTable {
    let metrics = crate::metrics::WorkerMetrics::new(&prometheus::Registry::new()).unwrap();
    let options = crate::attributes::GrantOptions { grants_max: 10, holders_max: 10 };
    let doubts = DoubtOptions { length: DOUBT, age_max: DOUBT_AGE, keys_max };
    let grants = Arc::new(LeaseGrantTable::new(options, metrics));
    CoherenceTable::new(slots, open_max, doubts, grants, tenants)
}

/// Keys of which only the hashes are known.
fn of(hashes: &[KeyHash]) -> WrittenKeys<'_> {
    WrittenKeys { hashes, names: None, account: TenantAccount::NOBODY }
}

fn handed(key: usize, id: u64, remaining: Duration) -> HandedWrite {
    let account = TenantAccount::NOBODY;
    HandedWrite { hash: hash(key), write: write(id), remaining, account }
}

/// How old an answer about a key may be that no prefix is known of.
fn doubted_age(table: &CoherenceTable, hash: KeyHash) -> Option<Duration> {
    let object = ObjectKey { volume: ObjectVolume::new("u", "none"), key: String::new() };
    table.doubted_age(&object, hash)
}

fn hash(key: usize) -> KeyHash {
    KeyHash((key as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn write(number: u64) -> WriteId {
    WriteId { gateway: number, sequence: number }
}

#[derive(Debug, Clone)]
enum Event {
    Announce {
        key: usize,
        write: u64,
        ms: u64,
    },
    /// It was announced to another home.
    Inherit {
        key: usize,
        write: u64,
        ms: u64,
    },
    Report {
        key: usize,
        write: u64,
        outcome: WriteOutcome,
    },
    Forget {
        key: usize,
    },
    Pass {
        ms: u64,
    },
    Sweep,
    /// A check asks the UFS now; its answer comes at some later event.
    Check {
        key: usize,
    },
    Answer {
        nth: usize,
    },
    Read {
        key: usize,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let outcome = prop_oneof![
        Just(WriteOutcome::Done),
        Just(WriteOutcome::Refused),
        Just(WriteOutcome::Unknown)
    ];
    let event = prop_oneof![
        3 => (0..KEYS, 0..3u64, 0..40u64).prop_map(|(key, write, ms)| Event::Announce { key, write, ms }),
        1 => (0..KEYS, 0..3u64, 0..60u64).prop_map(|(key, write, ms)| Event::Inherit { key, write, ms }),
        3 => (0..KEYS, 0..3u64, outcome).prop_map(|(key, write, outcome)| Event::Report { key, write, outcome }),
        1 => (0..KEYS).prop_map(|key| Event::Forget { key }),
        2 => (0..30u64).prop_map(|ms| Event::Pass { ms }),
        1 => Just(Event::Sweep),
        4 => (0..KEYS).prop_map(|key| Event::Check { key }),
        4 => (0..4usize).prop_map(|nth| Event::Answer { nth }),
        6 => (0..KEYS).prop_map(|key| Event::Read { key }),
    ];
    prop::collection::vec(event, 1..120)
}

/// What a key's truth is: when news last came, and which writes are open until when.
#[derive(Default, Clone)]
struct Truth {
    news: u64,
    open: HashMap<u64, Open>,
}

#[derive(Default, Clone, Copy)]
struct Open {
    end: u64,
    /// After news of an unknown outcome.
    uncertain: u64,
}

impl Truth {
    fn opens(&mut self, write: u64, now: u64, remaining: u64, uncertain: u64) {
        self.open.retain(|_, open| open.end > now);
        let open = self.open.entry(write).or_default();
        *open =
            Open { end: open.end.max(now + remaining), uncertain: open.uncertain.max(uncertain) };
    }
}

struct Asked {
    key: usize,
    generation: KeyGeneration,
    /// The number of the event at which the UFS was asked.
    at: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    /// Whatever the order of announcements, reports, expiries, checks and their late answers: what
    /// may be answered from the cache was asked after the last news of its key, and never while a
    /// write is open. One slot for all keys is the hardest case for everything else: keys then
    /// disturb each other, and only cost checks.
    #[test]
    fn nothing_older_than_the_last_news_is_answered(events in events(), slots in prop_oneof![Just(1usize), Just(64)]) {
        let coherence = coherence(slots, 1000);
        let mut truth = vec![Truth::default(); KEYS];
        let mut cache: HashMap<usize, Asked> = HashMap::new();
        let mut asked: Vec<Asked> = Vec::new();
        let mut ms = 0u64;
        for (number, event) in events.into_iter().enumerate() {
            let (at, now) = (number as u64 + 1, WorkerInstant::default().saturating_add(Duration::from_millis(ms)));
            match event {
                Event::Announce { key, write: id, ms: uncertain } => {
                    coherence.announce_write(of(&[hash(key)]), write(id), Duration::from_millis(uncertain), now).unwrap();
                    truth[key].opens(id, ms, uncertain, uncertain);
                    truth[key].news = at;
                }
                Event::Inherit { key, write: id, ms: remaining } => {
                    let remains = Duration::from_millis(remaining);
                    coherence.inherit_write(handed(key, id, remains), UNCERTAIN_MAX, now).unwrap();
                    truth[key].opens(id, ms, remaining.min(50), 50);
                    truth[key].news = at;
                }
                Event::Report { key, write: id, outcome } => {
                    coherence.report_write(of(&[hash(key)]), write(id), outcome, UNCERTAIN_MAX, now).unwrap();
                    truth[key].open.retain(|_, open| open.end > ms);
                    match outcome {
                        WriteOutcome::Done | WriteOutcome::Refused => drop(truth[key].open.remove(&id)),
                        WriteOutcome::Unknown => {
                            let uncertain = truth[key].open.get(&id).map_or(50, |open| open.uncertain);
                            truth[key].opens(id, ms, uncertain, uncertain);
                        }
                    }
                    truth[key].news = at;
                }
                Event::Forget { key } => {
                    coherence.raise_generations(&[hash(key)], now);
                    truth[key].news = at;
                }
                Event::Pass { ms: passed } => ms += passed,
                Event::Sweep => coherence.sweep_expired(now),
                Event::Check { key } => {
                    if let Ok(generation) = coherence.admit_key(hash(key), now) {
                        asked.push(Asked { key, generation, at });
                    }
                }
                Event::Answer { nth } => {
                    if nth < asked.len() {
                        let answer = asked.swap_remove(nth);
                        if coherence.is_generation_valid(hash(answer.key), answer.generation, now) {
                            prop_assert!(answer.at > truth[answer.key].news,
                                "an old answer was kept");
                            cache.insert(answer.key, answer);
                        }
                    }
                }
                Event::Read { key } => {
                    let open = truth[key].open.values().any(|open| open.end > ms);
                    match coherence.admit_key(hash(key), now) {
                        Err(UncertainKeyError) => prop_assert!(open, "uncertain without an open write"),
                        Ok(generation) => {
                            prop_assert!(!open, "admitted while a write is open");
                            if let Some(known) = cache.get(&key).filter(|known| known.generation == generation) {
                                prop_assert!(known.at > truth[key].news, "an old answer was given");
                            }
                        }
                    }
                }
            }
            let (now, places) = (WorkerInstant::default().saturating_add(Duration::from_millis(ms)), coherence.open_writes());
            coherence.sweep_expired(now);
            prop_assert!(coherence.open_writes() <= places);
            let open: usize = truth.iter().map(|t| t.open.values().filter(|open| open.end > ms).count()).sum();
            prop_assert_eq!(coherence.open_writes(), open, "places are counted exactly");
        }
    }
}

#[test]
fn an_announcement_that_does_not_fit_opens_none_of_its_keys() {
    let (coherence, now) = (coherence(16, 2), WorkerInstant::default());
    let hashes = [hash(0), hash(1), hash(2)];
    assert_eq!(
        coherence.announce_write(of(&hashes), write(1), UNCERTAIN_MAX, now),
        Err(TooManyWrites)
    );
    assert_eq!(coherence.open_writes(), 0);
    assert!(hashes.iter().all(|&hash| coherence.admit_key(hash, now).is_ok()));
}

#[test]
fn a_report_without_a_place_still_invalidates_what_is_known() {
    let (coherence, now) = (coherence(16, 1), WorkerInstant::default());
    coherence.announce_write(of(&[hash(0)]), write(1), UNCERTAIN_MAX, now).unwrap();
    let known = coherence.admit_key(hash(1), now).unwrap();
    let report =
        coherence.report_write(of(&[hash(1)]), write(2), WriteOutcome::Unknown, UNCERTAIN_MAX, now);
    assert_eq!(report, Err(TooManyWrites));
    assert!(!coherence.is_generation_valid(hash(1), known, now));
}

/// What each refusal costs must not depend on what is open: a refused tenant tries again.
#[test]
fn refusals_look_for_expired_writes_once_in_a_while() {
    let coherence = coherence(16, 2);
    let at = |ms| WorkerInstant::default().saturating_add(Duration::from_millis(ms));
    let open = |key, ms, now| {
        let length = Duration::from_millis(ms);
        coherence.announce_write(of(&[hash(key)]), write(key as u64), length, at(now)).is_ok()
    };
    assert!(open(0, 10, 0) && open(1, 1000, 0));
    assert!(open(2, 1000, 20), "the place of an expired write is free");
    coherence
        .report_write(of(&[hash(2)]), write(2), WriteOutcome::Done, UNCERTAIN_MAX, at(21))
        .unwrap();
    assert!(open(3, 10, 22));
    assert_eq!([33, 60, 119].map(|now| open(4, 1000, now)), [false; 3], "nobody looks again yet");
    assert_eq!((coherence.open_writes(), coherence.take_expired()), (2, 1));
    assert!(open(4, 1000, 120));
    assert_eq!((coherence.open_writes(), coherence.take_expired()), (2, 1));
    // The worker's own sweep does not wait.
    coherence.sweep_expired(at(1200));
    assert_eq!(coherence.open_writes(), 0);
}

#[test]
fn a_key_named_twice_takes_one_place() {
    let (coherence, now) = (coherence(16, 10), WorkerInstant::default());
    coherence.announce_write(of(&[hash(0), hash(0)]), write(1), UNCERTAIN_MAX, now).unwrap();
    assert_eq!(coherence.open_writes(), 1);
    coherence
        .report_write(of(&[hash(0)]), write(1), WriteOutcome::Done, UNCERTAIN_MAX, now)
        .unwrap();
    assert_eq!(coherence.open_writes(), 0);
}

#[test]
fn a_write_of_unknown_outcome_stays_open_for_its_whole_time() {
    let (coherence, at) =
        (coherence(16, 2), |ms| WorkerInstant::default().saturating_add(Duration::from_millis(ms)));
    // No renewal came through, and the table is full.
    coherence.announce_write(of(&[hash(0)]), write(1), Duration::from_millis(40), at(0)).unwrap();
    coherence.inherit_write(handed(1, 1, Duration::from_millis(40)), UNCERTAIN_MAX, at(0)).unwrap();
    coherence
        .report_write(
            of(&[hash(0), hash(1)]),
            write(1),
            WriteOutcome::Unknown,
            UNCERTAIN_MAX,
            at(39),
        )
        .unwrap();
    let open = |ms| [0, 1].map(|key| coherence.admit_key(hash(key), at(ms)).is_err());
    assert_eq!(
        [open(78), open(79), open(88), open(89)],
        [[true, true], [false, true], [false, true], [false, false]]
    );
}

#[test]
fn a_repeated_report_of_unknown_outcome_finds_a_free_place() {
    let (coherence, now) = (coherence(16, 1), WorkerInstant::default());
    let report = || {
        coherence.report_write(of(&[hash(1)]), write(2), WriteOutcome::Unknown, UNCERTAIN_MAX, now)
    };
    coherence.announce_write(of(&[hash(0)]), write(1), UNCERTAIN_MAX, now).unwrap();
    assert_eq!(report(), Err(TooManyWrites));
    coherence
        .report_write(of(&[hash(0)]), write(1), WriteOutcome::Done, UNCERTAIN_MAX, now)
        .unwrap();
    report().unwrap();
    assert_eq!(coherence.admit_key(hash(1), now), Err(UncertainKeyError));
}

#[test]
fn an_expired_write_leaves_a_doubt_that_invalidates_at_its_end() {
    let table = coherence(8, 100);
    let at = |seconds| WorkerInstant::default().saturating_add(Duration::from_secs(seconds));
    for key in 0..2 {
        table.announce_write(of(&[hash(key)]), write(1), Duration::from_secs(10), at(0)).unwrap();
    }
    table.report_write(of(&[hash(0)]), write(1), WriteOutcome::Done, UNCERTAIN_MAX, at(1)).unwrap();
    assert_eq!(table.admit_key(hash(1), at(9)), Err(UncertainKeyError));
    assert_eq!(table.doubt_count(), 0);
    let learnt = table.admit_key(hash(1), at(10)).unwrap();
    assert_eq!(
        (doubted_age(&table, hash(0)), doubted_age(&table, hash(1))),
        (None, Some(DOUBT_AGE))
    );
    table.sweep_expired(at(69));
    assert!(table.is_generation_valid(hash(1), learnt, at(69)) && table.doubt_count() == 1);
    table.sweep_expired(at(70));
    assert!(
        !table.is_generation_valid(hash(1), learnt, at(70)),
        "it was learnt while the write could still come"
    );
    assert_eq!((doubted_age(&table, hash(1)), table.doubt_count()), (None, 0));
}

#[test]
fn doubts_that_find_no_place_concern_few_other_keys() {
    let table = coherence(1 << 10, 100);
    let at = |seconds| WorkerInstant::default().saturating_add(Duration::from_secs(seconds));
    let lose = |key, seconds| {
        table
            .announce_write(of(&[hash(key)]), write(1), Duration::from_millis(1), at(seconds))
            .unwrap();
        table.sweep_expired(at(seconds + 1));
    };
    (0..3).for_each(|key| lose(key, 0));
    let doubted = |key| doubted_age(&table, hash(key));
    assert_eq!([0, 1, 2].map(doubted), [Some(DOUBT_AGE); 3], "two are remembered by name");
    assert_eq!((3..10).filter_map(doubted).count(), 0);
    let shared = KeyHash(hash(2).0 % (1 << 10));
    assert_eq!(doubted_age(&table, shared), Some(DOUBT_AGE), "it shares what stands for the third");
    // Another one, later, makes the doubt of the third no longer.
    lose(3, 50);
    let learnt = [2, 3, 7].map(|key| table.admit_key(hash(key), at(51)).unwrap());
    table.sweep_expired(at(61));
    assert_eq!([2, 3, 7].map(doubted), [None, Some(DOUBT_AGE), None]);
    let holds = |seconds| {
        [0, 1, 2].map(|n| table.is_generation_valid(hash([2, 3, 7][n]), learnt[n], at(seconds)))
    };
    assert_eq!(holds(61), [false, true, true], "what was learnt of the third in doubt is void");
    table.sweep_expired(at(111));
    assert_eq!((holds(111), table.doubt_count()), ([false, false, true], 0));
}

#[test]
fn the_end_of_doubts_that_found_no_place_recalls_leases() {
    let metrics = crate::metrics::WorkerMetrics::new(&prometheus::Registry::new()).unwrap();
    let options = crate::attributes::GrantOptions { grants_max: 10, holders_max: 10 };
    let grants = Arc::new(LeaseGrantTable::new(options, metrics));
    let doubts = DoubtOptions { length: DOUBT, age_max: DOUBT_AGE, keys_max: 0 };
    let table = CoherenceTable::new(1 << 10, 10, doubts, grants.clone(), Arc::default());
    let at = |seconds| WorkerInstant::default().saturating_add(Duration::from_secs(seconds));
    table.announce_write(of(&[hash(0)]), write(1), Duration::from_millis(1), at(0)).unwrap();
    table.sweep_expired(at(1));
    for key in 0..2 {
        let holder = verbs3_protocol::HolderId(1);
        let (hash, end) = (hash(key), at(100));
        let lease = crate::attributes::NewLease { hash, holder, end, in_doubt: false };
        grants.grant_lease(lease, at(2), || true).unwrap();
    }
    table.sweep_expired(at(61));
    let is_recalled = |key| {
        let concerned = crate::attributes::RecallScope::Keys(vec![hash(key)]);
        grants.latest_recalled_end(&concerned, at(61)).is_some()
    };
    assert!(is_recalled(0) && !is_recalled(1));
}

fn at_seconds(seconds: u64) -> WorkerInstant {
    WorkerInstant::default().saturating_add(Duration::from_secs(seconds))
}

/// Tenants of weight 1, which share a table with a reserve of a tenth.
fn two_tenants() -> (Arc<TenantAccounts>, [TenantAccount; 2]) {
    let rules =
        TenantRules { share_percent: 0, active_for: Duration::from_secs(600), reserve_percent: 10 };
    let tenants = Arc::new(TenantAccounts::new(rules, TableFamily::default()));
    let accounts =
        ["eve", "bob"].map(|name| tenants.note_request(TenantTag::new(name, 1).as_ref(), 0));
    (tenants, accounts)
}

/// Keys of a tenant, as a message names them.
struct NamedKeys {
    volume: ObjectVolume,
    names: Vec<String>,
    hashes: Vec<KeyHash>,
}

impl NamedKeys {
    fn below(prefix: &str, numbers: std::ops::Range<usize>) -> Self {
        Self::of_volume(ObjectVolume::new("u", "shared"), prefix, numbers)
    }

    fn of_volume(volume: ObjectVolume, prefix: &str, numbers: std::ops::Range<usize>) -> Self {
        let names: Vec<String> = numbers.map(|number| format!("{prefix}{number}")).collect();
        let hash = |key: &String| ObjectKey { volume: volume.clone(), key: key.clone() }.hash();
        let hashes = names.iter().map(hash).collect();
        Self { volume, names, hashes }
    }

    fn of(&self, account: TenantAccount) -> WrittenKeys<'_> {
        let names = Some((&self.volume, self.names.as_slice()));
        WrittenKeys { hashes: &self.hashes, names, account }
    }

    fn doubted(&self, table: &CoherenceTable) -> usize {
        let is_doubted = |key: &String| {
            let object = ObjectKey { volume: self.volume.clone(), key: key.clone() };
            table.doubted_age(&object, object.hash()).is_some()
        };
        self.names.iter().filter(|key| is_doubted(key)).count()
    }
}

/// Announces batches for a tenant until one is refused. Returns how many keys are open.
fn fill_table(table: &CoherenceTable, account: TenantAccount, now: WorkerInstant) -> usize {
    for batch in 0.. {
        let keys = NamedKeys::below("eve/", batch * 10..batch * 10 + 10);
        let minute = Duration::from_secs(60);
        if table.announce_write(keys.of(account), write(batch as u64), minute, now).is_err() {
            return batch * 10;
        }
    }
    unreachable!("the table has a bound")
}

#[test]
fn a_tenant_that_opens_many_writes_leaves_places_to_others() {
    let (tenants, [eve, bob]) = two_tenants();
    let table = coherence_for(1 << 10, 1000, 1000, tenants);
    let (now, minute) = (at_seconds(0), Duration::from_secs(60));
    let open = fill_table(&table, eve, now);
    assert_eq!(open, 990, "nobody else is there: all but a tenth of the reserve");
    let first = NamedKeys::below("bob/", 0..10);
    table.announce_write(first.of(bob), write(5000), minute, now).unwrap();
    assert_eq!(table.open_writes(), 1000);
    let renewed = NamedKeys::below("eve/", 0..10);
    table.announce_write(renewed.of(eve), write(0), minute, now).unwrap();
    // What becomes free is for who holds less than its share.
    for batch in 0..5 {
        let keys = NamedKeys::below("eve/", batch * 10..batch * 10 + 10);
        let (id, done) = (write(batch as u64), WriteOutcome::Done);
        table.report_write(keys.of(eve), id, done, minute, now).unwrap();
    }
    let again = NamedKeys::below("eve/", 0..10);
    assert_eq!(table.announce_write(again.of(eve), write(6000), minute, now), Err(TooManyWrites));
    let more = NamedKeys::below("bob/", 10..60);
    table.announce_write(more.of(bob), write(5001), minute, now).unwrap();
    assert_eq!(table.open_writes(), 1000);
}

/// Wave after wave of lost writes: each is doubted until its time is over, and hardly any key of
/// another tenant is, in the same volume.
#[test]
fn lost_writes_of_one_tenant_put_few_keys_of_others_in_doubt() {
    let (tenants, [eve, bob]) = two_tenants();
    // One bucket for each slot.
    let table = coherence_for(1 << 16, 4000, 100, tenants);
    let second = Duration::from_secs(1);
    let waves: Vec<NamedKeys> =
        (0..4).map(|wave| NamedKeys::below(&format!("eve/{wave}/"), 0..2000)).collect();
    for (wave, keys) in waves.iter().enumerate() {
        let (at, id) = (at_seconds(2 * wave as u64), write(wave as u64));
        table.announce_write(keys.of(eve), id, second, at).unwrap();
        table.sweep_expired(at_seconds(2 * wave as u64 + 1));
        let doubted: usize = waves[..=wave].iter().map(|keys| keys.doubted(&table)).sum();
        assert_eq!(doubted, 2000 * (wave + 1), "no doubt is lost");
    }
    let others = NamedKeys::below("bob/", 0..2000);
    let doubted = others.doubted(&table);
    assert!(doubted < 100, "{doubted} of 2000 share a bucket with a lost write");
    // Another tenant's own lost write is known by name.
    let own = NamedKeys::below("bob/own/", 0..1);
    table.announce_write(own.of(bob), write(9), second, at_seconds(8)).unwrap();
    table.sweep_expired(at_seconds(9));
    assert_eq!((own.doubted(&table), others.doubted(&table)), (1, doubted));
    // The last doubt of the prefix began at 7 s.
    let is_ended = |seconds| {
        table.sweep_expired(at_seconds(seconds));
        let ended = table.expired_prefixes(at_seconds(seconds));
        table.end_prefix_doubts(&ended, at_seconds(seconds));
        ended.iter().map(|ended| ended.prefix.clone()).collect::<Vec<_>>()
    };
    assert_eq!(is_ended(66), [""; 0]);
    assert_eq!(waves[3].doubted(&table), 2000);
    assert_eq!(is_ended(67), ["eve/"]);
    assert_eq!((waves[3].doubted(&table), own.doubted(&table)), (0, 1));
    assert_eq!(is_ended(69), [""; 0]);
    assert_eq!((table.doubt_count(), table.open_writes()), (0, 0));
}

/// One tenant writes to more volumes than there are scopes, and loses all of it.
#[test]
fn lost_writes_beyond_all_scopes_are_doubted_all_the_same() {
    let (tenants, [eve, bob]) = two_tenants();
    // No key is remembered by name, and one bucket stands for each slot.
    let table = coherence_for(1 << 16, 10_000, 0, tenants);
    let second = Duration::from_secs(1);
    let lost: Vec<NamedKeys> = (0..400)
        .map(|number| {
            let volume = ObjectVolume::new("u", &format!("volume-{number}"));
            NamedKeys::of_volume(volume, "eve/", 0..10)
        })
        .collect();
    for (number, keys) in lost.iter().enumerate() {
        table.announce_write(keys.of(eve), write(number as u64), second, at_seconds(0)).unwrap();
    }
    // More than the buckets that it may doubt beside its scopes.
    table.sweep_expired(at_seconds(1));
    let doubted: usize = lost.iter().map(|keys| keys.doubted(&table)).sum();
    assert_eq!(doubted, 4000, "no doubt is lost");
    // Another tenant finds a scope, and its own doubts put nothing else in doubt.
    let own = NamedKeys::below("bob/own/", 0..2000);
    table.announce_write(own.of(bob), write(1000), second, at_seconds(2)).unwrap();
    table.sweep_expired(at_seconds(3));
    assert_eq!(own.doubted(&table), 2000);
    let others = NamedKeys::below("carol/", 0..2000);
    let beside = others.doubted(&table);
    assert!(beside < 300, "{beside} of 2000 share a bucket with a lost write");
}
