//! Computes the table behind a placement map. Pure, and the same on every machine.

use std::collections::HashMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::{PlacementMember, SLOTS};

/// Most slots of a worker, as a multiple of its share. The promise is 1.15; rounding to whole slots
/// takes the rest.
const LOAD_MAX: f64 = 1.14;

/// Mean number of candidates that a slot looks at first. With fewer than two dozen, too few might
/// remain after those without room or in the owner's zone. Each further one costs a logarithm.
const LISTED: f64 = 24.0;

/// Returns `SLOTS × ranks` indexes into `members`, of which at least `ranks` own slots.
pub(super) fn rank_slots(members: &[PlacementMember], ranks: usize) -> Vec<u16> {
    let candidates: Vec<RankCandidate> = members
        .iter()
        .enumerate()
        .filter(|(_, member)| !member.draining)
        .map(|(index, member)| RankCandidate::new(index, member))
        .collect();
    let weights: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let mut room: Vec<u32> =
        candidates.iter().map(|candidate| slots_max(candidate.weight / weights)).collect();
    let zones = number_zones(members, &candidates);
    let costs = CandidateCosts::new(&candidates, weights);

    let mut table = Vec::with_capacity(SLOTS * ranks);
    let mut listed = Vec::with_capacity(candidates.len());
    let mut chosen: Vec<usize> = Vec::with_capacity(ranks);
    for slot in 0..SLOTS as u64 {
        let slot_bits = mix_bits(slot.wrapping_add(0x9e37_79b9_7f4a_7c15));
        costs.list_cheap(&candidates, slot_bits, &mut listed);
        let all = listed.len() == candidates.len();
        if !choose_workers(&listed, all, ranks, &room, &zones, &mut chosen) {
            costs.list_all(&candidates, slot_bits, &mut listed);
            choose_workers(&listed, true, ranks, &room, &zones, &mut chosen);
        }
        room[chosen[0]] = room[chosen[0]].saturating_sub(1);
        table.extend(chosen.iter().map(|&at| candidates[at].index));
    }
    table
}

/// Chooses the slot's workers from `listed`, with their costs in the order of the candidates.
/// Returns `false` if the next worker may be one that is not listed.
fn choose_workers(
    listed: &[(u64, usize)],
    all: bool,
    ranks: usize,
    room: &[u32],
    zones: &CandidateZones,
    chosen: &mut Vec<usize>,
) -> bool {
    chosen.clear();
    // The members' room exceeds the number of slots, so there always is an owner.
    let owner = find_cheapest(listed, |at| room[at] > 0);
    if owner.is_none() && !all {
        return false;
    }
    let owner = owner.unwrap_or(0);
    chosen.push(owner);
    while chosen.len() < ranks {
        let apart = |at: usize| chosen.iter().all(|&other| zones.of[other] != zones.of[at]);
        // Once no pick from another zone is left, the search for one ends.
        let mut next = None;
        if chosen.len() < zones.count {
            next = find_cheapest(listed, |at| !chosen.contains(&at) && apart(at));
            if next.is_none() && !all {
                return false;
            }
        }
        let next = next.or_else(|| find_cheapest(listed, |at| !chosen.contains(&at)));
        if next.is_none() && !all {
            return false;
        }
        chosen.push(next.unwrap_or(owner));
    }
    true
}

/// Costs of a slot's candidates. Of a thousand candidates nearly all are far from the cheapest. An
/// integer comparison excludes them without a logarithm.
struct CandidateCosts {
    /// All weights are equal. The cost is then the inverted random number, which orders as its
    /// logarithm does. A member of another weight changes the scale of costs, not their order.
    equal: bool,
    /// Costs from here on are not cheap.
    cheap_below: u64,
    /// By candidate, if weights differ: random numbers below this can't be cheap.
    random_min: Vec<u64>,
}

impl CandidateCosts {
    fn new(candidates: &[RankCandidate], weights: f64) -> Self {
        let equal = candidates.windows(2).all(|pair| pair[0].weight == pair[1].weight);
        if candidates.len() as f64 <= 2.0 * LISTED {
            return Self { equal, cheap_below: u64::MAX, random_min: vec![0; candidates.len()] };
        }
        if equal {
            let cheap_below = (LISTED / candidates.len() as f64 * u64::MAX as f64) as u64;
            return Self { equal, cheap_below, random_min: Vec::new() };
        }
        // The minimum of exponential variates has the sum of their rates as its rate.
        let below = LISTED / weights;
        let random_min = |candidate: &RankCandidate| {
            // A cost is -ln(u) / weight, and 1 - u is at most -ln(u). The bound is slightly lower
            // to allow for rounding.
            let uniform_min = 1.0 - (below * candidate.weight * (1.0 + 1e-9) + 1e-12);
            ((uniform_min.max(0.0) * (1u64 << 52) as f64) as u64).saturating_sub(2) << 12
        };
        Self {
            equal,
            cheap_below: below.to_bits(),
            random_min: candidates.iter().map(random_min).collect(),
        }
    }

    /// Lists the candidates that cost less than `cheap_below`.
    fn list_cheap(
        &self,
        candidates: &[RankCandidate],
        slot_bits: u64,
        listed: &mut Vec<(u64, usize)>,
    ) {
        listed.clear();
        if self.cheap_below == u64::MAX {
            return self.list_all(candidates, slot_bits, listed);
        }
        if self.equal {
            for (at, candidate) in candidates.iter().enumerate() {
                let cost = !mix_bits(candidate.bits ^ slot_bits);
                if cost < self.cheap_below {
                    listed.push((cost, at));
                }
            }
            return;
        }
        for (at, (candidate, &random_min)) in candidates.iter().zip(&self.random_min).enumerate() {
            let random = mix_bits(candidate.bits ^ slot_bits);
            if random >= random_min {
                let cost = exponential_bits(random, candidate.weight);
                if cost < self.cheap_below {
                    listed.push((cost, at));
                }
            }
        }
    }

    fn list_all(
        &self,
        candidates: &[RankCandidate],
        slot_bits: u64,
        listed: &mut Vec<(u64, usize)>,
    ) {
        listed.clear();
        listed.extend(candidates.iter().enumerate().map(|(at, candidate)| {
            let random = mix_bits(candidate.bits ^ slot_bits);
            (if self.equal { !random } else { exponential_bits(random, candidate.weight) }, at)
        }));
    }
}

struct RankCandidate {
    /// Index among all members.
    index: u16,
    weight: f64,
    bits: u64,
}

impl RankCandidate {
    fn new(index: usize, member: &PlacementMember) -> Self {
        let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0002, 0x736c_6f74_7261_6e6b);
        hasher.write(member.id.0.as_bytes());
        Self { index: index as u16, weight: member.weight, bits: hasher.finish() }
    }
}

struct CandidateZones {
    /// Zone number of each candidate. A member without a zone is a zone of its own.
    of: Vec<usize>,
    count: usize,
}

fn number_zones(members: &[PlacementMember], candidates: &[RankCandidate]) -> CandidateZones {
    let zone = |candidate: &RankCandidate| members[usize::from(candidate.index)].zone.as_str();
    let mut first: HashMap<&str, usize> = HashMap::new();
    let number = |(at, candidate)| match zone(candidate) {
        "" => at,
        named => *first.entry(named).or_insert(at),
    };
    let of: Vec<usize> = candidates.iter().enumerate().map(number).collect();
    let count = of.iter().enumerate().filter(|&(at, &number)| at == number).count();
    CandidateZones { of, count }
}

/// Returns at least the share, rounded up, so that all slots find a place.
fn slots_max(share: f64) -> u32 {
    let slots = share * SLOTS as f64;
    slots.ceil().max((slots * LOAD_MAX).floor()) as u32
}

/// Returns the first candidate with the lowest cost.
fn find_cheapest(listed: &[(u64, usize)], may: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best: Option<(u64, usize)> = None;
    for &(cost, at) in listed {
        if best.is_none_or(|(lowest, _)| cost < lowest) && may(at) {
            best = Some((cost, at));
        }
    }
    best.map(|(_, at)| at)
}

/// Mixes bits with the finaliser of SplitMix64 (Steele, Lea & Flood 2014): every bit of the input
/// changes about half of the output's bits.
fn mix_bits(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns an exponential variate with rate `weight`, as bits that order as the number does. The
/// smallest of several variates falls to each in proportion to its rate.
fn exponential_bits(random: u64, weight: f64) -> u64 {
    // 52 random bits and a half, which a double holds exactly. So the value is never 0, whose
    // logarithm is infinite, and never 1, whose logarithm is 0.
    let uniform = ((random >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    (-natural_log(uniform) / weight).to_bits()
}

/// Returns the natural logarithm of a normal number in (0, 1), to 10 digits. The platform's
/// function would not do: its last digits differ between libraries. IEEE 754 fixes the result of
/// every operation used here.
fn natural_log(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1022;
    // The mantissa is in [0.5, 1).
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3fe0_0000_0000_0000);
    // ln m = 2 artanh((m - 1) / (m + 1)), around √½ so that the argument is small.
    let (mantissa, exponent) = if mantissa < std::f64::consts::FRAC_1_SQRT_2 {
        (mantissa * 2.0, exponent - 1)
    } else {
        (mantissa, exponent)
    };
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let mut series = 0.0;
    for odd in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * square + 1.0 / odd;
    }
    exponent as f64 * LN_2 + 2.0 * z * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_one() {
        for x in [
            1e-16,
            1e-9,
            0.01,
            0.3,
            0.5,
            0.7,
            std::f64::consts::FRAC_1_SQRT_2,
            0.75,
            0.999_999,
            1.0 - 1e-15,
        ] {
            let error = (natural_log(x) - x.ln()).abs();
            assert!(
                error < 1e-10 * x.ln().abs().max(1e-6),
                "ln {x}: {} and {}",
                natural_log(x),
                x.ln()
            );
        }
    }

    /// What is listed first must be all that is cheap, or a release would place slots elsewhere
    /// than another.
    #[test]
    fn what_is_cheap_is_listed_and_nothing_else() {
        for weights in
            [vec![1.0; 200], (0..200).map(|at| 0.3 + f64::from(at % 7)).collect::<Vec<_>>()]
        {
            let members = weights
                .iter()
                .enumerate()
                .map(|(at, &w)| PlacementMember::new(crate::WorkerId(format!("w{at}")), w));
            let members: Vec<PlacementMember> = members.collect();
            let candidates: Vec<RankCandidate> = members
                .iter()
                .enumerate()
                .map(|(index, member)| RankCandidate::new(index, member))
                .collect();
            let costs = CandidateCosts::new(&candidates, weights.iter().sum());
            let (mut cheap, mut all, mut count) = (Vec::new(), Vec::new(), 0);
            for slot in 0..2000 {
                costs.list_cheap(&candidates, mix_bits(slot), &mut cheap);
                costs.list_all(&candidates, mix_bits(slot), &mut all);
                all.retain(|&(cost, _)| cost < costs.cheap_below);
                assert_eq!(cheap, all);
                count += cheap.len();
            }
            assert!((40_000..56_000).contains(&count), "{count} of 200 are listed for 2000 slots");
        }
    }

    #[test]
    fn costs_order_as_the_numbers_do() {
        let cost = |random: u64| exponential_bits(random << 12, 0.3);
        assert!(
            cost(0) > cost(1) && cost(1) > cost(1 << 40) && cost(1 << 40) > cost((1 << 52) - 1)
        );
    }

    #[test]
    fn rooms_hold_all_slots() {
        for weights in [vec![1.0; 7], vec![1.0, 3.0, 0.001], vec![1.0; 1000]] {
            let sum: f64 = weights.iter().sum();
            assert!(
                weights.iter().map(|weight| slots_max(weight / sum) as usize).sum::<usize>()
                    >= SLOTS
            );
        }
    }
}
