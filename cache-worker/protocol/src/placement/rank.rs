//! The table behind a placement map. Pure, and the same on every machine.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::{Member, SLOTS};

/// Slots that a worker may own, as a multiple of its share. Promised is 1.15; whole slots take the rest.
const LOAD_MAX: f64 = 1.14;

/// `SLOTS × ranks` indexes into `members`, of which at least `ranks` own slots.
pub(super) fn table(members: &[Member], ranks: usize) -> Vec<u16> {
    let candidates: Vec<Candidate> =
        members.iter().enumerate().filter(|(_, member)| !member.draining).map(Candidate::new).collect();
    let weights: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let mut room: Vec<u32> = candidates.iter().map(|candidate| slots_max(candidate.weight / weights)).collect();
    let equal = candidates.windows(2).all(|pair| pair[0].weight == pair[1].weight);
    let zones = zones(members, &candidates);

    let mut table = Vec::with_capacity(SLOTS * ranks);
    let mut costs = vec![0u64; candidates.len()];
    let mut chosen: Vec<usize> = Vec::with_capacity(ranks);
    for slot in 0..SLOTS as u64 {
        let slot_bits = mixed(slot.wrapping_add(0x9e37_79b9_7f4a_7c15));
        for (cost, candidate) in costs.iter_mut().zip(&candidates) {
            let random = mixed(candidate.bits ^ slot_bits);
            *cost = if equal { random } else { exponential(random, candidate.weight) };
        }
        chosen.clear();
        // The rooms together are more than the slots, so there always is one.
        let owner = cheapest(&costs, |at| room[at] > 0).unwrap_or(0);
        room[owner] = room[owner].saturating_sub(1);
        chosen.push(owner);
        while chosen.len() < ranks {
            let apart = |at: usize| chosen.iter().all(|&other| zones[other] != zones[at]);
            let next = cheapest(&costs, |at| !chosen.contains(&at) && apart(at))
                .or_else(|| cheapest(&costs, |at| !chosen.contains(&at)));
            chosen.push(next.unwrap_or(owner));
        }
        table.extend(chosen.iter().map(|&at| candidates[at].index));
    }
    table
}

struct Candidate {
    /// Among all members.
    index: u16,
    weight: f64,
    bits: u64,
}

impl Candidate {
    fn new((index, member): (usize, &Member)) -> Self {
        let mut hasher = SipHasher13::new_with_keys(0x7665_7262_7333_0002, 0x736c_6f74_7261_6e6b);
        hasher.write(member.id.0.as_bytes());
        Self { index: index as u16, weight: member.weight, bits: hasher.finish() }
    }
}

/// A number for each candidate's zone. Who names none is a zone of its own.
fn zones(members: &[Member], candidates: &[Candidate]) -> Vec<usize> {
    let zone = |candidate: &Candidate| members[usize::from(candidate.index)].zone.as_str();
    let first_of = |at: usize| candidates.iter().position(|other| zone(other) == zone(&candidates[at])).unwrap_or(at);
    (0..candidates.len()).map(|at| if zone(&candidates[at]).is_empty() { at } else { first_of(at) }).collect()
}

/// At least the share, rounded up: all slots find a place.
fn slots_max(share: f64) -> u32 {
    let slots = share * SLOTS as f64;
    slots.ceil().max((slots * LOAD_MAX).floor()) as u32
}

/// The first of the lowest.
fn cheapest(costs: &[u64], may: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best: Option<(u64, usize)> = None;
    for (at, &cost) in costs.iter().enumerate() {
        if best.is_none_or(|(lowest, _)| cost < lowest) && may(at) {
            best = Some((cost, at));
        }
    }
    best.map(|(_, at)| at)
}

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014): every bit of the input changes about half of the output's.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// An exponential variate with rate `weight` (the smallest of several falls to each in proportion to its rate), as bits that
/// order as the number does.
fn exponential(random: u64, weight: f64) -> u64 {
    // 52 random bits and a half, which a double holds: never 0, whose logarithm is infinite, and never 1, whose is 0.
    let uniform = ((random >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    (-ln(uniform) / weight).to_bits()
}

/// The natural logarithm of a normal number in (0, 1), to 10 digits. Not the platform's, whose last digits differ from library
/// to library: IEEE 754 fixes the result of every operation that is used here.
fn ln(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1022;
    // In [0.5, 1).
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3fe0_0000_0000_0000);
    // ln m = 2 artanh((m - 1) / (m + 1)), around √½ so that the argument is small.
    let (mantissa, exponent) =
        if mantissa < std::f64::consts::FRAC_1_SQRT_2 { (mantissa * 2.0, exponent - 1) } else { (mantissa, exponent) };
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
        for x in [1e-16, 1e-9, 0.01, 0.3, 0.5, 0.7, std::f64::consts::FRAC_1_SQRT_2, 0.75, 0.999_999, 1.0 - 1e-15] {
            let error = (ln(x) - x.ln()).abs();
            assert!(error < 1e-10 * x.ln().abs().max(1e-6), "ln {x}: {} and {}", ln(x), x.ln());
        }
    }

    #[test]
    fn costs_order_as_the_numbers_do() {
        let cost = |random: u64| exponential(random << 12, 0.3);
        assert!(cost(0) > cost(1) && cost(1) > cost(1 << 40) && cost(1 << 40) > cost((1 << 52) - 1));
    }

    #[test]
    fn rooms_hold_all_slots() {
        for weights in [vec![1.0; 7], vec![1.0, 3.0, 0.001], vec![1.0; 1000]] {
            let sum: f64 = weights.iter().sum();
            assert!(weights.iter().map(|weight| slots_max(weight / sum) as usize).sum::<usize>() >= SLOTS);
        }
    }
}
