//! What can be asked and said of objects: where they are, that they have changed, that they are to
//! go or to stay. Jobs are the leader's; everything else every coordinator does that has stores,
//! mounts and a map.

use http::StatusCode;
use serde_json::json;
use verbs3_client::TendError;
use verbs3_coordinator_client::api::RefusedKind;
use verbs3_preload::api::{Action, Invalidation, Selection, Spec, Tier};
use verbs3_preload::{Notification, NotifiedError, ObjectError, Objects};

use super::preload::refused as engine_refused;
use super::routes::{malformed, number, parsed, text};
use super::{Answer, Asked};
use crate::coordinator::Coordinator;

/// What is to be done with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Evict,
    Pin,
    Unpin,
}

impl Coordinator {
    /// `POST /v1/evict`, `/v1/pin`, `/v1/unpin`: a job, as `POST /v1/preload` answers.
    pub(super) async fn tend_job(&self, act: Act, asked: &Asked) -> Answer {
        let Selection { id, paths, prefixes, manifest, ttl } = match parsed(asked) {
            Ok(selection) => selection,
            Err(answer) => return answer,
        };
        let spec = Spec { id, paths, prefixes, manifest, ..Spec::default() };
        let spec = match (act, ttl) {
            (Act::Pin, Some(_)) => Spec { tier: Tier::Disk, pin_ttl: ttl, ..spec },
            (Act::Pin, None) => {
                return malformed(
                    StatusCode::BAD_REQUEST,
                    "ttl is missing: the seconds for which pages are kept",
                );
            }
            (_, Some(_)) => {
                return malformed(StatusCode::BAD_REQUEST, "only pins have a ttl; leave it out");
            }
            (Act::Evict, None) => Spec { action: Action::Evict, ..spec },
            (Act::Unpin, None) => Spec { action: Action::Unpin, ..spec },
        };
        self.preload_begin(spec).await
    }

    /// `POST /v1/invalidate`. 200: every read that begins from now on sees what the UFS has now, or
    /// later.
    pub(super) async fn invalidate(&self, asked: &Asked) -> Answer {
        let invalidation: Invalidation = match parsed(asked) {
            Ok(invalidation) => invalidation,
            Err(answer) => return answer,
        };
        let Some(objects) = self.objects() else { return no_objects() };
        match objects.invalidate(&invalidation).await {
            Ok(()) => {
                let names = invalidation.paths.len() + invalidation.prefixes.len();
                Answer::json(StatusCode::OK, &json!({ "invalidated": names }))
            }
            Err(error) => refused(&error),
        }
    }

    /// `POST /v1/notifications?ufs=NAME&warm=true`.
    pub(super) async fn notifications(&self, asked: &Asked) -> Answer {
        let said: Notification = match parsed(asked) {
            Ok(said) => said,
            Err(answer) => return answer,
        };
        let Some(objects) = self.objects() else { return no_objects() };
        let ufs = text(&asked.query, "ufs");
        let warm = match text(&asked.query, "warm").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return malformed(StatusCode::BAD_REQUEST, "warm is true or false"),
        };
        let (mut notified, job) = match objects.notified(&said, ufs.as_deref()).await {
            Ok(done) => done,
            Err(NotifiedError::Object(error)) => return refused(&error),
            Err(error @ (NotifiedError::Empty | NotifiedError::Record(_))) => {
                return malformed(StatusCode::BAD_REQUEST, error.to_string());
            }
        };
        if let Some(job) = job.filter(|_| warm) {
            let Some(engine) = self.engine() else { return self.no_engine().await };
            match engine.create(job).await {
                Ok((view, _)) => notified.job = Some(view.id),
                Err(error) => return engine_refused(&error),
            }
        }
        Answer::json(StatusCode::OK, &notified)
    }

    /// `GET /v1/objects/BUCKET/KEY?first_block=N`.
    pub(super) async fn object(&self, bucket: &str, key: &str, asked: &Asked) -> Answer {
        let Some(objects) = self.objects() else { return no_objects() };
        let first_block = match number(&asked.query, "first_block")
            .map(|number| number.map_or(Ok(0), u32::try_from))
        {
            Ok(Ok(first_block)) => first_block,
            Err(answer) => return answer,
            Ok(Err(_)) => {
                return malformed(StatusCode::BAD_REQUEST, "first_block is a number below 2^32");
            }
        };
        match objects.find(&format!("s3://{bucket}/{key}"), first_block).await {
            Ok(view) => Answer::json(StatusCode::OK, &view),
            Err(error) => refused(&error),
        }
    }

    fn objects(&self) -> Option<&Objects> {
        self.preloading.objects.get()
    }
}

fn no_objects() -> Answer {
    let reason =
        "this coordinator knows no objects: it needs [[ufs]] and [[mount]] in its configuration";
    Answer::refused(StatusCode::SERVICE_UNAVAILABLE, RefusedKind::Unavailable, reason)
}

fn refused(error: &ObjectError) -> Answer {
    let (status, kind) = match error {
        ObjectError::Spec(_) | ObjectError::TooMany(_) => {
            (StatusCode::BAD_REQUEST, RefusedKind::Malformed)
        }
        ObjectError::Absent(_) => (StatusCode::NOT_FOUND, RefusedKind::Unknown),
        ObjectError::Ufs { .. }
        | ObjectError::Tier(
            TendError::NoMap
            | TendError::Unknown { .. }
            | TendError::Away { .. }
            | TendError::Refused { .. },
        ) => (StatusCode::SERVICE_UNAVAILABLE, RefusedKind::Unavailable),
    };
    Answer::refused(status, kind, error.to_string())
}
