//! A folder over a medium that breaks, held against what was written: every page that is served is
//! right.
#![allow(clippy::unwrap_used)]

mod crashes;
mod disk_fixture;
mod pins;
mod real;
mod room;
mod size;
