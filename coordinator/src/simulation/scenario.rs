//! Scenarios that the simulated cluster goes through one after the other, and their measurements.

use std::time::Duration;

use rand::RngExt;
use verbs3_protocol::{HashSlot, MemberRoster, PlacementMap, SLOTS, WorkerId};

use super::world::{SimulatedWorld, SimulationCounts, SimulationScale};

/// Result of one scenario.
#[derive(Debug, Clone)]
pub(super) struct SimulationMeasurement {
    pub(super) name: String,
    /// Time until a map of the present workers, or a later one, was in force, all workers answered
    /// under it, and all gateways placed by it.
    pub(super) in_a_map: Duration,
    /// Time until this held for the last map, in which each worker has its whole share.
    pub(super) converged: Duration,
    pub(super) maps: usize,
    /// Parts of all slots that moved: the sum over the maps, and the most by one map.
    pub(super) moved: f64,
    pub(super) moved_at_once: f64,
    /// By how much the worst map exceeded its share.
    pub(super) share: f64,
    pub(super) moved_beyond_share: f64,
    /// The most that one worker owns, as a multiple of its share.
    pub(super) imbalance: f64,
    pub(super) bytes_to_workers: u64,
    pub(super) bytes_to_gateways: u64,
    pub(super) requests: u64,
    pub(super) asking_longest: Duration,
}

/// How long nothing may change after all have converged. A worker that returns later counts as a
/// new one.
const CALM: Duration = Duration::from_secs(20);

pub(super) fn run_scenarios(scale: &SimulationScale, seed: u64) -> Vec<SimulationMeasurement> {
    let mut world = SimulatedWorld::new(*scale, seed);
    world.elect_leader();
    let mut run = SimulationRun { world, last: None, all: Vec::new() };
    let rack_of = |at: usize| format!("rack-{:02}", at % scale.racks);
    let second = Duration::from_secs(1);

    run.run_scenario("all start within a second", |world| {
        for at in 0..world.scale.workers {
            let after = second.mul_f64(world.rng.random());
            world.add_worker(rack_of(at));
            world.start_worker(at, after);
        }
        for _ in 0..world.scale.gateways {
            let after = second.mul_f64(world.rng.random());
            world.add_gateway(after);
        }
    });
    run.run_scenario("a quiet minute", |world| world.pass_time(60 * second));
    let victim = scale.workers / 2;
    run.run_scenario("a worker is killed", |world| world.kill_worker(victim));
    run.run_scenario("it comes back", |world| world.start_worker(victim, Duration::ZERO));
    let rack: Vec<usize> = (0..scale.workers).filter(|&at| rack_of(at) == rack_of(1)).collect();
    run.run_scenario(&format!("a rack of {} dies", rack.len()), |world| {
        rack.iter().for_each(|&at| world.kill_worker(at));
    });
    run.run_scenario("it comes back within 5 s", |world| {
        for &at in &rack {
            let after = 5 * second.mul_f64(world.rng.random());
            world.start_worker(at, after);
        }
    });
    run.run_scenario(&format!("{} join within a second", scale.joining), |world| {
        for _ in 0..world.scale.joining {
            let at = world.add_worker(rack_of(world.workers.len()));
            let after = second.mul_f64(world.rng.random());
            world.start_worker(at, after);
        }
    });
    run.run_scenario("the leader is killed", SimulatedWorld::kill_leader);
    run.world.revive_coordinators();
    run.run_scenario("the leader and a worker are killed", |world| {
        world.kill_leader();
        world.kill_worker(victim);
    });
    run.world.revive_coordinators();
    run.run_scenario("it comes back", |world| world.start_worker(victim, Duration::ZERO));
    run.run_scenario(&format!("rolling upgrade of {} racks", scale.upgraded), |world| {
        for rack in 0..world.scale.upgraded {
            let of_rack: Vec<usize> =
                (0..world.workers.len()).filter(|at| at % world.scale.racks == rack).collect();
            for &at in &of_rack {
                world.pass_time(second.mul_f64(1.0 / of_rack.len() as f64));
                world.end_worker(at);
                world.start_worker(at, 10 * second);
            }
            world.run_until_converged();
        }
    });
    run.all
}

struct SimulationRun {
    world: SimulatedWorld,
    /// The last map and its computed placement.
    last: Option<(MemberRoster, PlacementMap)>,
    all: Vec<SimulationMeasurement>,
}

impl SimulationRun {
    fn run_scenario(&mut self, name: &str, act: impl FnOnce(&mut SimulatedWorld)) {
        let world = &mut self.world;
        (world.counts, world.maps) = (SimulationCounts::default(), Vec::new());
        let began = world.now;
        act(world);
        let (in_a_map, converged) = world.run_until_converged();
        let counts = world.counts.clone();
        let maps = world.maps.len();
        world.pass_time(CALM);
        assert_eq!(
            (world.maps.len(), world.is_converged()),
            (maps, true),
            "{name}: all was calm, and then it was not"
        );

        let mut measured = SimulationMeasurement {
            name: name.to_owned(),
            in_a_map: in_a_map.saturating_duration_since(began),
            converged: converged.saturating_duration_since(began),
            maps,
            moved: 0.0,
            moved_at_once: 0.0,
            share: 0.0,
            moved_beyond_share: 0.0,
            imbalance: 0.0,
            bytes_to_workers: counts.bytes_to_workers,
            bytes_to_gateways: counts.bytes_to_gateways,
            requests: counts.requests,
            asking_longest: counts.asking_longest,
        };
        for map in world.maps.clone() {
            let placement = map.build_placement().expect("the map in force is one");
            if let Some((before, placed)) = &self.last {
                let moved = placed.count_moved_slots(&placement) as f64 / SLOTS as f64;
                let share = required_share(before, &map);
                measured.moved += moved;
                measured.moved_at_once = measured.moved_at_once.max(moved);
                measured.share += share;
                measured.moved_beyond_share = measured.moved_beyond_share.max(moved - share);
            }
            self.last = Some((MemberRoster::clone(&map), placement));
        }
        measured.imbalance =
            self.last.as_ref().map_or(0.0, |(_, placement)| slot_imbalance(placement));
        println!("{measured:?}");
        self.all.push(measured);
    }
}

/// Returns the part of all slots that must change owner at least: those of workers that left or
/// weigh less, and those for workers that joined or weigh more.
fn required_share(before: &MemberRoster, after: &MemberRoster) -> f64 {
    let all = |map: &MemberRoster| {
        map.members.iter().map(|member| member.weight).sum::<f64>().max(f64::MIN_POSITIVE)
    };
    let weight =
        |map: &MemberRoster, id: &WorkerId| map.get(id).map_or(0.0, |member| member.weight);
    // What members have in `map` beyond what they have in `other`.
    let gained = |map: &MemberRoster, other: &MemberRoster| {
        let (of_all, of_other) = (all(map), all(other));
        let more = map.members.iter().filter(|member| member.weight > weight(other, &member.id));
        more.map(|member| (member.weight / of_all - weight(other, &member.id) / of_other).max(0.0))
            .sum::<f64>()
    };
    gained(before, after) + gained(after, before)
}

fn slot_imbalance(placement: &PlacementMap) -> f64 {
    let mut owned = vec![0u32; placement.map_members().len()];
    for slot in 0..SLOTS {
        owned[usize::from(placement.slot_owners(HashSlot(slot as u16))[0])] += 1;
    }
    let weights: f64 = placement.map_members().iter().map(|member| member.weight).sum();
    let of_share = owned.iter().zip(placement.map_members());
    let ratios = of_share
        .map(|(&owned, member)| f64::from(owned) / (member.weight / weights * SLOTS as f64));
    ratios.fold(0.0, f64::max)
}
