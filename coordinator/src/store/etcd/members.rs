//! Chooses which member of etcd is asked: the one that answered last; after a failure, the next
//! one.
//!
//! Each member has its own client. One client for all would prefer the least busy member, and a
//! member that fails at once always seems idle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, Error};

use super::super::StoreOutage;

/// The members of one etcd cluster.
pub(super) struct EtcdMembers {
    /// At least one.
    clients: Vec<Client>,
    /// Index of the member that is asked next.
    at: AtomicUsize,
    deadline: Duration,
}

/// A member that was silent for less is not turned from.
const SILENCE_MIN: Duration = Duration::from_millis(100);

impl EtcdMembers {
    pub(super) fn new(clients: Vec<Client>, deadline: Duration) -> Self {
        Self { clients, at: AtomicUsize::new(0), deadline }
    }

    pub(super) fn count(&self) -> usize {
        self.clients.len()
    }

    /// Asks one member. For requests that must not be repeated.
    pub(super) async fn ask_one<T, A>(
        &self,
        ask: impl FnOnce(Client) -> A,
    ) -> Result<T, StoreOutage>
    where
        A: Future<Output = Result<T, Error>>,
    {
        let answer = self.ask_within(self.deadline, ask).await;
        answer.map_err(|error| error.map_or(StoreOutage::Silent, StoreOutage::from))
    }

    /// Asks one member after another, each once, until one answers.
    pub(super) async fn ask_each<T, A>(&self, ask: impl Fn(Client) -> A) -> Result<T, StoreOutage>
    where
        A: Future<Output = Result<T, Error>>,
    {
        let mut last = self.ask_one(&ask).await;
        for _ in 1..self.count() {
            if last.is_ok() {
                break;
            }
            last = self.ask_one(&ask).await;
        }
        last
    }

    /// Asks one member, which has `time` to answer. `None`: it was silent.
    pub(super) async fn ask_within<T, A>(
        &self,
        time: Duration,
        ask: impl FnOnce(Client) -> A,
    ) -> Result<T, Option<Error>>
    where
        A: Future<Output = Result<T, Error>>,
    {
        let at = self.at.load(Ordering::Relaxed);
        let client = self.clients[at % self.count()].clone();
        let answer = tokio::time::timeout(time.min(self.deadline), ask(client)).await;
        let failed = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        // So little time says nothing of the member.
        if failed.is_none() && time < SILENCE_MIN {
            return Err(failed);
        }
        // Unless another request has turned from it already.
        let _ = self.at.compare_exchange(
            at,
            (at + 1) % self.count(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        Err(failed)
    }
}
