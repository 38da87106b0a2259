//! Owns which completion vector each queue of a rail gets. A vector has an interrupt of its own,
//! which wakes the connection's task from the CPU that the kernel has given it.
//!
//! Where the kernel tells those CPUs, only vectors near the rail's driver are used. Queues take them
//! in turn, so that no CPU takes the interrupts of all.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu_affinity::CpuSet;

/// Words before the number of a vector in the name of its interrupt: mlx5 (`mlx5_comp3@pci:…`), irdma
/// and others (`irdma-eth2-CEQ-3`), bnxt_re (`bnxt_re-nq-3@pci:…`).
const VECTOR_WORDS: [&str; 3] = ["comp", "ceq", "nq"];

/// The vectors of one rail.
pub(super) struct CompletionVectors {
    chosen: Vec<u32>,
    /// Begins anywhere, so that the processes of a host take different ones.
    turn: AtomicUsize,
}

impl CompletionVectors {
    /// Chooses among the `count` vectors of the device at `folder` those near `cpus`. `proc` is the
    /// kernel's folder of that name.
    pub(super) fn choose_near(count: u32, folder: &Path, proc: &Path, cpus: &CpuSet) -> Self {
        let chosen = near_vectors(count, &vector_cpus(folder, proc), cpus);
        Self { chosen, turn: AtomicUsize::new(rand::random::<u32>() as usize) }
    }

    /// Returns the vector of the next queue.
    pub(super) fn next_vector(&self) -> u32 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.chosen[turn % self.chosen.len()]
    }

    /// Returns the vectors that queues get.
    pub(super) fn chosen(&self) -> &[u32] {
        &self.chosen
    }
}

/// Returns those of `count` vectors whose interrupts come on some of `cpus`, or all of them where no
/// such is known; at least one.
fn near_vectors(count: u32, known: &BTreeMap<u32, CpuSet>, cpus: &CpuSet) -> Vec<u32> {
    let all = 0..count.max(1);
    let is_near = |vector: &u32| known.get(vector).is_some_and(|at| at.shares_cpu_with(cpus));
    let near: Vec<u32> = all.clone().filter(is_near).collect();
    if near.is_empty() { all.collect() } else { near }
}

/// Returns the CPUs on which the interrupt of each vector comes, as far as the kernel tells.
fn vector_cpus(folder: &Path, proc: &Path) -> BTreeMap<u32, CpuSet> {
    let Ok(entries) = fs::read_dir(folder.join("device/msi_irqs")) else {
        return BTreeMap::new();
    };
    let mine: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let all = fs::read_to_string(proc.join("interrupts")).unwrap_or_default();
    let vector = |line: &str| {
        let (irq, rest) = line.trim_start().split_once(':')?;
        let vector = vector_of(rest.split_whitespace().next_back()?)?;
        let irq = mine.iter().any(|mine| mine == irq).then(|| proc.join("irq").join(irq))?;
        let read =
            |name| CpuSet::parse(fs::read_to_string(irq.join(name)).unwrap_or_default().trim());
        // The CPU that takes it, where the kernel tells that; else those that may.
        let effective = read("effective_affinity_list");
        let cpus = if effective.is_empty() { read("smp_affinity_list") } else { effective };
        Some((vector, cpus))
    };
    all.lines().filter_map(vector).collect()
}

/// Returns the number of the vector whose interrupt has this name.
fn vector_of(interrupt: &str) -> Option<u32> {
    let name = interrupt.split('@').next()?.to_ascii_lowercase();
    let number = |word: &&str| name.rsplit_once(word)?.1.trim_start_matches('-').parse().ok();
    VECTOR_WORDS.iter().find_map(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const INTERRUPTS: &str = "\
           CPU0       CPU1
  86:         12          0  IR-PCI-MSIX-0000:3b:00.0    0-edge      mlx5_async0@pci:0000:3b:00.0
  87:          0         99  IR-PCI-MSIX-0000:3b:00.0    1-edge      mlx5_comp0@pci:0000:3b:00.0
  88:          7          0  IR-PCI-MSIX-0000:3b:00.0    2-edge      mlx5_comp1@pci:0000:3b:00.0
  89:          7          0  IR-PCI-MSIX-0000:3b:00.0    3-edge      mlx5_comp2@pci:0000:3b:00.0
 120:          7          0  IR-PCI-MSIX-0000:af:00.0    1-edge      mlx5_comp3@pci:0000:af:00.0
 NMI:          0          0   Non-maskable interrupts
";

    /// A host with a device of three vectors on CPUs 0, 8 and 1, and another device.
    fn test_host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/interrupts".into(), INTERRUPTS);
        for (irq, cpu) in [(86, "0"), (87, "0\n"), (88, "8"), (89, ""), (120, "0")] {
            write(format!("proc/irq/{irq}/effective_affinity_list"), cpu);
            write(format!("proc/irq/{irq}/smp_affinity_list"), "1");
            let device = if irq == 120 { "other" } else { "mlx5_0" };
            write(format!("{device}/device/msi_irqs/{irq}"), "msix\n");
        }
        host
    }

    #[test]
    fn vectors_near_the_driver_are_taken_in_turn() {
        let host = test_host();
        let choose = |cpus: &str| {
            let (folder, proc) = (host.path().join("mlx5_0"), host.path().join("proc"));
            CompletionVectors::choose_near(3, &folder, &proc, &CpuSet::parse(cpus))
        };
        assert_eq!(choose("8-15").chosen(), [1]);
        assert_eq!(choose("0-7").chosen(), [0, 2]);
        assert_eq!(choose("4-5").chosen(), [0, 1, 2], "none is near");
        let two = choose("0-1");
        let mut taken = [0; 4].map(|_| two.next_vector());
        assert!(taken.windows(2).all(|pair| pair[0] != pair[1]));
        taken.sort_unstable();
        assert_eq!(taken, [0, 0, 2, 2]);
    }

    #[test]
    fn a_device_whose_interrupts_are_not_known_spreads_over_all() {
        let host = test_host();
        let vectors = |count| {
            let (folder, proc) = (host.path().join("rxe0"), host.path().join("proc"));
            CompletionVectors::choose_near(count, &folder, &proc, &CpuSet::parse("0"))
        };
        assert_eq!(vectors(2).chosen(), [0, 1]);
        assert_eq!(vectors(0).chosen(), [0], "a driver may say that it has none");
    }

    #[test]
    fn interrupts_tell_their_vector_by_the_driver_s_word() {
        let vectors = [
            "mlx5_comp12@pci:0000:3b:00.0",
            "irdma-ens1f0-CEQ-3",
            "bnxt_re-nq-4@pci:0000:01:00.0",
            "erdma-ceq7@pci:0000:01:00.0",
            "irdma-compute0-CEQ-5",
            "mlx5_async0@pci:0000:3b:00.0",
            "irdma-ens1f0-AEQ",
            "eth0",
        ];
        let told = vectors.map(vector_of);
        assert_eq!(told, [Some(12), Some(3), Some(4), Some(7), Some(5), None, None, None]);
    }
}
