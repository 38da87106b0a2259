//! One connection's loop: take a ticket, perform its steps, record. Generic over the clock and over
//! who performs, for tests.
//!
//! Deliberately not here: threads (`round`), requests (`client`).

use std::time::Duration;

use crate::client::{Client, Done};
use crate::plan::{Kind, Plan, Step};
use crate::schedule::{Clock, Late, Monotonic, Schedule};

/// Performs steps; times are the clock's.
pub trait Perform {
    fn perform(&mut self, step: &Step) -> Ended;
}

/// A step that was performed.
pub struct Ended {
    pub first_byte: Option<Duration>,
    pub at: Duration,
    pub done: Done,
}

/// Told of everything that happens.
pub trait Record {
    fn late(&mut self, late: Late);
    fn step(&mut self, kind: Kind, intended: Duration, ended: Ended);
}

/// A client whose times count from the round's start.
pub struct Timed<'a> {
    pub client: Client<'a>,
    pub clock: Monotonic,
}

impl Perform for Timed<'_> {
    fn perform(&mut self, step: &Step) -> Ended {
        let done = self.client.perform(step);
        let since = |at: std::time::Instant| at.saturating_duration_since(self.clock.0);
        Ended { first_byte: done.first_byte.map(since), at: since(done.ended), done }
    }
}

/// Until the schedule ends, or fresh objects are used up. An operation's first step counts from
/// when it was due, the others from the end of the one before; a failed step ends its operation.
pub fn drive(
    schedule: &Schedule,
    plan: &Plan<'_>,
    clock: &impl Clock,
    stream: u64,
    who: &mut impl Perform,
    record: &mut impl Record,
) {
    let mut steps = Vec::new();
    let mut turn = 0;
    while let Some(ticket) = schedule.take(clock, stream, turn) {
        turn += 1;
        steps.clear();
        if !plan.operation(ticket.turn, &mut steps) {
            break;
        }
        record.late(ticket.late);
        let mut intended = ticket.intended;
        for step in &steps {
            let ended = who.perform(step);
            let (next, failed) = (ended.at, ended.done.outcome.is_err());
            record.step(step.kind, intended, ended);
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
    use crate::failure::Failure;
    use crate::plan::Round;
    use crate::scenario::Scenario;

    struct Simulated(Mutex<Duration>);

    impl Clock for Simulated {
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

    impl Perform for Server<'_> {
        fn perform(&mut self, _: &Step) -> Ended {
            let at = {
                let mut now = self.clock.0.lock().unwrap();
                *now += Duration::from_millis(10);
                *now
            };
            let outcome =
                if self.refuses == Some(self.performed) { Err(Failure::Timeout) } else { Ok(()) };
            self.performed += 1;
            let done =
                Done { bytes: 1, first_byte: None, ended: Instant::now(), cache: None, outcome };
            Ended { first_byte: None, at, done }
        }
    }

    #[derive(Default)]
    struct Recorded(Vec<(Kind, u128)>);

    impl Record for Recorded {
        fn late(&mut self, _: Late) {}

        fn step(&mut self, kind: Kind, intended: Duration, ended: Ended) {
            self.0.push((kind, (ended.at - intended).as_millis()));
        }
    }

    fn driven(load: &str, refuses: Option<usize>) -> Vec<(Kind, u128)> {
        let text = format!(
            "name = \"x\"\n[objects]\ncount = 4\nbytes = 1000\n[access]\npattern = \"parquet\"\nfooter_bytes = 10\nrow_groups = 1\n\
             columns = 2\ncolumns_read = 2\n[load]\nconnections = 1\noperations = 2\n{load}"
        );
        let scenario = Scenario::parse(&text).unwrap();
        let clock = Simulated(Mutex::new(Duration::ZERO));
        let schedule = Schedule::new(&scenario.load, Duration::from_secs(9), 1);
        let mut recorded = Recorded::default();
        let plan = Plan::new(&scenario, Round::Measured(0));
        drive(
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
        use Kind::{Chunk, Footer};
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
        let kinds: Vec<Kind> = driven("", Some(1)).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [Kind::Footer, Kind::Chunk, Kind::Footer, Kind::Chunk, Kind::Chunk]);
    }
}
