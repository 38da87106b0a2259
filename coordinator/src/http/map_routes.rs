//! Answers questions about the map and about hot blocks: by every coordinator, and by the leader.

use futures::FutureExt;
use http::StatusCode;
use schemars::json_schema;
use verbs3_certificates::NodeRole;
use verbs3_coordinator_client::api::PlacementView;
use verbs3_coordinator_client::hot_blocks::HotList;
use verbs3_protocol::{BlockIndex, Epoch, HashSlot, ObjectKey, ObjectVolume};

use super::api_context::ApiContext;
use super::leader_refusal::redirect_to_leader;
use super::request::CoordinatorRequest;
use super::response::{
    CoordinatorResponse, HandlerResult, malformed_response, unavailable_response,
};
use super::route::Route;
use crate::published_map::PublishedMap;

pub(super) fn map_routes() -> Vec<Route> {
    vec![
        Route::get("map", "/v1/map", |context, asked| get_map(context, asked).boxed())
            .asked_by(&NodeRole::ALL)
            .summary("The map, once there is a later one than the asker's")
            .in_query::<u64>("epoch", "Epoch of the map that the asker has; default: none")
            .in_query::<u64>("wait_ms", "How long to wait for a later map")
            .answers_message("A later map", "api::MapAnswer")
            .answers_nothing("There is no later map yet"),
        Route::get("hot", "/v1/hot", |context, asked| get_hot_list(context, asked).boxed())
            .asked_by(&NodeRole::ALL)
            .summary("The blocks that several workers serve, once there is another list")
            .in_query::<u64>("seen", "Version of the list that the asker has; default: none")
            .in_query::<u64>("wait_ms", "How long to wait for another list")
            .answers::<HotList>(StatusCode::OK, "Another list")
            .answers_nothing("There is no other list yet"),
        Route::get("placement", "/v1/placement", |context, asked| {
            get_placement(&context.maps.published, asked).boxed()
        })
        .summary(
            "The workers of a block, or of a slot; without either, how many slots each worker \
                owns",
        )
        .in_query::<String>("volume", "UFS/BUCKET")
        .in_query::<String>("key", "As the UFS names it")
        .in_query_as(
            "block",
            "Default: 0",
            |_| json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        )
        .in_query::<u16>("slot", "In place of volume and key")
        .answers::<PlacementView>(StatusCode::OK, "The workers"),
    ]
}

async fn get_map(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let epoch = Epoch(asked.query_number("epoch")?.unwrap_or_default());
    let wait = context.clamp_wait(asked.query_number("wait_ms")?);
    if context.leadership.as_leader(|cluster, _| cluster.hear_follower(epoch)) == Some(true) {
        context.leadership.wake_loop();
    }
    Ok(match context.maps.published.later_than(epoch, wait).await {
        Some(answer) => CoordinatorResponse::from_encoded(StatusCode::OK, answer),
        None => CoordinatorResponse::no_content(),
    })
}

async fn get_hot_list(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let seen = asked.query_number("seen")?.unwrap_or_default();
    let wait = context.clamp_wait(asked.query_number("wait_ms")?);
    if !context.leadership.is_leader() {
        return Err(redirect_to_leader(&context.leadership).await);
    }
    match context.leadership.hot_list().other_than(seen, wait).await {
        Some(list) => Ok(CoordinatorResponse::from_encoded(StatusCode::OK, list)),
        None if context.leadership.is_leader() => Ok(CoordinatorResponse::no_content()),
        None => Err(redirect_to_leader(&context.leadership).await),
    }
}

async fn get_placement(published: &PublishedMap, asked: &CoordinatorRequest) -> HandlerResult {
    let Some(placement) = published.current_placement().await else {
        let reason = "there is no map yet";
        return Err(unavailable_response(StatusCode::SERVICE_UNAVAILABLE, reason));
    };
    let slot = requested_slot(asked)?;
    let mut view = PlacementView {
        epoch: placement.map_epoch(),
        slot: slot.map(|slot| slot.0),
        workers: None,
        slots: None,
    };
    match slot {
        Some(slot) => {
            let owners = placement.slot_owners(slot).iter();
            let members = placement.map_members();
            view.workers = Some(owners.map(|&at| members[usize::from(at)].id.clone()).collect());
        }
        None => view.slots = Some(published.count_owned_slots().await),
    }
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &view))
}

/// Returns the slot that a question about placement means. `None`: all.
fn requested_slot(asked: &CoordinatorRequest) -> Result<Option<HashSlot>, CoordinatorResponse> {
    let wrong = |what: &'static str| malformed_response(StatusCode::BAD_REQUEST, what);
    let block = asked.query_number("block")?.map_or(Ok(0), u32::try_from);
    let block = BlockIndex(block.map_err(|_| wrong("a block is a number below 2^32"))?);
    let slot = asked.query_number("slot")?.map(u16::try_from).transpose();
    let slot = slot.map_err(|_| wrong("a slot is a number below 65536"))?;
    match (asked.query_text("volume"), asked.query_text("key"), slot) {
        (Some(volume), Some(key), _) => {
            Ok(Some(ObjectKey { volume: ObjectVolume(volume), key }.block_slot(block)))
        }
        (None, None, slot) => Ok(slot.map(HashSlot)),
        _ => Err(wrong("volume and key belong together")),
    }
}
