//! Copies of writes at a tier that remembers what it is given, and fails on demand.
#![allow(clippy::unwrap_used)]

mod cutting;
mod scripted_tier;
mod uploads;
mod writes;
