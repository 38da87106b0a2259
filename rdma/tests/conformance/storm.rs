//! Calls given up at any moment, over little memory: the replies of all others stay whole, and
//! nothing is lost for good.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use verbs3_rdma::transport::{CallEvent, IncomingCall, ReplySender};

use crate::transport_fixture::{TransportFixture, arena, eventually, landing, pattern, service};

const PARTS: u64 = 4;
const PART_BYTES: usize = 16_000;
const TASKS: u64 = 6;
const CALLS: u64 = 80;

fn number(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..8].try_into().unwrap())
}

/// Pulls first for every third call, then answers in parts; ends early when its requester is gone.
async fn answer(
    request: IncomingCall,
    mut reply: ReplySender,
    lent: Option<verbs3_rdma::landing::Landing>,
) {
    let seed = number(&request.message);
    if let Some(lent) = lent.filter(|_| seed.is_multiple_of(3)) {
        let bytes = lent.total_bytes() as usize;
        let Ok(pushed) = reply.pull_data("".into(), lent).await else { return };
        assert!(pushed.concat() == pattern(seed, 0, bytes), "pushed bytes of call {seed} differ");
    }
    for part in 0..PARTS {
        let offset = part * PART_BYTES as u64;
        let data = vec![pattern(seed, offset, PART_BYTES)];
        if reply.send_part("".into(), offset, data).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let _ = reply.send_last("".into(), 0, vec![]).await;
}

pub async fn calls_given_up_at_any_moment_leave_the_others_whole(fixture: TransportFixture) {
    let seed: u64 = std::env::var("SEED")
        .ok()
        .map_or_else(rand::random, |text| text.parse().expect("SEED is a number"));
    println!("SEED={seed}");
    let (lender, servers) = (arena(2), arena(2));
    let lent = servers.clone();
    fixture.serve(service(move |request, reply| {
        let lent = landing(&lent, 50_000);
        answer(request, reply, lent)
    }));
    let fixture = Arc::new(fixture);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (fixture, lender) = (fixture.clone(), lender.clone());
        tasks.spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed ^ task);
            for nth in 0..CALLS {
                let id = task * CALLS + nth;
                one_call(&fixture, &lender, id, rng.random_range(0..PARTS + 4)).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(
        fixture.connection.broken_reason().is_none(),
        "{:?}",
        fixture.connection.broken_reason()
    );
    eventually("the landings are back", || lender.arena_usage().loaned_bytes == 0).await;
    eventually("what was lent for pushes is back", || servers.arena_usage().loaned_bytes == 0)
        .await;
}

/// Takes `patience` events, or all that come, and checks every byte at the end: later calls must
/// not have changed one.
async fn one_call(
    fixture: &TransportFixture,
    lender: &verbs3_rdma::arena::Arena,
    id: u64,
    patience: u64,
) {
    let bytes = PARTS as usize * PART_BYTES;
    let lent = loop {
        match landing(lender, bytes) {
            Some(lent) => break lent,
            None => tokio::task::yield_now().await,
        }
    };
    let mut call = fixture.connection.start_call(id.to_le_bytes().to_vec().into(), Some(lent));
    let mut seen = Vec::new();
    for _ in 0..patience {
        match call.next().await.unwrap() {
            CallEvent::Wanted { bytes, .. } => {
                call.push_data(&[pattern(id, 0, bytes as usize)]).await.unwrap()
            }
            CallEvent::Part(part) => {
                let last = part.last;
                seen.push(part);
                if last {
                    break;
                }
            }
        }
    }
    drop(call);
    tokio::task::yield_now().await;
    for part in seen {
        let all = part.data.concat();
        assert!(all == pattern(id, part.offset, all.len()), "call {id} has bytes of another");
    }
}
