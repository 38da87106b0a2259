//! Preload jobs over real workers, in front of a store that counts, fails and stalls.
#![allow(clippy::unwrap_used)]

mod counting_store;
mod cut;
mod ends;
mod guests;
mod jobs;
mod objects;
mod pages;
mod preload_fixture;
mod truth;
mod turns;
