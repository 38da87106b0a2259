//! Tests how a peer chooses among its ways, over transports that fail on demand and a clock that
//! stands still.
#![allow(clippy::unwrap_used)]

mod failing;
mod peer_fixture;
mod threads;

use super::*;
use crate::metrics::PeerTrouble;
use crate::transport::LandingUse;
use crate::transport::TransportKind::{Shm, Tcp, Verbs};
use peer_fixture::{PeerFixture, SECOND, settle};

#[tokio::test(start_paused = true)]
async fn shared_memory_is_better_than_verbs_and_verbs_than_tcp() {
    let mut fixture = PeerFixture::new(2, true, PeerOptions::default());
    assert_eq!(fixture.ask().await.unwrap(), Shm);
    assert_eq!(
        fixture.connects(),
        (1, 1, vec![0, 0]),
        "rails are left alone while shared memory works"
    );
    fixture = PeerFixture::new(2, false, PeerOptions::default());
    assert_eq!(fixture.ask().await.unwrap(), Verbs);
    assert_eq!(fixture.connects(), (1, 0, vec![1, 1]));
    fixture = PeerFixture::new(0, false, PeerOptions::default());
    assert_eq!(fixture.ask().await.unwrap(), Tcp);
    assert_eq!(fixture.peer.transport_kind(), Some(Tcp));
}

#[tokio::test(start_paused = true)]
async fn the_first_calls_share_one_upgrade() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    fixture.rails[0].slow(SECOND / 10);
    let kinds = futures::future::try_join_all((0..20).map(|_| fixture.ask())).await.unwrap();
    assert!(kinds.iter().all(|kind| *kind == Verbs), "{kinds:?}");
    assert_eq!(fixture.connects(), (1, 0, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn each_rail_connects_to_its_peer_rail_or_else_to_the_first() {
    let fixture = PeerFixture::with_peer_rails(3, 2, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    settle().await;
    let asked: Vec<_> = fixture.rails.iter().map(|rail| rail.asked()).collect();
    let wanted =
        |n: usize| vec![TransportWays::over_rails(vec![Some(PeerFixture::rail_address(n))])];
    assert_eq!(asked, [wanted(0), wanted(1), wanted(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_this_process_does_not_see_is_not_tried() {
    let fixture = PeerFixture::new(1, true, PeerOptions::default());
    fixture.remove_socket();
    assert_eq!(fixture.ask().await.unwrap(), Verbs);
    assert_eq!(fixture.connects().1, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_upgrade_holds_no_call_and_serves_once_it_is_there() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    fixture.rails[0].slow(10 * SECOND);
    let (start, counted) = (Instant::now(), peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::Slow));
    assert_eq!(fixture.ask().await.unwrap(), Tcp);
    assert_eq!(start.elapsed(), PeerOptions::default().settings.upgrade_wait.0);
    for _ in 0..10 {
        assert_eq!(fixture.ask().await.unwrap(), Tcp);
    }
    assert_eq!(
        peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::Slow),
        counted + 1,
        "a change is counted, not each call"
    );
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(fixture.ask().await.unwrap(), Verbs);
    assert_eq!(fixture.connects(), (1, 0, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn calls_are_spread_over_the_rails() {
    let fixture = PeerFixture::new(2, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    settle().await;
    for rail in &fixture.rails {
        rail.faults.hold_deliveries();
    }
    let calls: Vec<_> = (0..20).map(|_| fixture.peer.start_call("hello".into(), None)).collect();
    settle().await;
    let held: Vec<_> = fixture.rails.iter().map(|rail| rail.faults.held_count()).collect();
    assert_eq!(held, [10, 10]);
    drop(calls);
    for rail in &fixture.rails {
        rail.faults.release_all();
    }
    // One after the other, too: the second rail is not there for crowds only.
    let before: Vec<_> = fixture.rails.iter().map(|rail| rail.served()).collect();
    for _ in 0..10 {
        fixture.ask().await.unwrap();
    }
    let served: Vec<_> =
        fixture.rails.iter().zip(before).map(|(rail, before)| rail.served() - before).collect();
    assert_eq!(served, [5, 5]);
}

#[tokio::test(start_paused = true)]
async fn near_rails_go_before_far_ones_of_the_same_load() {
    let fixture = PeerFixture::new(4, false, PeerOptions::default());
    fixture.rails[1].far();
    fixture.rails[3].far();
    fixture.ask().await.unwrap();
    settle().await;
    let before: Vec<_> = fixture.rails.iter().map(|rail| rail.served()).collect();
    for _ in 0..10 {
        fixture.ask().await.unwrap();
    }
    let served: Vec<_> =
        fixture.rails.iter().zip(before).map(|(rail, before)| rail.served() - before).collect();
    assert_eq!(served, [5, 0, 5, 0], "one by one");
    for rail in &fixture.rails {
        rail.faults.hold_deliveries();
    }
    let calls: Vec<_> = (0..20).map(|_| fixture.peer.start_call("hello".into(), None)).collect();
    settle().await;
    let held: Vec<_> = fixture.rails.iter().map(|rail| rail.faults.held_count()).collect();
    assert_eq!(held, [5; 4], "a crowd takes all");
    drop(calls);
}

#[tokio::test(start_paused = true)]
async fn crowded_rails_get_company_up_to_the_bound() {
    let settings =
        PeerSettings { connections_max: 5, calls_per_connection: 2, ..PeerSettings::default() };
    let options = PeerOptions { settings, ..PeerOptions::default() };
    let fixture = PeerFixture::new(2, false, options);
    fixture.ask().await.unwrap();
    for rail in &fixture.rails {
        rail.faults.hold_deliveries();
    }
    let mut calls = Vec::new();
    for _ in 0..40 {
        calls.push(fixture.peer.start_call("hello".into(), None));
        settle().await;
    }
    let (tcp, _, rails) = fixture.connects();
    assert_eq!((tcp, rails.iter().sum::<usize>()), (1, 5));
    drop(calls);
}

#[tokio::test(start_paused = true)]
async fn over_the_cap_calls_use_tcp_and_later_take_a_free_place() {
    let cap = QueuePairs::new(1);
    let options = || PeerOptions { queue_pairs: cap.clone(), ..PeerOptions::default() };
    let (first, second) =
        (PeerFixture::new(2, false, options()), PeerFixture::new(1, false, options()));
    assert_eq!(first.ask().await.unwrap(), Verbs);
    assert_eq!(first.connects().2.iter().sum::<usize>(), 1);
    let counted = peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::Cap);
    assert_eq!(second.ask().await.unwrap(), Tcp);
    assert_eq!(second.ask().await.unwrap(), Tcp);
    assert_eq!(
        (second.connects().2, peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::Cap)),
        (vec![0], counted + 1)
    );
    first.peer.shutdown().await;
    assert_eq!(second.ask().await.unwrap(), Tcp);
    settle().await;
    assert_eq!(second.ask().await.unwrap(), Verbs);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_of_every_way_close_and_free_their_places() {
    let cap = QueuePairs::new(1);
    let fixture = PeerFixture::new(
        1,
        false,
        PeerOptions { queue_pairs: cap.clone(), ..PeerOptions::default() },
    );
    fixture.ask().await.unwrap();
    assert_eq!(fixture.peer.connection_count(), 2);
    assert!(cap.take_place().is_none());
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!((fixture.peer.connection_count(), fixture.peer.transport_kind()), (0, None));
    assert!(cap.take_place().is_some());
    assert_eq!(fixture.ask().await.unwrap(), Verbs);
}

#[tokio::test(start_paused = true)]
async fn who_lends_memory_is_told_what_the_chosen_connection_needs() {
    let fixture = PeerFixture::new(0, true, PeerOptions::default());
    let wants = || fixture.peer.call_with(Err::<_, LandingUse>).err();
    assert_eq!(wants(), Some(LandingUse::Partly), "nothing is chosen yet");
    fixture.ask().await.unwrap();
    assert_eq!((fixture.peer.transport_kind(), wants()), (Some(Shm), Some(LandingUse::Unused)));
}
