//! Signs of life: they tell a waiting requester that its request is in progress, before there is an
//! answer.
//!
//! Without them a slow UFS looks like a dead worker. On the wire, a sign is a piece of no bytes; it
//! vouches for nothing.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use verbs3_protocol::WorkerReply;
use verbs3_rdma::transport::ReplySender;

/// Wait before the first sign. It is well below the time after which a requester hedges to the
/// next owner (`hedge_after`, 250 ms by default). Otherwise every slow fill would be requested from
/// the UFS twice.
const FIRST: Duration = Duration::from_millis(100);

/// Time between two signs.
const EVERY: Duration = Duration::from_millis(500);

/// Waits for `work`, and sends signs of life to the requester meanwhile. Returns `None` if the
/// requester has gone.
///
/// Costs nothing if `work` is ready at once. `work` is not polled while a sign waits for room in
/// the connection's queue, so it must not hold what others wait for.
pub(super) async fn with_signs_of_life<T>(
    reply: &mut ReplySender,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut next = Instant::now() + FIRST;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = sleep_until(next) => {}
        }
        if let Err(error) =
            reply.send_part(WorkerReply::sign_of_life().encode(), 0, Vec::new()).await
        {
            tracing::debug!(%error, "a reader has gone");
            return None;
        }
        next = Instant::now() + EVERY;
    }
}
