//! Writes whose home can't be reached from here, and is told by way of the coordinators.

use std::collections::VecDeque;

use super::following::{adopt, following_with, standing_under, worker};
use super::writing::{keys, reports, volume};
use super::*;
use crate::{CoherenceError, NoticeRelay, RelayError};
use verbs3_protocol::{
    NoticeAnswer, NoticeRelayOutcome, TenantNotice, TenantTag, WriteId, WriteNotice, WriteOutcome,
};

const AFTER: Duration = Duration::from_millis(500);

/// Says what it is told to, then that the word was heard.
#[derive(Default)]
struct Coordinators {
    say: Mutex<VecDeque<Result<NoticeRelayOutcome, RelayError>>>,
    never: bool,
    /// They wait for it, and it does not answer.
    silent: Option<&'static str>,
    asked: Mutex<Vec<(WorkerId, TenantNotice)>>,
}

#[async_trait]
impl NoticeRelay for Coordinators {
    async fn relay_notice(
        &self,
        worker: &WorkerId,
        notice: &TenantNotice,
        wait: Duration,
    ) -> Result<NoticeRelayOutcome, RelayError> {
        self.asked.lock().push((worker.clone(), notice.clone()));
        if self.never {
            std::future::pending::<()>().await;
        }
        if self.silent == Some(&worker.0) {
            tokio::time::sleep(wait).await;
            return Ok(NoticeRelayOutcome::Silent);
        }
        let said = self.say.lock().pop_front();
        said.unwrap_or(Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Done)))
    }
}

impl Coordinators {
    fn saying(say: impl IntoIterator<Item = Result<NoticeRelayOutcome, RelayError>>) -> Arc<Self> {
        Arc::new(Self { say: Mutex::new(say.into_iter().collect()), ..Self::default() })
    }

    /// What was carried: the kind, and the epoch.
    fn carried(&self) -> Vec<(&'static str, u64)> {
        let kind = |word: &WriteNotice| {
            if let WriteNotice::Announce(_) = word { "announce" } else { "report" }
        };
        let kind = |notice: &TenantNotice| (kind(&notice.word), notice.word.map_epoch().0);
        self.asked.lock().iter().map(|(_, notice)| kind(notice)).collect()
    }

    fn writes(&self) -> Vec<WriteId> {
        self.asked.lock().iter().map(|(_, notice)| notice.word.write()).collect()
    }
}

fn relaying(coordinators: &Arc<Coordinators>, relays_max: u32) -> Arc<CacheTierClient> {
    let tier = following_with(|settings| {
        (settings.relay_after, settings.relays_max) = (TimePeriod(AFTER), relays_max);
    });
    tier.relay_with(coordinators.clone());
    tier
}

/// Whose writes these are.
fn tenant() -> Option<TenantTag> {
    TenantTag::new("vision", 3)
}

/// A home that nothing connects to.
fn unreachable() -> TestWorker {
    let faults = InProcessFaults::without_faults().refuse_connects(u32::MAX);
    TestWorker::with_faults("a", faults, honest())
}

async fn write(tier: &Arc<CacheTierClient>) -> Result<(), CoherenceError> {
    let announced = tier.announce_write_for(&volume(), &keys(1), tenant()).await?;
    tier.report_write(announced, WriteOutcome::Done).await
}

#[tokio::test(start_paused = true)]
async fn a_home_that_is_silent_is_told_by_way_of_the_coordinators() {
    let coordinators = Coordinators::saying([]);
    let tier = relaying(&coordinators, 8);
    let a = TestWorker::new("a", silent());
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    assert_eq!(coordinators.carried(), [("announce", 7), ("report", 7)]);
    let writes = coordinators.writes();
    assert_eq!(writes[0], writes[1]);
    assert!(coordinators.asked.lock().iter().all(|(worker, notice)| worker.0 == "a"
        && notice.word.notice_keys() == keys(1)
        && notice.tenant == tenant()));
    assert_eq!(
        (tier.asker.metrics.writes_open.get(), tier.asker.metrics.announce_failures.get()),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_home_is_told_through_the_coordinators() {
    let coordinators = Coordinators::saying([]);
    let tier = relaying(&coordinators, 8);
    let a = unreachable();
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    assert_eq!(coordinators.carried(), [("announce", 7), ("report", 7)]);
    assert_eq!(a.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn a_home_that_answers_is_told_directly_alone() {
    let coordinators = Coordinators::saying([]);
    let tier = relaying(&coordinators, 8);
    let a = worker("a", &standing_under(7));
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    assert_eq!((coordinators.carried(), reports(&a)), (vec![], vec![WriteOutcome::Done]));
}

#[tokio::test(start_paused = true)]
async fn a_home_that_rests_is_told_around_at_once() {
    let coordinators = Coordinators::saying([]);
    let tier = relaying(&coordinators, 8);
    let a = TestWorker::new("a", silent());
    adopt(&tier, 7, &[&a]);
    // Each of its two messages waits for the home first, and is a failure of it.
    write(&tier).await.unwrap();
    assert_eq!(tier.workers_up(), (0, 1));
    let began = tokio::time::Instant::now();
    write(&tier).await.unwrap();
    assert!(began.elapsed() < AFTER / 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_home_that_is_reached_again_is_told_directly_again() {
    let coordinators = Coordinators::saying([]);
    let tier = relaying(&coordinators, 8);
    let a = unreachable();
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    let carried = coordinators.carried().len();
    a.faults.refuse_connects(0);
    tokio::time::sleep(100 * SECOND).await;
    write(&tier).await.unwrap();
    assert_eq!((coordinators.carried().len(), reports(&a)), (carried, vec![WriteOutcome::Done]));
    assert_eq!(tier.workers_up(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_coordinators_can_not_do_yet_is_tried_again() {
    let away = || Err(RelayError("no coordinator leads".into()));
    let coordinators = Coordinators::saying([
        away(),
        Ok(NoticeRelayOutcome::Silent),
        Ok(NoticeRelayOutcome::NoLease),
        Ok(NoticeRelayOutcome::Full),
    ]);
    let tier = relaying(&coordinators, 8);
    let a = TestWorker::new("a", silent());
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    assert_eq!(coordinators.carried().len(), 4 + 2);
}

#[tokio::test(start_paused = true)]
async fn a_home_that_nobody_reaches_stops_the_write_with_both_reasons() {
    let coordinators = Coordinators::saying((0..1000).map(|_| Ok(NoticeRelayOutcome::Silent)));
    let tier = relaying(&coordinators, 8);
    let a = TestWorker::new("a", silent());
    adopt(&tier, 7, &[&a]);
    let began = tokio::time::Instant::now();
    let error = write(&tier).await.unwrap_err();
    assert!(matches!(error, CoherenceError::HomeUnreachable { .. }), "{error}");
    let told = error.to_string();
    assert!(
        told.contains("it was silent; by way of the coordinators: the worker did not answer"),
        "{told}"
    );
    assert!(
        began.elapsed() <= tier.asker.options.settings.announce_deadline.0 + SECOND,
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_meets_a_newer_map_is_sent_again_under_it() {
    let wrong = WorkerRefusal { kind: RefusalKind::WrongEpoch(Epoch(0)), reason: "test".into() };
    for moved in [
        NoticeRelayOutcome::Heard(NoticeAnswer::Refused(wrong)),
        NoticeRelayOutcome::OtherEpoch(Epoch(8)),
    ] {
        let coordinators = Coordinators::saying([Ok(moved.clone()), Ok(moved)]);
        let tier = relaying(&coordinators, 8);
        let (a, b) = (TestWorker::new("a", silent()), worker("b", &standing_under(8)));
        adopt(&tier, 7, &[&a]);
        let writing = tokio::spawn({
            let tier = tier.clone();
            async move { write(&tier).await }
        });
        tokio::time::sleep(AFTER + SECOND / 4).await;
        assert!(!writing.is_finished(), "acknowledged under a map that is over");
        adopt(&tier, 8, &[&b]);
        writing.await.unwrap().unwrap();
        assert_eq!(reports(&b), [WriteOutcome::Done]);
        assert!(
            coordinators.carried().iter().all(|(kind, epoch)| (*kind, *epoch) == ("announce", 7))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_is_under_way_ends_with_the_map() {
    let coordinators = Arc::new(Coordinators { never: true, ..Coordinators::default() });
    let tier = relaying(&coordinators, 8);
    let (a, b) = (TestWorker::new("a", silent()), worker("b", &standing_under(8)));
    adopt(&tier, 7, &[&a]);
    let writing = tokio::spawn({
        let tier = tier.clone();
        async move { write(&tier).await }
    });
    tokio::time::sleep(AFTER + SECOND / 4).await;
    assert_eq!(coordinators.carried(), [("announce", 7)]);
    adopt(&tier, 8, &[&b]);
    writing.await.unwrap().unwrap();
    assert_eq!(tier.asker.metrics.relaying.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_relayed_notice_to_an_unleased_home_is_not_enough() {
    let coordinators = Coordinators::saying(
        (0..1000).map(|_| Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Unleased))),
    );
    let tier = relaying(&coordinators, 8);
    let (a, b) = (TestWorker::new("a", silent()), worker("b", &standing_under(7)));
    adopt(&tier, 7, &[&a, &b]);
    let key = key_of(&tier, "a");
    let error = tier.announce_write(&volume(), &[key]).await.err().unwrap();
    assert!(matches!(&error, CoherenceError::Alone { other, .. } if other.0 == "a"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_home_that_refuses_stops_the_write_by_whichever_way() {
    let busy = WorkerRefusal { kind: RefusalKind::Busy, reason: "test".into() };
    let coordinators =
        Coordinators::saying([Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(busy)))]);
    let tier = relaying(&coordinators, 8);
    let a = TestWorker::new("a", silent());
    adopt(&tier, 7, &[&a]);
    let error = write(&tier).await.unwrap_err();
    assert!(matches!(error, CoherenceError::HomeRefused { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_report_without_a_place_at_its_home_is_relayed_again() {
    let busy = || {
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(WorkerRefusal {
            kind: RefusalKind::Busy,
            reason: "test".into(),
        })))
    };
    let coordinators =
        Coordinators::saying([Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Done)), busy(), busy()]);
    let tier = relaying(&coordinators, 8);
    let a = TestWorker::new("a", silent());
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    assert_eq!(
        coordinators.carried(),
        [("announce", 7), ("report", 7), ("report", 7), ("report", 7)]
    );
    // Not for ever.
    coordinators.say.lock().extend(
        std::iter::once(Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Done)))
            .chain((0..1000).map(|_| busy())),
    );
    let error = write(&tier).await.unwrap_err();
    assert!(matches!(error, CoherenceError::HomeUnreachable { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_relayed_at_once_are_bounded() {
    for (relays_max, at_once) in [(0, 0), (1, 1), (3, 3)] {
        let coordinators = Arc::new(Coordinators { never: true, ..Coordinators::default() });
        let tier = relaying(&coordinators, relays_max);
        let a = TestWorker::new("a", silent());
        adopt(&tier, 7, &[&a]);
        let writing: Vec<_> = (0..5).map(|_| tokio::spawn(write_of(tier.clone()))).collect();
        tokio::time::sleep(AFTER + SECOND / 4).await;
        settle().await;
        assert_eq!(
            (coordinators.carried().len() as i64, tier.asker.metrics.relaying.get()),
            (at_once, at_once)
        );
        for writing in writing {
            assert!(writing.await.unwrap().is_err());
        }
        tier.shutdown().await;
        assert_eq!(tier.asker.metrics.relaying.get(), 0);
    }
}

async fn write_of(tier: Arc<CacheTierClient>) -> Result<(), CoherenceError> {
    write(&tier).await
}

/// A key whose home is this worker.
fn key_of(tier: &CacheTierClient, id: &str) -> String {
    let is_home = |key: &String| {
        let object = ObjectKey { volume: volume(), key: key.clone() };
        tier.asker.placement.load_map().home_worker(&object).unwrap().id.0 == id
    };
    keys(50).into_iter().find(is_home).unwrap()
}

/// A place was once held until the home answered, if it ever did.
#[tokio::test(start_paused = true)]
async fn writes_to_a_home_that_is_gone_leave_the_way_around_to_others() {
    let coordinators = Arc::new(Coordinators { silent: Some("a"), ..Coordinators::default() });
    let tier = relaying(&coordinators, 2);
    let (a, b) = (TestWorker::new("a", silent()), TestWorker::new("b", silent()));
    adopt(&tier, 7, &[&a, &b]);
    let (gone, reached) = (key_of(&tier, "a"), key_of(&tier, "b"));
    let writing: Vec<_> = (0..4)
        .map(|_| {
            let (tier, gone) = (tier.clone(), gone.clone());
            tokio::spawn(async move { tier.announce_write(&volume(), &[gone]).await.is_ok() })
        })
        .collect();
    tokio::time::sleep(AFTER / 2).await;
    let began = tokio::time::Instant::now();
    let announced = tier.announce_write(&volume(), &[reached]).await.unwrap();
    // Two turns of a second each are before it. The others go on trying for as long as they may.
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    tier.report_write(announced, WriteOutcome::Done).await.unwrap();
    for writing in writing {
        assert!(!writing.await.unwrap(), "nobody has told the home");
    }
}

/// Gateways hold leases on its keys, for a moment yet.
#[tokio::test(start_paused = true)]
async fn a_report_that_waits_for_leases_is_relayed_again() {
    let busy = WorkerRefusal { kind: RefusalKind::Busy, reason: "leases".into() };
    let coordinators = Coordinators::saying([
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Done)),
        Ok(NoticeRelayOutcome::Heard(NoticeAnswer::Refused(busy.clone()))),
    ]);
    let tier = relaying(&coordinators, 8);
    let a = TestWorker::new("a", silent());
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    assert_eq!(coordinators.carried(), [("announce", 7), ("report", 7), ("report", 7)]);
}

/// It waits for gateways to drop their leases.
#[tokio::test(start_paused = true)]
async fn a_home_that_shows_that_it_is_at_work_is_not_gone_around() {
    let coordinators = Coordinators::saying([]);
    let tier = relaying(&coordinators, 8);
    let slow: Script = Box::new(|request, mut reply| {
        Box::pin(async move {
            for _ in 0..6 {
                let (sign, _) = piece(0, 0);
                reply.send_part(WorkerReply::Data(sign).encode(), 0, vec![]).await.unwrap();
                tokio::time::sleep(AFTER).await;
            }
            honest()(request, reply).await;
        })
    });
    let a = TestWorker::new("a", slow);
    adopt(&tier, 7, &[&a]);
    write(&tier).await.unwrap();
    assert_eq!((coordinators.carried(), reports(&a)), (vec![], vec![WriteOutcome::Done]));
}
