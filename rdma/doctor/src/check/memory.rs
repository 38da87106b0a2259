//! Owns the checks of memory: whether it may be locked, whether the cgroup allows the arena,
//! whether there are huge pages.

use super::usable_rails::usable_rails;
use super::{HostRequirements, format_bytes};
use crate::finding::{HostCheckKind, HostFinding};
use crate::host::{HostDescription, MemlockLimit};

/// Locked bytes beside an arena: queues, receive rings and what libibverbs maps.
const LOCKED_BESIDE_BYTES: u64 = 64 << 20;
/// Bytes that a process needs beside its arena and its index (the design's bound on RSS).
const PROCESS_BYTES: u64 = 256 << 20;
/// The default of `worker.memory.capacity`, where no configuration says more.
const ARENA_BYTES: u64 = 1 << 30;

/// Returns true if the configuration's arena can't be registered. The kernel counts locked memory
/// once for each registration, and each rail has one (`pinned_vm` in Linux's `umem.c`).
pub(super) fn memlock_too_small(host: &HostDescription, needs: &HostRequirements) -> bool {
    let limit = host.process.memlock;
    let bytes = needs.largest_arena().map_or(ARENA_BYTES, |(_, bytes)| bytes);
    let enough = MemlockLimit::Bytes((bytes + LOCKED_BESIDE_BYTES) * count_registrations(host));
    !host.process.ipc_lock && limit < enough
}

fn count_registrations(host: &HostDescription) -> u64 {
    usable_rails(host).len().max(1) as u64
}

pub(super) fn check_memlock(host: &HostDescription, needs: &HostRequirements) -> Vec<HostFinding> {
    let process = &host.process;
    let limit = match process.memlock {
        MemlockLimit::Unlimited => "unlimited".to_owned(),
        MemlockLimit::Bytes(bytes) => format_bytes(bytes),
    };
    let lock =
        if process.ipc_lock { "with CAP_IPC_LOCK, which overrides it" } else { "no CAP_IPC_LOCK" };
    let seen = format!("RLIMIT_MEMLOCK {limit}, {lock}");
    if !memlock_too_small(host, needs) {
        return vec![HostFinding::new_ok(HostCheckKind::Memlock, "process", seen)];
    }
    let (setting, bytes) =
        needs.largest_arena().unwrap_or(("worker.memory.capacity (its default)", ARENA_BYTES));
    let why = format!(
        "registered memory is locked memory, and counts once for each of {} rails: {setting} is \
        {}, and must fit with {} beside it",
        count_registrations(host),
        format_bytes(bytes),
        format_bytes(LOCKED_BESIDE_BYTES)
    );
    let remedy = if host.container.is_some() {
        "securityContext.capabilities.add: [IPC_LOCK] for a process that runs as root; else \
        LimitMEMLOCK=infinity in the container runtime's unit (containerd.service, \
        docker.service), or docker run --ulimit memlock=-1"
    } else {
        "systemd: LimitMEMLOCK=infinity in the unit; a shell: `verbs3 - memlock unlimited` in \
        /etc/security/limits.conf and log in again"
    };
    vec![
        HostFinding::new_failure(HostCheckKind::Memlock, "process", seen)
            .with_explanation(why, remedy),
    ]
}

/// Checks the memory limit. The trap: memory of a memfd counts against the limit once touched, and
/// registering touches all of it at start.
pub(super) fn check_memory_limit(
    host: &HostDescription,
    needs: &HostRequirements,
) -> Vec<HostFinding> {
    let total = host.memory.total_bytes;
    let (bytes, file) = match &host.memory.limit {
        // A limit above the total memory limits nothing.
        Some((bytes, file)) if total == 0 || *bytes < total => (*bytes, file.as_str()),
        _ if total > 0 => (total, "MemTotal in /proc/meminfo"),
        _ => return Vec::new(),
    };
    let limited = file.starts_with('/');
    let seen = if limited {
        format!("limit {} ({file})", format_bytes(bytes))
    } else {
        format!("no limit; the host has {}", format_bytes(bytes))
    };
    let subject = if limited { "cgroup" } else { "host" };
    let trap = "an arena is memfd memory, and registered memory is touched at once and can't be \
        swapped: all of it counts against the limit from the start, and the kernel kills what \
        goes over";
    let Some((setting, arena)) = needs.largest_arena() else {
        let finding = HostFinding::new_ok(HostCheckKind::MemoryLimit, subject, seen);
        return vec![if limited {
            finding.with_advice(format!("{trap}; --config FILE compares"))
        } else {
            finding
        }];
    };
    let seen = format!("{seen}; {setting} is {}", format_bytes(arena));
    let wanted = arena.saturating_add(PROCESS_BYTES);
    let remedy = if limited {
        format!(
            "raise the limit to {setting}, the index and 256 MiB (resources.limits.memory, \
            MemoryMax=, docker -m), or lower {setting}"
        )
    } else {
        format!("lower {setting}")
    };
    if arena >= bytes {
        return vec![
            HostFinding::new_failure(HostCheckKind::MemoryLimit, subject, seen)
                .with_explanation(trap, remedy),
        ];
    }
    if wanted > bytes {
        let why = format!("{trap}; beside the arena, a process needs its index and 256 MiB");
        return vec![
            HostFinding::new_warning(HostCheckKind::MemoryLimit, subject, seen)
                .with_explanation(why, remedy),
        ];
    }
    vec![HostFinding::new_ok(HostCheckKind::MemoryLimit, subject, seen)]
}

/// Checks whether an arena gets huge pages. An arena is a memfd, so only transparent huge pages for
/// shared memory serve it. Pages that are reserved for hugetlbfs don't.
pub(super) fn huge_pages(host: &HostDescription) -> Vec<HostFinding> {
    let pools: Vec<_> = host.huge.pools.iter().filter(|pool| pool.pages > 0).collect();
    let shmem = host.huge.shmem.as_deref();
    let transparent =
        format!("transparent for shared memory: {}", shmem.unwrap_or("not in this kernel"));
    let reserved = pools.iter().map(|pool| {
        let size = format_bytes(pool.page_bytes);
        format!("{} free of {} × {size}, which no arena uses", pool.free, pool.pages)
    });
    let seen = std::iter::once(transparent).chain(reserved).collect::<Vec<_>>().join("; ");
    let finding = HostFinding::new_ok(HostCheckKind::HugePages, "host", seen.clone());
    let remedy = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (at boot: \
        transparent_hugepage_shmem=advise, kernel 6.13 and newer, or a tmpfiles.d line)";
    if matches!(shmem, Some("always" | "within_size" | "advise" | "force")) {
        return vec![finding];
    }
    if host.devices.is_empty() {
        return vec![finding.with_remedy(remedy)];
    }
    let why = "a NIC keeps an address for every page of the arena: 4 KiB pages overflow its cache, \
        and registering them takes long";
    let why = if pools.is_empty() {
        why.to_owned()
    } else {
        format!("{why}; an arena is no hugetlbfs memory, so shmem_enabled alone decides")
    };
    vec![
        HostFinding::new_warning(HostCheckKind::HugePages, "host", seen)
            .with_explanation(why, remedy),
    ]
}
