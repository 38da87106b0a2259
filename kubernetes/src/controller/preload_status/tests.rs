//! What a status says after each kind of answer.

use verbs3_preload::api::{
    PreloadCounters, PreloadFailure, PreloadFailureSummary, PreloadJobSpec, PreloadPhase,
};

use super::*;

fn view(state: JobState) -> JobView {
    JobView {
        id: "k8s-1".to_owned(),
        owner: Some("train".to_owned()),
        state,
        phase: PreloadPhase::Load,
        reason: None,
        counters: PreloadCounters { objects: 10, objects_loaded: 4, ..Default::default() },
        failures: PreloadFailureSummary::default(),
        created_ms: 0,
        ended_ms: None,
        resumed: 0,
        rounds: 0,
        news: 1,
        spec: PreloadJobSpec::default(),
    }
}

fn condition<'a>(status: &'a PreloadResourceStatus, kind: &str) -> (&'a str, &'a str) {
    let found = status.conditions.iter().find(|condition| condition.kind == kind);
    found.map_or(("", ""), |condition| (&condition.status, &condition.reason))
}

#[test]
fn only_a_job_that_is_done_is_complete() {
    for (state, complete, over) in [
        (JobState::Queued, "Unknown", false),
        (JobState::Running, "Unknown", false),
        (JobState::Done, "True", true),
        (JobState::Incomplete, "False", true),
        (JobState::Failed, "False", true),
        (JobState::Stopped, "False", true),
    ] {
        let status = status_of_job(&PreloadResourceStatus::default(), &view(state), "now");
        assert_eq!(condition(&status, "Complete").0, complete, "{state:?}");
        assert_eq!(is_over(&status), over, "{state:?}");
        assert_eq!((status.objects, status.objects_loaded), (10, 4));
    }
}

#[test]
fn an_endpoint_that_is_away_takes_nothing_back_and_says_so() {
    let running = status_of_job(&PreloadResourceStatus::default(), &view(JobState::Running), "1");
    let away = PreloadGatewayError::Away { message: "connection refused".to_owned() };
    let status = status_of_obstacle(&running, &away.into(), "2");
    assert_eq!((status.state.as_str(), status.objects_loaded), ("Running", 4));
    assert_eq!(condition(&status, "Current"), ("False", "EndpointAway"));
    assert_eq!(condition(&status, "Accepted"), ("True", "JobBegun"));
    let back = status_of_job(&status, &view(JobState::Running), "3");
    assert_eq!(condition(&back, "Current").0, "True");
}

#[test]
fn a_refused_key_is_told_before_a_job_is_there() {
    let refused = PreloadGatewayError::KeyRefused { message: "SignatureDoesNotMatch".to_owned() };
    let status = status_of_obstacle(&PreloadResourceStatus::default(), &refused.into(), "1");
    assert_eq!(status.state, "Pending");
    assert_eq!(condition(&status, "Accepted"), ("False", "KeyRefused"));
    assert!(status.message.is_some_and(|message| message.contains("SignatureDoesNotMatch")));
}

#[test]
fn the_same_answer_is_the_same_status() {
    let first = status_of_job(&PreloadResourceStatus::default(), &view(JobState::Running), "1");
    assert_eq!(status_of_job(&first, &view(JobState::Running), "2"), first);
    let next = status_of_job(&first, &view(JobState::Done), "3");
    let since = |kind: &str| {
        let found = next.conditions.iter().find(|condition| condition.kind == kind);
        found.map(|condition| condition.last_transition_time.as_str())
    };
    assert_eq!((since("Complete"), since("Accepted")), (Some("3"), Some("1")));
}

#[test]
fn what_strangers_name_is_bounded() {
    let mut long = view(JobState::Incomplete);
    let failure = PreloadFailure { path: "s".repeat(9000), reason: "r".repeat(9000) };
    long.failures.first = vec![failure; 50];
    long.reason = Some("x".repeat(9000));
    let status = status_of_job(&PreloadResourceStatus::default(), &long, "1");
    assert_eq!((status.failures.len(), status.failures[0].path.len()), (10, 1024));
    assert_eq!(status.message.map(|message| message.len()), Some(MESSAGE_LETTERS_MAX));
}

#[test]
fn a_job_of_another_key_is_not_called_stopped() {
    let running = status_of_job(&PreloadResourceStatus::default(), &view(JobState::Running), "1");
    let judged = |status: &PreloadResourceStatus, error: PreloadGatewayError| {
        judge_stop(status, &error.into())
    };
    let unknown = PreloadGatewayError::Unknown;
    assert_eq!(judged(&running, unknown.clone()), StopVerdict::Lasting);
    assert_eq!(judged(&PreloadResourceStatus::default(), unknown), StopVerdict::NoJob);
    let denied = PreloadGatewayError::Denied { message: String::new() };
    assert_eq!(judged(&running, denied.clone()), StopVerdict::MayPass);
    assert_eq!(judged(&PreloadResourceStatus::default(), denied), StopVerdict::NoJob);
}

#[test]
fn a_question_without_an_answer_may_have_begun_a_job() {
    let away = || PreloadGatewayError::Away { message: String::new() };
    let none = PreloadResourceStatus::default();
    assert_eq!(judge_stop(&none, &away().into()), StopVerdict::MayPass);
    let asked = status_of_obstacle(&none, &away().into(), "1");
    let secret = |reason| PreloadObstacle { reason, message: String::new(), is_job_gone: false };
    assert_eq!(judge_stop(&asked, &secret("SecretMissing")), StopVerdict::Lasting);
    assert_eq!(judge_stop(&none, &secret("SecretMissing")), StopVerdict::NoJob);
}

#[test]
fn every_obstacle_says_that_the_status_is_old() {
    let running = status_of_job(&PreloadResourceStatus::default(), &view(JobState::Running), "1");
    let message = String::new;
    for (error, reason) in [
        (PreloadGatewayError::KeyRefused { message: message() }, "KeyRefused"),
        (PreloadGatewayError::Denied { message: message() }, "Denied"),
        (PreloadGatewayError::OwnerFull { message: message() }, "TooManyJobs"),
        (PreloadGatewayError::Taken { message: message() }, "JobTaken"),
        (PreloadGatewayError::Unavailable { message: message() }, "EndpointUnavailable"),
    ] {
        let status = status_of_obstacle(&running, &error.into(), "2");
        assert_eq!(condition(&status, "Current"), ("False", reason));
        assert_eq!(status.state, "Running", "{reason}");
    }
}

#[test]
fn a_job_that_is_lost_and_not_begun_anew_is_pending() {
    let running = status_of_job(&PreloadResourceStatus::default(), &view(JobState::Running), "1");
    let full = PreloadGatewayError::OwnerFull { message: String::new() };
    let lost = PreloadObstacle { is_job_gone: true, ..full.into() };
    let status = status_of_obstacle(&running, &lost, "2");
    assert_eq!(status.state, "Pending");
    assert_eq!(condition(&status, "Accepted"), ("False", "TooManyJobs"));
    assert_eq!(status.job_id, running.job_id, "it may run under another key");
}
