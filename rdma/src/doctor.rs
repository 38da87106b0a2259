//! What a host has of RDMA, what keeps it from being used, and what to do about it.
//!
//! `host` reads a description of the host from files below a root folder; `check` judges it without
//! I/O; `peer` looks at the way to one other host. Owns no printing and no exit status, opens no
//! queue pair, and changes nothing.

mod addresses;
mod check;
#[cfg(test)]
mod fake;
mod finding;
mod host;
mod peer;

pub use addresses::{Addresses, addresses};
pub use check::{Needs, examine, usable_rails};
pub use finding::{Check, Finding, Severity, verdict};
pub use host::{
    Access, Bond, CpuSet, Device, DeviceKind, Gid, GidKind, Host, HugePages, HugePool, Libraries,
    Limit, LinkLayer, Memory, Netdev, Port, PortState, Process, Rail, Rate, UnusedNic,
};
pub use peer::{PeerProbe, ProbeOptions, Reached, judge_peer, probe_peer};
