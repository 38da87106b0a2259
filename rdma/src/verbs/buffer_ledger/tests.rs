//! Shares of buffers, doubts about them, and buffers that are lost.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn proven(buffers: u32) -> BufferDoubt {
    BufferDoubt { buffers, proven: true }
}

/// A device that takes buffers in the order of their posting.
struct Device {
    shares: BufferLedger,
    posted: VecDeque<u16>,
}

impl Device {
    fn new(depth: u16) -> Self {
        let mut device = Self { shares: BufferLedger::new(depth), posted: VecDeque::new() };
        (0..depth).for_each(|buffer| device.post(buffer));
        device
    }

    fn post(&mut self, buffer: u16) {
        self.shares.record_post(buffer);
        self.posted.push_back(buffer);
    }

    fn take(&mut self) -> u16 {
        self.posted.pop_front().expect("the queue ran dry")
    }

    fn complete(&mut self, buffer: u16) {
        self.shares.record_completion(buffer);
    }

    fn pass(&mut self, buffers: usize) {
        for _ in 0..buffers {
            let buffer = self.take();
            self.complete(buffer);
            self.post(buffer);
        }
    }
}

#[test]
fn a_share_is_given_while_there_is_room_and_comes_back() {
    let mut shares = Device::new(64).shares;
    assert!(shares.reserve_share(40) && shares.reserve_share(24) && !shares.reserve_share(1));
    shares.release_share(40, proven(0));
    assert!(shares.reserve_share(40));
    assert_eq!(shares.current_tally(), BufferTally { reserved: 64, doubtful: 0, lost: 0 });
}

#[test]
fn shares_leave_room_for_new_connections_as_they_grow() {
    let mut shares = Device::new(64).shares;
    assert!(shares.reserve_share(8));
    while shares.grow_share() {}
    assert!(!shares.is_scarce() && shares.reserve_share(8), "room was kept");
    assert!(shares.is_scarce());
    (0..4).for_each(|_| shares.shrink_share());
    assert!(!shares.is_scarce());
}

#[test]
fn a_doubt_ends_when_all_that_was_posted_before_it_came_back() {
    let mut device = Device::new(64);
    assert!(device.shares.reserve_share(40));
    device.shares.release_share(40, proven(30));
    assert_eq!(device.shares.current_tally(), BufferTally { reserved: 0, doubtful: 30, lost: 0 });
    assert!(!device.shares.reserve_share(40));
    device.pass(64);
    assert_eq!(device.shares.current_tally(), BufferTally::default());
}

#[test]
fn what_was_taken_unseen_is_lost_and_may_be_found() {
    let mut device = Device::new(64);
    assert!(device.shares.reserve_share(40));
    let (gone, late) = (device.take(), device.take());
    device.shares.release_share(40, proven(30));
    device.pass(64 * (PASSED_OVER + 1));
    assert_eq!(device.shares.current_tally(), BufferTally { reserved: 0, doubtful: 0, lost: 2 });
    device.complete(late);
    device.post(late);
    assert_eq!(device.shares.current_tally().lost, 1);
    device.complete(gone);
    device.post(gone);
    device.pass(200);
    assert_eq!(device.shares.current_tally(), BufferTally::default());
    assert!(device.shares.reserve_share(64));
}

#[test]
fn unproven_peers_leave_few_doubtful_buffers_however_many_come() {
    let mut device = Device::new(64);
    for _ in 0..200 {
        assert!(device.shares.reserve_share(8), "the next has a share");
        device.shares.release_share(8, BufferDoubt { buffers: 8, proven: false });
    }
    assert_eq!(device.shares.current_tally().doubtful, 64 / LEFT_BY_UNPROVEN);
    assert!(device.shares.reserve_share(20));
    device.shares.release_share(20, proven(20));
    assert_eq!(
        device.shares.current_tally().doubtful,
        64 / LEFT_BY_UNPROVEN + 20,
        "those that did are all counted"
    );
    device.pass(64);
    assert_eq!(device.shares.current_tally(), BufferTally::default());
    assert!(device.shares.reserve_share(8));
    device.shares.release_share(8, BufferDoubt { buffers: 8, proven: false });
    assert_eq!(
        device.shares.current_tally().doubtful,
        64 / LEFT_BY_UNPROVEN,
        "the part is free again"
    );
}

/// A connection: its share, what was taken for it, and what was completed and is not posted
/// again.
#[derive(Default)]
struct Peer {
    share: u32,
    taken: VecDeque<u16>,
    read: Vec<u16>,
}

proptest! {
    /// Connections come, take what their shares allow, grow, shrink, and end with buffers
    /// unseen: nobody who may take one finds none.
    #[test]
    fn whoever_has_a_share_finds_a_buffer(
        depth in 16u16..80,
        steps in proptest::collection::vec((0u8..7, 0usize..6), 0..800),
    ) {
        let mut device = Device::new(depth);
        let mut peers: Vec<Peer> = Vec::new();
        for (kind, at) in steps {
            if kind == 0 && device.shares.reserve_share(6) {
                peers.push(Peer { share: 6, ..Peer::default() });
            }
            if peers.is_empty() {
                continue;
            }
            let at = at % peers.len();
            let peer = &mut peers[at];
            let used = (peer.taken.len() + peer.read.len()) as u32;
            match kind {
                1 | 2 if used < peer.share => peer.taken.push_back(device.take()),
                3 => if let Some(buffer) = peer.taken.pop_front() {
                    device.complete(buffer);
                    peer.read.push(buffer);
                },
                4 => if let Some(buffer) = peer.read.pop() {
                    device.post(buffer);
                    if device.shares.grow_share() {
                        peer.share += 1;
                    } else if device.shares.is_scarce() && peer.share > 6 {
                        device.shares.shrink_share();
                        peer.share -= 1;
                    }
                },
                5 | 6 => {
                    // Ends; what the device had taken for it and not completed is never seen
                    // again.
                    let peer = peers.swap_remove(at);
                    peer.read.into_iter().for_each(|buffer| device.post(buffer));
                    let unseen = if peer.taken.is_empty() { 0 } else { peer.share };
                    device.shares.release_share(peer.share, proven(unseen));
                }
                _ => {}
            }
        }
        let held = |peer: &Peer| (peer.taken.len() + peer.read.len()) as u32;
        let promised: u32 = peers.iter().map(|peer| peer.share - held(peer)).sum();
        prop_assert!(device.posted.len() as u32 >= promised);
    }
}
