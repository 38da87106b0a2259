//! Owns the facts of memory: the host's, the cgroup's limit, huge pages, NUMA nodes.

use std::collections::BTreeMap;

use super::cgroup::list_limit_files;
use super::file_tree::HostFileTree;
use verbs3_rdma::cpu_affinity::CpuSet;

/// The memory that this process can use: the host's total, and the cgroup's limit.
#[derive(Debug, Clone, Default)]
pub struct HostMemoryInfo {
    /// Of the host in bytes; 0 if unknown.
    pub total_bytes: u64,
    /// The smallest limit of this process's cgroups, and the file that has it.
    pub limit: Option<(u64, String)>,
    /// Length of the kernel's own pages, which differs between kernels of one processor; `None` if
    /// unknown.
    pub page_bytes: Option<u64>,
}

/// The huge pages of the host, reserved ones (hugetlbfs) and transparent ones.
#[derive(Debug, Clone, Default)]
pub struct HugePages {
    /// hugetlbfs pages by size.
    pub pools: Vec<HugePool>,
    /// Transparent huge pages for shared memory, which an arena is: `never`, `advise`, …
    pub shmem: Option<String>,
}

/// The hugetlbfs pool of one page size. `pages` counts all reserved pages, `free` the unused ones
/// among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HugePool {
    pub page_bytes: u64,
    pub pages: u64,
    pub free: u64,
}

pub(super) fn read(tree: &HostFileTree) -> HostMemoryInfo {
    let info = tree.read_text("proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 =
        total.and_then(|text| text.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0);
    let (limit, page_bytes) = (cgroup_limit(tree), read_page_bytes(tree));
    HostMemoryInfo { total_bytes: kib << 10, limit, page_bytes }
}

/// Reads the page length of this process's first mapping, which is the binary's own.
fn read_page_bytes(tree: &HostFileTree) -> Option<u64> {
    let maps = tree.read_text("proc/self/smaps")?;
    let line = maps.lines().find_map(|line| line.strip_prefix("KernelPageSize:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the smallest limit of this process's cgroups.
fn cgroup_limit(tree: &HostFileTree) -> Option<(u64, String)> {
    let files = list_limit_files(tree, "memory", "memory.max", "memory.limit_in_bytes");
    let limit = |file: String| {
        // "max" is no number; version 1 writes "no limit" as a number near 2^63.
        let bytes = tree.read_number::<u64>(&file).filter(|bytes| *bytes < 1 << 60)?;
        Some((bytes, format!("/{file}")))
    };
    files.into_iter().filter_map(limit).min_by_key(|(bytes, _)| *bytes)
}

pub(super) fn read_huge_pages(tree: &HostFileTree) -> HugePages {
    let at = "sys/kernel/mm/hugepages";
    let pool = |name: String| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages = tree.read_number(&format!("{at}/{name}/nr_hugepages"))?;
        let free = tree.read_number(&format!("{at}/{name}/free_hugepages")).unwrap_or(0);
        Some(HugePool { page_bytes: kib << 10, pages, free })
    };
    let mut pools: Vec<_> = tree.list_names(at).into_iter().filter_map(pool).collect();
    pools.sort_by_key(|pool| pool.page_bytes);
    // "always within_size advise [never] deny force"
    let shmem = tree.read_text("sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let shmem = shmem.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()));
    HugePages { pools, shmem }
}

pub(super) fn read_numa_nodes(tree: &HostFileTree) -> BTreeMap<u32, CpuSet> {
    let at = "sys/devices/system/node";
    let node = |name: String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        Some((number, CpuSet::parse(&tree.read_text(&format!("{at}/{name}/cpulist"))?)))
    };
    tree.list_names(at).into_iter().filter_map(node).collect()
}
