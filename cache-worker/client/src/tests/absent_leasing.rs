//! Leases on absences: what is answered with a 404 without asking the home, and when that ends.

use super::following::{adopt, following_with};
use super::leasing::{Home, asking, home, opens_asked, worker};
use super::*;
use crate::metrics::LeasedOpenKind;
use crate::{HeadListRequest, OpenOutcome, OpenRequest};
use verbs3_protocol::ByteRange;

const BODY: &[u8] = b"<Error/>";

/// What a gateway answers to a HEAD, or with `want` to a GET: whether the object is there.
async fn is_found(tier: &Arc<CacheTierClient>, request: &OpenRequest) -> bool {
    match tier.open_object(request).await {
        OpenOutcome::Found(_) => true,
        OpenOutcome::Absent(absent) => {
            assert_eq!((absent.answer.status, absent.cached), (404, true));
            false
        }
        _ => panic!("neither found nor absent"),
    }
}

fn asking_absence(tier: &CacheTierClient, want: Option<ByteRange>) -> OpenRequest {
    OpenRequest { absence_age_ms_max: 1000, ..asking(tier, want) }
}

/// A gateway that holds a lease on an absence of this body.
async fn leased(home: &Arc<Home>, body: &'static [u8]) -> (Arc<CacheTierClient>, TestWorker) {
    *home.absent.lock() = Some(body);
    let (tier, a) = (following_with(|_| ()), worker(home));
    adopt(&tier, 7, &[&a]);
    // The hint, the first answer to the poll that follows from it, and the grant.
    assert!(!is_found(&tier, &asking_absence(&tier, None)).await);
    home.recall(vec![], false).await;
    assert!(!is_found(&tier, &asking_absence(&tier, None)).await);
    assert_eq!(opens_asked(&a), 2);
    (tier, a)
}

#[tokio::test]
async fn a_leased_absence_answers_heads_and_gets_until_its_recall() {
    let home = home();
    let (tier, a) = leased(&home, BODY).await;
    for want in [None, Some(ByteRange::All), None] {
        assert!(!is_found(&tier, &asking_absence(&tier, want)).await);
    }
    let leased = &tier.asker.metrics.leased;
    assert_eq!((opens_asked(&a), leased[LeasedOpenKind::Absence].get()), (2, 3));
    *home.absent.lock() = None;
    home.recall(vec![asking(&tier, None).object.hash()], false).await;
    assert!(is_found(&tier, &asking_absence(&tier, None)).await);
    let answered = |asked: &WorkerRequest| match asked {
        WorkerRequest::Open(open) => open.holder.map(|holder| holder.answered),
        _ => None,
    };
    assert_eq!(a.asked().iter().filter_map(answered).next_back(), Some(3), "they were reads");
    tier.shutdown().await;
}

#[tokio::test]
async fn a_leased_absence_ends_with_its_map() {
    let home = home();
    let (tier, a) = leased(&home, BODY).await;
    adopt(&tier, 8, &[&a]);
    *home.absent.lock() = None;
    assert!(is_found(&tier, &asking_absence(&tier, None)).await);
    tier.shutdown().await;
}

#[tokio::test]
async fn an_own_write_ends_a_leased_absence() {
    let home = home();
    let (tier, a) = leased(&home, BODY).await;
    let key = asking(&tier, None).object.key.clone();
    let announced = tier.announce_write(&super::writing::volume(), &[key]).await.unwrap();
    assert!(!is_found(&tier, &asking_absence(&tier, None)).await);
    assert_eq!(opens_asked(&a), 3);
    let done = verbs3_protocol::WriteOutcome::Done;
    tier.report_write(announced, done).await.unwrap();
    tier.shutdown().await;
}

#[tokio::test]
async fn an_absence_is_leased_for_the_age_that_absences_may_have() {
    let home = home();
    let (tier, a) = leased(&home, BODY).await;
    let plain = asking_absence(&tier, None);
    // As long as absences may be as old, it does not matter how old attributes may be.
    let others = [
        (OpenRequest { attributes_age_ms_max: 0, ..plain.clone() }, 2),
        (OpenRequest { checksums: true, ..plain.clone() }, 2),
        (OpenRequest { absence_age_ms_max: 999, ..plain.clone() }, 3),
        (OpenRequest { version_id: Some("x".into()), ..plain }, 4),
    ];
    for (other, asked) in others {
        assert!(!is_found(&tier, &other).await);
        assert_eq!(opens_asked(&a), asked, "{other:?}");
    }
    tier.shutdown().await;
}

#[tokio::test]
async fn a_get_asks_for_the_body_that_an_absence_lacks() {
    let home = home();
    let (tier, a) = leased(&home, b"").await;
    assert!(!is_found(&tier, &asking_absence(&tier, None)).await);
    assert_eq!(opens_asked(&a), 2);
    assert!(!is_found(&tier, &asking_absence(&tier, Some(ByteRange::All))).await);
    assert_eq!(opens_asked(&a), 3);
    tier.shutdown().await;
}

#[tokio::test]
async fn a_list_of_heads_is_answered_by_leased_absences() {
    let home = home();
    let (tier, a) = leased(&home, BODY).await;
    let object = asking(&tier, None).object;
    let list = HeadListRequest {
        volume: object.volume.clone(),
        keys: vec![object.key.clone()],
        attributes_age_ms_max: 5000,
        absence_age_ms_max: 1000,
        tenant: None,
    };
    let heads = tier.open_heads(&list).await;
    assert!(matches!(&heads[..], [Some(OpenOutcome::Absent(_))]));
    assert_eq!(
        a.asked().iter().filter(|asked| matches!(asked, WorkerRequest::HeadList(_))).count(),
        0
    );
    tier.shutdown().await;
}
