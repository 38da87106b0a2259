//! Runs one connection's loop: take a ticket, perform its steps, record. Generic over the clock and
//! over the performer, for tests.
//!
//! Does not own threads (`bench_round`) or requests (`client`).

use std::time::Duration;

use crate::client::{BenchClient, BenchStepResult};
use crate::request_plan::{BenchPlanStep, BenchRequestPlan, ExchangeKind};
use crate::schedule::{LoadSchedule, MonotonicBenchClock, ScheduleClock, StartLateness};

/// Performs steps; times come from the clock.
pub trait StepPerformer {
    fn perform_step(&mut self, step: &BenchPlanStep) -> TimedStepResult;
}

/// Result of a performed step, with its times.
pub struct TimedStepResult {
    pub first_byte: Option<Duration>,
    pub at: Duration,
    pub done: BenchStepResult,
}

/// Receives everything that happens.
pub trait StepRecorder {
    fn record_lateness(&mut self, late: StartLateness);
    fn record_step(&mut self, kind: ExchangeKind, intended: Duration, ended: TimedStepResult);
}

/// Client whose times count from the round's start.
pub struct TimedBenchClient<'a> {
    pub client: BenchClient<'a>,
    pub clock: MonotonicBenchClock,
}

impl StepPerformer for TimedBenchClient<'_> {
    fn perform_step(&mut self, step: &BenchPlanStep) -> TimedStepResult {
        let done = self.client.perform_step(step);
        let since = |at: std::time::Instant| at.saturating_duration_since(self.clock.0);
        TimedStepResult { first_byte: done.first_byte.map(since), at: since(done.ended), done }
    }
}

/// Runs until the schedule ends, or fresh objects are used up. An operation's first step counts
/// from when it was due, later steps from the end of the previous one. A failed step ends its
/// operation.
pub fn drive_connection(
    schedule: &LoadSchedule,
    plan: &BenchRequestPlan<'_>,
    clock: &impl ScheduleClock,
    stream: u64,
    who: &mut impl StepPerformer,
    record: &mut impl StepRecorder,
) {
    let mut steps = Vec::new();
    let mut turn = 0;
    while let Some(ticket) = schedule.take_ticket(clock, stream, turn) {
        turn += 1;
        steps.clear();
        if !plan.append_operation(ticket.turn, &mut steps) {
            break;
        }
        record.record_lateness(ticket.late);
        let mut intended = ticket.intended;
        for step in &steps {
            let ended = who.perform_step(step);
            let (next, failed) = (ended.at, ended.done.outcome.is_err());
            record.record_step(step.kind, intended, ended);
            if failed {
                break;
            }
            intended = next;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;
    use crate::exchange_error::BenchExchangeError;
    use crate::request_plan::BenchRound;
    use crate::scenario::BenchScenario;

    struct Simulated(Mutex<Duration>);

    impl ScheduleClock for Simulated {
        fn now(&self) -> Duration {
            *self.0.lock().unwrap()
        }

        fn sleep_until(&self, at: Duration) {
            let mut now = self.0.lock().unwrap();
            *now = at.max(*now);
        }
    }

    /// Takes 10 ms a step, and refuses the nth one.
    struct Server<'a> {
        clock: &'a Simulated,
        refuses: Option<usize>,
        performed: usize,
    }

    impl StepPerformer for Server<'_> {
        fn perform_step(&mut self, _: &BenchPlanStep) -> TimedStepResult {
            let at = {
                let mut now = self.clock.0.lock().unwrap();
                *now += Duration::from_millis(10);
                *now
            };
            let outcome = if self.refuses == Some(self.performed) {
                Err(BenchExchangeError::Timeout)
            } else {
                Ok(())
            };
            self.performed += 1;
            let done = BenchStepResult {
                bytes: 1,
                first_byte: None,
                ended: Instant::now(),
                cache: None,
                outcome,
            };
            TimedStepResult { first_byte: None, at, done }
        }
    }

    #[derive(Default)]
    struct Recorded(Vec<(ExchangeKind, u128)>);

    impl StepRecorder for Recorded {
        fn record_lateness(&mut self, _: StartLateness) {}

        fn record_step(&mut self, kind: ExchangeKind, intended: Duration, ended: TimedStepResult) {
            self.0.push((kind, (ended.at - intended).as_millis()));
        }
    }

    fn driven(load: &str, refuses: Option<usize>) -> Vec<(ExchangeKind, u128)> {
        let text = format!(
            "name = \"x\"\n[objects]\ncount = 4\nbytes = 1000\n[access]\npattern = \"parquet\"\n\
             footer_bytes = 10\nrow_groups = 1\n\
             columns = 2\ncolumns_read = 2\n[load]\nconnections = 1\noperations = 2\n{load}"
        );
        let scenario = BenchScenario::parse(&text).unwrap();
        let clock = Simulated(Mutex::new(Duration::ZERO));
        let schedule = LoadSchedule::new(&scenario.load, Duration::from_secs(9), 1);
        let mut recorded = Recorded::default();
        let plan = BenchRequestPlan::new(&scenario, BenchRound::Measured(0));
        drive_connection(
            &schedule,
            &plan,
            &clock,
            0,
            &mut Server { clock: &clock, refuses, performed: 0 },
            &mut recorded,
        );
        recorded.0
    }

    #[test]
    fn waiting_is_charged_to_the_first_step_of_an_operation_only() {
        let open =
            driven("pace = \"open\"\narrivals = \"even\"\nrequests_per_second = 100\n", None);
        use ExchangeKind::{Chunk, Footer};
        // The second scan was due after 10 ms, and began after 30.
        assert_eq!(
            open,
            [(Footer, 10), (Chunk, 10), (Chunk, 10), (Footer, 30), (Chunk, 10), (Chunk, 10)]
        );
        let closed = driven("", None);
        assert_eq!(
            closed,
            [(Footer, 10), (Chunk, 10), (Chunk, 10), (Footer, 10), (Chunk, 10), (Chunk, 10)]
        );
    }

    #[test]
    fn a_failed_step_ends_its_operation_and_the_next_goes_on() {
        let kinds: Vec<ExchangeKind> =
            driven("", Some(1)).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(
            kinds,
            [
                ExchangeKind::Footer,
                ExchangeKind::Chunk,
                ExchangeKind::Footer,
                ExchangeKind::Chunk,
                ExchangeKind::Chunk
            ]
        );
    }
}
