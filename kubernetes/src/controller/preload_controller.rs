//! Goes over the `Preload` resources again and again, and does for each what is due. Owns the
//! finalizer: a resource has it while a job of its may run, and no longer.
//!
//! One of these is enough, and two do no harm: a job's id is the resource's uid, so both mean one
//! job. Every question has a deadline, every failure a growing pause.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;
use verbs3_preload::api::JobView;

use super::preload_gateway::{PreloadGateway, PreloadGatewayError, PreloadKey};
use super::preload_pace::PreloadPaces;
use super::preload_status::{
    PreloadObstacle, is_over, status_of_job, status_of_obstacle, status_of_refusal,
};
use super::resource_store::{EventKind, PreloadEvent, ResourceStore};
use crate::api_server::{ApiServer, ApiServerError};
use crate::metrics::{ControllerMetrics, PreloadWork};
use crate::preload_resource::{PreloadResource, PreloadResourceStatus};

const FINALIZER: &str = "verbs3.io/stop-job";

/// How the controller works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerOptions {
    /// How often resources are listed, and a job that runs is looked at.
    pub look_every: Duration,
    /// Longest pause before something that failed is tried again.
    pub retry_max: Duration,
    /// How long a resource that is deleted waits for the end of its job.
    pub stop_for: Duration,
    /// Resources that are worked at at once.
    pub concurrency_max: usize,
    /// Resources that are worked at in all.
    pub resources_max: usize,
}

/// The controller; see the module.
pub struct PreloadController {
    resources: ResourceStore,
    gateway: Arc<dyn PreloadGateway>,
    options: ControllerOptions,
    metrics: Arc<ControllerMetrics>,
    paces: Mutex<PreloadPaces>,
    has_listed: AtomicBool,
}

impl PreloadController {
    /// Makes a controller. Asks nobody before it is run.
    pub fn new(
        api: ApiServer,
        gateway: Arc<dyn PreloadGateway>,
        options: ControllerOptions,
        metrics: Arc<ControllerMetrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            resources: ResourceStore::new(api),
            gateway,
            options,
            metrics,
            paces: Mutex::default(),
            has_listed: AtomicBool::new(false),
        })
    }

    /// Returns whether the resources could be listed when they were listed last.
    pub fn is_ready(&self) -> bool {
        self.has_listed.load(Ordering::Acquire)
    }

    /// Goes over all resources until told to stop. What has begun ends first.
    pub async fn follow_resources(&self, stop: CancellationToken) {
        let mut failures = 0_u32;
        while !stop.is_cancelled() {
            let gone_round = self.go_round(&stop).await;
            self.has_listed.store(gone_round.is_ok(), Ordering::Release);
            let pause = match gone_round {
                Ok(()) => {
                    failures = 0;
                    self.options.look_every
                }
                Err(error) => {
                    self.metrics.work[PreloadWork::ApiFailed].inc();
                    tracing::warn!(%error, "Preload resources can't be listed");
                    failures = failures.saturating_add(1);
                    let pause = self.options.look_every.saturating_mul(1 << failures.min(8));
                    pause.min(self.options.retry_max.max(self.options.look_every))
                }
            };
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Goes over all resources once, a page after the other: all of them may be too many to hold.
    async fn go_round(&self, stop: &CancellationToken) -> Result<(), ApiServerError> {
        let (mut seen, mut next, mut left_out) = (HashSet::new(), String::new(), 0);
        loop {
            let page = self.resources.list_page(&next).await?;
            left_out += page.unreadable;
            seen.extend(page.resources.iter().map(|resource| resource.metadata.uid.clone()));
            self.work_through(page.resources, stop).await;
            if stop.is_cancelled() {
                return Ok(());
            }
            next = page.next;
            if next.is_empty() {
                break;
            }
            if seen.len() >= self.options.resources_max {
                left_out += page.remaining;
                break;
            }
        }
        let mut paces = self.paces.lock();
        paces.retain_known(&seen);
        self.metrics.resources.set(i64::try_from(paces.count()).unwrap_or(i64::MAX));
        self.metrics.left_out.set(i64::try_from(left_out).unwrap_or(i64::MAX));
        Ok(())
    }

    async fn work_through(&self, resources: Vec<PreloadResource>, stop: &CancellationToken) {
        let due = resources.into_iter().filter(|resource| self.is_due(resource));
        futures::stream::iter(due)
            .take_until(stop.cancelled())
            .for_each_concurrent(self.options.concurrency_max, |resource| async move {
                if let Err(error) = self.work_at(&resource).await {
                    self.metrics.work[PreloadWork::ApiFailed].inc();
                    let (name, namespace) = (&resource.metadata.name, &resource.metadata.namespace);
                    tracing::warn!(name, namespace, %error, "a Preload resource has to wait");
                    self.note_failure(&resource);
                }
            })
            .await;
    }

    /// Whether there is something to do for a resource now.
    fn is_due(&self, resource: &PreloadResource) -> bool {
        let metadata = &resource.metadata;
        let is_finished = is_over(&resource.status) || metadata.deletion_timestamp.is_some();
        if is_finished && !has_finalizer(resource) {
            return false;
        }
        self.paces.lock().is_due(&metadata.uid, Instant::now())
    }

    async fn work_at(&self, resource: &PreloadResource) -> Result<(), ApiServerError> {
        if is_over(&resource.status) {
            return self.release_resource(resource).await;
        }
        if resource.metadata.deletion_timestamp.is_some() {
            return self.stop_job(resource).await;
        }
        if !has_finalizer(resource) {
            // Before the job, or it could outlive its resource unseen. The next round begins it.
            return self.resources.set_finalizer(resource, FINALIZER, true).await;
        }
        let before = &resource.status;
        let asked = match self.read_key(resource).await? {
            Ok(key) => self.ask_for_job(resource, &key).await.map_err(Into::into),
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
            self.resources.write_status(resource, &next).await?;
            self.tell_news(resource, &next).await;
        }
        if is_over(&next) {
            self.metrics.work[PreloadWork::Ended].inc();
            return self.release_resource(resource).await;
        }
        match asked {
            Ok(_) => {
                let (uid, now) = (&resource.metadata.uid, Instant::now());
                self.paces.lock().note_success(uid, now, self.options.look_every);
            }
            Err(_) => self.note_failure(resource),
        }
        Ok(())
    }

    fn note_failure(&self, resource: &PreloadResource) {
        let (uid, pause_max) = (&resource.metadata.uid, self.options.retry_max);
        self.paces.lock().note_failure(uid, Instant::now(), pause_max);
    }

    /// Begins the job, or looks at it. One that the coordinators have lost is begun again.
    async fn ask_for_job(
        &self,
        resource: &PreloadResource,
        key: &PreloadKey,
    ) -> Result<JobView, PreloadGatewayError> {
        let id = job_id(resource);
        let looked = match resource.status.job_id {
            Some(_) => self.gateway.look_at_job(key, &id).await,
            None => Err(PreloadGatewayError::Unknown),
        };
        let asked = match looked {
            Err(PreloadGatewayError::Unknown) => {
                self.gateway.begin_job(key, &resource.spec.job_spec(id)).await
            }
            looked => looked,
        };
        let work = if asked.is_ok() { PreloadWork::Looked } else { PreloadWork::Refused };
        self.metrics.work[work].inc();
        asked
    }

    /// Ends the job of a resource that is deleted. Where that can't be done within its time, the
    /// resource goes all the same: it must not keep its namespace from going.
    async fn stop_job(&self, resource: &PreloadResource) -> Result<(), ApiServerError> {
        let id = job_id(resource);
        let stopped = match self.read_key(resource).await? {
            Ok(key) => match self.gateway.stop_job(&key, &id).await {
                Ok(()) | Err(PreloadGatewayError::Unknown) => Ok(()),
                Err(error) => Err(PreloadObstacle::from(error)),
            },
            Err(obstacle) => Err(obstacle),
        };
        let has_job = resource.status.job_id.is_some();
        let Err(obstacle) = stopped else {
            self.metrics.work[PreloadWork::Stopped].inc();
            return self.release_resource(resource).await;
        };
        // Without a key nothing will ever come of it, and without a job nothing has to.
        let may_come = obstacle.is_reachable.is_some() && has_job;
        if may_come && deleted_for(resource) < self.options.stop_for {
            self.metrics.work[PreloadWork::Refused].inc();
            self.note_failure(resource);
            return Ok(());
        }
        if has_job {
            let note = format!("the job {id} may run on to its end: {}", obstacle.message);
            let (name, namespace) = (&resource.metadata.name, &resource.metadata.namespace);
            tracing::warn!(name, namespace, note, "a Preload resource goes before its job");
            let event = PreloadEvent { kind: EventKind::Warning, reason: "NotStopped", note };
            self.resources.publish_event(resource, event, &rfc3339_now()).await;
        }
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
                    has to allow it (docs/kubernetes.md)"
                ),
            ),
            Err(error) => return Err(error),
        };
        Ok(Err(PreloadObstacle { reason, message, is_reachable: None }))
    }

    /// Publishes an event where the state has changed, or something new stands in the way.
    async fn tell_news(&self, resource: &PreloadResource, next: &PreloadResourceStatus) {
        let reason_of = |status: &PreloadResourceStatus| {
            let reachable = status.conditions.iter().find(|one| one.kind == "Reachable");
            reachable.map(|condition| condition.reason.clone())
        };
        let (was, is) = (reason_of(&resource.status), reason_of(next));
        let note = next.message.clone().unwrap_or_default();
        let event = match is.as_deref().filter(|reason| *reason != "Answered") {
            Some(reason) if was.as_deref() != Some(reason) => {
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

fn has_finalizer(resource: &PreloadResource) -> bool {
    resource.metadata.finalizers.iter().any(|name| name == FINALIZER)
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
