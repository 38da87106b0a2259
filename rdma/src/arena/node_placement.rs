//! Chooses the NUMA node on which each piece of the arena is allocated: the nodes of this process,
//! in turn. So both sockets' memory serves all rails alike, and none is full while another is empty.
//!
//! A page lies where the thread runs that touches it first, unless the process was told otherwise
//! (`numactl`, a cpuset), which counts. That needs no right, while `mbind` does, which containers
//! don't have.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu_affinity::CpuSet;

/// Folder of the nodes.
const NODES_FOLDER: &str = "/sys/devices/system/node";
/// Where this process's CPUs are told.
const PROCESS_STATUS: &str = "/proc/self/status";

/// Pieces of an arena, by the node that they are to lie on.
pub(super) struct NodePlacement {
    nodes: Vec<NodePieces>,
}

/// The pieces of one node: `number`, and every `step`-th after it.
struct NodePieces {
    cpus: Vec<usize>,
    next: AtomicUsize,
    step: usize,
}

impl NodePlacement {
    /// Places pieces on the nodes that have CPUs of this process. Without such nodes, as where the
    /// kernel knows none, there is one without CPUs.
    pub(super) fn of_this_process() -> Self {
        Self::read(Path::new(NODES_FOLDER), Path::new(PROCESS_STATUS))
    }

    fn read(nodes: &Path, status: &Path) -> Self {
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = CpuSet::parse(allowed.unwrap_or_default());
        let node = |entry: std::fs::DirEntry| {
            let number: u32 = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let cpus = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
            let cpus = CpuSet::parse(&cpus).common_cpus(&allowed);
            (!cpus.is_empty()).then_some((number, cpus))
        };
        let entries = std::fs::read_dir(nodes).into_iter().flatten().flatten();
        let mut by_node: Vec<(u32, Vec<usize>)> = entries.filter_map(node).collect();
        by_node.sort_unstable();
        let mut cpus: Vec<Vec<usize>> = by_node.into_iter().map(|(_, cpus)| cpus).collect();
        if cpus.is_empty() {
            cpus.push(Vec::new());
        }
        let step = cpus.len();
        let nodes = cpus.into_iter().enumerate().map(|(number, cpus)| {
            let next = AtomicUsize::new(number);
            NodePieces { cpus, next, step }
        });
        Self { nodes: nodes.collect() }
    }

    /// Returns the CPUs of the node for which the `nth` thread works. Empty: any CPU will do.
    pub(super) fn cpus_of_thread(&self, nth: usize) -> &[usize] {
        &self.nodes[nth % self.nodes.len()].cpus
    }

    /// Returns the number of nodes: at least as many threads should work.
    pub(super) fn nodes_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of the next piece of the node for which the `nth` thread works, of
    /// `pieces` in all. `None`: none is left.
    pub(super) fn next_piece(&self, nth: usize, pieces: usize) -> Option<usize> {
        let NodePieces { next, step, .. } = &self.nodes[nth % self.nodes.len()];
        let piece = next.fetch_add(*step, Ordering::Relaxed);
        (piece < pieces).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A host whose nodes have these CPUs, and a process that may run on `allowed`.
    fn placement(nodes: &[&str], allowed: &str) -> NodePlacement {
        let folder = tempfile::tempdir().unwrap();
        for (number, cpus) in nodes.iter().enumerate() {
            let node = folder.path().join(format!("node{number}"));
            std::fs::create_dir(&node).unwrap();
            std::fs::write(node.join("cpulist"), format!("{cpus}\n")).unwrap();
        }
        std::fs::write(folder.path().join("has_memory"), "0-1\n").unwrap();
        let status = folder.path().join("status");
        std::fs::write(&status, format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n")).unwrap();
        NodePlacement::read(folder.path(), &status)
    }

    #[test]
    fn pieces_lie_on_the_nodes_in_turn_and_each_is_taken_once() {
        let placement = placement(&["0-3", "4-7"], "0-7");
        assert_eq!(placement.cpus_of_thread(0), [0, 1, 2, 3]);
        assert_eq!(placement.cpus_of_thread(3), [4, 5, 6, 7]);
        let all_of = |nth| std::iter::from_fn(|| placement.next_piece(nth, 7)).collect::<Vec<_>>();
        assert_eq!((placement.next_piece(0, 7), placement.next_piece(2, 7)), (Some(0), Some(2)));
        assert_eq!((all_of(1), all_of(0), all_of(3)), (vec![1, 3, 5], vec![4, 6], vec![]));
    }

    #[test]
    fn nodes_without_cpus_of_this_process_get_nothing() {
        let placement = placement(&["0-3", "4-7", "", "8-9"], "2-3,9");
        assert_eq!(
            (placement.cpus_of_thread(0), placement.cpus_of_thread(1)),
            (&[2, 3][..], &[9][..])
        );
        assert_eq!(placement.nodes_count(), 2);
    }

    #[test]
    fn where_the_kernel_knows_no_nodes_any_thread_takes_any_piece() {
        let placement = placement(&[], "0-7");
        assert!(placement.cpus_of_thread(5).is_empty());
        assert_eq!((placement.next_piece(5, 2), placement.next_piece(0, 2)), (Some(0), Some(1)));
        assert_eq!(placement.next_piece(1, 2), None);
        assert!(!NodePlacement::of_this_process().nodes.is_empty());
    }
}
