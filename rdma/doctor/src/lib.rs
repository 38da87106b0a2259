//! Owns the diagnosis of a host's RDMA: what it has, what prevents its use, and how to mend that.
//!
//! `host` reads a description of the host from files below a root folder. `check` judges it without
//! I/O. `peer` examines the way to one other host. Owns no printing and no exit status, opens no
//! queue pair, and changes nothing.

mod addresses;
mod check;
#[cfg(test)]
mod fake_host_tree;
mod finding;
mod host;
mod peer;

pub use addresses::{DeviceAddresses, list_addresses};
pub use check::{HostRequirements, examine_host, usable_rails, without_left_out_ports};
pub use finding::{FindingSeverity, HostCheckKind, HostFinding, worst_severity};
pub use host::{
    BondDescription, CpuSet, DeviceDescription, DeviceFileAccess, DeviceKind, GidKind,
    GidTableEntry, HostDescription, HostMemoryInfo, HostRailView, HugePages, HugePool, IommuMode,
    LinkLayer, MemlockLimit, NetworkDevice, PciFunction, PcieLink, PortDataRate, PortDescription,
    PortState, ProcessLimits, UnusedNic, VerbsLibraries,
};
pub use peer::{ConnectOutcome, PeerProbe, ProbeOptions, judge_peer, probe_peer};
