//! Answers workers, and people who drain or bury one. Only the leader does.

use futures::FutureExt;
use http::StatusCode;
use verbs3_certificates::NodeRole;
use verbs3_coordinator_client::api::{
    CoordinatorRefusal, CoordinatorRefusalKind, WorkerDeparture, WorkerDrainView, WorkerLeaseGrant,
    WorkerLeaseRenewal, WorkerRegistration,
};
use verbs3_coordinator_client::lease_clock::LeaseInstant;
use verbs3_protocol::WorkerId;

use super::api_context::ApiContext;
use super::cluster_routes::build_worker_views;
use super::leader_refusal::redirect_to_leader;
use super::request::CoordinatorRequest;
use super::response::{CoordinatorResponse, HandlerResult, forbidden_response};
use super::route::Route;
use crate::leadership::ClusterLeadership;
use crate::membership::{MembershipController, MembershipError};

/// Who registers and renews: each under its own name.
const WORKERS: &[NodeRole] = &[NodeRole::Worker];
/// Who drains: operators, and a worker itself before it is stopped. So no operator's key has to lie
/// on every host. A worker does not undo a drain: that may be an operator's.
const DRAINERS: &[NodeRole] = &[NodeRole::Operator, NodeRole::Worker];

pub(super) fn worker_routes() -> Vec<Route> {
    let done = "It is so";
    let taken = "Another worker has this id";
    let superseded = "Another process has registered as this worker";
    let id = "Name of the worker";
    vec![
        Route::post("register", "/v1/workers", |context, asked| {
            register_worker(context, asked).boxed()
        })
        .asked_by(WORKERS)
        .summary("Register a worker, and grant it a lease")
        .takes_message("api::WorkerRegistration")
        .answers_message("The lease, and the worker's duties", "api::WorkerLeaseGrant")
        .refuses(StatusCode::CONFLICT, taken),
        Route::post("renew", "/v1/workers/{id}/renew", |context, asked| {
            renew_lease(context, asked).boxed()
        })
        .unaudited()
        .asked_by(WORKERS)
        .summary("Renew a worker's lease, and wait for its next duties")
        .in_path("id", id)
        .takes_message("api::WorkerLeaseRenewal")
        .answers_message("The lease, and the worker's duties", "api::WorkerLeaseGrant")
        .refuses(StatusCode::CONFLICT, taken)
        .refuses(StatusCode::GONE, superseded),
        Route::post("leave", "/v1/workers/{id}/leave", |context, asked| {
            accept_departure(&context.leadership, asked).boxed()
        })
        .asked_by(WORKERS)
        .summary("Take a worker out that ends, with what it hands over")
        .in_path("id", id)
        .takes_message("api::WorkerDeparture")
        .answers_message("It has left", "null")
        .refuses(StatusCode::GONE, superseded),
        Route::post("drain", "/v1/workers/{id}/drain", |context, asked| {
            set_draining(&context.leadership, asked, true).boxed()
        })
        .asked_by(DRAINERS)
        .summary(
            "Take a worker's slots away, and have others take over what is hot; `drained` of the \
            worker says when it may be stopped",
        )
        .in_path("id", id)
        .answers_nothing(done),
        Route::get("drain_view", "/v1/workers/{id}/drain", |context, asked| {
            show_drain(context, asked).boxed()
        })
        .asked_by(DRAINERS)
        .summary("How far the drain of a worker is")
        .in_path("id", id)
        .answers::<WorkerDrainView>(StatusCode::OK, "The worker, and whether others are there"),
        Route::post("undrain", "/v1/workers/{id}/undrain", |context, asked| {
            set_draining(&context.leadership, asked, false).boxed()
        })
        .summary("Give a worker its slots back")
        .in_path("id", id)
        .answers_nothing(done),
        Route::delete("forget", "/v1/workers/{id}", |context, asked| {
            forget_worker(&context.leadership, asked).boxed()
        })
        .summary(
            "Say that a worker is dead and will not come back, so that no map waits for it longer \
            than its lease",
        )
        .in_path("id", id)
        .answers_nothing(done),
    ]
}

async fn register_worker(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let registration: WorkerRegistration = asked.parse_body()?;
    let id = registration.id.clone();
    require_own_name(asked, &id)?;
    let hot = context.options.hot_wish;
    let address = registration.address.clone();
    let (granted, other) = change_membership(&context.leadership, |cluster, now| {
        let granted = cluster.register_worker(registration, now)?;
        Ok((granted, cluster.other_at_address(&id, &address, now)))
    })
    .await?;
    tracing::info!(worker = %id, "a worker has registered");
    if let Some(other) = other {
        tracing::warn!(
            worker = %id, %other, address,
            "a worker registers at the address of another one that lives; give each its own \
            worker.advertise"
        );
    }
    let granted = WorkerLeaseGrant { hot, ..granted };
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &granted))
}

async fn renew_lease(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let mut renewal: WorkerLeaseRenewal = asked.parse_body()?;
    let heard = std::mem::take(&mut renewal.heard);
    let hot = renewal.hot.take();
    let id = worker_id(asked);
    require_own_name(asked, &id)?;
    let mut news = context.leadership.subscribe_news();
    news.mark_unchanged();
    let granted: Option<Result<WorkerLeaseGrant, MembershipError>> =
        context.leadership.with_leader_state(|leading, now| {
            let granted = leading.cluster.renew_lease(&id, &renewal, now)?;
            if let Some(blocks) = hot {
                leading.hot.record_report(&id, blocks, now);
            }
            Ok(WorkerLeaseGrant { hot: context.options.hot_wish, ..granted })
        });
    // A change may wait for what the worker has prepared.
    if renewal.prepared.0 > 0 {
        context.leadership.wake_loop();
    }
    let Some(granted) = granted else { return Err(redirect_to_leader(&context.leadership).await) };
    let mut granted = granted.map_err(|error| membership_refusal(&error))?;
    // The answers come from the one process that has this id. What it has noted counts,
    // whichever coordinator leads.
    context.relays.deliver_answers(&id, heard);
    let bell = context.relays.renewal_notifier(&id);
    granted.words = context.relays.hand_out(&id);
    if is_news(&granted) {
        return Ok(CoordinatorResponse::from_json(StatusCode::OK, &granted));
    }
    let until = tokio::time::Instant::now() + context.clamp_wait(Some(renewal.wait_ms));
    // The lease was granted when the question came. Waiting adds nothing to it.
    loop {
        tokio::select! {
            changed = news.changed() => match read_news(context, &id, &renewal) {
                Some(news) if is_news(&news) => {
                    return Ok(CoordinatorResponse::from_json(StatusCode::OK, &news));
                }
                Some(_) if changed.is_ok() => {}
                Some(_) => break,
                None => return Err(redirect_to_leader(&context.leadership).await),
            },
            () = bell.notified() => {
                granted.words = context.relays.hand_out(&id);
                if is_news(&granted) {
                    break;
                }
            }
            () = tokio::time::sleep_until(until) => break,
        }
    }
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &granted))
}

/// Returns the news after a wait, without a new lease.
fn read_news(
    context: &ApiContext,
    id: &WorkerId,
    renewal: &WorkerLeaseRenewal,
) -> Option<WorkerLeaseGrant> {
    let news = context.leadership.as_leader(|cluster, _| cluster.lease_news(id, renewal))?;
    Some(WorkerLeaseGrant { hot: context.options.hot_wish, ..news })
}

async fn accept_departure(
    leadership: &ClusterLeadership,
    asked: &CoordinatorRequest,
) -> HandlerResult {
    let leave: WorkerDeparture = asked.parse_body()?;
    let id = worker_id(asked);
    require_own_name(asked, &id)?;
    tracing::info!(worker = id.0, "a worker leaves");
    change_membership(leadership, |cluster, _| cluster.record_departure(&id, leave)).await?;
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &()))
}

async fn set_draining(
    leadership: &ClusterLeadership,
    asked: &CoordinatorRequest,
    draining: bool,
) -> HandlerResult {
    let id = worker_id(asked);
    require_own_name(asked, &id)?;
    tracing::info!(worker = id.0, draining, "a worker is to be drained, or no more");
    change_membership(leadership, |cluster, _| cluster.set_draining(&id, draining)).await?;
    Ok(CoordinatorResponse::no_content())
}

async fn show_drain(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let id = worker_id(asked);
    require_own_name(asked, &id)?;
    match WorkerDrainView::of_worker(&id, build_worker_views(context).await?) {
        Some(view) => Ok(CoordinatorResponse::from_json(StatusCode::OK, &view)),
        None => Err(membership_refusal(&MembershipError::Unknown(id))),
    }
}

async fn forget_worker(
    leadership: &ClusterLeadership,
    asked: &CoordinatorRequest,
) -> HandlerResult {
    let id = worker_id(asked);
    tracing::warn!(worker = id.0, "a worker was declared dead");
    change_membership(leadership, |cluster, _| cluster.forget_worker(&id)).await?;
    Ok(CoordinatorResponse::no_content())
}

/// Changes the membership as leader.
async fn change_membership<T>(
    leadership: &ClusterLeadership,
    act: impl FnOnce(&mut MembershipController, LeaseInstant) -> Result<T, MembershipError>,
) -> Result<T, CoordinatorResponse> {
    let changed = match leadership.as_leader(act) {
        Some(changed) => changed.map_err(|error| membership_refusal(&error)),
        None => return Err(redirect_to_leader(leadership).await),
    };
    leadership.wake_loop();
    changed
}

/// Refuses a worker that speaks as another one.
fn require_own_name(asked: &CoordinatorRequest, id: &WorkerId) -> Result<(), CoordinatorResponse> {
    let refusal = asked.caller.refusal_as_worker(&id.0);
    refusal.map_or(Ok(()), |why| Err(forbidden_response(why)))
}

fn worker_id(asked: &CoordinatorRequest) -> WorkerId {
    WorkerId(asked.path_value("id").to_owned())
}

/// Returns whether the worker should be answered at once.
fn is_news(granted: &WorkerLeaseGrant) -> bool {
    granted.activation.is_some() || granted.prepare.is_some() || !granted.words.is_empty()
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
    let refused =
        CoordinatorRefusal { left_ms, ..CoordinatorRefusal::new(kind, error.to_string()) };
    CoordinatorResponse::from_refusal(status, &refused)
}
