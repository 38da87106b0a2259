//! `POST /v1/workers/ID/relay`: a writer that can't reach a worker has it hear its word by the
//! renewals of its lease.
//!
//! Only the leader takes such words, because workers renew there; but nothing rests on its being
//! the leader. One that is deposed meanwhile lets its askers go to the next.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use verbs3_coordinator_client::api::{HeardWord, Relay, RelayedWord};
use verbs3_protocol::{Heard, Relayed, Word, WorkerId};

use super::routes::{malformed, parsed};
use super::{Answer, Asked};
use crate::coordinator::Coordinator;
use crate::metrics::Metrics;
use crate::relays::{Full, RelayOptions, Relays};

/// Keys of one word: as many as S3 allows in a batch delete, and a gateway sends in one message.
const KEYS_MAX: usize = 1000;
/// Bells among which none is looked for that nobody listens to.
const BELLS_MIN: usize = 64;

/// Words that wait, and bells for the workers' renewals that wait for news.
pub(crate) struct Desk {
    relays: Mutex<Relays<oneshot::Sender<Heard>>>,
    bells: Mutex<Bells>,
    metrics: Metrics,
}

/// One for each worker whose renewal waits.
#[derive(Default)]
struct Bells {
    bells: HashMap<WorkerId, Weak<Notify>>,
    /// From so many on, those that nobody listens to are looked for.
    sweep_at: usize,
}

impl Desk {
    pub(crate) fn new(options: RelayOptions, metrics: Metrics) -> Self {
        Self {
            relays: Mutex::new(Relays::new(options, rand::random())),
            bells: Mutex::default(),
            metrics,
        }
    }

    /// Rings when there are words for the worker. To be asked for before they are looked for.
    pub(super) fn bell(&self, worker: &WorkerId) -> Arc<Notify> {
        let Bells { bells, sweep_at } = &mut *self.bells.lock();
        if let Some(bell) = bells.get(worker).and_then(Weak::upgrade) {
            return bell;
        }
        if bells.len() >= *sweep_at {
            bells.retain(|_, bell| bell.strong_count() > 0);
            *sweep_at = 2 * bells.len() + BELLS_MIN;
        }
        let bell = Arc::new(Notify::new());
        bells.insert(worker.clone(), Arc::downgrade(&bell));
        bell
    }

    pub(super) fn answered(&self, worker: &WorkerId, heard: Vec<HeardWord>) {
        let told = self.change(|relays| relays.answered(worker, heard));
        for (asker, heard) in told {
            // Who has gone meanwhile asks again, if it cares.
            let _ = asker.send(heard);
        }
    }

    pub(super) fn hand_out(&self, worker: &WorkerId) -> Vec<RelayedWord> {
        self.relays.lock().hand_out(worker)
    }

    /// Lets all askers go.
    pub(crate) fn clear(&self) {
        self.change(Relays::clear);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Relays<oneshot::Sender<Heard>>) -> T) -> T {
        let mut relays = self.relays.lock();
        let changed = change(&mut relays);
        let (words, bytes) = relays.size();
        self.metrics.relays_waiting.set(i64::try_from(words).unwrap_or(i64::MAX));
        self.metrics.relays_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        changed
    }

    /// `None`: this coordinator leads no more.
    async fn carry(&self, worker: &WorkerId, word: Word, wait: Duration) -> Option<Relayed> {
        let (asker, answer) = oneshot::channel();
        let id = match self.change(|relays| relays.offer(worker, word, asker)) {
            Ok(id) => id,
            Err(Full) => return Some(Relayed::Full),
        };
        // Also when the asker hangs up.
        let _withdrawn = Withdrawn { desk: self, worker, id };
        if let Some(bell) = self.bells.lock().bells.get(worker).and_then(Weak::upgrade) {
            bell.notify_one();
        }
        match tokio::time::timeout(wait, answer).await {
            Ok(Ok(heard)) => Some(Relayed::Heard(heard)),
            Ok(Err(_)) => None,
            Err(_) => Some(Relayed::Silent),
        }
    }
}

struct Withdrawn<'a> {
    desk: &'a Desk,
    worker: &'a WorkerId,
    id: u64,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.desk.change(|relays| relays.withdraw(self.worker, self.id));
    }
}

impl Coordinator {
    pub(super) async fn relay(&self, id: &str, asked: &Asked) -> Answer {
        let Relay { word, wait_ms } = match parsed(asked) {
            Ok(relay) => relay,
            Err(answer) => return answer,
        };
        let keys = word.keys().len();
        if keys == 0 || keys > KEYS_MAX {
            return malformed(
                StatusCode::BAD_REQUEST,
                format!("{keys} keys in one word; name 1 to {KEYS_MAX}"),
            );
        }
        let (id, wait) = (WorkerId(id.to_owned()), self.wait(Some(wait_ms)));
        let relayed = match self.as_leader(|cluster, now| cluster.unheard(&id, word.epoch(), now)) {
            None => return self.not_leader().await,
            Some(Some(why)) => why,
            Some(None) => match self.carried(&id, word, wait).await {
                Some(relayed) => relayed,
                None => return self.not_leader().await,
            },
        };
        self.metrics.relays.with_label_values(&[outcome(&relayed)]).inc();
        Answer::json(StatusCode::OK, &relayed)
    }

    async fn carried(&self, id: &WorkerId, word: Word, wait: Duration) -> Option<Relayed> {
        let (write, epoch) = (word.write(), word.epoch());
        let relayed = self.desk.carry(id, word, wait).await;
        tracing::debug!(
            worker = %id, ?write, epoch = epoch.0, ?relayed,
            "a writer's word was relayed"
        );
        relayed
    }
}

fn outcome(relayed: &Relayed) -> &'static str {
    match relayed {
        Relayed::Heard(Heard::Done) => "done",
        Relayed::Heard(Heard::Unleased) => "unleased",
        Relayed::Heard(Heard::Refused(_)) => "refused",
        Relayed::Silent => "silent",
        Relayed::NoLease => "no_lease",
        Relayed::OtherEpoch(_) => "other_map",
        Relayed::Full => "full",
    }
}
