//! The steps about memory: how fast pages are touched, and how fast NICs register them.

use std::time::{Duration, Instant};

use verbs3_loadtest::units;
use verbs3_rdma::arena::{Arena, ArenaOptions};
use verbs3_rdma::verbs::{RailRegistration, RegistrationOrder, time_registration};

use super::AcceptanceRun;
use super::rails::AcceptanceRails;
use super::step::{AcceptanceStep, FigureLimit, StepFigure, StepReason, StepTitle};

/// A page of a fill; the widest cell of the arena.
const CELL_BYTES: usize = 256 << 10;
const TOUCH: &str = "touch memory";
const SERIAL: &str = "register, rail by rail";
const PARALLEL: &str = "register, all rails at once";
const GB: f64 = 1e9;

/// Others registered 500 GB in 49 s in one thread, and in 12 s in several (docs/hardware.md). Half of
/// that rate is taken as the floor: the machines differ.
const SERIAL_GB_PER_SECOND_MIN: f64 = 500.0 / 49.0 / 2.0;
const PARALLEL_GB_PER_SECOND_MIN: f64 = 500.0 / 12.0 / 2.0;
const SOURCE: &str = "half of what others had: docs/hardware.md, \"What to expect of devices\"";

/// Touches memory once, and has every rail register it twice.
pub fn measure_memory(run: &AcceptanceRun<'_>, rails: &AcceptanceRails) -> Vec<AcceptanceStep> {
    let bytes = run.arguments.memory;
    let shown = units::show_bytes(bytes);
    let touch = format!("touch {shown} of shared memory, as a worker does at its start");
    if let Some(room) = run.memory_room().filter(|room| bytes > *room) {
        let room = units::show_bytes(room);
        let reason = format!("{shown} are more than {room}, nine tenths of this host's memory");
        let because = StepReason::new(reason, "a smaller --memory");
        let skip = |name| StepTitle::new(name, "host", &touch).not_run(because.clone());
        return [TOUCH, SERIAL, PARALLEL].map(skip).into();
    }
    let title = StepTitle::new(TOUCH, "host", touch);
    let began = Instant::now();
    let options = ArenaOptions {
        capacity_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        cell_bytes_max: CELL_BYTES,
        populate: true,
    };
    let arena = match Arena::map_memory(options) {
        Ok(arena) => arena,
        Err(error) => {
            let because = StepReason::new(
                crate::command::doctor::explain_error(&error),
                "a smaller --memory",
            );
            let skip = |name| StepTitle::new(name, "host", "").not_run(because.clone());
            return vec![title.failed(because.clone()), skip(SERIAL), skip(PARALLEL)];
        }
    };
    let touched = StepFigure::recorded("touched", rate(bytes, began.elapsed()), "GB/s");
    let mut steps = vec![title.measured(vec![touched])];
    for order in [RegistrationOrder::Serial, RegistrationOrder::Parallel] {
        steps.extend(register_all(&arena, bytes, rails, order));
    }
    steps
}

fn register_all(
    arena: &Arena,
    bytes: u64,
    rails: &AcceptanceRails,
    order: RegistrationOrder,
) -> Vec<AcceptanceStep> {
    let (name, how, floor) = match order {
        RegistrationOrder::Serial => (SERIAL, "in one thread", SERIAL_GB_PER_SECOND_MIN),
        RegistrationOrder::Parallel => {
            (PARALLEL, "in four threads a rail", PARALLEL_GB_PER_SECOND_MIN)
        }
    };
    let shown = units::show_bytes(bytes);
    let command = format!("register {shown} {how}, as a worker does at its start");
    if rails.rails.is_empty() {
        return vec![StepTitle::new(name, "host", command).not_run(rails.none.clone())];
    }
    let judge = |registered: RailRegistration| match registered.outcome {
        Ok((label, took)) => {
            let figure = StepFigure::recorded("registered", rate(bytes, took), "GB/s")
                .with_limit(FigureLimit::AtLeast(floor), SOURCE);
            StepTitle::new(name, label, &command).measured(vec![figure])
        }
        Err(error) => {
            let remedy =
                "`ulimit -l`: memlock must be the memory times the rails, and as much again";
            let because = StepReason::new(error.to_string(), remedy);
            StepTitle::new(name, registered.address.to_string(), &command).failed(because)
        }
    };
    time_registration(&rails.addresses(), arena, order).into_iter().map(judge).collect()
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / GB / took.as_secs_f64().max(1e-9)
}
