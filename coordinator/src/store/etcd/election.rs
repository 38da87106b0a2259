//! Runs the election in etcd and keeps a won leadership.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, Error, LeaseClient, PutOptions, Txn, TxnOp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use verbs3_coordinator_client::lease_clock::{BootLeaseClock, LeaseClock, LeaseInstant};

use super::super::{ClusterStore, ClusterStoreError, FencingToken, LeadershipGuard};
use super::members::EtcdMembers;
use super::{EtcdStore, LEADER, RETRY_PAUSE, decode_revision};

/// Fraction of a lease (1/DRIFT) that allows for this host's clock being slower than etcd's.
const DRIFT: u32 = 10;
/// Renewals that are tried within one lease.
const RENEWALS: u32 = 4;
/// Time for one more renewal when the leadership is no longer certain. The wall clock may have been
/// set, or this process may have been stopped. While etcd keeps the lease, nobody else is elected.
const LAST_TRY: Duration = Duration::from_millis(500);

impl EtcdStore {
    pub(super) async fn win_election(
        &self,
        value: &str,
        lease: Duration,
    ) -> Result<LeadershipGuard, ClusterStoreError> {
        let key = self.full_key(LEADER);
        // etcd counts whole seconds, and may grant more than was asked for.
        let seconds = i64::try_from(lease.as_secs().max(1)).unwrap_or(i64::MAX);
        loop {
            let mut gone = self.watch_prefix(LEADER).await?;
            let asked = BootLeaseClock.latest_now();
            let grant =
                |client: Client| async move { client.lease_client().grant(seconds, None).await };
            let granted = self.members.ask_one(grant).await;
            let granted = granted.map_err(|outage| self.unavailable_error(outage))?;
            let held = EtcdLease { id: granted.id(), members: self.members.clone() };
            let put = TxnOp::put(key.clone(), value, Some(PutOptions::new().with_lease(held.id)));
            let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
            let txn = Txn::new().when([absent]).and_then([put]);
            match self.commit(txn).await {
                Ok(answer) if answer.succeeded() => {
                    let term = decode_revision(
                        answer.header().map_or(0, etcd_client::ResponseHeader::revision),
                    )
                    .0;
                    return Ok(spawn_renewal(
                        held,
                        FencingToken { term },
                        lease_end(asked, granted.ttl()),
                        self.name.clone(),
                    ));
                }
                Ok(_) => held.revoke_lease().await,
                Err(error) => {
                    // The write may have happened. Then the key must not stay ours.
                    held.revoke_lease().await;
                    return Err(error);
                }
            }
            gone.next_change().await;
            // Every candidate wakes, and one of them wins at once. A random pause would not help.
            tokio::time::sleep(RETRY_PAUSE / 10).await;
        }
    }
}

/// An etcd lease.
struct EtcdLease {
    id: i64,
    members: Arc<EtcdMembers>,
}

impl EtcdLease {
    async fn revoke_lease(self) {
        let revoke = |client: Client| async move { client.lease_client().revoke(self.id).await };
        // Without an answer, the lease ends by itself.
        let _ = self.members.ask_one(revoke).await;
    }

    /// Calls [`renew`], with a deadline that may be enough for two members.
    async fn renew_within(&self, time: Duration) -> Result<Option<i64>, Option<Error>> {
        let time = if self.members.count() > 1 { time / 2 } else { time };
        self.members.ask_within(time, |client| renew(client.lease_client(), self.id)).await
    }

    /// Asks two members, with `LAST_TRY` for each: the first may be the one that is away.
    async fn renew_at_last(&self) -> Result<Option<i64>, Option<Error>> {
        let ask =
            || self.members.ask_within(LAST_TRY, |client| renew(client.lease_client(), self.id));
        match ask().await {
            Err(_) if self.members.count() > 1 => ask().await,
            answer => answer,
        }
    }
}

/// Returns how many seconds the lease has left, counted from the request. `None`: it is over.
async fn renew(mut leases: LeaseClient, id: i64) -> Result<Option<i64>, Error> {
    match leases.keep_alive(id).await {
        Ok((mut keeper, mut answers)) => {
            // The first answer belongs to the request that opened the stream and is not shown, so
            // ask once more.
            keeper.keep_alive().await?;
            Ok(answers.message().await?.map(|answer| answer.ttl()).filter(|&ttl| ttl > 0))
        }
        Err(Error::LeaseKeepAliveError(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn lease_end(asked: LeaseInstant, seconds: i64) -> LeaseInstant {
    let lease = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    asked.saturating_add(lease - lease / DRIFT)
}

/// Renews until the leadership is dropped or can't be kept.
fn spawn_renewal(
    held: EtcdLease,
    fence: FencingToken,
    until: LeaseInstant,
    store: String,
) -> LeadershipGuard {
    let (sender, receiver) = watch::channel(until);
    let (lost, dropped) = (CancellationToken::new(), CancellationToken::new());
    let (over, ended) = (lost.clone(), dropped.clone());
    tokio::spawn(async move {
        let mut until = until;
        loop {
            let left = until.saturating_duration_since(BootLeaseClock.latest_now());
            if ended
                .run_until_cancelled(tokio::time::sleep((left / RENEWALS).min(left)))
                .await
                .is_none()
            {
                break;
            }
            let asked = BootLeaseClock.latest_now();
            // Judged after the sleep, which may have lasted longer than it was to.
            let left = until.saturating_duration_since(asked);
            let is_last = left.is_zero();
            let renewed =
                if is_last { held.renew_at_last().await } else { held.renew_within(left).await };
            match renewed {
                Ok(Some(seconds)) => {
                    until = lease_end(asked, seconds);
                    sender.send_replace(until);
                }
                Ok(None) => {
                    tracing::warn!(store, "the lease of the leadership is over");
                    break;
                }
                _ if is_last => {
                    tracing::warn!(store, "the leadership could not be renewed in time");
                    break;
                }
                Err(Some(error)) => {
                    tracing::debug!(
                        store, %error,
                        "the leadership could not be renewed; trying again"
                    )
                }
                Err(None) => tracing::debug!(
                    store,
                    "the leadership could not be renewed in time; trying again"
                ),
            }
        }
        sender.send_replace(LeaseInstant::default());
        over.cancel();
        held.revoke_lease().await;
    });
    LeadershipGuard { fence, until: receiver, lost, _keeping: dropped.drop_guard() }
}
