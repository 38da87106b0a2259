//! Owns the limits and rights of this process: locked memory, capabilities, CPUs.

use super::file_tree::HostFileTree;
use verbs3_rdma::cpu_affinity::CpuSet;

/// The limits and rights of this process, from `/proc/self`.
#[derive(Debug, Clone, Default)]
pub struct ProcessLimits {
    /// RLIMIT_MEMLOCK, soft.
    pub memlock: MemlockLimit,
    /// RLIMIT_MEMLOCK, hard: the soft one can be raised up to here.
    pub memlock_hard: MemlockLimit,
    /// CAP_IPC_LOCK in effect: RLIMIT_MEMLOCK does not count.
    pub ipc_lock: bool,
    pub cpus: CpuSet,
}

/// A value of RLIMIT_MEMLOCK. `Unlimited` compares as larger than any number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemlockLimit {
    Bytes(u64),
    #[default]
    Unlimited,
}

/// Bit of CAP_IPC_LOCK, `linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;

pub(super) fn read(tree: &HostFileTree) -> ProcessLimits {
    let status = tree.read_text("proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let capabilities =
        field("CapEff:").and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0);
    let limits = tree.read_text("proc/self/limits").unwrap_or_default();
    let memlock = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let mut memlock = memlock.unwrap_or_default().split_whitespace().map(parse_limit);
    ProcessLimits {
        memlock: memlock.next().unwrap_or_default(),
        memlock_hard: memlock.next().unwrap_or_default(),
        ipc_lock: capabilities & (1 << CAP_IPC_LOCK) != 0,
        cpus: field("Cpus_allowed_list:").map(|text| CpuSet::parse(&text)).unwrap_or_default(),
    }
}

fn parse_limit(text: &str) -> MemlockLimit {
    text.parse().map_or(MemlockLimit::Unlimited, MemlockLimit::Bytes)
}
