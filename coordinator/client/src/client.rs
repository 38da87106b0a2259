//! Asks the coordinators: any of them, or their leader. Each question has a deadline. It goes from
//! one to the next until one answers; the last one that answered is asked first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::api::{CoordinatorRefusal, CoordinatorRefusalKind, REQUEST_BYTES_MAX};
use crate::cluster_secrets::ClusterSecrets;
use crate::connector::{CoordinatorConnector, CoordinatorTls};
use crate::proof::{ANSWER_HEADER, ProofRecipient, ProvenRequest, REQUEST_HEADER, wall_clock_ms};

/// Longest answer that is read, in bytes: a map of some ten thousand workers.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Most hints about the leader that one question follows.
const HINTS_MAX: usize = 4;
/// Most corrections of one question by one coordinator: its recipient and its time.
const CORRECTIONS_MAX: usize = 2;
/// Most coordinators whose recipients are remembered. Hints could name any number.
const RECIPIENTS_MAX: usize = 64;

/// Settings of the client: its coordinators, its proof and its deadlines.
#[derive(Debug, Clone)]
pub struct CoordinatorClientOptions {
    /// `http://host:port` or `https://host:port` each; at least one.
    pub coordinators: Vec<String>,
    pub secrets: ClusterSecrets,
    /// `None`: connections are plain.
    pub tls: Option<CoordinatorTls>,
    /// Deadline for connecting.
    pub connect_deadline: Duration,
    /// Deadline for one coordinator's answer to one question. A wait that the question asks for is
    /// added.
    pub deadline: Duration,
}

/// Error of a question that was not answered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AskError {
    #[error("no coordinator answers: {0}")]
    Away(String),
    #[error("{url} refused: {}", refused.reason)]
    Refused { url: String, refused: Box<CoordinatorRefusal> },
    #[error(
        "the question is {bytes} bytes long, and coordinators read {REQUEST_BYTES_MAX} at most; \
        ask about fewer things at once"
    )]
    TooLong { bytes: usize },
    #[error(
        "{url} gave an answer that makes no sense: {flaw}; do both sides run the same version?"
    )]
    Senseless { url: String, flaw: AnswerFlaw },
}

/// What makes no sense in an answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AnswerFlaw {
    #[error("status {status} with a body that is no refusal: {error}")]
    NoRefusal { status: StatusCode, error: Arc<serde_json::Error> },
    #[error("{0}")]
    Json(Arc<serde_json::Error>),
}

impl AskError {
    /// Returns the kind of the coordinator's refusal; `None` if no coordinator gave a valid one.
    pub fn refusal_kind(&self) -> Option<CoordinatorRefusalKind> {
        match self {
            Self::Refused { refused, .. } => Some(refused.kind),
            Self::Away(_) | Self::TooLong { .. } | Self::Senseless { .. } => None,
        }
    }
}

/// Client of the coordinators. Cheap to share.
pub struct CoordinatorClient {
    options: CoordinatorClientOptions,
    http: Http<CoordinatorConnector, Full<Bytes>>,
    /// URL that is asked first.
    preferred: Mutex<String>,
    /// How far the coordinators' clocks are ahead of ours.
    ahead_ms: AtomicI64,
    /// Recipients of the coordinators, by URL. Each coordinator names its own on the first question
    /// after its start.
    recipients: Mutex<HashMap<String, ProofRecipient>>,
}

/// Result of asking one coordinator once.
enum CoordinatorAttempt {
    Answer(StatusCode, Bytes),
    /// Names the leader, if known, and says why this coordinator does not answer.
    Elsewhere(Option<String>, String),
    /// The question was corrected and should go to the same coordinator again.
    Corrected,
    Failed(AskError),
}

impl CoordinatorClient {
    /// Creates a client without opening a connection. It first asks a random coordinator of the
    /// list.
    pub fn new(options: CoordinatorClientOptions) -> Self {
        let connector = CoordinatorConnector::new(options.connect_deadline, options.tls.clone());
        let http = Http::builder(TokioExecutor::new()).pool_max_idle_per_host(4).build(connector);
        // Ten thousand gateways with the same configuration must not all ask the same coordinator.
        let count = options.coordinators.len().max(1);
        let first = options.coordinators.get(rand::random_range(0..count));
        let preferred = Mutex::new(first.cloned().unwrap_or_default());
        let recipients = Mutex::default();
        Self { options, http, preferred, ahead_ms: AtomicI64::new(0), recipients }
    }

    /// Returns the recipient that the coordinator at `url` last named. `None`: it was not asked
    /// yet.
    pub fn known_recipient(&self, url: &str) -> Option<ProofRecipient> {
        self.recipients.lock().get(url).cloned()
    }

    /// Returns one client for each coordinator, to see which of them answer.
    pub fn each_alone(&self) -> Vec<(String, Self)> {
        let alone = |url: &String| {
            let options = CoordinatorClientOptions {
                coordinators: vec![url.clone()],
                ..self.options.clone()
            };
            (url.clone(), Self::new(options))
        };
        self.options.coordinators.iter().map(alone).collect()
    }

    /// Prefers another coordinator from now on: the one that answered last may know less than
    /// others.
    pub fn turn_to_another(&self) {
        let mut preferred = self.preferred.lock();
        let all = &self.options.coordinators;
        let at = all.iter().position(|url| *url == *preferred).map_or(0, |at| at + 1);
        if let Some(next) = all.get(at).or(all.first()) {
            preferred.clone_from(next);
        }
    }

    /// Asks without a body. `wait` is how long the coordinator was asked to wait for news. `None`:
    /// it answered that there is none (204).
    pub async fn get<A: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<Option<A>, AskError> {
        self.send_request(Method::GET, path, Bytes::new(), wait).await
    }

    /// Sends `question` as JSON and decodes the answer. `wait` is added to the deadline. `None`:
    /// the coordinator answered 204. Bodies above `REQUEST_BYTES_MAX` fail with
    /// `AskError::TooLong`.
    pub async fn post_json<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        question: &Q,
        wait: Duration,
    ) -> Result<Option<A>, AskError> {
        let body = serde_json::to_vec(question).unwrap_or_default();
        // Coordinators could not prove their refusal, because a proof needs a body that was read.
        if body.len() > REQUEST_BYTES_MAX {
            return Err(AskError::TooLong { bytes: body.len() });
        }
        self.send_request(Method::POST, path, body.into(), wait).await
    }

    /// Sends a `DELETE` without a body and ignores the answer's content.
    pub async fn delete_path(&self, path: &str) -> Result<(), AskError> {
        self.send_request::<serde_json::Value>(Method::DELETE, path, Bytes::new(), Duration::ZERO)
            .await
            .map(|_| ())
    }

    /// Asks by any method, with a body that is JSON already. `wait` is how long the coordinator was
    /// asked to wait for news. `None`: it answered that there is none (204).
    pub async fn ask_value(
        &self,
        method: Method,
        path_and_query: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<Option<serde_json::Value>, AskError> {
        if body.len() > REQUEST_BYTES_MAX {
            return Err(AskError::TooLong { bytes: body.len() });
        }
        self.send_request(method, path_and_query, body, wait).await
    }

    async fn send_request<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<Option<A>, AskError> {
        let preferred = self.preferred.lock().clone();
        let others = self.options.coordinators.iter().filter(|url| **url != preferred).cloned();
        let mut order: Vec<String> = others.collect();
        order.insert(0, preferred);
        let (mut hints, mut corrections, mut at) = (0, 0, 0);
        let mut last = AskError::Away("cluster.coordinators is empty".to_owned());
        while let Some(url) = order.get(at).cloned() {
            let until = Instant::now() + self.options.deadline + wait;
            let once =
                timeout_at(until, self.try_coordinator(&url, &method, path, body.clone())).await;
            let once = once.unwrap_or_else(|_| {
                CoordinatorAttempt::Failed(AskError::Away(format!("{url} was silent")))
            });
            if matches!(once, CoordinatorAttempt::Corrected) && corrections < CORRECTIONS_MAX {
                corrections += 1;
                continue;
            }
            (at, corrections) = (at + 1, 0);
            match once {
                CoordinatorAttempt::Answer(status, body) => {
                    self.preferred.lock().clone_from(&url);
                    return decode_response(&url, status, &body);
                }
                CoordinatorAttempt::Elsewhere(Some(leader), _)
                    if hints < HINTS_MAX && leader != url =>
                {
                    hints += 1;
                    order.insert(at, leader);
                }
                CoordinatorAttempt::Elsewhere(_, reason) => {
                    last = AskError::Away(format!("{url}: {reason}"))
                }
                CoordinatorAttempt::Corrected => {
                    last = AskError::Away(format!(
                        "{url} does not accept the name or time that it said"
                    ))
                }
                CoordinatorAttempt::Failed(error) => last = error,
            }
        }
        Err(last)
    }

    async fn try_coordinator(
        &self,
        url: &str,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> CoordinatorAttempt {
        let away = |reason: &dyn std::fmt::Display| {
            CoordinatorAttempt::Failed(AskError::Away(format!("{url}: {reason}")))
        };
        let uri: Uri = match format!("{}{path}", url.trim_end_matches('/')).parse() {
            Ok(uri) => uri,
            Err(error) => return away(&error),
        };
        let said = ProvenRequest { method: method.as_str(), path_and_query: path, body: &body };
        let time = wall_clock_ms().saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed));
        let recipient = self
            .recipients
            .lock()
            .get(url)
            .cloned()
            .unwrap_or_else(ProofRecipient::unknown_recipient);
        // The answer is proved with the secret of its request, whatever is used by then.
        let secret = self.options.secrets.used_secret();
        let (header, proof) = secret.prove_request(said, &recipient, time);
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(REQUEST_HEADER, header)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return away(&error),
        };
        let answer = match self.http.request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                let causes = std::iter::successors(std::error::Error::source(&error), |error| {
                    error.source()
                });
                let causes: String = causes.map(|cause| format!(": {cause}")).collect();
                return away(&format!("{error}{causes}"));
            }
        };
        let status = answer.status();
        let given = answer
            .headers()
            .get(ANSWER_HEADER)
            .and_then(|header| header.to_str().ok())
            .map(str::to_owned);
        let body = match Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return away(&error),
        };
        if !secret.check_answer(&proof, status.as_u16(), &body, given.as_deref()) {
            return away(
                &"its answer does not prove the cluster's secret; compare cluster.name and \
                    cluster.secret",
            );
        }
        self.classify_response(url, status, body)
    }

    fn classify_response(&self, url: &str, status: StatusCode, body: Bytes) -> CoordinatorAttempt {
        if status.is_success() {
            return CoordinatorAttempt::Answer(status, body);
        }
        let refused: CoordinatorRefusal = match serde_json::from_slice(&body) {
            Ok(refused) => refused,
            Err(error) => {
                let flaw = AnswerFlaw::NoRefusal { status, error: Arc::new(error) };
                let url = url.to_owned();
                return CoordinatorAttempt::Failed(AskError::Senseless { url, flaw });
            }
        };
        if let Some(there) = refused.now_ms.filter(|_| {
            matches!(
                refused.kind,
                CoordinatorRefusalKind::Clock | CoordinatorRefusalKind::Recipient
            )
        }) {
            self.ahead_ms
                .store(there.wrapping_sub(wall_clock_ms()).cast_signed(), Ordering::Relaxed);
        }
        match (refused.kind, refused.recipient) {
            (CoordinatorRefusalKind::NotLeader, _) => {
                CoordinatorAttempt::Elsewhere(refused.leader, refused.reason)
            }
            (CoordinatorRefusalKind::Clock, _) if refused.now_ms.is_some() => {
                CoordinatorAttempt::Corrected
            }
            (CoordinatorRefusalKind::Recipient, Some(recipient)) => {
                let mut recipients = self.recipients.lock();
                if recipients.len() >= RECIPIENTS_MAX {
                    recipients.clear();
                }
                recipients.insert(url.to_owned(), recipient);
                CoordinatorAttempt::Corrected
            }
            (CoordinatorRefusalKind::Unavailable, _) => {
                CoordinatorAttempt::Failed(AskError::Away(format!("{url}: {}", refused.reason)))
            }
            // The other coordinators would answer the same.
            _ => CoordinatorAttempt::Answer(status, body),
        }
    }
}

fn decode_response<A: DeserializeOwned>(
    url: &str,
    status: StatusCode,
    body: &[u8],
) -> Result<Option<A>, AskError> {
    let senseless = |error: serde_json::Error| AskError::Senseless {
        url: url.to_owned(),
        flaw: AnswerFlaw::Json(Arc::new(error)),
    };
    if status == StatusCode::NO_CONTENT {
        return Ok(None);
    }
    if status.is_success() {
        return serde_json::from_slice(body).map(Some).map_err(senseless);
    }
    let refused = serde_json::from_slice(body).map(Box::new).map_err(senseless)?;
    Err(AskError::Refused { url: url.to_owned(), refused })
}
