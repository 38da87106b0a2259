//! Copies of writes at a tier that remembers what it is given, and fails on demand.
#![allow(clippy::unwrap_used)]

mod cutting;
mod populate_fixture;
mod uploads;
mod writes;
