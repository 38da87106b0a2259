//! Every input of the corpus, and mutations of it: what the fuzzer has found once stays found, in
//! every build.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use verbs3_fuzz::TARGETS;
use verbs3_protocol::{RequestEnvelope, WorkerReply};

fn inputs(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn no_input_of_the_corpus_breaks_its_decoder() {
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        assert!(inputs.len() >= 2, "{name} has hardly a corpus");
        inputs.iter().for_each(|input| target(input));
    }
}

/// Mutations reach deep only from inputs that decode.
#[test]
fn the_corpus_of_messages_is_of_todays_messages() {
    for input in inputs("request") {
        assert!(RequestEnvelope::decode(&input).is_ok(), "{input:02x?}");
    }
    for input in inputs("reply") {
        assert!(WorkerReply::decode(&input).is_ok(), "{input:02x?}");
    }
}

#[test]
fn mutations_of_the_corpus_break_no_decoder() {
    let seed = std::env::var("SEED").map_or_else(|_| rand::random(), |text| text.parse().unwrap());
    println!("SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    for (name, target) in TARGETS {
        let (inputs, began, mut runs) = (inputs(name), Instant::now(), 0_u64);
        while began.elapsed() < Duration::from_millis(500) {
            let mut input = inputs[rng.random_range(0..inputs.len())].clone();
            for _ in 0..rng.random_range(1..5) {
                mutate(&mut input, &inputs, &mut rng);
            }
            target(&input);
            runs += 1;
        }
        println!("{name}: {runs} mutations");
    }
}

fn mutate(input: &mut Vec<u8>, inputs: &[Vec<u8>], rng: &mut SmallRng) {
    let at = rng.random_range(0..=input.len());
    match rng.random_range(0..6) {
        0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
        1 if at < input.len() => {
            input[at] = *[0, 1, 0x7f, 0x80, 0xff, b'\r', b'\n', b'"', b'-']
                .get(rng.random_range(0..9))
                .unwrap()
        }
        2 => input.truncate(at),
        3 => input.insert(at, rng.random()),
        4 if at < input.len() => {
            drop(input.drain(at..(at + rng.random_range(1..20)).min(input.len())))
        }
        _ => {
            let other = &inputs[rng.random_range(0..inputs.len())];
            input.extend_from_slice(&other[rng.random_range(0..=other.len())..]);
        }
    }
}
