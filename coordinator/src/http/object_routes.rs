//! Answers requests about objects: where they are, that they changed, and that they should go or
//! stay. The leader runs the jobs. Every coordinator that has stores, mounts and a map answers the
//! rest.

use futures::FutureExt;
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use verbs3_client::TendError;
use verbs3_coordinator_client::api::CoordinatorRefusalKind;
use verbs3_preload::api::{
    InvalidationRequest, InvalidationSummary, NotificationSummary, ObjectView, PreloadJobAction,
    PreloadJobSpec, PreloadSelection, PreloadTier,
};
use verbs3_preload::{BucketNotification, NotificationError, ObjectAdmin, ObjectError};

use super::api_context::ApiContext;
use super::preload_routes::{begin_job, begins_job, preload_refusal, require_engine};
use super::request::CoordinatorRequest;
use super::response::{
    CoordinatorResponse, HandlerResult, malformed_response, unavailable_response,
};
use super::route::Route;
use crate::leader_preload::LeaderPreload;

/// Path of notifications. Stores show a token there instead of a proof.
pub(super) const NOTIFICATIONS: &str = "/v1/notifications";

/// Action on the pages of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectPageAction {
    Evict,
    Pin,
    Unpin,
}

pub(super) fn object_routes() -> Vec<Route> {
    vec![
        begins_job(Route::post("evict", "/v1/evict", |context, asked| {
            tend_job(context, ObjectPageAction::Evict, asked).boxed()
        }))
        .summary("Give up pages at the workers that own their blocks, pinned or not; a job")
        .takes_as(selection_schema),
        begins_job(Route::post("pin", "/v1/pin", |context, asked| {
            tend_job(context, ObjectPageAction::Pin, asked).boxed()
        }))
        .summary("Load pages onto disk and keep them there; a job")
        .takes_as(pins_schema),
        begins_job(Route::post("unpin", "/v1/unpin", |context, asked| {
            tend_job(context, ObjectPageAction::Unpin, asked).boxed()
        }))
        .summary("Pinned pages may be given up again; a job")
        .takes_as(selection_schema),
        Route::post("invalidate", "/v1/invalidate", |context, asked| {
            invalidate_objects(&context.preload, asked).boxed()
        })
        .summary(
            "Have the UFS asked before anything else is answered of these objects: every read \
            that begins after the answer sees what the UFS has then, or later",
        )
        .takes::<InvalidationRequest>()
        .answers::<InvalidationSummary>(StatusCode::OK, "Done"),
        Route::post("notifications", NOTIFICATIONS, |context, asked| {
            accept_notification(context, asked).boxed()
        })
        .summary("A bucket notification: what it names is invalidated")
        .in_query::<String>(
            "ufs",
            "Name of the UFS that it is from; default: any with a mount of the bucket",
        )
        .in_query::<bool>("warm", "Load what was created")
        .takes::<BucketNotification>()
        .answers::<NotificationSummary>(StatusCode::OK, "What was done")
        .refuses(StatusCode::CONFLICT, "A job of this name is there"),
        Route::get("objects", "/v1/objects/{bucket}/{*key}", |context, asked| {
            show_object(&context.preload, asked).boxed()
        })
        .summary(
            "Where an object is: its blocks, who owns them, which of these have them, in which \
            tier, how hot",
        )
        .in_path("bucket", "As clients name it")
        .in_path("key", "Slashes of it need no escape")
        .in_query_as(
            "first_block",
            "The first block to be shown; 1024 are",
            |_| json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        )
        .answers::<ObjectView>(StatusCode::OK, "The object"),
    ]
}

/// Describes the body of actions that have no `ttl`.
fn selection_schema(generator: &mut SchemaGenerator) -> Schema {
    name_selection(generator, "PreloadSelection", |schema, _| {
        if let Some(properties) = schema.pointer_mut("/properties").and_then(Value::as_object_mut) {
            properties.remove("ttl");
        }
    })
}

/// Describes the body of a pin, which has to have a `ttl`.
fn pins_schema(generator: &mut SchemaGenerator) -> Schema {
    name_selection(generator, "PinSelection", |schema, generator| {
        if let Some(ttl) = schema.pointer_mut("/properties/ttl") {
            *ttl = generator.subschema_for::<u64>().to_value();
        }
        schema.insert("required".to_owned(), json!(["ttl"]));
    })
}

/// Puts a schema of [`PreloadSelection`], narrowed for one action, under a name of its own.
fn name_selection(
    generator: &mut SchemaGenerator,
    name: &str,
    narrow: impl FnOnce(&mut Schema, &mut SchemaGenerator),
) -> Schema {
    let mut schema = PreloadSelection::json_schema(generator);
    narrow(&mut schema, generator);
    generator.definitions_mut().insert(name.to_owned(), schema.to_value());
    Schema::new_ref(format!("#/components/schemas/{name}"))
}

async fn tend_job(
    context: &ApiContext,
    act: ObjectPageAction,
    asked: &CoordinatorRequest,
) -> HandlerResult {
    let PreloadSelection { id, paths, prefixes, manifest, ttl } = asked.parse_body()?;
    let wrong = |reason| Err(malformed_response(StatusCode::BAD_REQUEST, reason));
    let spec = PreloadJobSpec { id, paths, prefixes, manifest, ..PreloadJobSpec::default() };
    let spec = match (act, ttl) {
        (ObjectPageAction::Pin, Some(_)) => {
            PreloadJobSpec { tier: PreloadTier::Disk, pin_ttl: ttl, ..spec }
        }
        (ObjectPageAction::Pin, None) => {
            return wrong("ttl is missing: the seconds for which pages are kept");
        }
        (_, Some(_)) => return wrong("only pins have a ttl; leave it out"),
        (ObjectPageAction::Evict, None) => {
            PreloadJobSpec { action: PreloadJobAction::Evict, ..spec }
        }
        (ObjectPageAction::Unpin, None) => {
            PreloadJobSpec { action: PreloadJobAction::Unpin, ..spec }
        }
    };
    begin_job(context, spec).await
}

async fn invalidate_objects(preload: &LeaderPreload, asked: &CoordinatorRequest) -> HandlerResult {
    let invalidation: InvalidationRequest = asked.parse_body()?;
    let done = require_objects(preload)?.invalidate_objects(&invalidation).await;
    done.map_err(|error| object_refusal(&error))?;
    let invalidated = invalidation.paths.len() + invalidation.prefixes.len();
    let summary = InvalidationSummary { invalidated: invalidated as u64 };
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &summary))
}

async fn accept_notification(context: &ApiContext, asked: &CoordinatorRequest) -> HandlerResult {
    let said: BucketNotification = asked.parse_body()?;
    let objects = require_objects(&context.preload)?;
    let wrong = |reason: &str| malformed_response(StatusCode::BAD_REQUEST, reason);
    let ufs = asked.query_text("ufs");
    let warm = match asked.query_text("warm").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(wrong("warm is true or false")),
    };
    let applied = objects.apply_notification(&said, ufs.as_deref()).await;
    let (mut notified, job) = applied.map_err(|error| match error {
        NotificationError::Object(error) => object_refusal(&error),
        NotificationError::Empty | NotificationError::Record(_) => wrong(&error.to_string()),
    })?;
    if let Some(job) = job.filter(|_| warm) {
        let created = require_engine(context).await?.create_job(job).await;
        let (view, _) = created.map_err(|error| preload_refusal(&error))?;
        notified.job = Some(view.id);
    }
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &notified))
}

async fn show_object(preload: &LeaderPreload, asked: &CoordinatorRequest) -> HandlerResult {
    let objects = require_objects(preload)?;
    let first_block = asked.query_number("first_block")?.map_or(Ok(0), u32::try_from);
    let first_block = first_block.map_err(|_| {
        malformed_response(StatusCode::BAD_REQUEST, "first_block is a number below 2^32")
    })?;
    let path = format!("s3://{}/{}", asked.path_value("bucket"), asked.path_value("key"));
    let view = objects.locate_object(&path, first_block).await;
    let view = view.map_err(|error| object_refusal(&error))?;
    Ok(CoordinatorResponse::from_json(StatusCode::OK, &view))
}

fn require_objects(preload: &LeaderPreload) -> Result<&ObjectAdmin, CoordinatorResponse> {
    let reason = "this coordinator knows no objects: it needs [[ufs]] and [[mount]] in its \
        configuration";
    let missing = || unavailable_response(StatusCode::SERVICE_UNAVAILABLE, reason);
    preload.object_admin().ok_or_else(missing)
}

fn object_refusal(error: &ObjectError) -> CoordinatorResponse {
    let (status, kind) = match error {
        ObjectError::Spec(_) | ObjectError::TooMany(_) => {
            (StatusCode::BAD_REQUEST, CoordinatorRefusalKind::Malformed)
        }
        ObjectError::Absent(_) => (StatusCode::NOT_FOUND, CoordinatorRefusalKind::Unknown),
        ObjectError::Ufs { .. }
        | ObjectError::Tier(
            TendError::NoMap
            | TendError::Unknown { .. }
            | TendError::Away { .. }
            | TendError::Refused { .. },
        ) => (StatusCode::SERVICE_UNAVAILABLE, CoordinatorRefusalKind::Unavailable),
    };
    CoordinatorResponse::refuse_request(status, kind, error.to_string())
}
