//! `POST /v1/workers/ID/relay`: carries a write notice to a worker that its writer can't reach,
//! through the renewals of the worker's lease.
//!
//! Only the leader accepts such notices, because workers renew their leases there. No guarantee
//! depends on its leadership: a deposed leader sends its clients to the next one.

use std::time::Duration;

use futures::FutureExt;
use http::StatusCode;
use verbs3_certificates::NodeRole;
use verbs3_coordinator_client::api::RelayRequest;
use verbs3_protocol::{NoticeRelayOutcome, TenantNotice, WorkerId};

use super::api_context::ApiContext;
use super::leader_refusal::redirect_to_leader;
use super::request::CoordinatorRequest;
use super::response::{CoordinatorResponse, HandlerResult, malformed_response};
use super::route::Route;
use crate::relay_dispatcher::RelayDispatcher;

/// Most keys of one notice: as many as S3 allows in a batch delete, and a gateway sends in one
/// message.
const KEYS_MAX: usize = 1000;

pub(super) fn relay_routes() -> Vec<Route> {
    vec![
        Route::post("relay", "/v1/workers/{id}/relay", |context, asked| {
            relay_to_worker(context, asked).boxed()
        })
        .asked_by(&[NodeRole::Gateway])
        .unaudited()
        .summary("Tell a worker of a write, on behalf of a writer that can't reach it")
        // A worker may hear a notice twice without harm. Notices come at the rate of writes, so
        // remembering their proofs would take unbounded memory.
        .repeatable()
        .in_path("id", "Name of the worker")
        .takes_message("api::RelayRequest")
        .answers_message("What became of it", "verbs3_protocol::NoticeRelayOutcome"),
    ]
}

async fn relay_to_worker(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let RelayRequest { notice, wait_ms } = asked.parse_body()?;
    let keys = notice.word.notice_keys().len();
    if keys == 0 || keys > KEYS_MAX {
        return Err(malformed_response(
            StatusCode::BAD_REQUEST,
            format!("{keys} keys in one word; name 1 to {KEYS_MAX}"),
        ));
    }
    let id = WorkerId(asked.path_value("id").to_owned());
    let wait = context.clamp_wait(Some(wait_ms));
    let epoch = notice.word.map_epoch();
    let refused =
        context.leadership.as_leader(|cluster, now| cluster.relay_refusal(&id, epoch, now));
    let relayed = match refused {
        Some(Some(why)) => Some(why),
        Some(None) => relay_word(&context.relays, &id, notice, wait).await,
        None => None,
    };
    let Some(relayed) = relayed else { return Err(redirect_to_leader(&context.leadership).await) };
    context.relays.count_outcome(&relayed);
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &relayed))
}

async fn relay_word(
    relays: &RelayDispatcher,
    id: &WorkerId,
    notice: TenantNotice,
    wait: Duration,
) -> Option<NoticeRelayOutcome> {
    let (write, epoch) = (notice.word.write(), notice.word.map_epoch());
    let relayed = relays.dispatch_word(id, notice, wait).await;
    tracing::debug!(
        worker = %id, ?write, epoch = epoch.0, ?relayed,
        "a writer's word was relayed"
    );
    relayed
}
