//! `verbs3 worker drain ID --wait`: until the worker may be stopped, or why it can't be said that
//! it may.
//!
//! Stops nothing itself: whoever has asked does that.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use verbs3_coordinator_client::api::{
    CoordinatorRefusalKind, DrainProgress, PREFIX, WorkerDrainView, WorkerState,
    escape_path_segment,
};
use verbs3_coordinator_client::{AskError, CoordinatorClient};

/// How often it is asked how far the worker is, and said.
const EVERY: Duration = Duration::from_millis(500);
const SAID_EVERY: Duration = Duration::from_secs(5);
/// How long coordinators, or the worker, may be away meanwhile. A host that stands still for a moment
/// misses a lease, and goes on.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// What a leader's view says of a worker that was told to drain.
#[derive(Debug, PartialEq, Eq)]
enum DrainStanding {
    Drained,
    /// With what.
    Busy(String),
    /// It will not come to an end: why.
    Hopeless(String),
}

/// `Ok`: it may be stopped. Else why not.
pub async fn until_drained(
    client: &CoordinatorClient,
    id: &str,
    within: Duration,
) -> Result<Result<(), String>, AskError> {
    // A worker may ask this of itself; the whole cluster is for operators.
    let path = format!("{PREFIX}/workers/{}/drain", escape_path_segment(id));
    let began = Instant::now();
    let (mut heard, mut answered, mut said) = (began, began, None::<Instant>);
    loop {
        let left = within.saturating_sub(began.elapsed()).max(EVERY);
        let asked = timeout(left, client.get::<WorkerDrainView>(&path, Duration::ZERO)).await;
        let standing = match asked.unwrap_or(Ok(None)) {
            Ok(Some(view)) => {
                heard = Instant::now();
                if !is_silent(view.worker.state) {
                    answered = heard;
                }
                judge_drain(Some(view), answered.elapsed())
            }
            Err(error) if error.refusal_kind() == Some(CoordinatorRefusalKind::Unknown) => {
                judge_drain(None, Duration::ZERO)
            }
            Ok(None) => DrainStanding::Busy("is not spoken of".to_owned()),
            Err(AskError::Away(reason)) if heard.elapsed() < AWAY_MAX => {
                // Nobody knows how long it has been silent.
                answered = Instant::now();
                DrainStanding::Busy(format!("can't be asked after: {reason}"))
            }
            Err(error) => return Err(error),
        };
        match standing {
            DrainStanding::Drained => return Ok(Ok(())),
            DrainStanding::Hopeless(why) => return Ok(Err(format!("{id} {why}"))),
            DrainStanding::Busy(with) if began.elapsed() >= within => {
                return Ok(Err(format!(
                    "{id} is not done after {within:?}, and drains on: it {with}"
                )));
            }
            DrainStanding::Busy(with) => {
                if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
                    eprintln!("{id} {with}");
                    said = Some(Instant::now());
                }
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Returns whether the worker has no lease. It may come back.
fn is_silent(state: WorkerState) -> bool {
    matches!(state, WorkerState::Lost | WorkerState::Missing)
}

/// Judges by what a coordinator says of the worker, which has been silent for so long. `None`: it
/// knows none of this id.
fn judge_drain(view: Option<WorkerDrainView>, silent_for: Duration) -> DrainStanding {
    let Some(WorkerDrainView { worker, has_takers }) = view else {
        return DrainStanding::Hopeless("has left before it was drained".to_owned());
    };
    match worker.state {
        _ if worker.drained => DrainStanding::Drained,
        WorkerState::Lost | WorkerState::Missing => match silent_for < AWAY_MAX {
            true => DrainStanding::Busy("does not answer".to_owned()),
            false => DrainStanding::Hopeless("does not answer any more".to_owned()),
        },
        WorkerState::Serving => DrainStanding::Hopeless(
            "does not drain any more: that was undone, or the leader ended that was told; ask \
            again"
                .to_owned(),
        ),
        WorkerState::Joining | WorkerState::Unknown => {
            DrainStanding::Busy("is in no map yet".to_owned())
        }
        WorkerState::Draining if worker.slots > 0 => {
            if !has_takers {
                let why = "owns its slots on: no other worker is there to take them; start one, or \
                    stop it as it is";
                return DrainStanding::Hopeless(why.to_owned());
            }
            DrainStanding::Busy(format!("owns {} slots still", worker.slots))
        }
        WorkerState::Draining => DrainStanding::Busy(match worker.handing_over {
            Some(DrainProgress { blocks, blocks_left, .. }) => {
                format!(
                    "hands over what is hot: {} of {blocks} blocks",
                    blocks.saturating_sub(blocks_left)
                )
            }
            None => "has to hear that it owns nothing any more".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use verbs3_coordinator_client::api::WorkerView;
    use verbs3_protocol::{Epoch, WorkerId};

    fn worker(id: &str, state: WorkerState, slots: u32) -> WorkerView {
        WorkerView {
            id: WorkerId(id.into()),
            address: String::new(),
            weight: 1.0,
            zone: String::new(),
            state,
            lease_ms: 1,
            tiers: Vec::new(),
            rails: Vec::new(),
            active: Epoch(1),
            slots,
            share_percent: if slots == 0 { 0 } else { 100 },
            handing_over: None,
            drained: false,
        }
    }

    fn of(workers: Vec<WorkerView>, silent_for: Duration) -> String {
        let view = WorkerDrainView::of_worker(&WorkerId("a".into()), workers);
        match judge_drain(view, silent_for) {
            DrainStanding::Drained => "drained".to_owned(),
            DrainStanding::Busy(with) => format!("busy: {with}"),
            DrainStanding::Hopeless(why) => format!("hopeless: {why}"),
        }
    }

    #[test]
    fn only_who_has_handed_everything_over_is_done() {
        use WorkerState::{Draining, Joining, Lost, Serving};
        let other = || worker("b", Serving, 1);
        let handing = |blocks_left| DrainProgress { blocks: 5, blocks_left, bytes: 1 };
        let mut hands_over = worker("a", Draining, 0);
        hands_over.handing_over = Some(handing(2));
        let mut done = worker("a", Draining, 0);
        (done.handing_over, done.drained) = (Some(handing(0)), true);
        let cases = [
            (vec![worker("a", Draining, 7), other()], "busy: owns 7 slots still"),
            (vec![worker("a", Draining, 7), worker("b", Joining, 0)], "busy: owns 7 slots still"),
            (vec![worker("a", Draining, 0), other()], "busy: has to hear"),
            (vec![hands_over, other()], "busy: hands over what is hot: 3 of 5 blocks"),
            (vec![done, other()], "drained"),
            (vec![worker("a", Joining, 0)], "busy: is in no map"),
            (
                vec![worker("a", Draining, 7), worker("b", Draining, 1)],
                "hopeless: owns its slots on: no other",
            ),
            (vec![worker("a", Serving, 7), other()], "hopeless: does not drain any more"),
            (vec![worker("a", Lost, 7), other()], "busy: does not answer"),
            (vec![other()], "hopeless: has left"),
        ];
        for (workers, wanted) in cases {
            let found = of(workers, Duration::ZERO);
            assert!(found.starts_with(wanted), "{found:?} and not {wanted:?}");
        }
        let found = of(vec![worker("a", Lost, 7), other()], AWAY_MAX);
        assert!(found.starts_with("hopeless: does not answer"), "{found:?}");
    }
}
