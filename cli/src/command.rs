//! Commands that answer and end.

pub mod bench;
pub mod cache;
pub mod config;
pub mod console_user;
pub mod doctor;
mod drain;
pub mod membership;
pub mod plan;
pub mod preload;
pub mod probe;
pub mod status;
pub mod version;
