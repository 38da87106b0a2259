//! Routes the API's requests. Every coordinator answers reads of the map; the leader answers
//! everything else.

use std::time::Duration;

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::json;
use verbs3_coordinator_client::api::{
    ClusterView, CoordinatorRefusal, CoordinatorRefusalKind, PREFIX, PreloadView, UnfinishedJob,
    WorkerDeparture, WorkerLeaseGrant, WorkerLeaseRenewal, WorkerRegistration,
};
use verbs3_preload::JobsOverview;
use verbs3_preload::api::{JobState, JobView};
use verbs3_protocol::{BlockIndex, Epoch, HashSlot, ObjectKey, ObjectVolume, WorkerId};

use super::objects::ObjectPageAction;
use super::{CoordinatorRequest, CoordinatorResponse};
use crate::coordinator::CoordinatorServer;
use crate::hot_block_table::HotBlockTable;
use crate::membership::{MembershipController, MembershipError};

/// How long the leader's name is cached before the store is asked again.
const HINT_FOR: Duration = Duration::from_millis(300);
/// Deadline for asking the store. It is shorter than clients' patience, so that they receive the
/// reason.
const HINT_WITHIN: Duration = Duration::from_millis(500);

impl CoordinatorServer {
    /// Returns the route's name for metrics, and the answer.
    pub(super) async fn route_request(
        &self,
        asked: &CoordinatorRequest,
    ) -> (&'static str, CoordinatorResponse) {
        let path = asked.path.strip_prefix(PREFIX).unwrap_or_default();
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match (&asked.method, &parts[..]) {
            (&Method::GET, ["map"]) => ("map", self.get_map(asked).await),
            (&Method::GET, ["hot"]) => ("hot", self.get_hot_list(asked).await),
            (&Method::GET, ["placement"]) => ("placement", self.get_placement(asked).await),
            (&Method::GET, ["cluster"]) => ("cluster", self.cluster_view().await),
            (&Method::GET, ["workers"]) => ("workers", self.workers_view().await),
            (&Method::POST, ["workers"]) => ("register", self.register_worker(asked).await),
            (&Method::POST, ["workers", id, "renew"]) => {
                ("renew", self.renew_lease(id, asked).await)
            }
            (&Method::POST, ["workers", id, "relay"]) => {
                ("relay", self.relay_to_worker(id, asked).await)
            }
            (&Method::POST, ["workers", id, "leave"]) => {
                ("leave", self.accept_departure(id, asked).await)
            }
            (&Method::POST, ["workers", id, "drain"]) => {
                ("drain", self.set_draining(id, true).await)
            }
            (&Method::POST, ["workers", id, "undrain"]) => {
                ("undrain", self.set_draining(id, false).await)
            }
            (&Method::DELETE, ["workers", id]) => ("forget", self.forget_worker(id).await),
            (&Method::GET, ["openapi.json"]) => (
                "openapi",
                CoordinatorResponse::from_json(StatusCode::OK, &super::openapi::openapi_document()),
            ),
            (&Method::POST, ["preload"]) => ("preload_create", self.preload_create(asked).await),
            (&Method::GET, ["preload"]) => ("preload_list", self.preload_list(asked).await),
            (&Method::GET, ["preload", id]) => ("preload_get", self.preload_get(id, asked).await),
            (&Method::GET, ["preload", id, "progress"]) => {
                ("preload_progress", self.preload_progress(id).await)
            }
            (&Method::DELETE, ["preload", id]) => ("preload_end", self.preload_end(id).await),
            (&Method::POST, ["evict"]) => {
                ("evict", self.tend_job(ObjectPageAction::Evict, asked).await)
            }
            (&Method::POST, ["pin"]) => ("pin", self.tend_job(ObjectPageAction::Pin, asked).await),
            (&Method::POST, ["unpin"]) => {
                ("unpin", self.tend_job(ObjectPageAction::Unpin, asked).await)
            }
            (&Method::POST, ["invalidate"]) => ("invalidate", self.invalidate_objects(asked).await),
            (&Method::POST, ["notifications"]) => {
                ("notifications", self.accept_notification(asked).await)
            }
            (&Method::GET, ["objects", bucket, key @ ..]) if !key.is_empty() => {
                ("objects", self.show_object(bucket, &key.join("/"), asked).await)
            }
            _ => (
                "unknown",
                malformed_response(
                    StatusCode::NOT_FOUND,
                    format!("no {} {} here", asked.method, asked.path),
                ),
            ),
        }
    }

    async fn get_map(&self, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let (epoch, wait_ms) =
            match (query_number(&asked.query, "epoch"), query_number(&asked.query, "wait_ms")) {
                (Ok(epoch), Ok(wait_ms)) => (Epoch(epoch.unwrap_or_default()), wait_ms),
                (Err(answer), _) | (_, Err(answer)) => return answer,
            };
        match self.published.later_than(epoch, self.clamp_wait(wait_ms)).await {
            Some(answer) => CoordinatorResponse::from_encoded(StatusCode::OK, answer),
            None => CoordinatorResponse::no_content(),
        }
    }

    /// Returns the hot blocks for gateways: `?seen=VERSION&wait_ms=W`.
    async fn get_hot_list(&self, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let (seen, wait_ms) =
            match (query_number(&asked.query, "seen"), query_number(&asked.query, "wait_ms")) {
                (Ok(seen), Ok(wait_ms)) => (seen.unwrap_or_default(), wait_ms),
                (Err(answer), _) | (_, Err(answer)) => return answer,
            };
        if !self.is_leader() {
            return self.not_leader().await;
        }
        match self.hot_published.other_than(seen, self.clamp_wait(wait_ms)).await {
            Some(list) => CoordinatorResponse::from_encoded(StatusCode::OK, list),
            None if self.is_leader() => CoordinatorResponse::no_content(),
            None => self.not_leader().await,
        }
    }

    /// Returns where a block lives: `?volume=UFS/BUCKET&key=…&block=N`, or `?slot=N`. Without a
    /// query it returns how many slots each worker owns.
    async fn get_placement(&self, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let Some(placement) = self.published.current_placement().await else {
            return unavailable_response("there is no map yet");
        };
        let slot = match slot_of(&asked.query) {
            Ok(slot) => slot,
            Err(answer) => return answer,
        };
        let answer = match slot {
            Some(slot) => {
                let owners = placement.slot_owners(slot).iter();
                let owners: Vec<&str> = owners
                    .map(|&at| placement.map_members()[usize::from(at)].id.0.as_str())
                    .collect();
                json!({ "epoch": placement.map_epoch().0, "slot": slot.0, "workers": owners })
            }
            None => {
                json!({ "epoch": placement.map_epoch().0, "slots": self.published.count_owned_slots().await })
            }
        };
        CoordinatorResponse::from_json(StatusCode::OK, &answer)
    }

    async fn cluster_view(&self) -> CoordinatorResponse {
        let slots = self.published.count_owned_slots().await;
        let options = &self.options;
        let preload = self
            .preload_engine()
            .map(|engine| preload_view(engine.jobs_overview()))
            .unwrap_or_default();
        let view = self.with_leader_state(|leading, now| ClusterView {
            hot: leading.hot.hot_view(),
            preload,
            ..leading.cluster.build_cluster_view(&options.name, &options.advertise, &slots, now)
        });
        match view {
            Some(view) => CoordinatorResponse::from_json(StatusCode::OK, &view),
            None => self.not_leader().await,
        }
    }

    async fn workers_view(&self) -> CoordinatorResponse {
        let slots = self.published.count_owned_slots().await;
        let options = &self.options;
        match self.as_leader(|cluster, now| {
            cluster.build_cluster_view(&options.name, &options.advertise, &slots, now).workers
        }) {
            Some(workers) => CoordinatorResponse::from_json(StatusCode::OK, &workers),
            None => self.not_leader().await,
        }
    }

    async fn register_worker(&self, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let registration: WorkerRegistration = match parse_body(asked) {
            Ok(registration) => registration,
            Err(answer) => return answer,
        };
        let id = registration.id.clone();
        let hot = HotBlockTable::report_wish(&self.options.hot);
        let granted = |granted| WorkerLeaseGrant { hot, ..granted };
        let answer = self
            .change_membership(|cluster, now| {
                cluster.register_worker(registration, now).map(granted)
            })
            .await;
        if answer.status.is_success() {
            tracing::info!(worker = %id, "a worker has registered");
        }
        answer
    }

    async fn renew_lease(&self, id: &str, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let mut renewal: WorkerLeaseRenewal = match parse_body(asked) {
            Ok(renewal) => renewal,
            Err(answer) => return answer,
        };
        let heard = std::mem::take(&mut renewal.heard);
        let hot = renewal.hot.take();
        let id = WorkerId(id.to_owned());
        let mut news = self.news.subscribe();
        news.mark_unchanged();
        let granted: Option<Result<WorkerLeaseGrant, MembershipError>> =
            self.with_leader_state(|leading, now| {
                let granted = leading.cluster.renew_lease(&id, &renewal, now)?;
                if let Some(blocks) = hot {
                    leading.hot.record_report(&id, blocks, now);
                }
                Ok(WorkerLeaseGrant {
                    hot: HotBlockTable::report_wish(&self.options.hot),
                    ..granted
                })
            });
        // A change may wait for what the worker has prepared.
        if renewal.prepared.0 > 0 {
            self.happened.notify_one();
        }
        let mut granted = match granted {
            Some(Ok(granted)) => granted,
            Some(Err(error)) => return membership_refusal(&error),
            None => return self.not_leader().await,
        };
        // The answers come from the one process that has this id. What it has noted counts,
        // whichever coordinator leads.
        self.desk.deliver_answers(&id, heard);
        let bell = self.desk.renewal_notifier(&id);
        granted.words = self.desk.hand_out(&id);
        if is_news(&granted) {
            return CoordinatorResponse::from_json(StatusCode::OK, &granted);
        }
        let until = tokio::time::Instant::now() + self.clamp_wait(Some(renewal.wait_ms));
        // The lease was granted when the question came. Waiting adds nothing to it.
        loop {
            tokio::select! {
                changed = news.changed() => match self.news_of(&id, &renewal) {
                    Some(news) if is_news(&news) => return CoordinatorResponse::from_json(StatusCode::OK, &news),
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
        CoordinatorResponse::from_json(StatusCode::OK, &granted)
    }

    /// Returns the news after a wait, without a new lease.
    fn news_of(&self, id: &WorkerId, renewal: &WorkerLeaseRenewal) -> Option<WorkerLeaseGrant> {
        let news = self.as_leader(|cluster, _| cluster.lease_news(id, renewal))?;
        Some(WorkerLeaseGrant { hot: HotBlockTable::report_wish(&self.options.hot), ..news })
    }

    async fn accept_departure(&self, id: &str, asked: &CoordinatorRequest) -> CoordinatorResponse {
        let leave: WorkerDeparture = match parse_body(asked) {
            Ok(leave) => leave,
            Err(answer) => return answer,
        };
        tracing::info!(worker = id, "a worker leaves");
        self.change_membership(|cluster, _| {
            cluster.record_departure(&WorkerId(id.to_owned()), leave)
        })
        .await
    }

    async fn set_draining(&self, id: &str, draining: bool) -> CoordinatorResponse {
        tracing::info!(worker = id, draining, "a worker is to be drained, or no more");
        without_body(
            self.change_membership(|cluster, _| {
                cluster.set_draining(&WorkerId(id.to_owned()), draining)
            })
            .await,
        )
    }

    async fn forget_worker(&self, id: &str) -> CoordinatorResponse {
        tracing::warn!(worker = id, "a worker was declared dead");
        without_body(
            self.change_membership(|cluster, _| cluster.forget_worker(&WorkerId(id.to_owned())))
                .await,
        )
    }

    /// Changes the membership as leader.
    async fn change_membership<T: serde::Serialize>(
        &self,
        act: impl FnOnce(
            &mut MembershipController,
            verbs3_coordinator_client::lease_clock::LeaseInstant,
        ) -> Result<T, MembershipError>,
    ) -> CoordinatorResponse {
        let answer = match self.as_leader(act) {
            Some(Ok(done)) => CoordinatorResponse::from_json(StatusCode::OK, &done),
            Some(Err(error)) => membership_refusal(&error),
            None => return self.not_leader().await,
        };
        self.happened.notify_one();
        answer
    }

    pub(super) async fn not_leader(&self) -> CoordinatorResponse {
        let mut hint = self.hint.lock().await;
        let now = self.clock.now();
        let found = match &*hint {
            Some((asked, found)) if now.saturating_duration_since(*asked) < HINT_FOR => {
                found.clone()
            }
            _ => {
                let found =
                    match tokio::time::timeout(HINT_WITHIN, self.store.current_leader()).await {
                        Ok(found) => found.map_err(|error| error.to_string()),
                        Err(_) => {
                            Err(format!("the store at {} does not answer", self.store.store_name()))
                        }
                    };
                *hint = Some((self.clock.now(), found.clone()));
                found
            }
        };
        // The leader is not known, or not certain. The client can only ask here again.
        let (leader, reason) = match found {
            Ok(Some(leader)) if leader != self.options.advertise => {
                (Some(leader), "another coordinator leads".to_owned())
            }
            Ok(_) => (None, "no coordinator leads at this moment".to_owned()),
            Err(reason) => (None, format!("no coordinator leads: {reason}")),
        };
        let refused = CoordinatorRefusal {
            kind: CoordinatorRefusalKind::NotLeader,
            reason,
            leader,
            now_ms: None,
            recipient: None,
            left_ms: None,
        };
        CoordinatorResponse::from_refusal(StatusCode::MISDIRECTED_REQUEST, &refused)
    }

    pub(super) fn clamp_wait(&self, wait_ms: Option<u64>) -> Duration {
        Duration::from_millis(wait_ms.unwrap_or_default()).min(self.options.wait_max)
    }
}

/// Drops the body of an answer whose status says everything.
fn without_body(answer: CoordinatorResponse) -> CoordinatorResponse {
    if answer.status.is_success() { CoordinatorResponse::no_content() } else { answer }
}

fn preload_view(JobsOverview { running, waiting, unfinished }: JobsOverview) -> PreloadView {
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

/// Returns whether the worker should be answered at once.
fn is_news(granted: &WorkerLeaseGrant) -> bool {
    granted.activation.is_some() || granted.prepare.is_some() || !granted.words.is_empty()
}

/// Returns the slot that a question about placement means. `None`: all.
fn slot_of(query: &str) -> Result<Option<HashSlot>, CoordinatorResponse> {
    let wrong = |what: &'static str| malformed_response(StatusCode::BAD_REQUEST, what);
    let block = query_number(query, "block")?.map_or(Ok(0), u32::try_from);
    let block = BlockIndex(block.map_err(|_| wrong("a block is a number below 2^32"))?);
    let slot = query_number(query, "slot")?.map(u16::try_from).transpose();
    let slot = slot.map_err(|_| wrong("a slot is a number below 65536"))?;
    match (query_text(query, "volume"), query_text(query, "key"), slot) {
        (Some(volume), Some(key), _) => {
            Ok(Some(ObjectKey { volume: ObjectVolume(volume), key }.block_slot(block)))
        }
        (None, None, slot) => Ok(slot.map(HashSlot)),
        _ => Err(wrong("volume and key belong together")),
    }
}

fn membership_refusal(error: &MembershipError) -> CoordinatorResponse {
    let (status, kind) = match error {
        MembershipError::Unknown(_) => (StatusCode::NOT_FOUND, CoordinatorRefusalKind::Unknown),
        MembershipError::Taken { .. } => (StatusCode::CONFLICT, CoordinatorRefusalKind::Taken),
        MembershipError::Superseded(_) => (StatusCode::GONE, CoordinatorRefusalKind::Superseded),
        MembershipError::Malformed { .. } => {
            (StatusCode::BAD_REQUEST, CoordinatorRefusalKind::Malformed)
        }
        MembershipError::TooMany(_) | MembershipError::Changing => {
            (StatusCode::SERVICE_UNAVAILABLE, CoordinatorRefusalKind::Unavailable)
        }
    };
    let left_ms = match error {
        MembershipError::Taken { left_ms, .. } => Some(*left_ms),
        _ => None,
    };
    let reason = error.to_string();
    let (leader, now_ms, recipient) = (None, None, None);
    CoordinatorResponse::from_refusal(
        status,
        &CoordinatorRefusal { kind, reason, leader, now_ms, recipient, left_ms },
    )
}

pub(super) fn malformed_response(
    status: StatusCode,
    reason: impl Into<String>,
) -> CoordinatorResponse {
    CoordinatorResponse::refuse_request(status, CoordinatorRefusalKind::Malformed, reason)
}

fn unavailable_response(reason: &str) -> CoordinatorResponse {
    CoordinatorResponse::refuse_request(
        StatusCode::SERVICE_UNAVAILABLE,
        CoordinatorRefusalKind::Unavailable,
        reason,
    )
}

pub(super) fn parse_body<T: DeserializeOwned>(
    asked: &CoordinatorRequest,
) -> Result<T, CoordinatorResponse> {
    serde_json::from_slice(&asked.body).map_err(|error| {
        malformed_response(
            StatusCode::BAD_REQUEST,
            format!("the body is not what {} takes: {error}", asked.path),
        )
    })
}

pub(super) fn query_text(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    Some(percent_decode_str(&value.replace('+', "%20")).decode_utf8_lossy().into_owned())
}

/// Reads a number from the query. Refuses anything else.
pub(super) fn query_number(query: &str, name: &str) -> Result<Option<u64>, CoordinatorResponse> {
    let Some(text) = query_text(query, name) else { return Ok(None) };
    let wrong =
        |_| malformed_response(StatusCode::BAD_REQUEST, format!("{name}={text} is no number"));
    text.parse().map(Some).map_err(wrong)
}
