//! Tests failing ways: nothing is lost, attempts are bounded, and traffic comes back.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

use super::*;
use crate::metrics::PeerTrouble;

/// Calls once a second for `seconds`. Returns the transport of the last call.
async fn ask_for(fixture: &PeerFixture, seconds: u32) -> TransportKind {
    let mut last = Tcp;
    for _ in 0..seconds {
        last = fixture.ask_surely().await.unwrap();
        tokio::time::sleep(SECOND).await;
    }
    last
}

#[tokio::test(start_paused = true)]
async fn after_a_break_in_a_call_the_next_way_is_used_at_once() {
    let fixture = PeerFixture::new(2, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    settle().await;
    let start = Instant::now();
    fixture.rails.iter().for_each(peer_fixture::Line::down);
    let counted = peer_fixture::fallbacks(Verbs, Verbs, PeerTrouble::Lost);
    // The first rail, the second, tcp.
    let error = fixture.ask().await.unwrap_err();
    assert!(matches!(error, TransportError::Lost { .. }), "{error}");
    let error = fixture.ask().await.unwrap_err();
    assert!(matches!(error, TransportError::Lost { .. }), "{error}");
    assert!(peer_fixture::fallbacks(Verbs, Verbs, PeerTrouble::Lost) > counted);
    assert_eq!(fixture.ask().await.unwrap(), Tcp);
    assert_eq!((start.elapsed(), fixture.tcp.connects()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn a_failing_rail_rests_is_tried_seldom_and_returns_by_itself() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    fixture.rails[0].down();
    assert_eq!(ask_for(&fixture, 10).await, Tcp);
    // One break, two failed attempts: the third error.
    assert_eq!(fixture.rails[0].connects(), 3);
    assert_eq!(ask_for(&fixture, 80).await, Tcp);
    // The end of the first rest of 30 s (or a tenth more).
    assert_eq!(fixture.rails[0].connects(), 4);
    fixture.rails[0].up();
    assert_eq!(ask_for(&fixture, 30).await, Verbs);
    assert_eq!((fixture.rails[0].connects(), fixture.tcp.connects()), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rail_that_is_full_is_tried_soon_again_and_never_rests() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    let counted = peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::Full);
    fixture.rails[0].full(true);
    assert_eq!(ask_for(&fixture, 8).await, Tcp);
    // Three errors would make it rest for 30 s.
    assert!(fixture.rails[0].connects() > 3, "{} attempts", fixture.rails[0].connects());
    assert!(peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::Full) > counted, "the reason is told");
    assert_eq!(ask_for(&fixture, 120).await, Tcp);
    let attempts = fixture.rails[0].connects();
    assert!(attempts < 30, "{attempts} attempts are a storm");
    fixture.rails[0].full(false);
    assert_eq!(ask_for(&fixture, 17).await, Verbs);
    assert_eq!(fixture.rails[0].connects(), attempts + 1);
}

#[tokio::test(start_paused = true)]
async fn one_failing_rail_leaves_the_traffic_on_the_other() {
    let fixture = PeerFixture::new(2, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    fixture.rails[1].down();
    for _ in 0..100 {
        assert_eq!(fixture.ask_surely().await.unwrap(), Verbs);
        tokio::time::sleep(SECOND).await;
    }
    fixture.rails[1].up();
    let served = fixture.rails[1].served();
    // Its third rest is one of 120 s.
    ask_for(&fixture, 200).await;
    assert!(fixture.rails[1].served() > served + 10, "the rail has its share again");
}

#[tokio::test(start_paused = true)]
async fn an_absent_rail_keeps_its_number_and_is_used_once_present() {
    let fixture = PeerFixture::new(2, false, PeerOptions::default());
    fixture.rails[0].away(true);
    assert_eq!(ask_for(&fixture, 5).await, Verbs);
    // The second rail of this host goes to the second of the peer all the same.
    assert_eq!(
        fixture.rails[1].asked(),
        [TransportWays::over_rails(vec![Some(PeerFixture::rail_address(1))])]
    );
    assert_eq!(fixture.connects(), (1, 0, vec![0, 1]));
    fixture.rails[0].away(false);
    ask_for(&fixture, 5).await;
    assert_eq!(
        fixture.rails[0].asked(),
        [TransportWays::over_rails(vec![Some(PeerFixture::rail_address(0))])]
    );
    assert!(fixture.rails[0].served() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_goes_and_returns_costs_no_rest() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    fixture.rails[0].away(true);
    assert_eq!(ask_for(&fixture, 100).await, Tcp);
    assert_eq!(fixture.rails[0].connects(), 1, "nothing is attempted without a device");
    fixture.rails[0].away(false);
    assert_eq!(ask_for(&fixture, 2).await, Verbs);
}

#[tokio::test(start_paused = true)]
async fn a_rail_that_is_down_at_the_peer_is_told_once_and_asked_again() {
    let fixture = PeerFixture::new(2, false, PeerOptions::default());
    let rail = |nth| Some(PeerFixture::rail_address(nth));
    fixture.tcp.tells(TransportWays::over_rails(vec![None, None]));
    let counted = peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::RailDown);
    assert_eq!(ask_for(&fixture, 10).await, Tcp);
    assert_eq!(peer_fixture::fallbacks(Verbs, Tcp, PeerTrouble::RailDown), counted + 1);
    fixture.tcp.tells(TransportWays::over_rails(vec![None, rail(1)]));
    assert_eq!(ask_for(&fixture, 40).await, Verbs);
    assert_eq!(fixture.connects().2, [0, 1], "the other rail keeps its place");
    fixture.tcp.tells(TransportWays::over_rails(vec![rail(0), rail(1)]));
    ask_for(&fixture, 40).await;
    assert_eq!(fixture.connects().2, [1, 1]);
    let before = fixture.tcp.connects();
    ask_for(&fixture, 100).await;
    assert_eq!(fixture.tcp.connects(), before, "there is nothing left to be asked for");
}

#[tokio::test(start_paused = true)]
async fn a_new_ticket_is_asked_for_only_where_one_was_refused() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    let ticket = Some("00".repeat(64).parse().unwrap());
    let ways = TransportWays::over_rails(vec![Some(PeerFixture::rail_address(0))]);
    fixture.tcp.tells(TransportWays { ticket, ..ways });
    fixture.rails[0].down();
    ask_for(&fixture, 100).await;
    assert_eq!(fixture.tcp.connects(), 1, "no ticket helps a rail that can't be reached");
    fixture.rails[0].up();
    fixture.rails[0].refuses_tickets(true);
    ask_for(&fixture, 300).await;
    let asked = fixture.tcp.connects();
    assert!(asked > 1);
    fixture.rails[0].refuses_tickets(false);
    assert_eq!(ask_for(&fixture, 600).await, Verbs);
    let asked = fixture.tcp.connects();
    ask_for(&fixture, 100).await;
    assert_eq!(fixture.tcp.connects(), asked, "the way works");
}

#[tokio::test(start_paused = true)]
async fn a_way_that_comes_and_goes_is_damped() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    for _ in 0..600 {
        // It connects every time, and dies with the first call.
        fixture.rails[0].cut();
        fixture.ask_surely().await.unwrap();
        tokio::time::sleep(SECOND).await;
    }
    // Rests of 30, 60, 120 and 240 s in ten minutes, each after at most three breaks.
    assert!(fixture.rails[0].connects() <= 16, "{} attempts", fixture.rails[0].connects());
}

#[tokio::test(start_paused = true)]
async fn rails_go_on_without_tcp_even_after_they_were_idle() {
    let fixture = PeerFixture::new(1, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    fixture.tcp.down();
    assert_eq!(ask_for(&fixture, 10).await, Verbs);
    tokio::time::sleep(200 * SECOND).await;
    assert_eq!(fixture.peer.connection_count(), 0);
    assert_eq!(fixture.ask().await.unwrap(), Verbs);
    // Tcp rests now; the rail is tried nevertheless.
    fixture.rails[0].cut();
    assert!(fixture.ask().await.is_err());
    tokio::time::sleep(SECOND).await;
    assert_eq!(fixture.ask().await.unwrap(), Verbs);
}

#[tokio::test(start_paused = true)]
async fn with_every_way_down_calls_fail_at_once_until_one_returns() {
    let fixture = PeerFixture::new(2, false, PeerOptions::default());
    fixture.ask().await.unwrap();
    fixture.rails.iter().for_each(peer_fixture::Line::down);
    fixture.tcp.down();
    for _ in 0..60 {
        let start = Instant::now();
        let error = fixture.ask_surely().await.unwrap_err();
        assert!(
            matches!(error, TransportError::Unreachable { .. } | TransportError::Lost { .. }),
            "{error}"
        );
        assert_eq!(start.elapsed(), Duration::ZERO);
        tokio::time::sleep(SECOND).await;
    }
    fixture.tcp.up();
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(fixture.ask_surely().await.unwrap(), Tcp);
    fixture.rails.iter().for_each(peer_fixture::Line::up);
    assert_eq!(ask_for(&fixture, 400).await, Verbs);
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_no_call_is_lost_while_tcp_works() {
    for seed in 0..60 {
        println!("SEED={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (rails, shm) = (random.random_range(1..4), random.random());
        let fixture = PeerFixture::new(rails, shm, PeerOptions::default());
        for step in 0..200 {
            let line = &fixture.rails[random.random_range(0..rails)];
            match random.random_range(0..8) {
                0 => line.down(),
                1 => line.up(),
                2 => line.cut(),
                3 => line.slow(Duration::from_millis(random.random_range(0..20_000))),
                4 => line.slow(Duration::ZERO),
                _ => {}
            }
            let start = Instant::now();
            let kind = fixture.ask_surely().await;
            assert!(kind.is_ok(), "seed {seed}, step {step}: {kind:?}");
            assert!(
                start.elapsed() <= 2 * PeerOptions::default().settings.upgrade_wait.0,
                "seed {seed}, step {step}"
            );
            tokio::time::sleep(Duration::from_millis(random.random_range(0..20_000))).await;
        }
        for line in &fixture.rails {
            line.up();
            line.slow(Duration::ZERO);
        }
        let best = if shm { Shm } else { Verbs };
        assert_eq!(ask_for(&fixture, 700).await, best, "seed {seed}: the best way is used again");
        fixture.peer.shutdown().await;
    }
}
