//! Owns for whom one piece of work is waited for. The work takes the turn of any of them: otherwise
//! a waiter would stand behind all that another tenant asked for before.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;

use super::{AccountSet, TenantAccount};

/// The accounts of those who have joined since the work began.
pub(crate) struct WaitingAccounts {
    joined: watch::Sender<AccountSet>,
}

/// Nobody who was asked for got a turn.
#[derive(Debug)]
pub(crate) struct TurnsRefused<E> {
    /// The last refusal.
    pub(crate) cause: E,
    /// Who was asked for. Whoever joins later was not.
    pub(crate) asked: AccountSet,
}

impl WaitingAccounts {
    pub(crate) fn new() -> Self {
        Self { joined: watch::Sender::new(AccountSet::NONE) }
    }

    /// Notes that somebody waits for this account, too.
    pub(crate) fn note_joined(&self, account: TenantAccount) {
        self.joined.send_if_modified(|joined| {
            let before = std::mem::replace(joined, joined.with(account));
            before != *joined
        });
    }

    /// Takes a turn for any of those who wait: for `first`, who began it, and for each one that
    /// joins meanwhile. Fails when all have failed.
    pub(crate) async fn take_any_turn<T, E, F>(
        &self,
        first: TenantAccount,
        take_turn: impl Fn(TenantAccount) -> F,
    ) -> Result<T, TurnsRefused<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut joining = self.joined.subscribe();
        joining.mark_changed();
        let mut asked = AccountSet::NONE.with(first);
        let mut turns = FuturesUnordered::from_iter([take_turn(first)]);
        loop {
            let refused = tokio::select! {
                biased;
                // The sender is in `self`, so the channel can't be closed.
                Ok(()) = joining.changed() => None,
                // There is one at least.
                Some(turn) = turns.next() => match turn {
                    Ok(turn) => return Ok(turn),
                    Err(cause) => Some(cause),
                },
            };
            // Whoever has joined is asked for before all are refused.
            let joined = *joining.borrow_and_update();
            turns.extend(joined.list_missing(asked).map(&take_turn));
            asked = asked.united_with(joined);
            if let Some(cause) = refused.filter(|_| turns.is_empty()) {
                return Err(TurnsRefused { cause, asked });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A turn of an account: it comes, or never does, or is refused.
    async fn take_turn(account: TenantAccount) -> Result<&'static str, &'static str> {
        match account {
            TenantAccount::NOBODY => Err("nobody"),
            TenantAccount::JOBS => Ok("jobs"),
            _ => std::future::pending().await,
        }
    }

    #[tokio::test]
    async fn a_refused_turn_is_made_up_for_by_one_of_a_waiter() {
        let waiting = WaitingAccounts::new();
        waiting.note_joined(TenantAccount::JOBS);
        for first in [TenantAccount::NOBODY, TenantAccount::OTHERS] {
            assert_eq!(waiting.take_any_turn(first, take_turn).await.unwrap(), "jobs");
        }
    }

    #[tokio::test]
    async fn a_turn_of_who_joins_later_is_taken() {
        let waiting = WaitingAccounts::new();
        let mut turn = Box::pin(waiting.take_any_turn(TenantAccount::OTHERS, take_turn));
        assert!(futures::poll!(&mut turn).is_pending());
        waiting.note_joined(TenantAccount::NOBODY);
        assert!(futures::poll!(&mut turn).is_pending(), "one refusal is not all");
        waiting.note_joined(TenantAccount::JOBS);
        assert_eq!(turn.await.unwrap(), "jobs");
    }

    #[tokio::test]
    async fn a_refusal_says_for_whom_was_asked() {
        let waiting = WaitingAccounts::new();
        waiting.note_joined(TenantAccount::NOBODY);
        let refused = waiting.take_any_turn(TenantAccount::NOBODY, take_turn).await.unwrap_err();
        assert_eq!(refused.cause, "nobody");
        assert!(refused.asked.contains(TenantAccount::NOBODY));
        assert!(!refused.asked.contains(TenantAccount::JOBS));
    }
}
