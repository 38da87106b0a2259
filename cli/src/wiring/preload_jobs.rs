//! Hands requests of S3 clients about preload jobs to the coordinators.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use serde_json::{Value, json};
use tracing::warn;
use verbs3_coordinator_client::api::{CoordinatorRefusal, CoordinatorRefusalKind};
use verbs3_coordinator_client::{AskError, CoordinatorClient};
use verbs3_gateway::{PreloadAnswer, PreloadJobs, PreloadQuestion};

/// Longest wait for news of a job that is passed on, added to the client's deadline.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The coordinators, as a gateway asks them on behalf of its clients.
pub struct CoordinatorJobs {
    client: Arc<CoordinatorClient>,
}

impl CoordinatorJobs {
    /// The jobs of the coordinators that `client` asks; `None` without coordinators.
    pub fn for_gateway(client: Option<Arc<CoordinatorClient>>) -> Option<Arc<dyn PreloadJobs>> {
        client.map(|client| Arc::new(Self { client }) as Arc<dyn PreloadJobs>)
    }
}

#[async_trait]
impl PreloadJobs for CoordinatorJobs {
    async fn ask_coordinators(&self, question: PreloadQuestion) -> PreloadAnswer {
        let PreloadQuestion { method, path_and_query, body } = question;
        let wait = asked_wait(&path_and_query);
        match self.client.ask_value(method, &path_and_query, body, wait).await {
            Ok(value) => answer_json(StatusCode::OK, &value.unwrap_or(Value::Null)),
            Err(error) => refuse_client(error),
        }
    }
}

/// How long the coordinator is asked to wait for news.
fn asked_wait(path_and_query: &str) -> Duration {
    let query = path_and_query.split_once('?').map_or("", |(_, query)| query);
    let wait = query.split('&').find_map(|pair| pair.strip_prefix("wait_ms=")?.parse().ok());
    wait.map_or(Duration::ZERO, Duration::from_millis).min(WAIT_MAX)
}

fn answer_json(status: StatusCode, value: &Value) -> PreloadAnswer {
    PreloadAnswer { status, body: value.to_string().into() }
}

/// What a client is told. Names and addresses of coordinators are none of its business.
fn refuse_client(error: AskError) -> PreloadAnswer {
    let refusal = |status, kind: CoordinatorRefusalKind, reason: &str| {
        answer_json(status, &json!({ "kind": kind, "reason": reason }))
    };
    match error {
        AskError::Refused { refused, .. } => {
            let CoordinatorRefusal { kind, reason, .. } = *refused;
            let status = match kind {
                CoordinatorRefusalKind::Malformed => StatusCode::BAD_REQUEST,
                CoordinatorRefusalKind::Denied => StatusCode::FORBIDDEN,
                CoordinatorRefusalKind::Unknown => StatusCode::NOT_FOUND,
                CoordinatorRefusalKind::Taken | CoordinatorRefusalKind::OtherMounts => {
                    StatusCode::CONFLICT
                }
                CoordinatorRefusalKind::OwnerFull => StatusCode::TOO_MANY_REQUESTS,
                CoordinatorRefusalKind::NotLeader
                | CoordinatorRefusalKind::Clock
                | CoordinatorRefusalKind::Recipient
                | CoordinatorRefusalKind::Unproven
                | CoordinatorRefusalKind::Forbidden
                | CoordinatorRefusalKind::Superseded
                | CoordinatorRefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            };
            refusal(status, kind, &reason)
        }
        AskError::TooLong { bytes } => {
            let reason = format!("the job has {bytes} bytes, more than coordinators read");
            refusal(StatusCode::PAYLOAD_TOO_LARGE, CoordinatorRefusalKind::Malformed, &reason)
        }
        error @ (AskError::Away(_) | AskError::Senseless { .. }) => {
            warn!(%error, "a client's question about preload jobs was not answered");
            let reason = "no coordinator answers, or none runs jobs yet; send it again later";
            refusal(StatusCode::SERVICE_UNAVAILABLE, CoordinatorRefusalKind::Unavailable, reason)
        }
    }
}
