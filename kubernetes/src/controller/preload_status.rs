//! What a resource's status says. Pure: from what the endpoint answered, or did not, to a status.

use verbs3_preload::api::{JobState, JobView};

use super::preload_gateway::PreloadGatewayError;
use crate::preload_resource::{PreloadResourceCondition, PreloadResourceStatus, bound_text};

const ACCEPTED: &str = "Accepted";
/// Whether the status is what the endpoint says now.
pub(super) const CURRENT: &str = "Current";
const COMPLETE: &str = "Complete";
/// Reasons that leave open whether the endpoint has taken a job.
const AWAY: [&str; 2] = ["EndpointAway", "EndpointUnavailable"];
/// Longest message that is passed on.
const MESSAGE_LETTERS_MAX: usize = 1000;
/// Most failures that are shown; the job's view has no more than a few itself.
const FAILURES_MAX: usize = 10;

/// Why a resource waits. It is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PreloadObstacle {
    /// One word.
    pub reason: &'static str,
    pub message: String,
    /// Whether the endpoint said that it knows no such job, and took no other.
    pub is_job_gone: bool,
}

impl PreloadObstacle {
    /// Whether nothing is known of what the endpoint made of the question.
    fn is_away(&self) -> bool {
        AWAY.contains(&self.reason)
    }
}

impl From<PreloadGatewayError> for PreloadObstacle {
    fn from(error: PreloadGatewayError) -> Self {
        let reason = match &error {
            PreloadGatewayError::KeyRefused { .. } => "KeyRefused",
            PreloadGatewayError::Denied { .. } => "Denied",
            PreloadGatewayError::Malformed { .. } => "Malformed",
            PreloadGatewayError::Unknown => "JobUnknown",
            PreloadGatewayError::Taken { .. } => "JobTaken",
            PreloadGatewayError::OwnerFull { .. } => "TooManyJobs",
            PreloadGatewayError::Unavailable { .. } => AWAY[1],
            PreloadGatewayError::Away { .. } => AWAY[0],
        };
        Self { reason, message: error.to_string(), is_job_gone: false }
    }
}

/// Whether nothing more will become of it.
pub(super) fn is_over(status: &PreloadResourceStatus) -> bool {
    is_over_state(&status.state)
}

/// The same, by the state alone.
pub(super) fn is_over_state(state: &str) -> bool {
    matches!(state, "Done" | "Incomplete" | "Failed" | "Stopped")
}

/// Why the status is not what the endpoint says now; `None`: it is, or nothing was asked yet.
pub(super) fn stale_reason(status: &PreloadResourceStatus) -> Option<&str> {
    let current = status.conditions.iter().find(|one| one.kind == CURRENT)?;
    (current.status != "True").then_some(&current.reason)
}

/// What follows for a resource that is deleted, where its job was not stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopVerdict {
    /// No job runs: the resource may go.
    NoJob,
    /// It is worth a wait.
    MayPass,
    /// Nothing will come of it, and a job may run on.
    Lasting,
}

/// Judges why a job was not stopped. A key that was changed knows no job of the one before.
pub(super) fn judge_stop(
    status: &PreloadResourceStatus,
    obstacle: &PreloadObstacle,
) -> StopVerdict {
    match obstacle.reason {
        "JobUnknown" if status.job_id.is_none() => StopVerdict::NoJob,
        _ if !may_have_job(status) && !obstacle.is_away() => StopVerdict::NoJob,
        "JobUnknown" | "SecretMissing" | "SecretIncomplete" | "SecretForbidden" => {
            StopVerdict::Lasting
        }
        _ => StopVerdict::MayPass,
    }
}

/// Whether a job may run. A question without an answer may have begun one, too.
fn may_have_job(status: &PreloadResourceStatus) -> bool {
    status.job_id.is_some() || stale_reason(status).is_some_and(|reason| AWAY.contains(&reason))
}

/// The status by what the endpoint says of the job. `now` is a time in RFC 3339 form.
pub(super) fn status_of_job(
    before: &PreloadResourceStatus,
    view: &JobView,
    now: &str,
) -> PreloadResourceStatus {
    let (state, complete) = match view.state {
        JobState::Queued => ("Queued", "Unknown"),
        JobState::Running => ("Running", "Unknown"),
        JobState::Done => ("Done", "True"),
        JobState::Incomplete => ("Incomplete", "False"),
        JobState::Failed => ("Failed", "False"),
        JobState::Stopped => ("Stopped", "False"),
    };
    let phase = match view.state {
        JobState::Running => Some(format!("{:?}", view.phase).to_lowercase()),
        _ => None,
    };
    let message = view.reason.clone().or(phase).map(|text| bound_text(&text, MESSAGE_LETTERS_MAX));
    let counters = &view.counters;
    let mut status = PreloadResourceStatus {
        state: state.to_owned(),
        job_id: Some(view.id.clone()),
        message: message.clone(),
        objects: counters.objects,
        bytes: counters.bytes,
        objects_loaded: counters.objects_loaded,
        objects_failed: counters.objects_failed,
        objects_missing: counters.objects_missing,
        bytes_loaded: counters.bytes_loaded,
        bytes_held: counters.bytes_held,
        failures: view.failures.first.iter().take(FAILURES_MAX).map(Into::into).collect(),
        conditions: before.conditions.clone(),
    };
    set_condition(
        &mut status,
        ConditionNews {
            kind: ACCEPTED,
            value: "True",
            reason: "JobBegun",
            message: "the endpoint took the job",
        },
        now,
    );
    set_condition(
        &mut status,
        ConditionNews {
            kind: CURRENT,
            value: "True",
            reason: "Answered",
            message: "the endpoint answers",
        },
        now,
    );
    let message = message.unwrap_or_default();
    set_condition(
        &mut status,
        ConditionNews { kind: COMPLETE, value: complete, reason: state, message: &message },
        now,
    );
    status
}

/// The status where something stands in the way. What was known of the job stays, and `Current`
/// says that it is old.
pub(super) fn status_of_obstacle(
    before: &PreloadResourceStatus,
    obstacle: &PreloadObstacle,
    now: &str,
) -> PreloadResourceStatus {
    let mut status = before.clone();
    let PreloadObstacle { reason, message, is_job_gone } = obstacle;
    let message = bound_text(message, MESSAGE_LETTERS_MAX);
    status.message = Some(message.clone());
    if status.job_id.is_none() || *is_job_gone {
        status.state = "Pending".to_owned();
        set_condition(
            &mut status,
            ConditionNews { kind: ACCEPTED, value: "False", reason, message: &message },
            now,
        );
    }
    set_condition(
        &mut status,
        ConditionNews { kind: CURRENT, value: "False", reason, message: &message },
        now,
    );
    status
}

/// The status of a job that can never begin.
pub(super) fn status_of_refusal(
    before: &PreloadResourceStatus,
    obstacle: &PreloadObstacle,
    now: &str,
) -> PreloadResourceStatus {
    let mut status = status_of_obstacle(before, obstacle, now);
    status.state = "Failed".to_owned();
    let message = status.message.clone().unwrap_or_default();
    set_condition(
        &mut status,
        ConditionNews {
            kind: COMPLETE,
            value: "False",
            reason: obstacle.reason,
            message: &message,
        },
        now,
    );
    status
}

/// What a condition says now.
struct ConditionNews<'a> {
    kind: &'a str,
    /// `True`, `False` or `Unknown`.
    value: &'a str,
    reason: &'a str,
    message: &'a str,
}

fn set_condition(status: &mut PreloadResourceStatus, news: ConditionNews<'_>, now: &str) {
    let ConditionNews { kind, value, reason, message } = news;
    let found = status.conditions.iter_mut().find(|condition| condition.kind == kind);
    let since = match &found {
        Some(condition) if condition.status == value => condition.last_transition_time.clone(),
        _ => now.to_owned(),
    };
    let condition = PreloadResourceCondition {
        kind: kind.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
    };
    match found {
        Some(found) => *found = condition,
        None => status.conditions.push(condition),
    }
}

#[cfg(test)]
mod tests;
