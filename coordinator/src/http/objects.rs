//! Answers requests about objects: where they are, that they changed, and that they should go or
//! stay. The leader runs the jobs. Every coordinator that has stores, mounts and a map answers the
//! rest.

use http::StatusCode;
use serde_json::json;
use verbs3_client::TendError;
use verbs3_coordinator_client::api::CoordinatorRefusalKind;
use verbs3_preload::api::{
    InvalidationRequest, PreloadJobAction, PreloadJobSpec, PreloadSelection, PreloadTier,
};
use verbs3_preload::{BucketNotification, NotificationError, ObjectAdmin, ObjectError};

use super::preload::preload_refusal as engine_refused;
use super::routes::{malformed_response, parse_body, query_number, query_text};
use super::{CoordinatorRequest, CoordinatorResponse};
use crate::coordinator::CoordinatorServer;

/// Action on the pages of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectPageAction {
    Evict,
    Pin,
    Unpin,
}

impl CoordinatorServer {
    /// `POST /v1/evict`, `/v1/pin`, `/v1/unpin`: creates a job and answers like `POST /v1/preload`.
    pub(super) async fn tend_job(
        &self,
        act: ObjectPageAction,
        asked: &CoordinatorRequest,
    ) -> CoordinatorResponse {
        let PreloadSelection { id, paths, prefixes, manifest, ttl } = match parse_body(asked) {
            Ok(selection) => selection,
            Err(answer) => return answer,
        };
        let spec = PreloadJobSpec { id, paths, prefixes, manifest, ..PreloadJobSpec::default() };
        let spec = match (act, ttl) {
            (ObjectPageAction::Pin, Some(_)) => {
                PreloadJobSpec { tier: PreloadTier::Disk, pin_ttl: ttl, ..spec }
            }
            (ObjectPageAction::Pin, None) => {
                return malformed_response(
                    StatusCode::BAD_REQUEST,
                    "ttl is missing: the seconds for which pages are kept",
                );
            }
            (_, Some(_)) => {
                return malformed_response(
                    StatusCode::BAD_REQUEST,
                    "only pins have a ttl; leave it out",
                );
            }
            (ObjectPageAction::Evict, None) => {
                PreloadJobSpec { action: PreloadJobAction::Evict, ..spec }
            }
            (ObjectPageAction::Unpin, None) => {
                PreloadJobSpec { action: PreloadJobAction::Unpin, ..spec }
            }
        };
        self.preload_begin(spec).await
    }

    /// `POST /v1/invalidate`. After a 200, every read that begins sees the UFS's present state or a
    /// later one.
    pub(super) async fn invalidate_objects(
        &self,
        asked: &CoordinatorRequest,
    ) -> CoordinatorResponse {
        let invalidation: InvalidationRequest = match parse_body(asked) {
            Ok(invalidation) => invalidation,
            Err(answer) => return answer,
        };
        let Some(objects) = self.object_admin() else { return no_objects() };
        match objects.invalidate_objects(&invalidation).await {
            Ok(()) => {
                let names = invalidation.paths.len() + invalidation.prefixes.len();
                CoordinatorResponse::from_json(StatusCode::OK, &json!({ "invalidated": names }))
            }
            Err(error) => object_refusal(&error),
        }
    }

    /// `POST /v1/notifications?ufs=NAME&warm=true`.
    pub(super) async fn accept_notification(
        &self,
        asked: &CoordinatorRequest,
    ) -> CoordinatorResponse {
        let said: BucketNotification = match parse_body(asked) {
            Ok(said) => said,
            Err(answer) => return answer,
        };
        let Some(objects) = self.object_admin() else { return no_objects() };
        let ufs = query_text(&asked.query, "ufs");
        let warm = match query_text(&asked.query, "warm").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return malformed_response(StatusCode::BAD_REQUEST, "warm is true or false"),
        };
        let (mut notified, job) = match objects.apply_notification(&said, ufs.as_deref()).await {
            Ok(done) => done,
            Err(NotificationError::Object(error)) => return object_refusal(&error),
            Err(error @ (NotificationError::Empty | NotificationError::Record(_))) => {
                return malformed_response(StatusCode::BAD_REQUEST, error.to_string());
            }
        };
        if let Some(job) = job.filter(|_| warm) {
            let Some(engine) = self.preload_engine() else { return self.no_engine().await };
            match engine.create_job(job).await {
                Ok((view, _)) => notified.job = Some(view.id),
                Err(error) => return engine_refused(&error),
            }
        }
        CoordinatorResponse::from_json(StatusCode::OK, &notified)
    }

    /// `GET /v1/objects/BUCKET/KEY?first_block=N`.
    pub(super) async fn show_object(
        &self,
        bucket: &str,
        key: &str,
        asked: &CoordinatorRequest,
    ) -> CoordinatorResponse {
        let Some(objects) = self.object_admin() else { return no_objects() };
        let first_block = match query_number(&asked.query, "first_block")
            .map(|number| number.map_or(Ok(0), u32::try_from))
        {
            Ok(Ok(first_block)) => first_block,
            Err(answer) => return answer,
            Ok(Err(_)) => {
                return malformed_response(
                    StatusCode::BAD_REQUEST,
                    "first_block is a number below 2^32",
                );
            }
        };
        match objects.locate_object(&format!("s3://{bucket}/{key}"), first_block).await {
            Ok(view) => CoordinatorResponse::from_json(StatusCode::OK, &view),
            Err(error) => object_refusal(&error),
        }
    }

    fn object_admin(&self) -> Option<&ObjectAdmin> {
        self.preloading.objects.get()
    }
}

fn no_objects() -> CoordinatorResponse {
    let reason =
        "this coordinator knows no objects: it needs [[ufs]] and [[mount]] in its configuration";
    CoordinatorResponse::refuse_request(
        StatusCode::SERVICE_UNAVAILABLE,
        CoordinatorRefusalKind::Unavailable,
        reason,
    )
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
