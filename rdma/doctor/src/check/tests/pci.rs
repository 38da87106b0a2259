//! PCIe links, the IOMMU, interrupts, the CPUs of pollers.

use crate::check::HostRequirements;
use crate::fake_host_tree::{FakeHostTree, FindingExpectation};
use crate::finding::{FindingSeverity, HostCheckKind, HostFinding};
use crate::host::PcieLink;
use verbs3_rdma::settings::VerbsSettings;

const CARD: &str = "sys/devices/pci0/0000:03:00.0";

const fn warns(
    check: HostCheckKind,
    subject: &'static str,
    said: &'static str,
) -> FindingExpectation<'static> {
    FindingExpectation {
        healthy: FakeHostTree::mlx5_host,
        check,
        subject,
        severity: FindingSeverity::Warn,
        said,
    }
}

/// Returns what is found about `mlx5_0` after files of its PCI function were written.
fn found_with(check: HostCheckKind, files: &[(&str, &str)]) -> Option<HostFinding> {
    let fake = FakeHostTree::mlx5_host();
    for (file, text) in files {
        fake.write_file(&format!("{CARD}/{file}"), text);
    }
    fake.worst_finding(check, "mlx5_0")
}

#[test]
fn a_link_has_the_gigabits_that_its_coding_leaves() {
    let gbits = |transfers, lanes| PcieLink { lanes, transfers }.gbits().round();
    assert_eq!([gbits(2.5, 1), gbits(5.0, 8), gbits(8.0, 8)], [2.0, 32.0, 63.0]);
    assert_eq!([gbits(16.0, 16), gbits(32.0, 16), gbits(64.0, 16)], [252.0, 504.0, 1008.0]);
}

#[test]
fn a_whole_link_is_fine_beside_its_ports() {
    let found = found_with(HostCheckKind::Pcie, &[]).unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok);
    assert_eq!(found.seen, "PCIe 32 GT/s × 16 (504 Gb/s); active ports: 400 Gb/s");
    assert!(found.why.is_empty());
}

#[test]
fn a_narrow_link_is_a_warning_with_what_it_leaves() {
    warns(
        HostCheckKind::Pcie,
        "mlx5_0",
        "PCIe 32 GT/s × 8 (252 Gb/s), the card can do 32 GT/s × 16 (504 Gb/s); active ports: 400 \
        Gb/s",
    )
    .holds_after(|fake| {
        fake.write_file(&format!("{CARD}/current_link_width"), "8");
        let found = fake.worst_finding(HostCheckKind::Pcie, "mlx5_0").unwrap();
        assert!(found.why.contains("the rest of the ports' rate is lost"), "{found:?}");
        let remedy = found.remedy.unwrap();
        assert!(remedy.contains("bifurcation") && !remedy.contains("GT/s"), "{remedy}");
        assert!(remedy.contains("lspci -vv -s 0000:03:00.0 | grep LnkSta"), "{remedy}");
    });
    // Lanes are missing though the port of 25 Gb/s has enough.
    warns(HostCheckKind::Pcie, "mlx5_1", "PCIe 8 GT/s × 4 (32 Gb/s)").holds_after(|fake| {
        fake.write_file("sys/devices/pci0/0000:83:00.0/current_link_width", "4");
        let found = fake.worst_finding(HostCheckKind::Pcie, "mlx5_1").unwrap();
        assert!(found.why.contains("more than the ports carry"), "{found:?}");
    });
}

#[test]
fn a_slow_link_is_a_warning_unless_its_ports_have_enough() {
    warns(HostCheckKind::Pcie, "mlx5_0", "PCIe 16 GT/s × 16 (252 Gb/s)").holds_after(|fake| {
        fake.write_file(&format!("{CARD}/current_link_speed"), "16.0 GT/s PCIe");
        let remedy = fake.worst_finding(HostCheckKind::Pcie, "mlx5_0").unwrap().remedy.unwrap();
        assert!(remedy.contains("32 GT/s") && !remedy.contains("bifurcation"), "{remedy}");
    });
    let fake = FakeHostTree::mlx5_host();
    fake.write_file(&format!("{CARD}/current_link_speed"), "16.0 GT/s PCIe");
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    fake.write_file(&format!("{port}/rate"), "200 Gb/sec (4X HDR)");
    let found = fake.worst_finding(HostCheckKind::Pcie, "mlx5_0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok);
    assert!(found.why.contains("still faster than its ports"), "{found:?}");
    // Nobody knows what a port carries once it is up.
    fake.write_file(&format!("{port}/state"), "1: DOWN");
    let found = fake.worst_finding(HostCheckKind::Pcie, "mlx5_0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Warn);
    assert!(found.seen.ends_with("(504 Gb/s)"), "{found:?}");
}

#[test]
fn the_ports_of_one_card_share_its_link() {
    let fake = FakeHostTree::mlx5_host();
    let second = "sys/class/infiniband/mlx5_2";
    fake.link_file(&format!("{second}/device"), "../../../devices/pci0/0000:03:00.1");
    fake.write_file(&format!("{second}/ports/1/state"), "4: ACTIVE");
    fake.write_file(&format!("{second}/ports/1/rate"), "400 Gb/sec (4X NDR)");
    let found = fake.worst_finding(HostCheckKind::Pcie, "mlx5_0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok, "the card has no more");
    assert!(found.seen.ends_with("active ports: 800 Gb/s"), "{found:?}");
    assert!(found.why.contains("can't be filled at once"), "{found:?}");
}

#[test]
fn a_link_that_is_not_told_is_not_judged() {
    for (file, text) in [
        ("current_link_width", "0"),
        ("max_link_width", "255"),
        ("current_link_width", "-8"),
        ("current_link_speed", "Unknown"),
        ("current_link_speed", "Unknown speed"),
        ("max_link_speed", "NaN GT/s PCIe"),
        ("max_link_speed", ""),
    ] {
        assert_eq!(found_with(HostCheckKind::Pcie, &[(file, text)]), None, "{file} {text}");
    }
    let fake = FakeHostTree::mlx5_host();
    fake.remove_path(&format!("{CARD}/current_link_speed"));
    assert_eq!(fake.worst_finding(HostCheckKind::Pcie, "mlx5_0"), None);
    let soft = FakeHostTree::soft_roce_host();
    assert_eq!(soft.worst_finding(HostCheckKind::Pcie, "rxe0"), None);
}

#[test]
fn a_translating_iommu_is_advice_with_the_kernels_parameter() {
    let group = "sys/kernel/iommu_groups/17/type";
    for kind in ["DMA", "DMA-FQ"] {
        let fake = FakeHostTree::mlx5_host();
        fake.write_file(group, kind);
        let found = fake.worst_finding(HostCheckKind::Iommu, "mlx5_0").unwrap();
        assert_eq!(found.severity, FindingSeverity::Ok);
        assert_eq!(found.seen, format!("the IOMMU translates every address ({kind})"));
        assert!(found.remedy.unwrap().contains("iommu=pt"));
    }
    let fake = FakeHostTree::mlx5_host();
    let seen = |fake: &FakeHostTree| {
        fake.worst_finding(HostCheckKind::Iommu, "mlx5_0").map(|finding| finding.seen)
    };
    assert_eq!(seen(&fake).as_deref(), Some("the IOMMU passes addresses on (identity)"));
    for kind in ["unmanaged", "blocked", ""] {
        fake.write_file(group, kind);
        assert_eq!(seen(&fake), None, "{kind}");
    }
    fake.remove_path("sys/kernel/iommu_groups");
    assert_eq!(seen(&fake), None, "hidden is not absent");
    fake.remove_path(&format!("{CARD}/iommu_group"));
    assert_eq!(seen(&fake).as_deref(), Some("no IOMMU between the NIC and memory"));
    fake.remove_path(CARD);
    assert_eq!(seen(&fake), None);
}

/// Puts the interrupts of `mlx5_0` on these CPUs.
fn put_interrupts(fake: &FakeHostTree, cpus: [&str; 4]) {
    for (number, cpus) in (60..).zip(cpus) {
        fake.write_file(&format!("proc/irq/{number}/effective_affinity_list"), cpus);
    }
}

#[test]
fn interrupts_on_one_cpu_are_a_warning() {
    let warns = |said| warns(HostCheckKind::Interrupts, "mlx5_0", said);
    warns("all 4 interrupts are on CPU 3").holds_after(|fake| {
        put_interrupts(fake, ["3"; 4]);
        let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
        assert!(found.remedy.unwrap().starts_with("deploy/host/tune.sh --apply --only irqs"));
    });
    // One node leaves the rest to check.
    let fake = FakeHostTree::mlx5_host();
    fake.remove_path("sys/devices/system/node/node1");
    put_interrupts(&fake, ["9"; 4]);
    let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Warn);
    // A machine of one CPU has no other, and two interrupts are one for completions.
    fake.write_file(&format!("{CARD}/local_cpulist"), "9");
    let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
    assert_eq!(found.seen, "4 interrupts");
    fake.write_file(&format!("{CARD}/local_cpulist"), "0-15");
    for number in [62, 63] {
        fake.remove_path(&format!("{CARD}/msi_irqs/{number}"));
    }
    let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
    assert_eq!((found.severity, found.seen.as_str()), (FindingSeverity::Ok, "2 interrupts"));
}

#[test]
fn interrupts_on_the_far_node_are_a_warning() {
    let warns = |said| warns(HostCheckKind::Interrupts, "mlx5_0", said);
    warns("none of 4 interrupts is on its node's CPUs 0-7")
        .holds_after(|fake| put_interrupts(fake, ["8", "9", "10-11", "15"]));
    // The node's CPUs, where the device does not say its own.
    warns("none of 4 interrupts is on its node's CPUs 0-7").holds_after(|fake| {
        put_interrupts(fake, ["8", "9", "10", "15"]);
        fake.remove_path(&format!("{CARD}/local_cpulist"));
    });
    let fake = FakeHostTree::mlx5_host();
    put_interrupts(&fake, ["0", "1", "2", "8"]);
    let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok);
    assert_eq!(found.seen, "1 of 4 interrupts are away from its node's CPUs 0-7");
    assert!(found.remedy.is_some());
}

#[test]
fn irqbalance_is_named_where_it_runs() {
    let healthy = FakeHostTree::mlx5_host();
    let found = healthy.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
    assert_eq!(found.seen, "4 interrupts, all on its node's CPUs 0-7");
    let by_folder = FakeHostTree::mlx5_host();
    by_folder.write_file("run/irqbalance/irqbalance812.sock", "");
    let by_process = FakeHostTree::mlx5_host();
    by_process.write_file("proc/812/comm", "irqbalance");
    for fake in [by_folder, by_process] {
        let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
        assert_eq!(found.severity, FindingSeverity::Ok);
        assert!(found.seen.ends_with("; irqbalance runs"), "{found:?}");
        put_interrupts(&fake, ["3"; 4]);
        let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
        assert!(found.remedy.unwrap().starts_with("systemctl disable --now irqbalance"));
    }
}

#[test]
fn interrupts_whose_cpus_can_not_be_read_are_not_judged() {
    let fake = FakeHostTree::mlx5_host();
    // Kernels without the first file have the second.
    put_interrupts(&fake, [""; 4]);
    fake.remove_path("proc/irq/61/effective_affinity_list");
    let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
    assert_eq!(found.seen, "4 interrupts, all on its node's CPUs 0-7");
    for number in 60..64 {
        fake.write_file(&format!("proc/irq/{number}/smp_affinity_list"), "none");
    }
    assert_eq!(fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0"), None);
    let fake = FakeHostTree::mlx5_host();
    fake.remove_path("proc/irq");
    assert_eq!(fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0"), None);
    let fake = FakeHostTree::mlx5_host();
    fake.write_file(&format!("{CARD}/msi_irqs/none"), "");
    fake.write_file(&format!("{CARD}/local_cpulist"), "4294967295-0,x");
    let found = fake.worst_finding(HostCheckKind::Interrupts, "mlx5_0").unwrap();
    assert_eq!(found.seen, "4 interrupts, all on its node's CPUs 0-7", "by the node's own list");
}

fn polling(cpus: &[usize]) -> FakeHostTree {
    let poll_cpus = cpus.iter().map(|&cpu| u16::try_from(cpu).unwrap()).collect();
    let verbs = VerbsSettings { poll_cpus, ..VerbsSettings::default() };
    let needs = HostRequirements { verbs, ..HostRequirements::default() };
    FakeHostTree { needs, ..FakeHostTree::mlx5_host() }
}

#[test]
fn pollers_away_from_every_nic_are_a_warning() {
    let found = |fake: &FakeHostTree| fake.worst_finding(HostCheckKind::Numa, "verbs.poll_cpus");
    assert_eq!(found(&polling(&[])), None);
    let both = found(&polling(&[5, 13])).unwrap();
    assert_eq!((both.severity, both.why.as_str()), (FindingSeverity::Ok, ""));
    assert_eq!(both.seen, "CPUs 5,13 are near mlx5_0 (CPUs 0-7), mlx5_1 (CPUs 8-15)");
    let one = found(&polling(&[5, 6])).unwrap();
    assert_eq!(one.severity, FindingSeverity::Ok);
    assert!(one.why.starts_with("far from mlx5_1 (CPUs 8-15)"), "{one:?}");
    let fake = polling(&[5, 6]);
    fake.write_file("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    let none = found(&fake).unwrap();
    assert_eq!(none.severity, FindingSeverity::Warn);
    assert_eq!(none.seen, "CPUs 5,6 are near no NIC: mlx5_1 (CPUs 8-15)");
}

#[test]
fn pollers_beside_interrupts_are_told_so() {
    let found = polling(&[2, 3, 13]).worst_finding(HostCheckKind::Numa, "verbs.poll_cpus").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok);
    assert_eq!(
        found.why,
        "they take 2 of 4 interrupts of mlx5_0: with verbs.busy_poll, choose CPUs without"
    );
}

#[test]
fn pollers_on_cpus_that_the_process_lacks_are_a_warning() {
    let fake = polling(&[2, 9, 10]);
    fake.write_file("proc/self/status", "Name:\tverbs3\nCpus_allowed_list:\t0-8");
    let found = fake.worst_finding(HostCheckKind::Numa, "verbs.poll_cpus").unwrap();
    assert_eq!(found.severity, FindingSeverity::Warn);
    assert_eq!(found.seen, "CPUs 9,10 of 2,9,10 are not this process's (CPUs 0-8)");
    fake.remove_path("proc/self/status");
    let found = fake.worst_finding(HostCheckKind::Numa, "verbs.poll_cpus").unwrap();
    assert_eq!(found.severity, FindingSeverity::Ok, "unknown is not forbidden");
}
