//! What can be asked of a coordinator. Reads of the map are answered by all, everything else by the
//! leader.

use std::time::Duration;

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::json;
use verbs3_coordinator_client::api::{
    ClusterView, Granted, Leave, PREFIX, PreloadView, Refused, RefusedKind, Registration, Renewal,
    UnfinishedJob,
};
use verbs3_preload::Glance;
use verbs3_preload::api::{JobState, JobView};
use verbs3_protocol::{BlockIndex, Epoch, ObjectKey, Slot, Volume, WorkerId};

use super::objects::Act;
use super::{Answer, Asked};
use crate::cluster::{Cluster, MembershipError};
use crate::coordinator::Coordinator;
use crate::hot::HotBlocks;

/// For how long the leader's name is believed without asking the store again.
const HINT_FOR: Duration = Duration::from_millis(300);
/// For asking it. Less than askers have patience, so that they hear why they are not answered.
const HINT_WITHIN: Duration = Duration::from_millis(500);

impl Coordinator {
    /// The route's name for metrics, and the answer.
    pub(super) async fn route(&self, asked: &Asked) -> (&'static str, Answer) {
        let path = asked.path.strip_prefix(PREFIX).unwrap_or_default();
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match (&asked.method, &parts[..]) {
            (&Method::GET, ["map"]) => ("map", self.map(asked).await),
            (&Method::GET, ["hot"]) => ("hot", self.hot(asked).await),
            (&Method::GET, ["placement"]) => ("placement", self.placement(asked).await),
            (&Method::GET, ["cluster"]) => ("cluster", self.cluster_view().await),
            (&Method::GET, ["workers"]) => ("workers", self.workers_view().await),
            (&Method::POST, ["workers"]) => ("register", self.register(asked).await),
            (&Method::POST, ["workers", id, "renew"]) => ("renew", self.renew(id, asked).await),
            (&Method::POST, ["workers", id, "relay"]) => ("relay", self.relay(id, asked).await),
            (&Method::POST, ["workers", id, "leave"]) => ("leave", self.leave(id, asked).await),
            (&Method::POST, ["workers", id, "drain"]) => ("drain", self.drain(id, true).await),
            (&Method::POST, ["workers", id, "undrain"]) => ("undrain", self.drain(id, false).await),
            (&Method::DELETE, ["workers", id]) => ("forget", self.forget(id).await),
            (&Method::GET, ["openapi.json"]) => {
                ("openapi", Answer::json(StatusCode::OK, &super::openapi::document()))
            }
            (&Method::POST, ["preload"]) => ("preload_create", self.preload_create(asked).await),
            (&Method::GET, ["preload"]) => ("preload_list", self.preload_list(asked).await),
            (&Method::GET, ["preload", id]) => ("preload_get", self.preload_get(id, asked).await),
            (&Method::GET, ["preload", id, "progress"]) => {
                ("preload_progress", self.preload_progress(id).await)
            }
            (&Method::DELETE, ["preload", id]) => ("preload_end", self.preload_end(id).await),
            (&Method::POST, ["evict"]) => ("evict", self.tend_job(Act::Evict, asked).await),
            (&Method::POST, ["pin"]) => ("pin", self.tend_job(Act::Pin, asked).await),
            (&Method::POST, ["unpin"]) => ("unpin", self.tend_job(Act::Unpin, asked).await),
            (&Method::POST, ["invalidate"]) => ("invalidate", self.invalidate(asked).await),
            (&Method::POST, ["notifications"]) => {
                ("notifications", self.notifications(asked).await)
            }
            (&Method::GET, ["objects", bucket, key @ ..]) if !key.is_empty() => {
                ("objects", self.object(bucket, &key.join("/"), asked).await)
            }
            _ => (
                "unknown",
                malformed(
                    StatusCode::NOT_FOUND,
                    format!("no {} {} here", asked.method, asked.path),
                ),
            ),
        }
    }

    async fn map(&self, asked: &Asked) -> Answer {
        let (epoch, wait_ms) =
            match (number(&asked.query, "epoch"), number(&asked.query, "wait_ms")) {
                (Ok(epoch), Ok(wait_ms)) => (Epoch(epoch.unwrap_or_default()), wait_ms),
                (Err(answer), _) | (_, Err(answer)) => return answer,
            };
        match self.published.later_than(epoch, self.wait(wait_ms)).await {
            Some(answer) => Answer::encoded(StatusCode::OK, answer),
            None => Answer::nothing(),
        }
    }

    /// The hot blocks, for gateways: `?seen=VERSION&wait_ms=W`.
    async fn hot(&self, asked: &Asked) -> Answer {
        let (seen, wait_ms) = match (number(&asked.query, "seen"), number(&asked.query, "wait_ms"))
        {
            (Ok(seen), Ok(wait_ms)) => (seen.unwrap_or_default(), wait_ms),
            (Err(answer), _) | (_, Err(answer)) => return answer,
        };
        if !self.is_leader() {
            return self.not_leader().await;
        }
        match self.hot_published.other_than(seen, self.wait(wait_ms)).await {
            Some(list) => Answer::encoded(StatusCode::OK, list),
            None if self.is_leader() => Answer::nothing(),
            None => self.not_leader().await,
        }
    }

    /// Where a block lives: `?volume=UFS/BUCKET&key=…&block=N`, or `?slot=N`. Without: how many
    /// slots each worker owns.
    async fn placement(&self, asked: &Asked) -> Answer {
        let Some(placement) = self.published.placement().await else {
            return unavailable("there is no map yet");
        };
        let slot = match slot_of(&asked.query) {
            Ok(slot) => slot,
            Err(answer) => return answer,
        };
        let answer = match slot {
            Some(slot) => {
                let owners = placement.owners(slot).iter();
                let owners: Vec<&str> =
                    owners.map(|&at| placement.members()[usize::from(at)].id.0.as_str()).collect();
                json!({ "epoch": placement.epoch().0, "slot": slot.0, "workers": owners })
            }
            None => json!({ "epoch": placement.epoch().0, "slots": self.published.slots().await }),
        };
        Answer::json(StatusCode::OK, &answer)
    }

    async fn cluster_view(&self) -> Answer {
        let slots = self.published.slots().await;
        let options = &self.options;
        let preload = self.engine().map(|engine| glance(engine.glance())).unwrap_or_default();
        let view = self.leading(|leading, now| ClusterView {
            hot: leading.hot.view(),
            preload,
            ..leading.cluster.view(&options.name, &options.advertise, &slots, now)
        });
        match view {
            Some(view) => Answer::json(StatusCode::OK, &view),
            None => self.not_leader().await,
        }
    }

    async fn workers_view(&self) -> Answer {
        let slots = self.published.slots().await;
        let options = &self.options;
        match self.as_leader(|cluster, now| {
            cluster.view(&options.name, &options.advertise, &slots, now).workers
        }) {
            Some(workers) => Answer::json(StatusCode::OK, &workers),
            None => self.not_leader().await,
        }
    }

    async fn register(&self, asked: &Asked) -> Answer {
        let registration: Registration = match parsed(asked) {
            Ok(registration) => registration,
            Err(answer) => return answer,
        };
        let id = registration.id.clone();
        let hot = HotBlocks::wish(&self.options.hot);
        let granted = |granted| Granted { hot, ..granted };
        let answer =
            self.led(|cluster, now| cluster.register(registration, now).map(granted)).await;
        if answer.status.is_success() {
            tracing::info!(worker = %id, "a worker has registered");
        }
        answer
    }

    async fn renew(&self, id: &str, asked: &Asked) -> Answer {
        let mut renewal: Renewal = match parsed(asked) {
            Ok(renewal) => renewal,
            Err(answer) => return answer,
        };
        let heard = std::mem::take(&mut renewal.heard);
        let hot = renewal.hot.take();
        let id = WorkerId(id.to_owned());
        let mut news = self.news.subscribe();
        news.mark_unchanged();
        let granted: Option<Result<Granted, MembershipError>> = self.leading(|leading, now| {
            let granted = leading.cluster.renew(&id, &renewal, now)?;
            if let Some(blocks) = hot {
                leading.hot.report(&id, blocks, now);
            }
            Ok(Granted { hot: HotBlocks::wish(&self.options.hot), ..granted })
        });
        // What it has prepared may be what a change waits for.
        if renewal.prepared.0 > 0 {
            self.happened.notify_one();
        }
        let mut granted = match granted {
            Some(Ok(granted)) => granted,
            Some(Err(error)) => return refused(&error),
            None => return self.not_leader().await,
        };
        // Of the process that has this id, and no other: what it has noted counts whoever leads.
        self.desk.answered(&id, heard);
        let bell = self.desk.bell(&id);
        granted.words = self.desk.hand_out(&id);
        if is_news(&granted) {
            return Answer::json(StatusCode::OK, &granted);
        }
        let until = tokio::time::Instant::now() + self.wait(Some(renewal.wait_ms));
        // The lease was granted when the question came. Waiting adds nothing to it.
        loop {
            tokio::select! {
                changed = news.changed() => match self.news_of(&id, &renewal) {
                    Some(news) if is_news(&news) => return Answer::json(StatusCode::OK, &news),
                    Some(_) if changed.is_ok() => {}
                    Some(_) => break,
                    None => return self.not_leader().await,
                },
                () = bell.notified() => {
                    granted.words = self.desk.hand_out(&id);
                    if is_news(&granted) {
                        break;
                    }
                }
                () = tokio::time::sleep_until(until) => break,
            }
        }
        Answer::json(StatusCode::OK, &granted)
    }

    /// For who has waited: as at the beginning, without a new lease.
    fn news_of(&self, id: &WorkerId, renewal: &Renewal) -> Option<Granted> {
        let news = self.as_leader(|cluster, _| cluster.news(id, renewal))?;
        Some(Granted { hot: HotBlocks::wish(&self.options.hot), ..news })
    }

    async fn leave(&self, id: &str, asked: &Asked) -> Answer {
        let leave: Leave = match parsed(asked) {
            Ok(leave) => leave,
            Err(answer) => return answer,
        };
        tracing::info!(worker = id, "a worker leaves");
        self.led(|cluster, _| cluster.leave(&WorkerId(id.to_owned()), leave)).await
    }

    async fn drain(&self, id: &str, draining: bool) -> Answer {
        tracing::info!(worker = id, draining, "a worker is to be drained, or no more");
        done(self.led(|cluster, _| cluster.drain(&WorkerId(id.to_owned()), draining)).await)
    }

    async fn forget(&self, id: &str) -> Answer {
        tracing::warn!(worker = id, "a worker was declared dead");
        done(self.led(|cluster, _| cluster.forget(&WorkerId(id.to_owned()))).await)
    }

    /// Changes the membership, as leader.
    async fn led<T: serde::Serialize>(
        &self,
        act: impl FnOnce(
            &mut Cluster,
            verbs3_coordinator_client::clock::Moment,
        ) -> Result<T, MembershipError>,
    ) -> Answer {
        let answer = match self.as_leader(act) {
            Some(Ok(done)) => Answer::json(StatusCode::OK, &done),
            Some(Err(error)) => refused(&error),
            None => return self.not_leader().await,
        };
        self.happened.notify_one();
        answer
    }

    pub(super) async fn not_leader(&self) -> Answer {
        let mut hint = self.hint.lock().await;
        let now = self.clock.now();
        let found = match &*hint {
            Some((asked, found)) if now.since(*asked) < HINT_FOR => found.clone(),
            _ => {
                let found = match tokio::time::timeout(HINT_WITHIN, self.store.leader()).await {
                    Ok(found) => found.map_err(|error| error.to_string()),
                    Err(_) => Err(format!("the store at {} does not answer", self.store.name())),
                };
                *hint = Some((self.clock.now(), found.clone()));
                found
            }
        };
        // Not yet, or not for certain: asking here again is the best that can be done.
        let (leader, reason) = match found {
            Ok(Some(leader)) if leader != self.options.advertise => {
                (Some(leader), "another coordinator leads".to_owned())
            }
            Ok(_) => (None, "no coordinator leads at this moment".to_owned()),
            Err(reason) => (None, format!("no coordinator leads: {reason}")),
        };
        let refused = Refused {
            kind: RefusedKind::NotLeader,
            reason,
            leader,
            now_ms: None,
            recipient: None,
            left_ms: None,
        };
        Answer::refusal(StatusCode::MISDIRECTED_REQUEST, &refused)
    }

    pub(super) fn wait(&self, wait_ms: Option<u64>) -> Duration {
        Duration::from_millis(wait_ms.unwrap_or_default()).min(self.options.wait_max)
    }
}

/// To who asked for something and needs to hear no more than that it is so.
fn done(answer: Answer) -> Answer {
    if answer.status.is_success() { Answer::nothing() } else { answer }
}

fn glance(Glance { running, waiting, unfinished }: Glance) -> PreloadView {
    let job = |job: JobView| UnfinishedJob {
        state: if job.state == JobState::Failed { "failed" } else { "incomplete" }.to_owned(),
        reason: job.reason.unwrap_or_default(),
        ended_ms: job.ended_ms.unwrap_or_default(),
        id: job.id,
    };
    PreloadView {
        running: running as u64,
        waiting: waiting as u64,
        unfinished: unfinished.into_iter().map(job).collect(),
    }
}

/// Whether the worker is to be answered at once.
fn is_news(granted: &Granted) -> bool {
    granted.activation.is_some() || granted.prepare.is_some() || !granted.words.is_empty()
}

/// The slot that a question about placement means. `None`: all.
fn slot_of(query: &str) -> Result<Option<Slot>, Answer> {
    let wrong = |what: &'static str| malformed(StatusCode::BAD_REQUEST, what);
    let block = number(query, "block")?.map_or(Ok(0), u32::try_from);
    let block = BlockIndex(block.map_err(|_| wrong("a block is a number below 2^32"))?);
    let slot = number(query, "slot")?.map(u16::try_from).transpose();
    let slot = slot.map_err(|_| wrong("a slot is a number below 65536"))?;
    match (text(query, "volume"), text(query, "key"), slot) {
        (Some(volume), Some(key), _) => {
            Ok(Some(ObjectKey { volume: Volume(volume), key }.block_slot(block)))
        }
        (None, None, slot) => Ok(slot.map(Slot)),
        _ => Err(wrong("volume and key belong together")),
    }
}

fn refused(error: &MembershipError) -> Answer {
    let (status, kind) = match error {
        MembershipError::Unknown(_) => (StatusCode::NOT_FOUND, RefusedKind::Unknown),
        MembershipError::Taken { .. } => (StatusCode::CONFLICT, RefusedKind::Taken),
        MembershipError::Superseded(_) => (StatusCode::GONE, RefusedKind::Superseded),
        MembershipError::Malformed { .. } => (StatusCode::BAD_REQUEST, RefusedKind::Malformed),
        MembershipError::TooMany(_) | MembershipError::Changing => {
            (StatusCode::SERVICE_UNAVAILABLE, RefusedKind::Unavailable)
        }
    };
    let left_ms = match error {
        MembershipError::Taken { left_ms, .. } => Some(*left_ms),
        _ => None,
    };
    let reason = error.to_string();
    let (leader, now_ms, recipient) = (None, None, None);
    Answer::refusal(status, &Refused { kind, reason, leader, now_ms, recipient, left_ms })
}

pub(super) fn malformed(status: StatusCode, reason: impl Into<String>) -> Answer {
    Answer::refused(status, RefusedKind::Malformed, reason)
}

fn unavailable(reason: &str) -> Answer {
    Answer::refused(StatusCode::SERVICE_UNAVAILABLE, RefusedKind::Unavailable, reason)
}

pub(super) fn parsed<T: DeserializeOwned>(asked: &Asked) -> Result<T, Answer> {
    serde_json::from_slice(&asked.body).map_err(|error| {
        malformed(
            StatusCode::BAD_REQUEST,
            format!("the body is not what {} takes: {error}", asked.path),
        )
    })
}

pub(super) fn text(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    Some(percent_decode_str(&value.replace('+', "%20")).decode_utf8_lossy().into_owned())
}

/// A number of the query. Who sends something else is told so.
pub(super) fn number(query: &str, name: &str) -> Result<Option<u64>, Answer> {
    let Some(text) = text(query, name) else { return Ok(None) };
    let wrong = |_| malformed(StatusCode::BAD_REQUEST, format!("{name}={text} is no number"));
    text.parse().map(Some).map_err(wrong)
}
