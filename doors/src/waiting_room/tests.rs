//! Who gives way to whom.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn room(places_max: usize, per_address_max: usize, grace: Duration) -> Arc<WaitingRoom> {
    WaitingRoom::new(RoomLimits { places_max, per_address_max, grace })
}

#[test]
fn the_oldest_guest_of_the_busiest_address_gives_way() {
    let room = room(4, 3, Duration::ZERO);
    let honest = room.admit_guest(address(1)).unwrap();
    let crowd: Vec<_> = (0..3).map(|_| room.admit_guest(address(2)).unwrap()).collect();
    let newcomer = room.admit_guest(address(3)).unwrap();
    let gone: Vec<bool> = crowd.iter().map(WaitingGuest::is_displaced).collect();
    assert_eq!(
        (honest.is_displaced(), newcomer.is_displaced(), gone),
        (false, false, vec![true, false, false])
    );
    assert_eq!(room.guests_count(), 4);
}

#[test]
fn one_address_displaces_itself_alone() {
    let room = room(100, 2, Duration::ZERO);
    let honest = room.admit_guest(address(1)).unwrap();
    let crowd: Vec<_> = (0..50).map(|_| room.admit_guest(address(2)).unwrap()).collect();
    assert!(!honest.is_displaced());
    assert_eq!(crowd.iter().filter(|guest| !guest.is_displaced()).count(), 2);
    assert_eq!(room.guests_count(), 3);
}

#[test]
fn who_was_let_in_gives_way_to_nobody() {
    let room = room(1, 1, Duration::ZERO);
    let known = room.admit_guest(address(1)).unwrap();
    known.let_in();
    let stranger = room.admit_guest(address(1)).unwrap();
    drop(known);
    assert_eq!(room.guests_count(), 1, "its place was given back once");
    let _next = room.admit_guest(address(2)).unwrap();
    assert!(stranger.is_displaced());
}

#[tokio::test(start_paused = true)]
async fn guests_that_have_just_come_are_left_in_peace() {
    let room = room(2, 1, Duration::from_secs(1));
    let first = room.admit_guest(address(1)).unwrap();
    let _second = room.admit_guest(address(2)).unwrap();
    assert!(room.admit_guest(address(3)).is_none() && !room.displace_guest(address(3)));
    tokio::time::advance(Duration::from_secs(1)).await;
    let waiting = tokio::spawn(async move { first.wait_for_displacement().await });
    assert!(room.admit_guest(address(1)).is_some());
    waiting.await.unwrap();
}

/// Two that come again and again, or one beside others that only hold, kept all others out.
#[tokio::test(start_paused = true)]
async fn few_addresses_keep_nobody_out_however_often_they_come() {
    let second = Duration::from_secs(1);
    for refreshing in [1, 2, 3] {
        let room = room(60, 24, second);
        let mut held: Vec<WaitingGuest> = Vec::new();
        for last in 1..=3 {
            held.extend((0..20).filter_map(|_| room.admit_guest(address(last))));
        }
        for step in 0..500_u32 {
            tokio::time::advance(second / 200).await;
            // 200 newcomers a second, and an honest one each quarter.
            let last = 1 + (step % refreshing) as u8;
            held.retain(|guest| !guest.is_displaced());
            held.extend(room.admit_guest(address(last)));
            if step % 50 == 49 {
                let honest = room.admit_guest(address(9)).expect("a newcomer gets in");
                tokio::time::advance(second / 100).await;
                held.extend(room.admit_guest(address(last)));
                assert!(!honest.is_displaced(), "it has had no time");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_gives_way_to_an_address_that_has_more() {
    let room = room(4, 3, Duration::ZERO);
    let honest = room.admit_guest(address(1)).unwrap();
    let crowd: Vec<_> = (0..3).map(|_| room.admit_guest(address(2)).unwrap()).collect();
    tokio::time::advance(Duration::from_secs(100)).await;
    for _ in 0..10 {
        drop(room.admit_guest(address(2)).unwrap());
    }
    assert!(!honest.is_displaced());
    assert!(crowd.iter().any(WaitingGuest::is_displaced));
}

proptest! {
    /// Whatever comes and goes: the bounds hold, and everybody who leaves gives its place back.
    #[test]
    fn the_bounds_hold(steps in prop::collection::vec((0u8..4, 0u8..4), 0..200)) {
        let room = room(6, 3, Duration::ZERO);
        let mut guests: Vec<WaitingGuest> = Vec::new();
        for (step, last) in steps {
            match step {
                0 if !guests.is_empty() => drop(guests.remove(usize::from(last) % guests.len())),
                1 if !guests.is_empty() => guests[usize::from(last) % guests.len()].let_in(),
                _ => guests.extend(room.admit_guest(address(last))),
            }
            let seats = room.seats.lock();
            let counts: Vec<usize> = seats.by_address.values().map(BTreeMap::len).collect();
            prop_assert!(counts.iter().all(|count| (1..=3).contains(count)));
            prop_assert_eq!(counts.iter().sum::<usize>(), seats.count);
            prop_assert!(seats.count <= 6);
        }
        drop(guests);
        prop_assert_eq!(room.guests_count(), 0);
    }
}
