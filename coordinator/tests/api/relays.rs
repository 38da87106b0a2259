//! Tests write notices that are relayed to workers which their writers can't reach.

use verbs3_coordinator_client::api::{
    CoordinatorRefusalKind, HeardWord, RelayRequest, RelayedWord,
};
use verbs3_protocol::{
    NoticeAnswer, NoticeRelayOutcome, ObjectVolume, ReportMessage, TenantNotice, TenantTag,
    WriteId, WriteNotice, WriteOutcome,
};

use super::*;

fn word(epoch: Epoch, sequence: u64) -> WriteNotice {
    let (volume, keys) = (ObjectVolume("store/data".into()), vec!["k \u{1}\"".to_owned()]);
    let write = WriteId { gateway: u64::MAX, sequence };
    WriteNotice::Report(ReportMessage { volume, keys, write, epoch, outcome: WriteOutcome::Done })
}

/// The write is one of a tenant.
fn of_tenant(word: WriteNotice) -> TenantNotice {
    TenantNotice { word, tenant: TenantTag::new("vision-\u{e9}", 3) }
}

/// Asks the coordinators, like a gateway, to relay a notice to worker `id`.
async fn relay(
    client: &CoordinatorClient,
    id: &str,
    word: WriteNotice,
    wait: Duration,
) -> Result<NoticeRelayOutcome, AskError> {
    let relay = RelayRequest { notice: of_tenant(word), wait_ms: wait.as_millis() as u64 };
    Ok(client.post_json(&format!("/v1/workers/{id}/relay"), &relay, wait).await?.unwrap())
}

async fn renew_heard(
    client: &CoordinatorClient,
    active: Epoch,
    heard: Vec<HeardWord>,
    wait: Duration,
) -> WorkerLeaseGrant {
    let incarnation = registration("a").incarnation;
    let (prepared, open_writes, knows, handing_over) = (Epoch(0), None, active, None);
    let wait_ms = wait.as_millis() as u64;
    let given_up = RelinquishedEpoch::default();
    let renewal = WorkerLeaseRenewal {
        incarnation,
        active,
        prepared,
        open_writes,
        wait_ms,
        knows,
        handing_over,
        heard,
        hot: None,
        given_up,
        rails: None,
    };
    send_renewal(client, "a", &renewal).await.unwrap()
}

fn report_of(word: WriteNotice) -> ReportMessage {
    match word {
        WriteNotice::Report(report) => report,
        WriteNotice::Announce(_) => panic!("no report"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writers_word_reaches_a_worker_by_its_renewals() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_with_long_leases(file_store(&folder)).await;
    let (gateway, worker) = (client(&[&running.url], secret()), client(&[&running.url], secret()));
    register(&worker, "a").await;
    let Some(MapAnswer::Membership(in_force)) = map(&worker, 0, SOON_MS).await else {
        panic!("no map")
    };
    let epoch = in_force.epoch;

    // The worker waits for news and gets it at once; the answer goes with its next renewal.
    let relayed = tokio::spawn({
        let gateway = gateway.clone();
        async move { relay(&gateway, "a", word(epoch, 1), SOON).await }
    });
    let began = Instant::now();
    let granted = renew_heard(&worker, epoch, Vec::new(), SOON).await;
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    let [RelayedWord { id, notice: said }] = &granted.words[..] else { panic!("{granted:?}") };
    assert_eq!(*said, of_tenant(word(epoch, 1)));
    // That answer was lost: the notice comes again.
    let granted = renew_heard(&worker, epoch, Vec::new(), SOON).await;
    assert_eq!(granted.words.iter().map(|word| word.id).collect::<Vec<_>>(), [*id]);
    assert!(!relayed.is_finished(), "nobody has heard it");
    let heard = vec![HeardWord { id: *id, heard: NoticeAnswer::Done }];
    let granted = renew_heard(&worker, epoch, heard.clone(), Duration::ZERO).await;
    assert_eq!(granted.words, []);
    assert_eq!(relayed.await.unwrap().unwrap(), NoticeRelayOutcome::Heard(NoticeAnswer::Done));

    // An unreachable worker and one under another map are told apart. A client that asks in vain
    // learns so in time.
    let later = Epoch(epoch.0 + 1);
    assert_eq!(
        relay(&gateway, "a", word(later, 2), SOON).await.unwrap(),
        NoticeRelayOutcome::OtherEpoch(epoch)
    );
    assert_eq!(
        relay(&gateway, "b", word(epoch, 2), SOON).await.unwrap(),
        NoticeRelayOutcome::NoLease
    );
    assert_eq!(
        relay(&gateway, "a", word(epoch, 2), Duration::from_millis(50)).await.unwrap(),
        NoticeRelayOutcome::Silent
    );
    let nothing =
        WriteNotice::Report(ReportMessage { keys: Vec::new(), ..report_of(word(epoch, 2)) });
    assert_eq!(
        relay(&gateway, "a", nothing, SOON).await.unwrap_err().refusal_kind(),
        Some(CoordinatorRefusalKind::Malformed)
    );
    // The longest notice of a batch delete. The sender itself refuses a longer one, because it can
    // say why.
    let keys = |key: String| {
        WriteNotice::Report(ReportMessage { keys: vec![key; 1000], ..report_of(word(later, 2)) })
    };
    assert_eq!(
        relay(&gateway, "a", keys("\"".repeat(1024)), SOON).await.unwrap(),
        NoticeRelayOutcome::OtherEpoch(epoch)
    );
    let too_long = relay(&gateway, "a", keys("\u{1}".repeat(1024)), SOON).await;
    assert!(
        matches!(too_long, Err(AskError::TooLong { bytes }) if bytes > 6_000_000),
        "{too_long:?}"
    );
    let stranger = client(
        &[&running.url],
        ClusterSecret::new("tests", "another secret of sixteen characters"),
    );
    assert!(relay(&stranger, "a", word(epoch, 2), SOON).await.is_err());

    // As many as may wait. Those whose clients hang up make room, and nobody hears them.
    let waiting: Vec<_> = (0..8)
        .map(|n| {
            let gateway = gateway.clone();
            // The question below may hold the place for a moment.
            let until_it_waits = async move {
                while relay(&gateway, "a", word(epoch, 10 + n), SOON).await.unwrap()
                    == NoticeRelayOutcome::Full
                {}
            };
            tokio::spawn(until_it_waits)
        })
        .collect();
    let began = Instant::now();
    while relay(&gateway, "a", word(epoch, 3), Duration::from_millis(1)).await.unwrap()
        != NoticeRelayOutcome::Full
    {
        // Keeps the lease.
        renew_heard(&worker, epoch, Vec::new(), Duration::ZERO).await;
        assert!(began.elapsed() < SOON);
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    while relay(&gateway, "a", word(epoch, 4), Duration::from_millis(1)).await.unwrap()
        == NoticeRelayOutcome::Full
    {
        renew_heard(&worker, epoch, Vec::new(), Duration::ZERO).await;
        assert!(began.elapsed() < SOON);
    }
    while !renew_heard(&worker, epoch, heard.clone(), Duration::ZERO).await.words.is_empty() {
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_worker_when_the_leader_ends_asks_the_next() {
    let process = etcd::start("relays");
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(start(etcd::store(&process.endpoint, "relays").await).await);
    }
    let urls: Vec<String> = running.iter().map(|running| running.url.clone()).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let (gateway, worker) = (client(&urls, secret()), client(&urls, secret()));
    register(&worker, "a").await;
    let Some(MapAnswer::Membership(in_force)) = map(&worker, 0, SOON_MS).await else {
        panic!("no map")
    };
    let epoch = in_force.epoch;
    let view: ClusterView = gateway.get("/v1/cluster", Duration::ZERO).await.unwrap().unwrap();
    let leads =
        running.iter().position(|running| Some(&running.url) == view.leader.as_ref()).unwrap();
    let relayed = tokio::spawn(async move {
        let began = Instant::now();
        loop {
            match relay(&gateway, "a", word(epoch, 1), Duration::from_secs(1)).await {
                Ok(heard @ NoticeRelayOutcome::Heard(_)) => return heard,
                other => assert!(began.elapsed() < SOON, "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    // The leader that handed out the notice ends. The worker's answer reaches the next leader,
    // which knows nothing of it.
    let granted = renew_heard(&worker, epoch, Vec::new(), SOON).await;
    let lost: Vec<HeardWord> = granted
        .words
        .iter()
        .map(|word| HeardWord { id: word.id, heard: NoticeAnswer::Unleased })
        .collect();
    assert_eq!(lost.len(), 1);
    running.remove(leads).coordinator.shutdown().await;
    register(&worker, "a").await;
    assert_eq!(renew_heard(&worker, epoch, lost, Duration::ZERO).await.active, epoch);
    let mut heard = Vec::new();
    while !relayed.is_finished() {
        let granted = renew_heard(&worker, epoch, heard, Duration::from_millis(100)).await;
        heard = granted
            .words
            .iter()
            .map(|word| HeardWord { id: word.id, heard: NoticeAnswer::Done })
            .collect();
    }
    assert_eq!(relayed.await.unwrap(), NoticeRelayOutcome::Heard(NoticeAnswer::Done));
    for running in running {
        running.coordinator.shutdown().await;
    }
}
