//! Goes over the `Preload` resources again and again, and does for each what is due. Owns the
//! finalizer: a resource has it while a job of its may run, and no longer.
//!
//! One of these is enough, and two do no harm: a job's id is the resource's uid, so both mean one
//! job. Every question has a deadline, every failure a growing pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;
use verbs3_pacing::doubled_pause;
use verbs3_preload::api::JobView;

use super::preload_gateway::{PreloadGateway, PreloadGatewayError, PreloadKey};
use super::preload_pace::PreloadPaces;
use super::preload_round::{FINALIZER, ListedPreload, PreloadName, PreloadTurns};
use super::preload_status::{
    PreloadObstacle, StopVerdict, is_over, judge_stop, stale_reason, status_of_job,
    status_of_obstacle, status_of_refusal,
};
use super::resource_store::{EventKind, PreloadEvent, ResourceStore};
use super::settings::ControllerSettings;
use crate::api_server::{ApiServer, ApiServerError};
use crate::metrics::{ControllerMetrics, PreloadWork};
use crate::preload_resource::{PreloadResource, PreloadResourceStatus};

/// A round begins no further work after this time, so that resources that were deleted since need
/// not wait for all others. The next one goes on.
const ROUND_MAX: Duration = Duration::from_secs(30);

/// The controller; see the module.
pub struct PreloadController {
    resources: ResourceStore,
    gateway: Arc<dyn PreloadGateway>,
    settings: ControllerSettings,
    metrics: Arc<ControllerMetrics>,
    paces: Mutex<PreloadPaces>,
    turns: Mutex<RoundTurns>,
    has_listed: AtomicBool,
}

/// Resources that are deleted do not wait behind the others.
struct RoundTurns {
    deleted: PreloadTurns,
    living: PreloadTurns,
}

impl RoundTurns {
    fn of(&mut self, is_deleted: bool) -> &mut PreloadTurns {
        if is_deleted { &mut self.deleted } else { &mut self.living }
    }
}

/// One resource that is worked at in this round.
struct PreloadTurn {
    name: PreloadName,
    is_deleted: bool,
}

/// What a list had.
#[derive(Default)]
struct WorkCount {
    with_work: usize,
    due: usize,
}

impl PreloadController {
    /// Makes a controller. Asks nobody before it is run.
    pub fn new(
        settings: ControllerSettings,
        gateway: Arc<dyn PreloadGateway>,
        metrics: Arc<ControllerMetrics>,
    ) -> Arc<Self> {
        let resources_max = settings.resources_max as usize;
        Arc::new(Self {
            resources: ResourceStore::new(ApiServer::new(&settings)),
            gateway,
            settings,
            metrics,
            paces: Mutex::default(),
            turns: Mutex::new(RoundTurns {
                deleted: PreloadTurns::new(resources_max),
                living: PreloadTurns::new(resources_max),
            }),
            has_listed: AtomicBool::new(false),
        })
    }

    /// Returns whether the resources could be listed when they were listed last.
    pub fn is_ready(&self) -> bool {
        self.has_listed.load(Ordering::Acquire)
    }

    /// Goes over all resources until told to stop. What has begun ends first.
    pub async fn follow_resources(&self, stop: CancellationToken) {
        let look_every = self.settings.look_every.0;
        let mut failures = 0_u32;
        while !stop.is_cancelled() {
            let gone_round = self.go_round(&stop).await;
            self.has_listed.store(gone_round.is_ok(), Ordering::Release);
            let pause = match gone_round {
                Ok(()) => {
                    failures = 0;
                    look_every
                }
                Err(error) => {
                    self.metrics.work[PreloadWork::ApiFailed].inc();
                    tracing::warn!(%error, "Preload resources can't be listed");
                    failures = failures.saturating_add(1);
                    let pause_max = self.settings.retry_max.0.max(look_every);
                    doubled_pause(look_every, failures.min(8), pause_max)
                }
            };
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Goes over all resources once. All are listed before one is worked at: an endpoint that is
    /// silent must not make a list too old to go on with.
    async fn go_round(&self, stop: &CancellationToken) -> Result<(), ApiServerError> {
        let (due, count) = self.list_due().await?;
        let begun = AtomicUsize::new(0);
        futures::stream::iter(&due)
            .take_until(stop.cancelled())
            .take_until(tokio::time::sleep(ROUND_MAX))
            .for_each_concurrent(usize::from(self.settings.concurrency_max), |turn| {
                begun.fetch_add(1, Ordering::Relaxed);
                self.take_turn(turn)
            })
            .await;
        let left_out = count.due.saturating_sub(begun.into_inner());
        self.metrics.resources.set(i64::try_from(count.with_work).unwrap_or(i64::MAX));
        self.metrics.left_out.set(i64::try_from(left_out).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Lists all resources, and keeps the names of those whose turn it is: first those that are
    /// deleted, since their namespaces wait.
    async fn list_due(&self) -> Result<(Vec<PreloadTurn>, WorkCount), ApiServerError> {
        let (mut count, mut next) = (WorkCount::default(), String::new());
        self.paces.lock().begin_round();
        {
            let mut turns = self.turns.lock();
            turns.deleted.clear_names();
            turns.living.clear_names();
        }
        loop {
            let page = self.resources.list_page(&next).await?;
            let (mut paces, mut turns, now) =
                (self.paces.lock(), self.turns.lock(), Instant::now());
            for resource in page.resources.into_iter().filter(ListedPreload::has_work) {
                count.with_work += 1;
                if !paces.is_due(&resource.metadata.uid, now) {
                    continue;
                }
                count.due += 1;
                let is_deleted = resource.is_deleted();
                turns.of(is_deleted).add_name(resource.into_name());
            }
            next = page.next;
            if next.is_empty() {
                break;
            }
        }
        self.paces.lock().forget_gone();
        let mut turns = self.turns.lock();
        let mut due = Vec::new();
        for is_deleted in [true, false] {
            let names = turns.of(is_deleted).take_names().into_iter();
            due.extend(names.map(|name| PreloadTurn { name, is_deleted }));
        }
        Ok((due, count))
    }

    async fn take_turn(&self, turn: &PreloadTurn) {
        let name = &turn.name;
        self.turns.lock().of(turn.is_deleted).note_turn(name);
        let worked = match self.resources.read_resource(name).await {
            Ok(Some(resource)) => self.work_at(&resource).await,
            Ok(None) => {
                self.paces.lock().forget(&name.uid);
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = worked {
            self.metrics.work[PreloadWork::ApiFailed].inc();
            let PreloadName { namespace, name, uid } = name;
            tracing::warn!(name, namespace, %error, "a Preload resource has to wait");
            self.note_failure(uid);
        }
    }

    async fn work_at(&self, resource: &PreloadResource) -> Result<(), ApiServerError> {
        let has_finalizer = resource.metadata.has_finalizer(FINALIZER);
        let is_deleted = resource.metadata.deletion_timestamp.is_some();
        if is_over(&resource.status) || (is_deleted && !has_finalizer) {
            return self.release_resource(resource).await;
        }
        if is_deleted {
            return self.stop_job(resource).await;
        }
        if !has_finalizer {
            // Before the job, or it could outlive its resource unseen. The next round begins it.
            return self.resources.set_finalizer(resource, FINALIZER, true).await;
        }
        let (before, uid) = (&resource.status, &resource.metadata.uid);
        let asked = match self.read_key(resource).await? {
            Ok(key) => self.ask_for_job(resource, &key).await,
            Err(obstacle) => Err(obstacle),
        };
        let now = rfc3339_now();
        let next = match &asked {
            Ok(view) => status_of_job(before, view, &now),
            Err(obstacle) if obstacle.reason == "Malformed" => {
                status_of_refusal(before, obstacle, &now)
            }
            Err(obstacle) => status_of_obstacle(before, obstacle, &now),
        };
        if next != *before {
            if !self.resources.write_status(resource, &next).await? {
                // It has changed meanwhile, so what was asked may be another's answer.
                self.note_failure(uid);
                return Ok(());
            }
            self.tell_news(resource, &next).await;
        }
        if is_over(&next) {
            self.metrics.work[PreloadWork::Ended].inc();
            return self.release_resource(resource).await;
        }
        match asked {
            Ok(_) => {
                self.paces.lock().note_success(uid, Instant::now(), self.settings.look_every.0)
            }
            Err(_) => self.note_failure(uid),
        }
        Ok(())
    }

    fn note_failure(&self, uid: &str) {
        self.paces.lock().note_failure(uid, Instant::now(), self.settings.retry_max.0);
    }

    /// Begins the job, or looks at it. One that the coordinators have lost is begun again.
    async fn ask_for_job(
        &self,
        resource: &PreloadResource,
        key: &PreloadKey,
    ) -> Result<JobView, PreloadObstacle> {
        let id = job_id(resource);
        let looked = match resource.status.job_id {
            Some(_) => self.gateway.look_at_job(key, &id).await,
            None => Err(PreloadGatewayError::Unknown),
        };
        let is_job_gone = looked == Err(PreloadGatewayError::Unknown);
        let asked = match looked {
            Err(PreloadGatewayError::Unknown) => {
                self.gateway.begin_job(key, &resource.spec.job_spec(id)).await
            }
            looked => looked,
        };
        let work = if asked.is_ok() { PreloadWork::Looked } else { PreloadWork::Refused };
        self.metrics.work[work].inc();
        asked.map_err(|error| PreloadObstacle { is_job_gone, ..error.into() })
    }

    /// Ends the job of a resource that is deleted. Where that can't be done within its time, the
    /// resource goes all the same: it must not keep its namespace from going.
    async fn stop_job(&self, resource: &PreloadResource) -> Result<(), ApiServerError> {
        let id = job_id(resource);
        let stopped = match self.read_key(resource).await? {
            Err(obstacle) => Err(obstacle),
            Ok(key) => self.gateway.stop_job(&key, &id).await.map_err(PreloadObstacle::from),
        };
        let Err(obstacle) = stopped else {
            self.metrics.work[PreloadWork::Stopped].inc();
            return self.release_resource(resource).await;
        };
        match judge_stop(&resource.status, &obstacle) {
            StopVerdict::NoJob => return self.release_resource(resource).await,
            StopVerdict::MayPass if deleted_for(resource) < self.settings.stop_for.0 => {
                self.metrics.work[PreloadWork::Refused].inc();
                self.note_failure(&resource.metadata.uid);
                return Ok(());
            }
            StopVerdict::MayPass | StopVerdict::Lasting => {}
        }
        let note = format!("the job {id} may run on to its end: {}", obstacle.message);
        let (name, namespace) = (&resource.metadata.name, &resource.metadata.namespace);
        tracing::warn!(name, namespace, note, "a Preload resource goes before its job");
        let event = PreloadEvent { kind: EventKind::Warning, reason: "NotStopped", note };
        self.resources.publish_event(resource, event, &rfc3339_now()).await;
        self.metrics.work[PreloadWork::Abandoned].inc();
        self.release_resource(resource).await
    }

    /// Nothing of it runs any more, as far as can be known: it may go without this controller.
    async fn release_resource(&self, resource: &PreloadResource) -> Result<(), ApiServerError> {
        self.paces.lock().forget(&resource.metadata.uid);
        self.resources.set_finalizer(resource, FINALIZER, false).await
    }

    /// Reads the key of the resource's own namespace.
    async fn read_key(
        &self,
        resource: &PreloadResource,
    ) -> Result<Result<PreloadKey, PreloadObstacle>, ApiServerError> {
        let name = &resource.spec.secret_name;
        let (reason, message) = match self.resources.read_key(resource).await {
            Ok(Some(key)) => return Ok(Ok(key)),
            Ok(None) => (
                "SecretIncomplete",
                format!("Secret {name} lacks AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY"),
            ),
            Err(error) if error.is_status(404) => {
                ("SecretMissing", format!("there is no Secret {name} here"))
            }
            Err(error) if error.is_status(403) => (
                "SecretForbidden",
                format!(
                    "the controller may not read Secret {name} of this namespace: its operator \
                    has to allow it (docs/preload-resources.md)"
                ),
            ),
            Err(error) => return Err(error),
        };
        Ok(Err(PreloadObstacle { reason, message, is_job_gone: false }))
    }

    /// Publishes an event where the state has changed, or something new stands in the way.
    async fn tell_news(&self, resource: &PreloadResource, next: &PreloadResourceStatus) {
        let (was, is) = (stale_reason(&resource.status), stale_reason(next));
        let note = next.message.clone().unwrap_or_default();
        let event = match is {
            Some(reason) if was != Some(reason) => {
                PreloadEvent { kind: EventKind::Warning, reason, note }
            }
            None if resource.status.state != next.state => {
                let is_well = matches!(next.state.as_str(), "Queued" | "Running" | "Done");
                let kind = if is_well { EventKind::Normal } else { EventKind::Warning };
                PreloadEvent { kind, reason: &next.state, note }
            }
            _ => return,
        };
        self.resources.publish_event(resource, event, &rfc3339_now()).await;
    }
}

/// The uid is one of the cluster's own, so no other resource, before or after, has the job.
fn job_id(resource: &PreloadResource) -> String {
    format!("k8s-{}", resource.metadata.uid)
}

fn rfc3339_now() -> String {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
}

/// How long ago the resource was deleted, by the API server's clock. A time that can't be read is
/// long ago: a resource must not stay for ever.
fn deleted_for(resource: &PreloadResource) -> Duration {
    let deleted = resource.metadata.deletion_timestamp.as_deref().unwrap_or_default();
    let Ok(deleted) = OffsetDateTime::parse(deleted, &Rfc3339) else { return Duration::MAX };
    (OffsetDateTime::now_utc() - deleted).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
